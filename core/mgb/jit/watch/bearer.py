"""Objects with attributes: each attribute that code can name is a location."""

from __future__ import annotations

import enum
import functools
import operator
import threading
from collections.abc import Collection
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any

import numpy as np

from ...runtime.trusted import is_installed
from ...tensor import Tensor
from ..source import MISSING, Attribute, Call, Item, Object, ObjectRef, Result, Source, lookup, namespace
from . import classes, known, pure
from .protocols import Walk

#: Attributes in C of classes that are read though they stand in no class.
_OF_CLASSES = frozenset({"__name__", "__qualname__", "__module__", "__doc__"})
_OF_FUNCTIONS = frozenset(
    "__doc__ __name__ __qualname__ __annotations__ __module__ __code__ __defaults__ __kwdefaults__".split()
)
_MADE_BY_CLASSES = frozenset({"__dict__", "__weakref__", "__module__", "__doc__", "__qualname__"})
#: What mgb keeps in a holder.
_KEPT = "_kept_calls"


class Bearer:
    """Something that has attributes, and where it stands."""

    def __init__(self, walk: Walk, source: Source, thing: Any) -> None:
        self._walk, self._source, self._thing = walk, source, thing
        self._done: set[str] = set()
        self._absent: set[str] = set()
        self._read = _readers(thing)
        #: The names in its own namespace, before the body can write there.
        self.before: tuple[str, ...] = tuple(space_of(thing))
        if issubclass(type(thing), type):  # methods may be cached
            cached = (v for v in vars(thing).values() if type(v) is functools._lru_cache_wrapper)
            walk.caches += [(value, value.cache_info().misses) for value in cached]

    def read(self, names: Collection[str], is_wild: bool) -> None:
        """Note that these attributes can be named; with `is_wild` all that there are."""
        new = names if not is_wild else {*self._walk.names, *_every(self._thing)}
        for name in set(new) - self._done:
            self._done.add(name)
            self._read(self, name)

    def ends(self) -> None:
        """Guard that no attribute appears that was read and is not there."""
        if self._walk.is_wild and self._is_users() and hasattr(self._thing, "__dict__"):
            names = Result(list, Attribute(self._source, "__dict__"))
            self._walk.guard(names, "items", self.before)
        elif self._walk.is_wild and issubclass(type(self._thing), type):
            self._no_class_gains_a_name()
        elif self._walk.is_wild and issubclass(type(self._thing), ModuleType) and _is_own(self._thing):
            self._walk.guard(Result(list, Attribute(self._source, "__dict__")), "items", self.before)
        elif self._walk.is_wild and issubclass(type(self._thing), ModuleType):
            self._walk.guard(Attribute(self._source, "__dict__"), "meets", SameNamespace(vars(self._thing)))
        elif absent := frozenset(filter(self._is_missed, self._absent)):
            self._walk.guard(Attribute(self._source, "__dict__"), "disjoint", absent)

    def _no_class_gains_a_name(self) -> None:
        """Guard that no class of an object gains a name, where code that computes names may have read it."""
        for base in self._thing.__mro__:
            if pure.is_users_class(base):
                names = Result(list, Attribute(Object(ObjectRef(base)), "__dict__"))
                self._walk.guard(names, "items", tuple(vars(base)))

    def _is_missed(self, name: str) -> bool:
        """Return whether code may have seen that the attribute is absent, or one of the class instead."""
        if self._walk.handles_errors or issubclass(type(self._thing), (ModuleType, type)):
            return True
        if name in self._walk.stored or "setattr" in self._walk.loaded:
            return True
        kind = type(self._thing)
        getter, owner = lookup(kind, "__getattr__")
        has_getter = getter is not MISSING and owner is not None and pure.is_users_class(owner)
        return has_getter or lookup(kind, name)[0] is not MISSING

    def _is_users(self) -> bool:
        thing = self._thing
        if issubclass(type(thing), (ModuleType, type)):
            return False
        return not issubclass(type(thing), Tensor) and not known.is_trusted_holder(thing)

    def visit(self, name: str, value: Any) -> None:
        """Visit an attribute that is there."""
        self._walk.named(Attribute(self._source, name), value)

    def of_module(self, name: str) -> None:
        """Visit a variable of a module."""
        space = vars(self._thing)
        if name in space:
            if isinstance(space.get("__getattr__"), FunctionType):
                self._walk.guard(Attribute(self._source, "__dict__"), "has", name)  # asked before that is
            self.visit(name, space[name])
        elif not pure.is_library(self._thing.__name__):
            self._absent.add(name)
            if "__getattr__" in space:
                self.visit("__getattr__", space["__getattr__"])

    def of_class(self, name: str) -> None:
        """Visit an attribute of a user's class; methods are known with the class."""
        kind, walk = self._thing, self._walk
        if name in _OF_CLASSES:
            return self.visit(name, getattr(kind, name))
        if name in ("__subclasses__", "mro"):
            listed = tuple(map(ObjectRef, getattr(kind, name)()))
            return walk.guard(Call(Attribute(self._source, name)), "items", listed)
        raw, owner = lookup(kind, name)
        if isinstance(kind, enum.EnumMeta) and name in kind._member_map_:
            return walk.visit(Item(Attribute(self._source, "_member_map_"), name), kind._member_map_[name])
        if raw is MISSING:
            self._absent.add(name)
        elif owner is not None and isinstance(raw, classes.METHODS) and known.is_heap(owner):
            classes.look(walk, owner, name, raw)
        elif not hasattr(type(raw), "__get__") and name not in _MADE_BY_CLASSES:
            if owner is not None and lookup(type(kind), name)[0] is MISSING:
                self.visit(name, raw)
            elif owner is not None:
                walk.visit(Item(Attribute(self._source, "__dict__"), name), vars(owner)[name])
            if name == "__match_args__" and isinstance(raw, tuple):
                walk.add_names([part for part in raw if isinstance(part, str)])
        return None

    def of_thread(self, name: str) -> None:
        """Visit an attribute of a `threading.local` in this thread."""
        value = getattr(self._thing, name, MISSING)
        if value is MISSING:
            self._walk.guard(self._source, "lacks", name)
        else:
            self.visit(name, value)

    def of_array(self, name: str) -> None:
        """Guard the owner of an array's memory."""
        if name == "base" and self._thing.base is None:
            self._walk.guard(Attribute(self._source, name), "same", None)
        elif name == "base":
            self._walk.is_(Attribute(self._source, name), self._thing.base)

    def of_tensor(self, name: str) -> None:
        """Visit an attribute that was set on a Tensor."""
        if name in ("name", "format"):
            self.visit(name, getattr(self._thing, name))
        elif known.is_note(type(self._thing), name):
            self._own(name, namespace(self._thing))

    def of_function(self, name: str) -> None:
        """Visit an attribute that was set on a function."""
        if name in _OF_FUNCTIONS and hasattr(self._thing, name):
            self.visit(name, getattr(self._thing, name))
        else:
            self._own(name, namespace(self._thing))

    def of_instance(self, name: str) -> None:
        """Visit an attribute of the instance itself; those of its class are known with the class."""
        is_hidden = name == _KEPT or (name.startswith("_") and _is_mgbs_holder(self._thing))
        if not is_hidden:
            self._own(name, known.attributes_of(self._thing))

    def _own(self, name: str, own: dict[str, Any]) -> None:
        raw, owner = lookup(type(self._thing), name)
        if name in own and hasattr(type(raw), "__set__") and not isinstance(raw, MemberDescriptorType):
            self._walk.visit(Item(Attribute(self._source, "__dict__"), name), own[name])
        elif name in own:
            if raw is MISSING:
                raw = lookup(type(self._thing), "__getattr__")[0]
            if hasattr(type(raw), "__get__") and not isinstance(raw, MemberDescriptorType):  # would be called
                self._walk.guard(Attribute(self._source, "__dict__"), "has", name)  # asked before that is
            self.visit(name, own[name])
        elif isinstance(raw, MemberDescriptorType) and owner is not None and known.is_heap(owner):
            self._walk.guard(self._source, "lacks", name)
        elif hasattr(self._thing, "__dict__"):
            self._absent.add(name)


class SameNamespace:
    """A check that a namespace of a library has the same objects as before."""

    def __init__(self, space: dict[str, Any]) -> None:
        self._names, self._values = [*space], [*space.values()]

    def __call__(self, space: dict[str, Any]) -> bool:
        return [*space] == self._names and all(map(operator.is_, space.values(), self._values))

    def __str__(self) -> str:
        return "a variable of a library is another object than before"


def _is_own(module: ModuleType) -> bool:
    """Return whether it is a module of a user's, which nobody has installed."""
    file = vars(module).get("__file__") or ""
    return not pure.is_library(module.__name__) and not (isinstance(file, str) and is_installed(file))


def space_of(thing: Any) -> Any:
    """Return the namespace of a thing; an empty one, where it has none."""
    return getattr(thing, "__dict__", None) or {}


def _is_mgbs_holder(thing: Any) -> bool:
    return known.is_trusted_holder(thing) and known.top_of(type(thing)) == "mgb"


def _readers(thing: Any) -> Any:
    return next(reader for kind, reader in _READERS if issubclass(type(thing), kind))


_READERS: tuple[tuple[type, Any], ...] = (
    (ModuleType, Bearer.of_module),
    (type, Bearer.of_class),
    (threading.local, Bearer.of_thread),
    (Tensor, Bearer.of_tensor),
    (np.ndarray, Bearer.of_array),
    (FunctionType, Bearer.of_function),
    (object, Bearer.of_instance),
)


def _every(thing: Any) -> Collection[str]:
    """Return all attributes of a thing that a user may have made."""
    if issubclass(type(thing), ModuleType):
        return [name for name in vars(thing) if not name.startswith("__")] if _is_own(thing) else ()
    if issubclass(type(thing), np.ndarray):
        return ("base",)
    if issubclass(type(thing), type):
        return [
            name
            for base in thing.__mro__
            if pure.is_users_class(base)
            for name in vars(base)
            if not name.startswith("__") or name == "__annotations__"
        ]
    return [*(namespace(thing) if issubclass(type(thing), Tensor) else known.attributes_of(thing))]
