"""Guards of what does the work in a body: Modules, GradManagers and Optimizers."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np

from ..autodiff import GradManager
from ..optimizer import Optimizer
from ..tensor import Tensor
from .guard import Guard, is_plain
from .source import Attribute, Held, Item, Object, Result, Source

#: Values that stay as they are.
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


def guards_of_module(module: Any, free: Collection[str] = ()) -> Iterator[Guard]:
    """That `module` does what it does now: its `decisive` attributes, and what stands in its containers.

    The attributes `free` may change.
    """
    attributes = Result(vars, Object(Held(module)))
    if "forward" not in vars(module):  # as it would be called instead of that of the class
        yield Guard(attributes, "without", "forward")
    seen: set[int] = set()
    for name, value in decisive(module).items():
        if name not in free:
            yield _fact(Item(attributes, name), value)
        yield from _contents(Item(attributes, name), value, seen)


def _fact(source: Source, value: Any) -> Guard:
    return Guard(source, "same", value) if is_plain(value) else Guard(source, "is", Held(value))


def _contents(source: Source, value: Any, seen: set[int]) -> Iterator[Guard]:
    """That the containers in `value` hold what they hold now: layers, hooks."""
    if not isinstance(value, (*_CONTAINERS, tuple)) or id(value) in seen:
        return
    seen.add(id(value))  # a list may stand in itself
    if not isinstance(value, tuple):
        yield Guard(source, "items", tuple(map(_part, value)))
    if isinstance(value, dict) and value:
        yield Guard(Result(_values, source), "items", tuple(map(_part, value.values())))
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(part, (*_CONTAINERS, tuple)):
            has_path = isinstance(value, (dict, list, tuple)) and is_plain(key)
            yield from _contents(Item(source, key) if has_path else Object(Held(part)), part, seen)


def _part(value: Any) -> Any:
    return value if is_plain(value) else Held(value)


def _values(mapping: Mapping[Any, Any]) -> list[Any]:
    """The values in it."""
    return list(mapping.values())


def guards_of_trainer(trainer: GradManager | Optimizer) -> Iterator[Guard]:
    """That it works for the Tensors that it works for now, by the numbers that no step asks for anew."""
    source = Object(Held(trainer))
    yield Guard(Attribute(source, "_revision"), "same", trainer._revision)
    if isinstance(trainer, Optimizer):
        yield from _guards_of_groups(trainer, Attribute(source, "param_groups"))


def _guards_of_groups(optimizer: Optimizer, groups: Source) -> Iterator[Guard]:
    yield Guard(groups, "items", tuple(map(Held, optimizer.param_groups)))
    for number, group in enumerate(optimizer.param_groups):
        source = Item(groups, number)
        yield Guard(Item(source, "params"), "items", tuple(map(Held, group["params"])))
        asked = _asked_for(optimizer, group)
        for name, value in group.items():
            if name != "params" and name not in asked:
                yield _fact(Item(source, name), value)
        for decides in optimizer._decisions:
            yield Guard(Result(decides, source), "same", decides(group))


class _Watched(dict[str, Any]):
    """A group that notes which of its items are looked at."""

    def __init__(self, group: Mapping[str, Any]) -> None:
        super().__init__(group)
        self.seen: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.seen.add(name)
        return super().__getitem__(name)


def _asked_for(optimizer: Optimizer, group: Mapping[str, Any]) -> set[str]:
    """The hyper-parameters of `group` that a compiled step looks up at each call."""
    watched = _Watched(group)
    for source in optimizer._live(watched).values():
        source()
    return watched.seen


def tensors_of(thing: Any) -> list[Any]:
    """The Tensors that a Module has itself, or that an Optimizer or GradManager works for; and others."""
    if isinstance(thing, GradManager):
        return thing.attached_tensors()
    if isinstance(thing, Optimizer):
        return [tensor for group in thing.param_groups for tensor in group["params"]]
    return [part for value in getattr(thing, "__dict__", {}).values() for part in _inside(value, set())]


def _inside(value: Any, seen: set[int]) -> Iterator[Any]:
    yield value
    if isinstance(value, (*_CONTAINERS, tuple)) and id(value) not in seen:
        seen.add(id(value))
        for part in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from _inside(part, seen)
