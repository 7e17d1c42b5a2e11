"""What an attribute, a subscript, a loop or a function in C reads of something outside, as guards."""

from __future__ import annotations

import builtins
import threading
from collections import OrderedDict, defaultdict, deque
from enum import Enum
from functools import partial
from types import (
    BuiltinFunctionType,
    FrameType,
    FunctionType,
    GeneratorType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np

from ...module import Module
from ...tensor import Tensor
from ..guard import LARGEST_ARRAY, Contents, is_plain
from ..source import Attribute, Cell, Global, Held, Item, Object, Result, Source
from .known import CONTAINERS, MISSING, VIEWS, is_heap, is_trusted, lookup
from .observer import Observer

_BUILTINS = Held(vars(builtins))
_C_DESCRIPTORS = (MethodDescriptorType, WrapperDescriptorType, BuiltinFunctionType)
#: Deeper than this nothing is read for a function in C.
DEPTH = 6


# variables


def name(watch: Observer, asked: str, frame: FrameType) -> None:
    """A global variable or a builtin is read."""
    space: Any = frame.f_globals
    if (
        space is not frame.f_locals
        and frame.f_locals.get(asked, MISSING) is not MISSING
        and _is_class_body(frame)
    ):
        return
    module = Held(space)
    if asked in space:
        watch.found(Global(module, asked), space[asked])
        return
    watch.guard(Object(module), "without", asked)
    if asked in vars(builtins):
        watch.found(Global(_BUILTINS, asked), vars(builtins)[asked])


def _is_class_body(frame: FrameType) -> bool:
    return not frame.f_code.co_flags & 1  # its variables stand in a dict


def cell(watch: Observer, code: Any, asked: str) -> None:
    """A variable of a function around is read: of each function with this code, for the frame tells not which."""
    for function in watch.closures(code):
        place = code.co_freevars.index(asked)
        assert function.__closure__ is not None
        held = function.__closure__[place]
        if not watch.is_made(function):
            try:
                value = held.cell_contents
            except ValueError:
                continue
            watch.found(Cell(Held(held), asked), value)


# attributes


def attribute(watch: Observer, thing: Any, asked: str) -> None:
    """An attribute is about to be read; what that calls is armed."""
    kind = type(thing)
    if isinstance(thing, ModuleType):
        return _of_module(watch, thing, asked)
    if isinstance(thing, super):
        return _of_super(watch, thing, asked)
    if isinstance(thing, type):
        return of_class(watch, thing, asked)
    if isinstance(thing, Tensor):
        own = getattr(thing, "__dict__", {})
        if asked in own and not watch.is_made(thing):
            watch.found(Attribute(_source(watch, thing), asked), own[asked])
        return None
    source = watch.source_of(thing)
    if isinstance(thing, threading.local):
        return _computed(watch, thing, asked, source)
    raw, owner = lookup(kind, asked)
    if source is not None and is_heap(kind):
        watch.guard_kind(thing, source)
    own = _namespace(thing)
    if isinstance(kind.__getattribute__, FunctionType) and not is_trusted(kind.__getattribute__.__code__):
        _class_fact(watch, kind, "__getattribute__")
    if raw is not MISSING and hasattr(type(raw), "__set__"):
        return _of_descriptor(watch, thing, asked, source)
    if asked in own:
        return watch.found(Attribute(source, asked) if source else None, own[asked])
    if raw is MISSING:
        return _of_nobody(watch, thing, asked, source)
    if isinstance(raw, _C_DESCRIPTORS):
        return None
    assert owner is not None
    if hasattr(type(raw), "__get__"):
        if source is not None and hasattr(thing, "__dict__"):
            watch.guard(Attribute(source, "__dict__"), "without", asked)
        _class_fact(watch, kind, asked)
        return _of_descriptor(watch, thing, asked, source) if not isinstance(raw, _FUNCTIONS) else None
    return watch.found(Attribute(source or Object(Held(kind)), asked), raw)


_FUNCTIONS = (FunctionType, staticmethod, classmethod)


def _namespace(thing: Any) -> dict[str, Any]:
    try:
        found = object.__getattribute__(thing, "__dict__")
    except (AttributeError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _source(watch: Observer, thing: Any) -> Source:
    return watch.source_of(thing) or Object(Held(thing))


def _of_module(watch: Observer, thing: ModuleType, asked: str) -> None:
    value = vars(thing).get(asked, MISSING)
    if value is MISSING:
        value = getattr(thing, asked, MISSING)  # NumPy's and our own load some when they are asked for
    if value is not MISSING:
        watch.found(Attribute(_source(watch, thing), asked), value)
    else:
        watch.guard(_source(watch, thing), "lacks", asked)


def _of_super(watch: Observer, thing: Any, asked: str) -> None:
    chain = thing.__self_class__.__mro__
    for base in chain[chain.index(thing.__thisclass__) + 1 :]:
        namespace = Attribute(Object(Held(base)), "__dict__")
        if asked in vars(base):
            if is_heap(base):
                watch.found(Item(namespace, asked), vars(base)[asked])
            watch.arm(vars(base)[asked])
            return
        if is_heap(base):
            watch.guard(namespace, "without", asked)


def of_class(watch: Observer, kind: type, asked: str) -> None:
    """An attribute of a class."""
    raw, _ = lookup(kind, asked)
    over, _ = lookup(type(kind), asked)
    if raw is MISSING and over is MISSING:
        if type(kind) is not type and hasattr(type(kind), "__getattr__"):
            _class_fact(watch, type(kind), "__getattr__")
        watch.guard(_source(watch, kind), "lacks", asked)
    elif raw is MISSING or hasattr(type(over), "__set__"):
        if is_heap(type(kind)):
            _class_fact(watch, type(kind), asked)
            if not hasattr(type(over), "__get__"):
                watch.found(Attribute(_source(watch, kind), asked), over)
    elif is_heap(kind):
        _class_fact(watch, kind, asked)
        if not hasattr(type(raw), "__get__") and not watch.is_made(kind):
            watch.found(Attribute(_source(watch, kind), asked), raw)


def class_fact(watch: Observer, kind: type, asked: str) -> None:
    """What a class has under a name has to stay, and is armed."""
    _class_fact(watch, kind, asked)


def _class_fact(watch: Observer, kind: type, asked: str) -> None:
    raw, owner = lookup(kind, asked)
    watch.arm(raw)
    if owner is None or not is_heap(kind) or watch.is_made(kind):
        if owner is None and is_heap(kind) and not watch.is_made(kind):
            watch.guard(Object(Held(kind)), "lacks", asked)
        return
    source: Source = Object(Held(kind))
    if isinstance(raw, FunctionType | property) and not hasattr(
        type(lookup(type(kind), asked)[0]), "__set__"
    ):
        watch.found(Attribute(source, asked), raw)  # read through the class it is itself
        return
    for base in kind.__mro__[: kind.__mro__.index(owner)]:
        if is_heap(base):
            watch.guard(Attribute(Object(Held(base)), "__dict__"), "without", asked)
    if is_heap(owner):
        watch.guard(Item(Attribute(Object(Held(owner)), "__dict__"), asked), "is", Held(raw))
    if isinstance(raw, staticmethod | classmethod) and watch.known(raw.__func__) is None:
        watch.found(
            Attribute(Item(Attribute(Object(Held(owner)), "__dict__"), asked), "__func__"), raw.__func__
        )


def _of_descriptor(watch: Observer, thing: Any, asked: str, source: Source | None) -> None:
    """The class has something that is asked in the place of the instance's own."""
    kind = type(thing)
    raw, owner = lookup(kind, asked)
    getter = type(raw).__get__ if hasattr(type(raw), "__get__") else None
    if isinstance(raw, property):
        _class_fact(watch, kind, asked)
        if not isinstance(raw.fget, FunctionType | None.__class__):
            watch.impure(f"asks the property {asked} of {kind.__name__}, which is not written in Python")
    elif isinstance(raw, MemberDescriptorType | GetSetDescriptorType) or type(raw).__name__ == "_tuplegetter":
        _computed(watch, thing, asked, source)
    elif isinstance(getter, FunctionType):
        if is_trusted(getter.__code__):
            _computed(watch, thing, asked, source)
            return
        _class_fact(watch, kind, asked)
        assert owner is not None
        if is_heap(owner):
            watch.found(Item(Attribute(Object(Held(owner)), "__dict__"), asked), raw)
        _class_fact(watch, type(raw), "__get__")
        watch.arm(type(raw))
    elif getter is not None:
        watch.impure(f"asks {asked} of {kind.__name__}, a {type(raw).__name__}")
    elif source is not None:
        watch.found(Attribute(source, asked), _namespace(thing).get(asked, raw))


def _computed(watch: Observer, thing: Any, asked: str, source: Source | None) -> None:
    """What C gives for the attribute: nothing else happens when it is asked for twice."""
    value = getattr(thing, asked, MISSING)
    if value is MISSING:
        if source is not None:
            watch.guard(source, "lacks", asked)
    elif isinstance(value, np.ndarray):
        return  # a view, which is known by what it is of
    elif source is None:
        watch.found(None, value)
    elif is_plain(value) or value is getattr(thing, asked):
        watch.found(Attribute(source, asked), value)


def _of_nobody(watch: Observer, thing: Any, asked: str, source: Source | None) -> None:
    """Neither the object nor its class has it."""
    kind = type(thing)
    if is_heap(kind) and not watch.is_made(kind):
        watch.guard(Object(Held(kind)), "lacks", asked)
    if not hasattr(kind, "__getattr__"):
        if source is not None:
            watch.guard(source, "lacks", asked)
        return
    if source is not None and hasattr(thing, "__dict__"):
        watch.guard(Attribute(source, "__dict__"), "without", asked)
    _class_fact(watch, kind, "__getattr__")


# elements


def item(watch: Observer, thing: Any, key: Any) -> None:
    """An element is about to be read."""
    kind = type(thing)
    if isinstance(thing, Tensor | str | bytes | range) or kind is memoryview:
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
        _class_fact(watch, kind, "__getitem__")
        watch.arm(thing)
        return
    if isinstance(thing, dict | MappingProxyType):
        _of_mapping(watch, thing, key, source)
    elif isinstance(thing, list | tuple | deque) and hasattr(key, "__index__"):
        place = int(key.__index__())
        if -len(thing) <= place < len(thing):
            if source is not None:
                watch.guard_kind(thing, source)
            watch.found(Item(source, place) if source else _from(watch, thing), thing[place])
        else:
            length(watch, thing)
    elif isinstance(thing, np.ndarray):
        container(watch, thing)
        container(watch, key, 2)
    elif isinstance(thing, CONTAINERS):
        container(watch, thing)
    elif isinstance(thing, Module) or is_heap(kind):
        watch.arm(thing)
    elif source is not None:
        watch.impure(f"takes an element of a {kind.__name__}")


def _from(watch: Observer, thing: Any) -> None:
    """The source of what stands in `thing`, which has none: None."""


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
    if type(key).__hash__ is object.__hash__ or isinstance(key, Enum | type | FunctionType | Tensor | Module):
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
        _class_fact(watch, kind, "__contains__")
        watch.arm(thing)
    elif (
        isinstance(thing, dict | set | frozenset | MappingProxyType)
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
    if is_plain(thing) or isinstance(thing, Tensor | type | FunctionType | ModuleType):
        return
    if isinstance(thing, np.ndarray):
        return array(watch, thing)
    if isinstance(thing, VIEWS):
        return None  # what it is of was read when it was made
    if isinstance(thing, partial):
        for part in (thing.func, thing.args, thing.keywords):
            container(watch, part, deep - 1)
        return watch.arm(thing)
    if not isinstance(thing, CONTAINERS):
        return _object(watch, thing, deep)
    if deep <= 0:
        return watch.impure("reads data that are nested too deep")
    source = watch.source_of(thing)
    if source is not None:
        watch.guard_kind(thing, source)
    if isinstance(thing, dict | MappingProxyType):
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
    if source is not None and isinstance(thing, set | frozenset | bytearray):
        watch.guard(Result(list, source), "items", tuple(map(_part, thing)))
    elif source is not None and len(thing) > 4 and all(map(is_plain, thing)):
        watch.guard(source, "items", tuple(thing))
        return None
    elif source is not None:
        watch.guard(source, "length", len(thing))
    for place, value in enumerate(thing):
        if not isinstance(thing, set | frozenset | bytearray):
            watch.found(Item(source, place) if source else None, value)
        if deep > 1:
            container(watch, value, deep - 1)
    return None


def array(watch: Observer, thing: Any) -> None:
    """The elements of an array are read, perhaps by an op, which tells that it takes them as an input."""
    source = watch.source_of(thing)
    if source is None:
        return
    known = watch.known(thing)
    whole = thing
    while known is None and isinstance(whole.base, np.ndarray):
        whole = whole.base
        known = watch.known(whole)
    if thing.dtype.hasobject:
        watch.impure("reads an array of objects from outside")
    else:
        watch.reads_array(thing, whole, source)


def array_contents(watch: Observer, whole: Any, source: Source) -> None:
    """What stands in an array has to stay."""
    if whole.nbytes > LARGEST_ARRAY:
        watch.impure(
            f"reads an array of {whole.nbytes} bytes from outside, {source}, too large to be compared at each "
            "call; make it a Tensor, or use it in ops alone"
        )
    else:
        watch.guard(source, "array", Contents.of(whole))


def _object(watch: Observer, thing: Any, deep: int) -> None:
    """An object is given to code in C, which may call its methods and read its fields."""
    watch.arm(thing)
    source = watch.source_of(thing)
    if isinstance(thing, Module) or source is None:
        return
    if is_heap(type(thing)):
        watch.guard_kind(thing, source)
        if hasattr(type(thing), "__dataclass_fields__") and deep > 1:
            for field in type(thing).__dataclass_fields__:
                if field in _namespace(thing):
                    watch.found(Attribute(source, field), _namespace(thing)[field])
                    container(watch, _namespace(thing)[field], deep - 1)
    elif hasattr(thing, "__next__"):
        watch.impure(f"reads an iterator from outside, a {type(thing).__name__}")


# loops


def iterated(watch: Observer, thing: Any, deep: int = 1) -> None:
    """All elements are about to be asked for, one after the other."""
    if is_plain(thing) or isinstance(thing, Tensor):
        return
    if isinstance(thing, CONTAINERS) and type(thing).__iter__ in _C_ITERS:
        container(watch, thing, deep)
        return
    advanced(watch, thing)
    if isinstance(thing, (GeneratorType, *VIEWS)):
        return
    source = watch.source_of(thing)
    if source is not None and is_heap(type(thing)):
        watch.guard_kind(thing, source)
    for asked in ("__iter__", "__next__", "__getitem__", "__len__"):
        kind = type(thing)
        raw, _ = lookup(kind, asked)
        if isinstance(raw, FunctionType):
            _class_fact(watch, kind, asked)
            if asked == "__iter__":
                break
    watch.arm(thing)
    if isinstance(thing, type) or isinstance(thing, CONTAINERS):
        watch.arm(type(thing))
        if isinstance(thing, CONTAINERS):
            container(watch, thing, deep)


_C_ITERS = frozenset(
    kind.__iter__ for kind in (*CONTAINERS, OrderedDict, defaultdict) if hasattr(kind, "__iter__")
)


def advanced(watch: Observer, thing: Any) -> None:
    """The next element of an iterator is about to be taken."""
    if not hasattr(type(thing), "__next__") or watch.is_made(thing):
        return
    if isinstance(lookup(type(thing), "__next__")[0], FunctionType):
        watch.guard_kind(thing)
        _class_fact(watch, type(thing), "__next__")
        watch.arm(thing)
    else:
        watch.impure(f"takes from an iterator from outside, a {type(thing).__name__}")


def is_trusted_class(kind: type) -> bool:
    """Does it belong to mgb or NumPy?"""
    return (kind.__module__ or "").partition(".")[0] in ("mgb", "numpy", "builtins", "typing")


def bound(method: Any) -> tuple[Any, Any]:
    """The function and the object of a method."""
    return (method.__func__, method.__self__) if isinstance(method, MethodType) else (method, None)
