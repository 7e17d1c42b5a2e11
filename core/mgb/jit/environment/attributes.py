"""What is read of variables, attributes and classes outside, as guards."""

from __future__ import annotations

import builtins
import threading
from types import (
    BuiltinFunctionType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np

from ...tensor import Tensor
from ..guard import is_plain
from ..source import Attribute, Cell, Global, Held, Item, Object, Result, Source
from .arming import own_code
from .known import MISSING, is_heap, is_library, is_trusted, lookup
from .observer import Observer

_BUILTINS = Held(vars(builtins))
_C_DESCRIPTORS = (MethodDescriptorType, WrapperDescriptorType, BuiltinFunctionType)

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
    """A variable of a function around is read: of each that has this code, for the frame tells not which."""
    for function in watch.closures(code):
        place = code.co_freevars.index(asked)
        assert function.__closure__ is not None
        held = function.__closure__[place]
        if not watch.is_made(function):
            if is_empty(held):
                watch.guard(Result(is_empty, Object(Held(held))), "same", True)
            else:
                watch.found(Cell(Held(held), asked), held.cell_contents)
    if len(watch.closures(code)) != 1:
        watch.latest_number = None  # perhaps that of another


def is_empty(held: Any) -> bool:
    """Has the variable that a cell stands for no value?"""
    try:
        held.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


# attributes


def _is_field(kind: type, asked: str) -> bool:
    return asked in getattr(kind, "__dataclass_fields__", ())


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
    if watch.is_argument(thing) and asked in getattr(thing, "__dict__", {}) and not _is_field(kind, asked):
        watch.impure(f"reads {asked} of a {kind.__name__} among the arguments, which is none of its elements")
    source = watch.source_of(thing)
    if isinstance(thing, threading.local):
        return _computed(watch, thing, asked, source)
    raw, owner = lookup(kind, asked)
    if source is not None and is_heap(kind):
        watch.guard_kind(thing, source)
    own = namespace(thing)
    if is_heap(kind) and not is_library(kind.__module__):
        class_fact(watch, kind, "__getattribute__")
        if isinstance(kind.__getattribute__, FunctionType):
            watch.impure(f"asks {asked} of a {kind.__name__}, whose __getattribute__ is written in Python")
            return None
        if source is None and raw is MISSING and not watch.is_made(kind):
            watch.guard(Object(Held(kind)), "lacks", asked)
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
        class_fact(watch, kind, asked)
        return _of_descriptor(watch, thing, asked, source) if not isinstance(raw, _FUNCTIONS) else None
    return watch.found(Attribute(source or Object(Held(kind)), asked), raw)


_FUNCTIONS = (FunctionType, staticmethod, classmethod)


def namespace(thing: Any) -> dict[str, Any]:
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
    bases(watch, thing.__self_class__)
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


def bases(watch: Observer, kind: type) -> None:
    """Which classes a class is derived from has to stay, and in which order."""
    if is_heap(kind) and not watch.is_made(kind):
        watch.guard(Attribute(Object(Held(kind)), "__mro__"), "items", tuple(map(Held, kind.__mro__)))


def methods_of(kind: type) -> tuple[Any, ...]:
    """The names and functions that users have given a class."""
    return tuple(
        part
        for base in kind.__mro__
        if is_heap(base) and not is_library(base.__module__)
        for pair in vars(base).items()
        if isinstance(pair[1], (*_FUNCTIONS, property))
        for part in pair
    )


def every_method(watch: Observer, kind: type) -> None:
    """Code in C, or of the library, may call any method of a class."""
    methods = methods_of(kind) if is_heap(kind) and not watch.is_made(kind) else ()
    if methods:
        known = tuple(part if isinstance(part, str) else Held(part) for part in methods)
        watch.guard(Result(methods_of, Object(Held(kind))), "items", known)


def of_class(watch: Observer, kind: type, asked: str) -> None:
    """An attribute of a class."""
    raw, _ = lookup(kind, asked)
    over, _ = lookup(type(kind), asked)
    if raw is MISSING and over is MISSING:
        if type(kind) is not type and hasattr(type(kind), "__getattr__"):
            class_fact(watch, type(kind), "__getattr__")
        watch.guard(_source(watch, kind), "lacks", asked)
    elif raw is MISSING or hasattr(type(over), "__set__"):
        if is_heap(type(kind)):
            class_fact(watch, type(kind), asked)
            if not hasattr(type(over), "__get__"):
                watch.found(Attribute(_source(watch, kind), asked), over)
        else:
            _computed(watch, kind, asked, watch.source_of(kind))
    elif is_heap(kind):
        class_fact(watch, kind, asked)
        if not hasattr(type(raw), "__get__") and not watch.is_made(kind):
            watch.found(Attribute(_source(watch, kind), asked), raw)


def class_fact(watch: Observer, kind: type, asked: str) -> None:
    """What a class has under a name has to stay, and is armed."""
    raw, owner = lookup(kind, asked)
    watch.arm(raw)
    if owner is None or not is_heap(kind) or watch.is_made(kind):
        if owner is None and is_heap(kind) and not watch.is_made(kind):
            watch.guard(Object(Held(kind)), "lacks", asked)
        return
    _implicit_facts(watch, raw)
    source: Source = Object(Held(kind))
    if isinstance(raw, (FunctionType, property, *_C_DESCRIPTORS)) and not hasattr(
        type(lookup(type(kind), asked)[0]), "__set__"
    ):
        watch.found(Attribute(source, asked), raw)  # read through the class it is itself
        return
    for base in kind.__mro__[: kind.__mro__.index(owner)]:
        if is_heap(base):
            watch.guard(Attribute(Object(Held(base)), "__dict__"), "without", asked)
    if is_heap(owner):
        watch.guard(Item(Attribute(Object(Held(owner)), "__dict__"), asked), "is", Held(raw))
    if isinstance(raw, (staticmethod, classmethod)) and watch.known(raw.__func__) is None:
        watch.found(
            Attribute(Item(Attribute(Object(Held(owner)), "__dict__"), asked), "__func__"), raw.__func__
        )


def function_facts(watch: Observer, function: FunctionType) -> None:
    """The code and the defaults of a function outside have to stay."""
    source = watch.source_of(function)
    if source is None:
        return
    watch.guard(Attribute(source, "__code__"), "is", Held(own_code(function)))
    for name, values in (
        ("__defaults__", function.__defaults__),
        ("__kwdefaults__", function.__kwdefaults__),
    ):
        place = Attribute(source, name)
        if not values:
            continue  # the call gave all, and would again
        if isinstance(values, dict):
            watch.guard(Result(list, place), "items", tuple(values))
            for key, value in values.items():
                watch.found(Item(place, key), value)
        elif is_plain(values):
            watch.guard(place, "same", values)
        else:
            watch.guard(place, "length", len(values))
            for number, value in enumerate(values):
                watch.found(Item(place, number), value)


def _implicit_facts(watch: Observer, raw: Any) -> None:
    """Functions of users that are called without being named have to stay what they are."""
    for function in (raw, *(getattr(raw, name, None) for name in ("fget", "fset", "fdel", "__func__"))):
        if isinstance(function, FunctionType) and not is_trusted(function.__code__):
            function_facts(watch, function)


def _of_descriptor(watch: Observer, thing: Any, asked: str, source: Source | None) -> None:
    """The class has something that is asked in the place of the instance's own."""
    kind = type(thing)
    raw, owner = lookup(kind, asked)
    getter = type(raw).__get__ if hasattr(type(raw), "__get__") else None
    if isinstance(raw, property):
        class_fact(watch, kind, asked)
        if not isinstance(raw.fget, (FunctionType, type(None))):
            watch.impure(f"asks the property {asked} of {kind.__name__}, which is not written in Python")
    elif (
        isinstance(raw, (MemberDescriptorType, GetSetDescriptorType)) or type(raw).__name__ == "_tuplegetter"
    ):
        _computed(watch, thing, asked, source)
    elif isinstance(getter, FunctionType):
        if is_trusted(getter.__code__):
            _computed(watch, thing, asked, source)
            return
        class_fact(watch, kind, asked)
        assert owner is not None
        if is_heap(owner):
            watch.found(Item(Attribute(Object(Held(owner)), "__dict__"), asked), raw)
        class_fact(watch, type(raw), "__get__")
        watch.arm(type(raw))
    elif getter is not None:
        watch.impure(f"asks {asked} of {kind.__name__}, a {type(raw).__name__}")
    elif source is not None:
        watch.found(Attribute(source, asked), namespace(thing).get(asked, raw))


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
    class_fact(watch, kind, "__getattr__")
    getter, _ = lookup(kind, "__getattr__")
    if not isinstance(getter, FunctionType):
        watch.calls(getter, [thing, asked])
