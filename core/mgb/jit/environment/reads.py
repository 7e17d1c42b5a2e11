"""What a subscript, a loop or a function in C reads of something outside, as guards."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from enum import Enum
from functools import partial
from types import FunctionType, GeneratorType, MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from ...holding import attributes_of as names
from ...sizes import elements, native, pairs
from ...tensor import Tensor
from ..guard import LARGEST_ARRAY, Contents, is_plain
from ..source import Attribute, Held, Item, Result, Source
from . import attributes
from .attributes import class_fact, every_method
from .known import (
    CONTAINERS,
    FOLLOWED,
    MISSING,
    UNCHANGING,
    VIEWS,
    attributes_of,
    is_heap,
    is_trusted_holder,
    is_users,
    lookup,
    namespace,
    reads_elsewhere,
)  # fmt: skip
from .watch import Watch

#: Deeper than this nothing is read for a function in C.
DEPTH = 6

_MAPPINGS = (dict, MappingProxyType)
_WITHOUT_PLACES = (set, frozenset, bytearray)


def special(watch: Watch, thing: Any, *asked: str) -> None:
    """`attributes.special`; those of a holder that mgb has written read what stands in it."""
    attributes.special(watch, thing, *asked)
    if is_trusted_holder(thing):
        found = [lookup(type(thing), method)[0] for method in asked]
        if any(isinstance(method, FunctionType) and not is_users(method) for method in found):
            own(watch, thing, [name for name in names(thing) if not is_plain(vars(thing)[name])])


# elements


def natively(watch: Watch, thing: Any) -> Any:
    """`thing` as it is without methods of a user's class, which are watched where they are called."""
    kind: Any = type(thing)
    if not is_heap(kind) or not isinstance(thing, _DERIVED):
        return thing
    if not any(isinstance(lookup(kind, name)[0], FunctionType) for name in _OF_CONTENTS):
        return thing
    copy, source = _copied(thing), watch.source_of(thing)
    if source is None:
        watch.make(copy)
    else:
        watch.keep(copy, Result(_copied, source))
    return copy


#: What users derive classes from, and the methods of these that show what stands in one.
_DERIVED = (list, dict, set, frozenset, tuple, bytearray, deque)
_OF_CONTENTS = ("__iter__", "__len__", "__getitem__", "__contains__", "keys", "values", "items")


def _copied(thing: Any) -> Any:
    kind = native(type(thing))
    return kind(elements(thing)) if not issubclass(kind, dict) else OrderedDict(pairs(thing))


def item(watch: Watch, thing: Any, key: Any) -> None:
    """An element is about to be read."""
    for part in (key.start, key.stop, key.step) if type(key) is slice else (key,):
        if not isinstance(thing, _MAPPINGS):
            container(watch, part, 3)
    if isinstance(thing, (Tensor, str, bytes, range)):
        return None
    getter, _ = lookup(type(thing), "__getitem__")
    special(watch, thing, "__getitem__")
    if isinstance(thing, type) or is_users(getter):
        return None
    if isinstance(thing, _MAPPINGS):
        return of_mapping(watch, thing, key)
    if isinstance(thing, (list, tuple, deque)) and hasattr(key, "__index__"):
        index = int(key.__index__())
        watch.kind(thing)
        thing = natively(watch, thing)
        if not -len(thing) <= index < len(thing):
            return length(watch, thing)
        return watch.part(thing, Item, index, thing[index])
    if isinstance(thing, CONTAINERS):
        return container(watch, thing)
    if not isinstance(getter, FunctionType) and watch.source_of(thing) is not None:
        watch.impure(f"takes an element of a {type(thing).__name__}")
    return None


def of_mapping(watch: Watch, thing: Any, key: Any, is_get: bool = False) -> None:
    """An element of a mapping is read; unlike a subscript, `dict.get` makes nothing where there is none."""
    watch.kind(thing)
    inside = natively(watch, thing)
    watch.looked_for(key, inside)
    known = key_of(key)
    if isinstance(known, Held) and not isinstance(key, Tensor):
        watch.identity(key)
    if known is MISSING:
        container(watch, inside, 2)
        container(watch, key, DEPTH, whole=True)
        watch.arm(type(key))
    elif key in inside:
        value = dict.__getitem__(inside, key) if isinstance(inside, dict) else inside[key]
        watch.part(inside, Item, known, value)
    else:
        if is_get:
            pass
        elif type(thing) is defaultdict:
            watch.arm(thing.default_factory)
            watch.writing.wrote(thing, f"the element {key!r}")
        elif hasattr(type(thing), "__missing__"):
            class_fact(watch, type(thing), "__missing__")
        watch.fact(inside, "without", known)


def key_of(key: Any) -> Any:
    """A key for an `Item`; MISSING where its equality is Python code."""
    if is_plain(key):
        return key
    if type(key) in FOLLOWED:
        return key.fixed()
    kind: Any = type(key)
    if kind.__hash__ is object.__hash__ or isinstance(key, (Enum, type, FunctionType, Tensor)):
        return Held(key)
    return MISSING


def contains(watch: Watch, key: Any, thing: Any) -> None:
    """Is `key` in `thing`? is about to be asked."""
    special(watch, thing, "__contains__")
    if is_users(lookup(type(thing), "__contains__")[0]):
        return None
    watch.kind(thing)
    thing = natively(watch, thing)
    if isinstance(thing, CONTAINERS):
        watch.looked_for(key, thing)
    known = key_of(key)
    if isinstance(known, Held) and not isinstance(key, Tensor):
        watch.identity(key)
    if isinstance(key, (float, complex)) and key != key:
        return watch.impure("asks where NaN is, which equals only the very same object")
    if isinstance(thing, (*_MAPPINGS, set, frozenset)) and known is not MISSING:
        if key not in thing:
            return watch.fact(thing, "without", known)
        return watch.listed(thing) if isinstance(thing, dict) else container(watch, thing)
    if isinstance(thing, type) or is_heap(type(thing)):
        return iterated(watch, thing)
    container(watch, thing, DEPTH)
    return container(watch, key, DEPTH)


def length(watch: Watch, thing: Any) -> None:
    """How many there are is read."""
    special(watch, thing, "__len__")
    if not isinstance(thing, Tensor) and not isinstance(lookup(type(thing), "__len__")[0], FunctionType):
        if hasattr(thing, "__len__"):
            watch.fact(thing, "length", len(thing))


def container(watch: Watch, thing: Any, deep: int = 1, whole: bool = False) -> None:
    """All of `thing` is read, and what stands in it `deep` levels down; objects there are read `whole`."""
    if is_plain(thing) or type(thing) in FOLLOWED:
        return None
    if isinstance(thing, FunctionType):
        return watch.identity(thing)
    if isinstance(thing, (Tensor, type, ModuleType)):
        return None
    if isinstance(thing, np.ndarray):
        return array(watch, thing)
    if isinstance(thing, VIEWS):
        of = thing.mapping  # type: ignore[attr-defined]
        watch.part(thing, Attribute, "mapping", of)
        return container(watch, of, deep, whole)
    if isinstance(thing, partial):
        for name in ("func", "args", "keywords"):
            watch.part(thing, Attribute, name, getattr(thing, name))
            container(watch, getattr(thing, name), deep, whole)
        return watch.arm(thing)
    if not isinstance(thing, CONTAINERS):
        return _object(watch, thing, deep, whole)
    if deep <= 0:
        return watch.impure("reads data that are nested too deep")
    watch.kind(thing)
    if isinstance(thing, SimpleNamespace):
        watch.part(thing, Attribute, "__dict__", vars(thing))
        return container(watch, vars(thing), deep, whole)
    _elements(watch, thing)
    for value in elements_of(thing) if deep > 1 else ():
        container(watch, value, deep - 1, whole)
    return None


def elements_of(thing: Any) -> list[Any]:
    """What stands in a container."""
    if isinstance(thing, SimpleNamespace):
        return [*vars(thing).values()]
    return elements(thing)


def _elements(watch: Watch, thing: Any) -> None:
    """The elements of a container, which are read where they stand."""
    thing = natively(watch, thing)
    source = watch.source_of(thing)
    if isinstance(thing, _MAPPINGS):
        if thing or not isinstance(thing, OrderedDict):
            watch.listed(thing)
        for key, value in pairs(thing):
            known = key_of(key)
            item = Item(source, Held(key) if known is MISSING else known) if source else None
            watch.found(item, value)
    elif isinstance(thing, _WITHOUT_PLACES):
        watch.listed(thing)
    elif source is not None and len(thing) > 4 and all(map(is_plain, thing)):
        watch.guard(source, "items", tuple(thing))
    else:
        watch.fact(thing, "length", len(thing))
        for number, value in enumerate(thing):
            watch.found(Item(source, number) if source else None, value)


def array(watch: Watch, thing: Any) -> None:
    """The elements of an array are read, perhaps by an op, which tells that it takes them as an input."""
    source = watch.source_of(thing)
    if source is None:
        return
    known, whole = watch.known(thing), thing
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


def array_contents(watch: Watch, whole: Any, source: Source, line: tuple[str, int]) -> None:
    """What stands in an array has to stay."""
    if whole.nbytes > LARGEST_ARRAY:
        watch.impure(
            f"reads an array of {whole.nbytes} bytes from outside, {source}, too large to be compared at "
            "each call; make it a Tensor, or use it in ops alone",
            line=line,
        )
    else:
        watch.guard(source, "array", Contents.of(whole))


def _object(watch: Watch, thing: Any, deep: int, whole: bool) -> None:
    """An object is given to code in C, which may call its methods and read its fields."""
    watch.arm(thing)
    kind = type(thing)
    if is_trusted_holder(thing):
        return tree(watch, thing) if whole else None
    if is_heap(kind) and (lookup(kind, "__eq__")[1] is object or lookup(kind, "__hash__")[1] is object):
        watch.identity(thing)
    whole = whole or any(is_heap(base) and base.__module__ == "collections" for base in kind.__mro__)
    every_method(watch, kind)
    if is_heap(kind) and (whole or watch.source_of(thing) is not None):
        watch.kind(thing)
        held = attributes_of(thing)
        if whole and hasattr(thing, "__dict__"):
            watch.part(thing, Attribute, "__dict__", namespace(thing))
            watch.listed(namespace(thing))
        for name in held if whole else getattr(kind, "__dataclass_fields__", ()) if deep > 1 else ():
            if name in held:
                watch.part(thing, Attribute, name, held[name])
                container(watch, held[name], deep - 1, whole)
    base = next(base for base in kind.__mro__ if not is_heap(base))
    if issubclass(base, BaseException):
        watch.part(thing, Attribute, "args", thing.args)
        return container(watch, thing.args, deep - 1, whole)
    in_c = base is not object and not issubclass(base, UNCHANGING)
    if (in_c or reads_elsewhere(kind)) and watch.source_of(thing) is not None:
        watch.impure(f"reads what stands in a {kind.__name__} from outside")


def own(watch: Watch, module: Any, asked: list[str]) -> list[Any]:
    """Attributes of a holder are read, and what stands in its containers; gives all that was found."""
    source, parts = watch.source_of(module), list[Any]()
    if source is None:
        return parts
    for name in asked:
        value = vars(module)[name]
        watch.found(Attribute(source, name), value)
        if isinstance(value, (list, tuple, dict)):
            container(watch, value, 2)
            parts += value.values() if isinstance(value, dict) else value
        else:
            parts.append(value)
    return parts


def tree(watch: Watch, module: Any) -> None:
    """A holder and what stands in it is walked over."""
    source = watch.source_of(module)
    if source is None or Result(names, source) in watch.walked:
        return
    watch.walked.add(Result(names, source))
    watch.guard(Result(names, source), "items", tuple(names(module)))
    for part in filter(is_trusted_holder, own(watch, module, names(module))):
        tree(watch, part)


# loops


def iterated(watch: Watch, thing: Any, deep: int = 1) -> None:
    """All elements are about to be asked for, one after the other."""
    if is_plain(thing) or isinstance(thing, Tensor):
        return
    if isinstance(thing, CONTAINERS) and getattr(type(thing), "__iter__", None) in _C_ITERS:
        container(watch, thing, deep)
        return
    advanced(watch, thing)
    if isinstance(thing, VIEWS):
        container(watch, thing, deep)
    elif not isinstance(thing, GeneratorType):
        iterates = lookup(type(thing), "__iter__")[0] is not MISSING
        special(watch, thing, *(("__iter__",) if iterates else ("__getitem__", "__len__")))
        if isinstance(thing, CONTAINERS) or not is_heap(type(thing)):
            container(watch, thing, deep)


_C_ITERS = frozenset(getattr(kind, "__iter__", None) for kind in (*CONTAINERS, OrderedDict, defaultdict))


def advanced(watch: Watch, thing: Any) -> None:
    """The next element of an iterator is about to be taken."""
    if not hasattr(type(thing), "__next__") or watch.is_made(thing):
        return
    if type(thing).__name__ == "_grouper" and watch.known(thing) is None:
        return  # `groupby` has made it
    if isinstance(lookup(type(thing), "__next__")[0], FunctionType):
        special(watch, thing, "__next__")
    else:
        watch.impure(f"takes from an iterator from outside, a {type(thing).__name__}")
