"""What is read of variables, attributes and classes outside, as guards."""

from __future__ import annotations

import builtins
import threading
from operator import attrgetter
from types import (
    BuiltinFunctionType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)  # fmt: skip
from typing import Any

import numpy as np

from ...tensor import Tensor
from ...trusted import is_library
from ..guard import is_plain
from ..source import Attribute, Cell, Global, Held, Item, Object, Result, Source, is_in_argument
from ..tree import own_names
from ..watch.classes import methods_of
from ..watch.known import is_empty
from .arming import own_code
from .known import MISSING, SEEDED, is_heap, is_note, is_users, lookup, namespace, reads_elsewhere
from .watch import Watch

_BUILTINS = Held(vars(builtins))
_C_SLOTS = (MethodDescriptorType, WrapperDescriptorType)
_C_DESCRIPTORS = (*_C_SLOTS, BuiltinFunctionType)
_FUNCTIONS = (FunctionType, staticmethod, classmethod)

# variables


def name(watch: Watch, asked: str, frame: FrameType) -> None:
    """A global variable or a builtin is read."""
    space: Any = frame.f_globals
    is_class_body = not frame.f_code.co_flags & 1  # its variables stand in a dict
    if is_class_body and space is not frame.f_locals and asked in frame.f_locals:
        return
    module = Held(space)
    if asked in space:
        watch.found(Global(module, asked), space[asked])
        return
    watch.guard(Object(module), "without", asked)
    if asked in vars(builtins):
        watch.found(Global(_BUILTINS, asked), vars(builtins)[asked])


def cell(watch: Watch, asked: str, within: Any) -> None:
    """A variable of a function around is read, which the function `within` has alone."""
    (held,) = within.__closure__
    if is_empty(held):
        watch.guard(Result(is_empty, watch.known(held) or Object(Held(held))), "same", True)
    else:
        watch.found(_variable(watch, held, asked), held.cell_contents)


def _variable(watch: Watch, held: Any, asked: str) -> Source:
    return Cell(watch.known(held) or Object(Held(held)), asked)


def wrote(watch: Watch, space: dict[str, Any], asked: str, within: Any = None) -> None:
    """A variable outside is written next."""
    variable: Source = Global(Held(space), asked)
    old = space.get(asked, MISSING)
    if within is not None:
        (held,) = within.__closure__
        variable, old = _variable(watch, held, asked), MISSING if is_empty(held) else held.cell_contents
    watch.writing.writes_at(variable, old, f"writes the variable `{asked}` outside")


# attributes


def attribute(watch: Watch, thing: Any, asked: str) -> None:
    """An attribute is about to be read; what that calls is armed."""
    if isinstance(thing, ModuleType):
        return _of_module(watch, thing, asked)
    if isinstance(thing, super):
        return _of_super(watch, thing, asked)
    if isinstance(thing, type):
        return _of_class(watch, thing, asked)
    if isinstance(thing, threading.local):
        return _computed(watch, thing, asked)
    if isinstance(thing, FunctionType):
        watch.identity(thing)
    own = namespace(thing)
    kind = type(thing)
    if isinstance(thing, Tensor) and not is_note(kind, asked):
        return None
    if watch.is_argument(thing) and asked not in getattr(kind, "__dataclass_fields__", ()):
        is_slot = isinstance(lookup(kind, asked)[0], MemberDescriptorType)
        if asked in own or is_slot or (asked == "__dict__" and own_names(thing)):
            watch.impure(
                f"reads {asked} of a {kind.__name__} among the arguments, which is none of its elements"
            )
    if is_heap(kind):
        watch.kind(thing)
        if not is_library(kind.__module__):
            class_fact(watch, kind, "__getattribute__")
            if isinstance(kind.__getattribute__, FunctionType):
                watch.impure(
                    f"asks {asked} of a {kind.__name__}, whose __getattribute__ is written in Python"
                )
                return None
    return _of_instance(watch, thing, asked, own)


def path(watch: Watch, thing: Any, names: str) -> None:
    """Attributes of attributes are about to be read."""
    for asked in names.split("."):
        attribute(watch, thing, asked)
        thing = getattr(thing, asked, MISSING)


def _of_instance(watch: Watch, thing: Any, asked: str, own: dict[str, Any]) -> None:
    kind = type(thing)
    raw, owner = lookup(kind, asked)
    if isinstance(thing, Tensor) and owner is not None and is_library(owner.__module__):
        return _computed(watch, thing, asked)
    if raw is MISSING and not is_library(kind.__module__) and watch.source_of(thing) is None:
        lacks(watch, kind, asked)  # which would be asked first
    if hasattr(type(raw), "__set__") and raw is not MISSING:
        return _of_descriptor(watch, thing, asked, raw)
    if asked in own:
        return watch.part(thing, Attribute, asked, own[asked])
    if raw is MISSING:
        return _of_nobody(watch, thing, asked)
    if isinstance(raw, _C_DESCRIPTORS):
        return None
    if not hasattr(type(raw), "__get__"):
        source = watch.source_of(thing) or watch.source_of(_outside(watch, kind))
        return watch.found(None if watch.is_made(owner) or source is None else Attribute(source, asked), raw)
    _not_its_own(watch, thing, asked)
    class_fact(watch, kind, asked)
    return None if isinstance(raw, _FUNCTIONS) else _of_descriptor(watch, thing, asked, raw)


def lacks(watch: Watch, kind: type, asked: str) -> None:
    """A class has to go on without an attribute, whatever its own class has."""
    kind = _outside(watch, kind)
    if not is_heap(kind):
        return
    if not hasattr(kind, asked):
        watch.guard(Object(Held(kind)), "lacks", asked)
        return
    for base in filter(is_heap, kind.__mro__):
        watch.guard(Attribute(Object(Held(base)), "__dict__"), "without", asked)


def _outside(watch: Watch, kind: type) -> type:
    """The class itself, or the first of its bases that the body has not made."""
    return next(base for base in kind.__mro__ if not watch.is_made(base))


def _not_its_own(watch: Watch, thing: Any, asked: str) -> None:
    source = watch.source_of(thing)
    if source is not None and hasattr(thing, "__dict__"):
        watch.guard(Attribute(source, "__dict__"), "without", asked)


def _of_module(watch: Watch, thing: ModuleType, asked: str) -> None:
    value = vars(thing).get(asked, MISSING)
    getter = vars(thing).get("__getattr__")
    if value is MISSING and is_users(getter):
        space = Attribute(watch.source_of(thing) or Object(Held(thing)), "__dict__")
        watch.guard(space, "without", asked)
        watch.found(Item(space, "__getattr__"), getter)
        watch.calls(getter, [asked])
        return
    if value is MISSING:
        value = getattr(thing, asked, MISSING)  # NumPy's and our own load some when they are asked for
    if value is not MISSING:
        watch.part(thing, Attribute, asked, value)
    else:
        watch.fact(thing, "lacks", asked)


def _of_super(watch: Watch, thing: Any, asked: str) -> None:
    kind = thing.__self_class__
    chain = kind.__mro__
    if is_heap(kind) and not watch.is_made(kind):
        watch.guard(Attribute(Object(Held(kind)), "__mro__"), "items", tuple(map(Held, chain)))
    for base in chain[chain.index(thing.__thisclass__) + 1 :]:
        space = Attribute(Object(Held(base)), "__dict__")
        is_outside = is_heap(base) and not watch.is_made(base)
        if asked in vars(base):
            if is_outside:
                watch.found(Item(space, asked), vars(base)[asked])
            watch.arm(vars(base)[asked])
            return
        if is_outside:
            watch.guard(space, "without", asked)


def every_method(watch: Watch, kind: type) -> None:
    """Code in C, or of the library, may call any method of a class."""
    methods = methods_of(kind) if is_heap(kind) and not watch.is_made(kind) else ()
    if methods:
        known = tuple(part if isinstance(part, str) else Held(part) for part in methods)
        watch.guard(Result(methods_of, Object(Held(kind))), "items", known)


def special(watch: Watch, thing: Any, *asked: str) -> None:
    """Python may call these special methods of `thing`, as far as its class has them."""
    kind = type(thing)
    if is_heap(kind):
        watch.kind(thing)
        for method in asked:
            class_fact(watch, kind, method)
            raw, owner = lookup(kind, method)
            if owner is object and method in ("__eq__", "__hash__"):
                watch.identity(thing)
            _reads_elsewhere(watch, thing, method, raw)
            function = getattr(raw, "__func__", raw)
            if raw is not MISSING and not isinstance(function, (FunctionType, type(None), *_C_SLOTS)):
                watch.impure(f"asks {method} of a {kind.__name__}, which is a {type(function).__name__}")
        watch.arm(kind if isinstance(thing, type) else thing)


def _reads_elsewhere(watch: Watch, thing: Any, asked: str, function: Any) -> None:
    """An operator or property of `thing` is about to be used, which may read what no guard sees."""
    if reads_elsewhere(function) and not watch.is_made(thing):
        kind = type(thing)
        watch.impure(f"asks {asked} of a {kind.__module__}.{kind.__qualname__}, which no guard can ask again")


def _of_class(watch: Watch, kind: type, asked: str) -> None:
    raw, owner = lookup(kind, asked)
    over, _ = lookup(type(kind), asked)
    if raw is MISSING and over is MISSING:
        if type(kind) is not type and hasattr(type(kind), "__getattr__"):
            class_fact(watch, type(kind), "__getattr__")
        watch.fact(kind, "lacks", asked)
    elif raw is MISSING or hasattr(type(over), "__set__"):
        class_fact(watch, type(kind), asked)
        if not isinstance(over, (*_FUNCTIONS, *_C_DESCRIPTORS)):
            _of_descriptor(watch, kind, asked, over)
    elif is_heap(kind):
        class_fact(watch, kind, asked)
        if not hasattr(type(raw), "__get__") and not watch.is_made(owner):
            watch.part(_outside(watch, kind), Attribute, asked, raw)


def class_fact(watch: Watch, kind: type, asked: str) -> None:
    """What a class has under a name has to stay, and is armed."""
    raw, owner = lookup(kind, asked)
    watch.arm(raw)
    if owner is None:
        return lacks(watch, kind, asked)
    kind = _outside(watch, kind)
    if not is_heap(kind) or watch.is_made(owner):
        return None
    for function in (raw, *(getattr(raw, part, None) for part in ("fget", "fset", "fdel", "__func__"))):
        if is_users(function):
            function_facts(watch, function)
    over, _ = lookup(type(kind), asked)
    if isinstance(raw, (FunctionType, property, *_C_DESCRIPTORS)) and not hasattr(type(over), "__set__"):
        return watch.found(Attribute(Object(Held(kind)), asked), raw)  # read through the class it is itself
    for base in kind.__mro__[: kind.__mro__.index(owner)]:
        if is_heap(base):
            watch.guard(Attribute(Object(Held(base)), "__dict__"), "without", asked)
    if is_heap(owner):
        there = Item(Attribute(Object(Held(owner)), "__dict__"), asked)
        watch.guard(there, "is", Held(raw))
        if isinstance(raw, (staticmethod, classmethod)) and watch.known(raw.__func__) is None:
            watch.found(Attribute(there, "__func__"), raw.__func__)
    return None


def function_facts(watch: Watch, function: FunctionType) -> None:
    """The code and the defaults of a function outside have to stay."""
    source = watch.source_of(function)
    if source is None:
        return
    watch.guard(Attribute(source, "__code__"), "is", Held(own_code(function)))
    if is_in_argument(source):
        watch.guard(Attribute(source, "__globals__"), "is", Held(function.__globals__))
        for name in ("__defaults__", "__kwdefaults__"):
            if getattr(function, name) is None:
                watch.guard(Attribute(source, name), "same", None)
    if function.__defaults__:  # without them the call gave all, and would again
        defaults = Attribute(source, "__defaults__")
        if is_plain(function.__defaults__):
            watch.guard(defaults, "same", function.__defaults__)
        else:
            watch.guard(defaults, "length", len(function.__defaults__))
            for number, value in enumerate(function.__defaults__):
                watch.found(Item(defaults, number), value)
    if function.__kwdefaults__:
        defaults = Attribute(source, "__kwdefaults__")
        watch.guard(Result(list, defaults), "items", tuple(function.__kwdefaults__))
        for key, value in function.__kwdefaults__.items():
            watch.found(Item(defaults, key), value)


def _of_descriptor(watch: Watch, thing: Any, asked: str, raw: Any) -> None:
    """The class has something that is asked in the place of the instance's own."""
    kind = type(thing)
    getter = getattr(type(raw), "__get__", None)
    if isinstance(raw, property):
        class_fact(watch, kind, asked)
        _reads_elsewhere(watch, thing, asked, raw.fget)
        if isinstance(raw.fget, attrgetter):
            for names in raw.fget.__reduce__()[1]:
                path(watch, thing, names)
        elif not isinstance(raw.fget, (FunctionType, type(None))):
            watch.impure(f"asks the property {asked} of {kind.__name__}, which is not written in Python")
    elif isinstance(thing, SEEDED) and watch.is_made(thing):
        return
    elif getter is None:
        watch.part(thing, Attribute, asked, namespace(thing).get(asked, raw))
    elif is_users(getter):
        class_fact(watch, kind, asked)
        owner = lookup(kind, asked)[1]
        assert owner is not None
        if is_heap(owner):
            watch.found(Item(Attribute(Object(Held(owner)), "__dict__"), asked), raw)
        class_fact(watch, type(raw), "__get__")
        watch.arm(type(raw))
    elif (
        isinstance(raw, (MemberDescriptorType, GetSetDescriptorType))
        or isinstance(getter, FunctionType)
        or type(raw).__name__ == "_tuplegetter"
    ):
        _computed(watch, thing, asked)
    else:
        watch.impure(f"asks {asked} of {kind.__name__}, a {type(raw).__name__}")


def _computed(watch: Watch, thing: Any, asked: str) -> None:
    """What C gives for the attribute: nothing else happens when it is asked for twice."""
    value = getattr(thing, asked, MISSING)
    if value is MISSING:
        watch.fact(thing, "lacks", asked)
    elif isinstance(thing, np.ndarray) and asked in ("flags", "base") and value is not None:
        _of_array(watch, thing, asked, value)
    elif isinstance(value, np.ndarray):
        return  # a view, which is known by what it is of
    elif is_plain(value) or value is getattr(thing, asked) or watch.source_of(thing) is None:
        watch.part(thing, Attribute, asked, value)
    elif isinstance(thing, np.ndarray):
        watch.impure(f"reads {asked} of an array from outside")


def _of_array(watch: Watch, thing: Any, asked: str, value: Any) -> None:
    """The flags of an array, which are an object that is new each time, or that of which it is a view."""
    source, known = watch.source_of(thing), watch.known(value)
    if source is not None and asked == "flags":
        watch.guard(Attribute(Attribute(source, asked), "num"), "same", value.num)
    elif source is not None and known is not None:
        watch.guard(Attribute(source, asked), "alias", known)
    elif source is not None:
        watch.meets(Attribute(source, asked), value)


def _of_nobody(watch: Watch, thing: Any, asked: str) -> None:
    """Neither the object nor its class has it."""
    kind = type(thing)
    lacks(watch, kind, asked)
    if not hasattr(kind, "__getattr__"):
        watch.fact(thing, "lacks", asked)
        return
    _not_its_own(watch, thing, asked)
    class_fact(watch, kind, "__getattr__")
    getter, _ = lookup(kind, "__getattr__")
    _reads_elsewhere(watch, thing, asked, getter)
    if not isinstance(getter, FunctionType):
        watch.calls(getter, [thing, asked])
