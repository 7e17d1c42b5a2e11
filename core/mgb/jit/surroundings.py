"""What decides what a body does beside its arguments: Modules that it calls, what it is a method of."""

from __future__ import annotations

import dis
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from operator import is_
from types import BuiltinFunctionType, CellType, CodeType, FunctionType
from typing import Any

import numpy as np

from ..autodiff import GradManager
from ..module import Module
from ..optimizer import Optimizer
from ..tensor import Tensor

#: Values that stay as they are, which are compared as such.
_PLAIN = (bool, int, float, complex, str, bytes, tuple, frozenset, type(None), Enum, np.generic, np.dtype)

#: What stays one object and gets other contents.
_CONTAINERS = (list, dict, set, deque)

#: What holds the values that a body computes with, other values each time.
_PARTS = (Tensor, Module, Optimizer, GradManager)

#: What a variable or an attribute holds that is followed; None may become one of the others.
_FOLLOWED = (*_PARTS, type(None))

#: Other attributes that say what a call does, known by their identity.
_KNOWN = (*_CONTAINERS, GradManager, Tensor, np.ndarray, np.ufunc, type, FunctionType, BuiltinFunctionType)


def decisive(module: Any) -> dict[str, Any]:
    """The attributes of a module that say what its call does: its mode, numbers, Tensors and submodules."""
    kinds = _PLAIN + _KNOWN
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, kinds) or hasattr(value, "forward")
    }


def attributes_of(instance: Any) -> dict[str, Any]:
    """The attributes of an object that are Tensors, Modules, Optimizers, GradManagers, or None yet."""
    found = getattr(instance, "__dict__", {})
    return {name: value for name, value in found.items() if isinstance(value, _FOLLOWED)}


@dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """A variable from outside of a function: global, in `holder`, or of a function around it, a cell."""

    name: str
    holder: dict[str, Any] | CellType
    value: Any

    def now(self) -> Any:
        """What it holds; None when there is none any more."""
        if isinstance(self.holder, dict):
            return self.holder.get(self.name)
        try:
            return self.holder.cell_contents
        except ValueError:
            return None


def variables_of(function: Any) -> list[Variable]:
    """Those from outside of `function`, or in what it wraps, that hold Tensors, what has some, or None."""
    found: list[Variable] = []
    while function is not None:
        plain = getattr(function, "__func__", function)
        if isinstance(plain, FunctionType):
            names = [name for name in _globals_in(plain.__code__) if name in plain.__globals__]
            found += [Variable(name, plain.__globals__, plain.__globals__.get(name)) for name in names]
            cells = zip(plain.__code__.co_freevars, plain.__closure__ or ())
            found += [Variable(name, cell, cell.cell_contents) for name, cell in cells if _is_full(cell)]
        function = getattr(function, "__wrapped__", None)
    return [variable for variable in found if isinstance(variable.value, _FOLLOWED)]


def _is_full(cell: CellType) -> bool:
    try:
        return cell.cell_contents is cell.cell_contents
    except ValueError:
        return False


@lru_cache(maxsize=1024)
def _globals_in(code: CodeType) -> tuple[str, ...]:
    """The global names that `code`, with the functions inside of it, asks for."""
    names = {i.argval: None for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    for part in code.co_consts:
        if isinstance(part, CodeType):
            names.update(dict.fromkeys(_globals_in(part)))
    return tuple(names)


class Surroundings:
    """The variables around a function, and the attributes of what it is a method of, as they are now."""

    def __init__(self, function: Any, instance: Any) -> None:
        self._function = function
        self._instance = weakref.ref(instance) if instance is not None else None
        self.attributes, self.variables = attributes_of(instance), variables_of(function)

    def change(self) -> str | None:
        """What has changed since, in words."""
        instance = self._instance() if self._instance is not None else None
        now = vars(instance) if self.attributes else {}
        for name, value in self.attributes.items():
            if now.get(name) is not value:
                return f"the body changes {name} of {type(instance).__name__}"
        return next((f"the body changes {v.name}" for v in self.variables if v.now() is not v.value), None)

    def holds(self) -> Iterator[Any]:
        """What this holds."""
        yield from self.attributes.values()
        for variable in self.variables:
            yield variable.value

    def later(self) -> Surroundings:
        """The same as they are now."""
        return Surroundings(self._function, self._instance() if self._instance is not None else None)


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
    def hold_parts(self) -> bool:
        """Were there Tensors or Modules in it?"""
        parts = (*self._keys, *self._values)
        return any(isinstance(part, Tensor) or hasattr(part, "forward") for part in parts)

    def holds(self) -> Iterator[Any]:
        """What this holds."""
        yield from self._keys
        yield from self._values

    def are_those_of(self, other: Contents) -> bool:
        """Is `other` the same container with the same contents?"""
        one, two = (*self._keys, *self._values), (*other._keys, *other._values)
        return self.container is other.container and len(one) == len(two) and all(map(is_, one, two))

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
        self._empty = [c.container for c in contents if not c.container]
        self._full = [c for c in contents if c.container]

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

    def holds(self) -> Iterator[Any]:
        """What this holds."""
        yield from self._attributes.values()
        for contents in self._contents:
            yield from contents.holds()


def _changed(contents: Iterable[Contents]) -> Iterator[Contents]:
    return (c for c in contents if not c.are_same())


def _equal(now: Any, then: Any) -> bool:
    if now is then:
        return True
    return type(now) is type(then) and isinstance(now, _PLAIN) and bool(np.all(now == then))
