"""Kinds of objects: for each, the locations that it leads to and the guards of its state."""

from __future__ import annotations

import bdb
import collections
import contextvars
import decimal
import enum
import functools
import gc
import operator
import threading
import types
import weakref
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from ...ir.sizes import elements
from ...tensor import Tensor
from ..guard import LARGEST_ARRAY, Contents, is_plain, to_ref
from ..source import (
    MISSING,
    Argument,
    Attribute,
    Call,
    Global,
    Item,
    Object,
    ObjectRef,
    Result,
    Source,
    is_in_argument,
    lookup,
)
from . import classes, instances, known, pure
from .names import BY_NAME
from .protocols import Walk

_NAMED_FIELD: type = type(vars(collections.namedtuple("_Named", "field"))["field"])
#: Stays what it was made, and so is known as the object that it is.
_CONSTANT: tuple[type, ...] = (np.ufunc, np.dtype, *known.UNCHANGING)


def stays_itself(value: Any) -> bool:
    """Return whether it is known by its identity wherever it stands."""
    kind = (Tensor, type, FunctionType, ModuleType, enum.Enum, np.ufunc, types.BuiltinFunctionType)
    return isinstance(value, kind)


def is_of_numpy(value: Any) -> bool:
    """Return whether it is a function, a class, a module or an object of NumPy's."""
    kind = type(value)
    is_named = kind in (FunctionType, types.BuiltinFunctionType) or issubclass(kind, type)
    asked = value if is_named else kind
    return known.top_of(asked) == "numpy" or (type(value) is ModuleType and value.__name__ == "numpy")


def look(walk: Walk, source: Source, value: Any) -> None:
    """Visit `value` at `source`, if it has not been visited yet."""
    for kind, rule in _RULES:
        if issubclass(type(value), kind):  # asks no proxy
            rule(walk, source, value)
            return
    kind_of = type(value)
    of_numpy = kind_of.__module__.startswith("numpy") and kind_of.__name__ == "_ArrayFunctionDispatcher"
    if known.is_heap(kind_of):
        instances.instance(walk, source, value)
    elif isinstance(value, np.void):
        walk.report(f"can reach {source}, a row of an array")
    elif isinstance(value, decimal.Decimal):
        walk.is_(source, value)
        instances.decimals(walk)
    elif (
        of_numpy
        or value is known.MAKES_RANDOM
        or value is MISSING
        or type(value) is object
        or isinstance(value, _CONSTANT)
    ):
        walk.is_(source, value)
    else:
        instances.opaque(walk, source, value)


# Tensors and arrays


def _tensor(walk: Walk, source: Source, value: Tensor) -> None:
    kind = type(value)
    if is_in_argument(source):
        walk.bear(source, value)
    else:
        walk.is_(source, value)
        walk.bear(Object(ObjectRef(value)), value)
    if known.top_of(kind) != "mgb":
        walk.visit(Object(ObjectRef(kind)), kind)


def _array(walk: Walk, source: Source, value: np.ndarray[Any, Any]) -> None:
    if type(value) is not np.ndarray or value.dtype.hasobject:
        walk.report(f"can reach {source}, a {type(value).__name__} of {value.dtype}")
        return
    if value.nbytes > LARGEST_ARRAY and not (walk.may_follow and isinstance(source, Argument)):
        walk.report(f"can reach {source}, an array of {value.nbytes} bytes, too large to compare")
        return
    walk.guard(source, "array", Contents.of(value))
    walk.guard(Attribute(Attribute(source, "flags"), "num"), "same", value.flags.num)
    if value.dtype.names is not None:  # which can be changed
        walk.guard(Attribute(Attribute(source, "dtype"), "names"), "same", value.dtype.names)
    walk.bear(source, value)


def _dtype(walk: Walk, source: Source, value: np.dtype[Any]) -> None:
    walk.is_(source, value)
    if value.names is not None:  # which can be changed
        walk.guard(Attribute(Object(ObjectRef(value)), "names"), "same", value.names)


# containers


def _has_own(value: Any, names: str) -> bool:
    """Return whether the class says itself what an object of it holds."""
    return known.is_heap(type(value)) and any(
        isinstance(lookup(type(value), name)[0], FunctionType) for name in names.split()
    )


def _is_found_by_users(key: Any) -> bool:
    """Return whether a look-up in a dict would call a function of a user's."""
    return any(isinstance(lookup(type(key), name)[0], FunctionType) for name in ("__hash__", "__eq__"))


def pairs_in(value: Any) -> dict[Any, Any]:
    """Return the items of a dict, whatever methods its class overrides."""
    return dict(dict.items(value))


def _mapping(walk: Walk, source: Source, value: Any) -> None:
    walk.guard(source, "type", ObjectRef(type(value)))
    outer, itself = source, value
    if _has_own(value, "__getitem__ __iter__ keys items __len__"):
        source, value = Result(pairs_in, source), pairs_in(value)
    walk.guard(Result(list, source), "items", tuple(map(to_ref, value)))
    for number, (key, part) in enumerate(list(value.items())):
        if is_plain(key):
            walk.visit(Item(source, key), part)
        elif _is_found_by_users(key):
            walk.visit(Object(ObjectRef(key)), key)
            walk.visit(Item(Result(elements, source), number), part)
        else:
            walk.visit(Object(ObjectRef(key)), key)
            walk.visit(Item(source, ObjectRef(key)), part)
    if isinstance(itself, collections.defaultdict):
        walk.visit(Attribute(outer, "default_factory"), itself.default_factory)
    _of_users_class(walk, outer, itself)


def _sequence(walk: Walk, source: Source, value: Any) -> None:
    walk.guard(source, "type", ObjectRef(type(value)))
    outer, itself = source, value
    if _has_own(value, "__getitem__ __iter__ __len__"):
        source, value = Result(elements, source), elements(value)
    if len(value) > 4 and all(map(is_plain, value)):
        walk.guard(source, "items", tuple(value))
    else:
        walk.guard(source, "length", len(value))
        for number, part in enumerate(value):
            walk.visit(Item(source, number), part)
    if isinstance(itself, collections.deque):
        walk.guard(Attribute(outer, "maxlen"), "same", itself.maxlen)
    _of_users_class(walk, outer, itself)


def _set(walk: Walk, source: Source, value: Any) -> None:
    walk.guard(source, "type", ObjectRef(type(value)))
    itself, inside = value, source
    if _has_own(value, "__iter__"):
        inside, value = Result(elements, source), elements(value)
    walk.guard(Result(list, inside), "items", tuple(map(to_ref, value)))
    for part in value:
        if not is_plain(part):
            walk.visit(Object(ObjectRef(part)), part)
    _of_users_class(walk, source, itself)


def _of_users_class(walk: Walk, source: Source, value: Any) -> None:
    kind = type(value)
    if known.is_heap(kind):
        walk.visit(Object(ObjectRef(kind)), kind)
        walk.bear(source, value)
    elif hasattr(value, "__dict__"):
        walk.bear(source, value)


def _namespace(walk: Walk, source: Source, value: types.SimpleNamespace) -> None:
    walk.guard(source, "type", ObjectRef(type(value)))
    walk.guard(Result(list, Attribute(source, "__dict__")), "items", tuple(vars(value)))
    for name, part in list(vars(value).items()):
        walk.visit(Attribute(source, name), part)
    walk.bear(source, value)


# what holds one thing


def _attributes(*names: str) -> Callable[[Walk, Source, Any], None]:
    def look_at(walk: Walk, source: Source, value: Any) -> None:
        walk.guard(source, "type", ObjectRef(type(value)))
        for name in names:
            walk.visit(Attribute(source, name), getattr(value, name))

    return look_at


def _partial(walk: Walk, source: Source, value: functools.partial[Any]) -> None:
    _attributes("func", "args", "keywords")(walk, source, value)
    _of_users_class(walk, source, value)


def _itself(*names: str) -> Callable[[Walk, Source, Any], None]:
    """Return a visitor that guards the identity of an object, with these attributes."""

    def look_at(walk: Walk, source: Source, value: Any) -> None:
        walk.is_(source, value)
        for name in names:
            if getattr(value, name, None) is not None:
                walk.visit(Attribute(Object(ObjectRef(value)), name), getattr(value, name))

    return look_at


def _reference(walk: Walk, source: Source, value: weakref.ref[Any]) -> None:
    walk.visit(Call(source), value())


def _context(walk: Walk, source: Source, value: contextvars.ContextVar[Any]) -> None:
    walk.is_(source, value)
    walk.visit(Call.given(Attribute(source, "get"), (MISSING,)), value.get(MISSING))


def _local(walk: Walk, source: Source, value: threading.local) -> None:
    walk.is_(source, value)
    _of_users_class(walk, source, value)


def _given_to(caller: operator.methodcaller) -> tuple[Any, ...]:
    """Return the arguments that a `methodcaller` passes to its method, possibly with the method's name."""
    return tuple(caller.__reduce__()[1])


def _getter(walk: Walk, source: Source, value: Any) -> None:
    walk.is_(source, value)
    _, given = value.__reduce__()
    if isinstance(value, operator.methodcaller):
        walk.goes_wild()
        for number, part in enumerate(given):
            walk.visit(Item(Result(_given_to, Object(ObjectRef(value))), number), part)
    else:
        walk.add_names(pure.names_in(value))


def _kept(walk: Walk, source: Source, value: Any) -> None:
    """Visit a function made by `lru_cache`: while its cache is the same, it returns the same."""
    walk.is_(source, value)
    here = Object(ObjectRef(value))
    walk.visit(Attribute(here, "__wrapped__"), value.__wrapped__)
    walk.guard(here, "meets", _Kept(value))
    walk.caches.append((value, value.cache_info().misses))
    for result in _results_in(value):
        if not is_plain(result):
            walk.visit(Object(ObjectRef(result)), result)


class _Kept:
    """A check that an `lru_cache` still has the results that it had cached."""

    def __init__(self, cached: Any) -> None:
        self._known = [ObjectRef(result) for result in _results_in(cached)]

    def __call__(self, cached: Any) -> bool:
        now = set(map(id, _results_in(cached)))
        return all(id(held.get()) in now and not held.is_gone() for held in self._known)

    def __repr__(self) -> str:
        return "a function has forgotten results that it kept by lru_cache"


def _results_in(cached: Any) -> list[Any]:
    """Return the results that a function made by `lru_cache` keeps, and what it keeps them by."""
    found = []
    for part in gc.get_referents(cached):
        if type(part) is dict and part is not getattr(cached, "__dict__", None):
            found += [value for value in part.values() if type(value).__name__ != "_lru_list_elem"]
        elif part is not cached.__wrapped__ and not isinstance(part, (type, dict)):
            found.append(part)
    return found


# functions, classes, modules


def _module(walk: Walk, source: Source, value: ModuleType) -> None:
    walk.is_(source, value)
    if type(value) is not ModuleType:
        walk.guard(source, "type", ObjectRef(type(value)))
    walk.bear(Object(ObjectRef(value)), value)


def _function(walk: Walk, source: Source, value: FunctionType) -> None:
    if not is_in_argument(source):
        walk.is_(source, value)
        source = Object(ObjectRef(value))
    elif not isinstance(source, Argument):
        walk.guard(source, "type", ObjectRef(FunctionType))
    walk.function(source, value)
    if not pure.is_librarys(value.__code__):
        walk.bear(source, value)


def _builtin(walk: Walk, source: Source, value: types.BuiltinFunctionType) -> None:
    owner = value.__self__
    if owner is None or isinstance(owner, ModuleType):
        walk.is_(source, value)
        if value.__name__ in BY_NAME and not isinstance(source, Global):  # code calls it by another name
            walk.goes_wild()
    elif ".random" in (value.__module__ or "") or isinstance(owner, known.SEEDED):
        walk.report(f"can reach NumPy's {value.__name__}, which reads or writes elsewhere")
    else:
        walk.guard(Attribute(source, "__name__"), "same", value.__name__)
        walk.visit(Attribute(source, "__self__"), owner)


def _class(walk: Walk, source: Source, value: type) -> None:
    walk.is_(source, value)
    here = Object(ObjectRef(value))
    if issubclass(value, bdb.Bdb):
        walk.report(f"can reach the class {value.__qualname__}, which starts a debugger")
    elif known.reads_elsewhere(value):
        name = f"{value.__module__}.{value.__qualname__}"
        walk.report(f"can reach the class {name}, which reads or writes elsewhere")
    if pure.is_users_class(value):
        classes.facts(walk, here, value)
        walk.bear(here, value)
    elif value in (operator.attrgetter, operator.methodcaller):
        walk.goes_wild()
    elif value is decimal.Decimal:
        instances.decimals(walk)
    elif not _is_harmless(value):
        walk.report(f"can reach the class {value.__module__}.{value.__qualname__}, which may do anything")


def _is_harmless(kind: type) -> bool:
    """Return whether a call of the class does nothing but make an object."""
    if kind in known.PURE_WHEN_CALLED or known.is_heap(kind) or kind in known.UNCHANGING:
        return True
    return known.top_of(kind) in ("mgb", "numpy", "builtins", "types", "collections", "typing", "abc")


_RULES: tuple[tuple[Any, Callable[[Walk, Source, Any], None]], ...] = (
    (Tensor, _tensor),
    (np.ndarray, _array),
    (np.dtype, _dtype),
    (type, _class),
    (FunctionType, _function),
    (ModuleType, _module),
    (enum.Enum, instances.enumerated),
    ((dict, types.MappingProxyType), _mapping),
    ((list, tuple, collections.deque), _sequence),
    ((set, frozenset, bytearray), _set),
    (types.SimpleNamespace, _namespace),
    (types.MethodType, _attributes("__self__", "__func__")),
    (types.MethodWrapperType, _attributes("__name__", "__self__")),
    (super, _attributes("__self__", "__self_class__", "__thisclass__")),
    (functools.partial, _partial),
    ((staticmethod, classmethod), _itself("__func__")),
    (property, _itself("fget", "fset", "fdel")),
    (functools.cached_property, _itself("func")),
    (weakref.ref, _reference),
    (contextvars.ContextVar, _context),
    (threading.local, _local),
    ((operator.attrgetter, operator.methodcaller), _getter),
    (functools._lru_cache_wrapper, _kept),
    (types.BuiltinFunctionType, _builtin),
    ((operator.itemgetter, _NAMED_FIELD), _itself()),
    (known.VIEWS, _attributes("mapping")),
)
