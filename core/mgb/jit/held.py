"""Which Tensors of a body something holds beside its result, so that Python can find them again."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..tensor import Tensor

#: What a result is nested of.
_CONTAINERS = (list, tuple, dict)


def held_elsewhere(
    living: Callable[[], list[Tensor]], result: list[Any], grads: Mapping[int, int]
) -> frozenset[int]:
    """The ids of living Tensors that something holds beside the result and known ``grad`` slots.

    Reference counts tell: an object in the result is held once by each of its places there, as long as nobody
    else has the containers around it. What only refers to itself is nowhere, and is collected.

    Parameters
    ----------
    living : callable
        The Tensors that are asked for, each once, in a list that nobody else holds.
    result : list
        Holds the result of the body, which nobody else does.
    grads : mapping
        By the id of a Tensor, how many Tensors outside were given it as their ``grad``.
    """
    found = _held(living(), places_in(result), grads)
    if found:
        gc.collect()
        found = _held(living(), places_in(result), grads)
    return found


def _held(tensors: list[Any], places: Mapping[int, int], grads: Mapping[int, int]) -> frozenset[int]:
    counts = references(tensors)
    return frozenset([key for key, count in counts.items() if count > places.get(key, 0) + grads.get(key, 0)])


def places_in(result: list[Any]) -> Counter[int]:
    """By the id of an object: how many places of the result hold it, without places that others can reach."""
    held = references(_containers_in(result))
    free = {id(result), *held}
    while True:
        containers = [c for c in (result, *_containers_in(result)) if id(c) in free]
        places = Counter(id(part) for container in containers for part in _parts(container))
        reached = {key for key in free if held.get(key, 0) > places[key]}
        if not reached:
            return places
        free -= reached


def references(objects: list[Any]) -> dict[int, int]:
    """By its id: by how much an object is held beside by `objects`, a list that the caller holds alone."""
    objects.append([])  # nothing else holds it
    *counts, alone = map(sys.getrefcount, objects)
    objects.pop()
    return {id(value): count - alone for value, count in zip(objects, counts)}


def _containers_in(result: list[Any]) -> list[Any]:
    """Every container inside `result`, once."""
    found: dict[int, Any] = {}
    waiting: list[Any] = [result]
    while waiting:
        for part in _parts(waiting.pop()):
            if isinstance(part, _CONTAINERS) and id(part) not in found:
                found[id(part)] = part
                waiting.append(part)
    return list(found.values())


def _parts(container: Any) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container
