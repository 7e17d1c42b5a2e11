"""What decides what the Modules that a body calls do."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from operator import is_
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np

from ..autodiff import GradManager
from ..optimizer import Optimizer
from ..tensor import Tensor

#: Values that stay as they are, which are compared as such.
_PLAIN = (bool, int, float, complex, str, bytes, tuple, frozenset, type(None), Enum, np.generic, np.dtype)

#: What stays one object and gets other contents.
_CONTAINERS = (list, dict, set, deque)

#: Other attributes that say what a call does, known by their identity.
_KNOWN = (*_CONTAINERS, GradManager, Tensor, np.ndarray, np.ufunc, type, FunctionType, BuiltinFunctionType)


def decisive(module: Any) -> dict[str, Any]:
    """The attributes of a module that say what its call does: its mode, numbers, Tensors and submodules."""
    kinds = _PLAIN + _KNOWN
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, kinds) or hasattr(value, "forward") or callable(value)
    }


class Contents:
    """A list, dict or set of a Module, with what stands in it: layers, hooks."""

    __slots__ = ("_keys", "_place", "_values", "container")

    def __init__(self, place: tuple[str, str], container: Any) -> None:
        self._place, self.container = place, container
        self._keys, self._values = tuple(container), _values_of(container)

    def are_same(self) -> bool:
        """Is it as it was?"""
        container = self.container
        if len(container) != len(self._keys) or not all(map(is_, container, self._keys)):
            return False
        return all(map(is_, _values_of(container), self._values))

    @property
    def was_empty(self) -> bool:
        """Stood nothing in it?"""
        return not self._keys

    @property
    def hold_parts(self) -> bool:
        """Were there Tensors or Modules in it?"""
        parts = (*self._keys, *self._values)
        return any(isinstance(part, Tensor) or hasattr(part, "forward") for part in parts)

    def __str__(self) -> str:
        kind, name = self._place
        return f"Module {kind} was changed: {name} has other items"


def _values_of(container: Any) -> tuple[Any, ...]:
    return tuple(container.values()) if isinstance(container, dict) else ()


def contents_of(module: Any) -> list[Contents]:
    """Every container among the attributes of a module, and in these."""
    kind = module.__class__.__name__
    seen: set[int] = set()
    return [
        Contents((kind, name), container)
        for name, value in vars(module).items()
        for container in _containers_in(value, seen)
    ]


def _containers_in(value: Any, seen: set[int]) -> Iterator[Any]:
    if not isinstance(value, (*_CONTAINERS, tuple)) or id(value) in seen:
        return
    seen.add(id(value))  # a list may stand in itself
    if not isinstance(value, tuple):
        yield value
    for part in value.values() if isinstance(value, dict) else value:
        yield from _containers_in(part, seen)


class SameContents:
    """Whether containers are all as they were; most are empty, and are asked in C."""

    def __init__(self, contents: Sequence[Contents]) -> None:
        self._empty = [c.container for c in contents if c.was_empty]
        self._full = [c for c in contents if not c.was_empty]

    def __call__(self) -> bool:
        return not any(self._empty) and all(map(Contents.are_same, self._full))


class State:
    """A module as it is now."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._attributes, self._contents = decisive(module), contents_of(module)

    def change(self) -> str | None:
        """What the body has changed since, in words; lists and such that it has put there are none."""
        now = vars(self._module)
        kind = self._module.__class__.__name__
        for name, then in self._attributes.items():
            if name not in now or not _equal(now[name], then):
                return f"the body changes {name} of Module {kind}"
        return next((f"the body changes the items of Module {kind}" for _ in _changed(self._contents)), None)


def _changed(contents: Iterable[Contents]) -> Iterator[Contents]:
    return (c for c in contents if not c.are_same())


def _equal(now: Any, then: Any) -> bool:
    if now is then:
        return True
    return type(now) is type(then) and isinstance(now, _PLAIN) and bool(np.all(now == then))


def tensors_of(thing: Any) -> list[Any]:
    """The Tensors that a Module has itself, or that an Optimizer or GradManager works for; and others."""
    if isinstance(thing, GradManager):
        return thing.attached_tensors()
    if isinstance(thing, Optimizer):
        return [tensor for group in thing.param_groups for tensor in group["params"]]
    containers = [contents.container for contents in contents_of(thing)]
    inside = [part for container in containers for part in (*container, *_values_of(container))]
    return [*getattr(thing, "__dict__", {}).values(), *inside]
