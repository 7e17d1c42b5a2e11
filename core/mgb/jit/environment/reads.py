"""What a subscript, a loop or a function in C reads of something outside, as guards."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from enum import Enum
from functools import partial
from types import (
    FunctionType,
    GeneratorType,
    MappingProxyType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

import numpy as np

from ...holding import _ATTRIBUTE
from ...sizes import Size
from ...tensor import Tensor
from ..guard import LARGEST_ARRAY, Contents, is_plain
from ..source import Attribute, Held, Item, Result, Source
from .attributes import class_fact, every_method, namespace
from .known import CONTAINERS, MISSING, VIEWS, is_heap, is_module, is_trusted, lookup
from .observer import Observer

#: Deeper than this nothing is read for a function in C.
DEPTH = 6


# elements


def item(watch: Observer, thing: Any, key: Any) -> None:
    """An element is about to be read."""
    kind = type(thing)
    if isinstance(thing, (Tensor, str, bytes, range)):
        container(watch, key, 3)
        return
    if isinstance(thing, type):
        if not is_trusted_class(thing) and is_heap(type(thing)):
            class_fact(watch, type(thing), "__getitem__")
            watch.arm(type(thing))
        return
    getter, _ = lookup(kind, "__getitem__")
    source = watch.source_of(thing)
    if isinstance(getter, FunctionType) and not is_trusted(getter.__code__):
        if source is not None:
            watch.guard_kind(thing, source)
        class_fact(watch, kind, "__getitem__")
        watch.arm(thing)
        return
    if isinstance(thing, (dict, MappingProxyType)):
        _of_mapping(watch, thing, key, source)
    elif isinstance(thing, (list, tuple, deque)) and hasattr(key, "__index__"):
        place = int(key.__index__())
        if -len(thing) <= place < len(thing):
            if source is not None:
                watch.guard_kind(thing, source)
            watch.found(Item(source, place) if source else None, thing[place])
        else:
            length(watch, thing)
    elif isinstance(thing, np.ndarray):
        container(watch, thing)
        container(watch, key, 2)
    elif isinstance(thing, CONTAINERS):
        container(watch, thing)
    elif isinstance(getter, FunctionType):
        watch.arm(thing)
    elif source is not None:
        watch.impure(f"takes an element of a {kind.__name__}")


def _of_mapping(watch: Observer, thing: Any, key: Any, source: Source | None) -> None:
    if source is not None:
        watch.guard_kind(thing, source)
    known = key_of(key)
    if known is MISSING:
        container(watch, thing, 2)
        watch.arm(type(key))
    elif key in thing:
        watch.found(
            Item(source, known) if source else None,
            dict.__getitem__(thing, key) if isinstance(thing, dict) else thing[key],
        )
    else:
        if hasattr(type(thing), "__missing__"):
            if type(thing) is defaultdict:
                watch.arm(thing.default_factory)
                watch.wrote(thing, f"the element {key!r}")
            else:
                class_fact(watch, type(thing), "__missing__")
        if source is not None:
            watch.guard(source, "without", known)


def key_of(key: Any) -> Any:
    """A key for an `Item`; MISSING where its equality is Python code."""
    if is_plain(key):
        return key
    if type(key) is Size:
        return key.fixed()
    kind: Any = type(key)
    if kind.__hash__ is object.__hash__ or isinstance(key, (Enum, type, FunctionType, Tensor)):
        return Held(key)
    return MISSING


def contains(watch: Observer, key: Any, thing: Any) -> None:
    """Is `key` in `thing`? is about to be asked."""
    kind = type(thing)
    asked, _ = lookup(kind, "__contains__")
    known = key_of(key)
    source = watch.source_of(thing)
    if isinstance(asked, FunctionType) and not is_trusted(asked.__code__):
        if source is not None:
            watch.guard_kind(thing, source)
        class_fact(watch, kind, "__contains__")
        watch.arm(thing)
    elif (
        isinstance(thing, (dict, set, frozenset, MappingProxyType))
        and known is not MISSING
        and source is not None
    ):
        watch.guard_kind(thing, source)
        if key not in thing:
            watch.guard(source, "without", known)
        elif isinstance(thing, dict):
            watch.guard(Result(list, source), "items", tuple(map(_part, thing)))
        else:
            container(watch, thing)
    elif isinstance(thing, type) or is_heap(kind):
        iterated(watch, thing)
        if isinstance(thing, type):
            watch.arm(type(thing))
    else:
        container(watch, thing, DEPTH)
        container(watch, key, DEPTH)


def length(watch: Observer, thing: Any) -> None:
    """How many there are is read."""
    source = watch.source_of(thing)
    if source is not None and not isinstance(thing, Tensor) and hasattr(thing, "__len__"):
        watch.guard(source, "length", len(thing))


def _part(value: Any) -> Any:
    return value if is_plain(value) else Held(value)


def container(watch: Observer, thing: Any, deep: int = 1) -> None:
    """All of `thing` is read, and what stands in it `deep` levels down."""
    if is_plain(thing) or isinstance(thing, (Tensor, type, FunctionType, ModuleType)):
        return
    if isinstance(thing, np.ndarray):
        return array(watch, thing)
    if isinstance(thing, VIEWS):
        return _view(watch, thing)
    if isinstance(thing, partial):
        for part in (thing.func, thing.args, thing.keywords):
            container(watch, part, deep - 1)
        return watch.arm(thing)
    if not isinstance(thing, CONTAINERS):
        return _object(watch, thing, deep)
    held: Any = thing
    if deep <= 0:
        return watch.impure("reads data that are nested too deep")
    source = watch.source_of(thing)
    if source is not None:
        watch.guard_kind(thing, source)
    if isinstance(thing, (dict, MappingProxyType)):
        if source is not None and (thing or not isinstance(thing, OrderedDict)):
            watch.guard(Result(list, source), "items", tuple(map(_part, thing)))
        for key, value in thing.items():
            known = key_of(key)
            place = Item(source, Held(key) if known is MISSING else known) if source else None
            watch.found(place, value)
            if deep > 1:
                container(watch, value, deep - 1)
        return None
    if isinstance(thing, SimpleNamespace):
        return container(watch, vars(thing), deep)
    if source is not None and isinstance(thing, (set, frozenset, bytearray)):
        watch.guard(Result(list, source), "items", tuple(map(_part, thing)))
    elif source is not None and len(held) > 4 and all(map(is_plain, held)):
        watch.guard(source, "items", tuple(held))
        return None
    elif source is not None:
        watch.guard(source, "length", len(held))
    for number, value in enumerate(held):
        if not isinstance(thing, (set, frozenset, bytearray)):
            watch.found(Item(source, number) if source else None, value)
        if deep > 1:
            container(watch, value, deep - 1)
    return None


def _view(watch: Observer, view: Any) -> None:
    """What a view that was made here is of was read then; one from outside is read now."""
    source = watch.source_of(view)
    if source is not None:
        watch.guard(Result(list, source), "items", tuple(map(_part, view)))


def array(watch: Observer, thing: Any) -> None:
    """The elements of an array are read, perhaps by an op, which tells that it takes them as an input."""
    source = watch.source_of(thing)
    if source is None:
        return
    known = watch.known(thing)
    whole = thing
    while known is None and isinstance(whole.base, np.ndarray):
        whole = watch.viewed(whole)
        known = watch.known(whole)
    if thing.dtype.hasobject:
        watch.impure("reads an array of objects from outside")
    else:
        watch.reads_array(thing, whole, source)


def owner_of(array: Any) -> Any:
    """The array whose memory it is that a view shows."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def array_contents(watch: Observer, whole: Any, source: Source, place: tuple[str, int]) -> None:
    """What stands in an array has to stay."""
    if whole.nbytes > LARGEST_ARRAY:
        watch.impure(
            f"reads an array of {whole.nbytes} bytes from outside, {source}, too large to be compared at "
            "each call; make it a Tensor, or use it in ops alone",
            place=place,
        )
    else:
        watch.guard(source, "array", Contents.of(whole))


def _object(watch: Observer, thing: Any, deep: int) -> None:
    """An object is given to code in C, which may call its methods and read its fields."""
    watch.arm(thing)
    source = watch.source_of(thing)
    if is_module(thing):
        return
    every_method(watch, type(thing))
    if source is None:
        return
    if is_heap(type(thing)):
        watch.guard_kind(thing, source)
        if hasattr(type(thing), "__dataclass_fields__") and deep > 1:
            for field in type(thing).__dataclass_fields__:
                if field in namespace(thing):
                    watch.found(Attribute(source, field), namespace(thing)[field])
                    container(watch, namespace(thing)[field], deep - 1)
    elif hasattr(thing, "__next__") or hasattr(type(thing), "__getitem__"):
        watch.impure(f"reads what stands in a {type(thing).__name__} from outside")


def state(watch: Observer, thing: Any, deep: int) -> None:
    """All that an object holds is read: it is copied."""
    parts: Any
    if isinstance(thing, CONTAINERS):
        container(watch, thing)
        parts = thing.values() if isinstance(thing, (dict, MappingProxyType)) else thing
        if isinstance(thing, (np.ndarray, SimpleNamespace)):
            return
    elif is_heap(type(thing)) and not isinstance(thing, (type, Tensor)):
        source = watch.source_of(thing)
        if any("__slots__" in vars(base) for base in type(thing).__mro__[:-1]) and not namespace(thing):
            watch.impure(f"copies a {type(thing).__name__}, which has slots")
        if source is not None:
            watch.guard_kind(thing, source)
            watch.found(Attribute(source, "__dict__"), namespace(thing))
        container(watch, namespace(thing))
        parts = namespace(thing).values()
    else:
        return
    if deep <= 0:
        watch.impure("copies data that are nested too deep")
        return
    for part in parts:
        state(watch, part, deep - 1)


def names(module: Any) -> list[str]:
    """The attributes of a Module, but for what the core keeps there."""
    return [name for name in vars(module) if name != _ATTRIBUTE]


def tree(watch: Observer, module: Any) -> None:
    """A Module and what stands in it is walked over."""
    source = watch.source_of(module)
    if source is None or Result(names, source) in watch.walked:
        return
    watch.walked.add(Result(names, source))
    watch.guard(Result(names, source), "items", tuple(names(module)))
    for name in names(module):
        value = vars(module)[name]
        watch.found(Attribute(source, name), value)
        parts: Any = (value,)
        if isinstance(value, (list, tuple, dict)):
            container(watch, value, 2)
            parts = value.values() if isinstance(value, dict) else value
        for part in filter(is_module, parts):
            tree(watch, part)


# loops


def iterated(watch: Observer, thing: Any, deep: int = 1) -> None:
    """All elements are about to be asked for, one after the other."""
    if is_plain(thing) or isinstance(thing, Tensor):
        return
    if isinstance(thing, CONTAINERS) and getattr(type(thing), "__iter__", None) in _C_ITERS:
        container(watch, thing, deep)
        return
    advanced(watch, thing)
    if isinstance(thing, VIEWS):
        _view(watch, thing)
    if isinstance(thing, (GeneratorType, *VIEWS)):
        return
    source = watch.source_of(thing)
    if source is not None and is_heap(type(thing)):
        watch.guard_kind(thing, source)
    for asked in ("__iter__", "__next__", "__getitem__", "__len__"):
        kind = type(thing)
        raw, _ = lookup(kind, asked)
        if isinstance(raw, FunctionType):
            class_fact(watch, kind, asked)
            if asked == "__iter__":
                break
    watch.arm(thing)
    if isinstance(thing, (type, *CONTAINERS)):
        watch.arm(type(thing))
        if isinstance(thing, CONTAINERS):
            container(watch, thing, deep)


_KINDS = (*CONTAINERS, OrderedDict, defaultdict)
_C_ITERS = frozenset(getattr(kind, "__iter__", None) for kind in _KINDS) - {None}


def advanced(watch: Observer, thing: Any) -> None:
    """The next element of an iterator is about to be taken."""
    if not hasattr(type(thing), "__next__") or watch.is_made(thing):
        return
    if type(thing).__name__ == "_grouper" and watch.known(thing) is None:
        return  # `groupby` has made it
    if isinstance(lookup(type(thing), "__next__")[0], FunctionType):
        watch.guard_kind(thing)
        class_fact(watch, type(thing), "__next__")
        watch.arm(thing)
    else:
        watch.impure(f"takes from an iterator from outside, a {type(thing).__name__}")


def is_trusted_class(kind: type) -> bool:
    """Does it belong to mgb or NumPy?"""
    return (kind.__module__ or "").partition(".")[0] in ("mgb", "numpy", "builtins", "typing")
