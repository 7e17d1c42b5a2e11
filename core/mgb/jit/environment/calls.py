"""What a call may do that nobody sees: which functions in C are pure, and who is called by them."""

from __future__ import annotations

import abc
import builtins
import collections
import contextvars
import functools
import operator
import types
import weakref
from collections.abc import Callable
from types import FunctionType, GeneratorType, MethodType
from typing import Any

import numpy as np

from ...module import Module
from ...tensor import Tensor
from ..guard import is_plain
from ..source import Attribute, Cell, Held, Object, Result, Source, call
from . import known
from .attributes import attribute, class_fact, function_facts
from .known import is_heap, is_module, is_trusted, lookup
from .observer import Observer
from .reads import DEPTH, advanced, array, container, item, iterated, key_of, length, owner_of, state, tree

#: What is done with the result of a call: a function that is given it, or None.
Then = Callable[[Any], Any] | None

_METHODS = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.MethodWrapperType, types.ClassMethodDescriptorType,
)  # fmt: skip


def called(watch: Observer, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Then:
    """`function` is about to be called."""
    kind = type(function)
    if kind is MethodType:
        return called(watch, function.__func__, [function.__self__, *args], kwargs)
    if kind is FunctionType:
        return _python(watch, function, args, kwargs)
    if isinstance(function, functools.partial):
        container(watch, [function.keywords, function.args], DEPTH)
        _part_of(watch, function, "func", function.func)
        return called(watch, function.func, [*function.args, *args], {**function.keywords, **kwargs})
    if isinstance(function, type):
        return _class(watch, function, args, kwargs)
    if isinstance(function, functools._lru_cache_wrapper):
        watch.impure(
            f"calls {getattr(function, '__qualname__', 'a function')}, whose results are kept by lru_cache"
        )
        return None
    if isinstance(function, _METHODS):
        return _in_c(watch, function, args, kwargs)
    if isinstance(function, weakref.ref):
        source = watch.source_of(function)
        return (lambda value: watch.found(Result(call, source), value)) if source else None
    if kind in (operator.itemgetter, operator.attrgetter, operator.methodcaller) and args:
        return _getter(watch, function, args[0])
    if kind.__module__.partition(".")[0] == "numpy":
        return _numpy(watch, function, args, kwargs)
    return _instance(watch, function, args)


def _getter(watch: Observer, getter: Any, thing: Any) -> Then:
    """One of those of the module `operator`."""
    _, given = getter.__reduce__()[:2]
    if isinstance(getter, operator.methodcaller):
        attribute(watch, thing, given[0])
        return called(watch, getattr(thing, given[0]), list(given[1:]), {})
    for key in given:
        if isinstance(getter, operator.itemgetter):
            item(watch, thing, key)
            continue
        value = thing
        for name in key.split("."):
            attribute(watch, value, name)
            value = getattr(value, name)
    return None


def _part_of(watch: Observer, thing: Any, name: str, value: Any) -> None:
    source = watch.source_of(thing)
    watch.found(Attribute(source, name) if source else None, value)


def _maker(watch: Observer, given: list[Any]) -> Then:
    """The result is new, unless it is what was given."""
    places = {id(value) for value in given}
    roots = {id(owner_of(value)) for value in given if isinstance(value, np.ndarray)}

    def made(value: Any) -> None:
        if isinstance(value, np.ndarray) and id(owner_of(value)) in roots:
            return  # a view, which is known by what it is of
        if id(value) not in places and not isinstance(value, (type, types.ModuleType, FunctionType)):
            watch.make(value)

    return made


def _python(watch: Observer, function: FunctionType, args: list[Any], kwargs: dict[str, Any]) -> Then:
    if is_trusted(function.__code__):
        if hasattr(function, "registry") and hasattr(function, "dispatch") and args:
            return _dispatched(watch, function, args, kwargs)
        if "registry" in function.__code__.co_freevars:
            _registry(watch, function)
        return _trusted(watch, function, args, kwargs)
    if not watch.is_made(function):
        function_facts(watch, function)
    watch.arm(function)
    if function.__code__.co_flags & 0x2A0:  # a generator or coroutine
        return _maker(watch, [])
    return None


def _dispatched(watch: Observer, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Then:
    """A function made by `singledispatch`."""
    source = watch.source_of(function)
    if source is not None:
        watch.found(Attribute(source, "registry"), function.registry)
        container(watch, function.registry)
    if not is_plain(args[0]):
        watch.guard_kind(args[0])
    return called(watch, function.dispatch(type(args[0])), args, kwargs)


def _registry(watch: Observer, function: FunctionType) -> None:
    """One of those that `singledispatch` makes, which share a dict, is called itself."""
    if function.__name__ == "register":
        watch.impure("registers a function by a class", once=True)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name == "registry":
            watch.found(Cell(Held(cell), name), cell.cell_contents)
            container(watch, cell.cell_contents)


def _trusted(watch: Observer, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Then:
    """A function of mgb or NumPy, or of Python's library, that is pure as far as it is not denied."""
    module = function.__module__ or ""
    if module.partition(".")[0] == "numpy":
        return _numpy(watch, function, args, kwargs)
    every = [*args, *kwargs.values()]
    name = function.__name__
    if module.partition(".")[0] == "mgb":
        if module.startswith(known.DENIED) or name in known.DENIED_NAMES:
            watch.impure(f"calls mgb's {function.__qualname__}, which changes or reads what no guard tells")
        if args and name in known.CHANGING_NAMES:
            watch.wrote(args[0], f"what {name} changes")
        if args and is_module(args[0]) and name in ("__setattr__", "__delattr__"):
            watch.wrote(args[0], f"attribute {args[1] if len(args) > 1 else ''}")
        elif args and is_module(args[0]) and name not in _UNWALKED:
            tree(watch, args[0])
    elif module.partition(".")[0] in known.DENIED_LIBRARY:
        watch.impure(f"calls {module}.{name}")
    for value in every:
        container(watch, value, DEPTH)
        if is_module(value):
            module_facts(watch, value)
        elif module in ("copy", "dataclasses"):
            state(watch, value, DEPTH)
    return _maker(watch, every)


#: Methods of Modules that read nothing but what the core looks at itself.
_UNWALKED = frozenset({"__call__", "forward", "__init__"})
#: What no call of a Module calls.
_UNCALLED = frozenset({"__init__", "reset_parameters", "_describe", "__repr__", "__setitem__", "__delitem__"})


def module_facts(watch: Observer, module: Module) -> None:
    """The classes of a Module and of those in it have to be what they were; their functions are armed."""
    if not watch.once(module):
        return
    watch.arm(module)
    for part in module.modules():
        kind = type(part)
        watch.once(part)
        if watch.is_made(kind) or not watch.once(kind):
            continue
        for base in kind.__mro__[: kind.__mro__.index(Module)]:
            for name, value in vars(base).items():
                if (
                    isinstance(value, (FunctionType, staticmethod, classmethod, property))
                    and name not in _UNCALLED
                ):
                    class_fact(watch, kind, name)
        class_fact(watch, kind, "__call__")


def _class(watch: Observer, kind: type, args: list[Any], kwargs: dict[str, Any]) -> Then:
    every = [*args, *kwargs.values()]
    if kind in known.PURE_TYPES:
        if kind is type and len(args) == 1:
            if is_heap(type(args[0])) or isinstance(args[0], known.CONTAINERS):
                watch.guard_kind(args[0])
            return None
        if kind is str:
            _text(watch, every)
        for value in every:
            _whole(watch, value)
        return _maker(watch, every)
    top = (kind.__module__ or "").partition(".")[0]
    if top == "numpy":
        return _numpy(watch, kind, args, kwargs)
    if top == "mgb":
        if kind.__module__.startswith(known.DENIED):
            watch.impure(f"makes a {kind.__name__} of {kind.__module__}")
        for value in every:
            container(watch, value, DEPTH)
        return _maker(watch, every)
    if is_heap(kind):
        watch.arm(kind)
        if isinstance(lookup(type(kind), "__call__")[0], FunctionType):
            class_fact(watch, type(kind), "__call__")
        for name in ("__init__", "__new__"):
            class_fact(watch, kind, name)
        if hasattr(kind, "__dataclass_fields__"):
            initial, _ = lookup(kind, "__init__")
            if isinstance(initial, FunctionType):
                function_facts(watch, initial)
            for field in kind.__dataclass_fields__.values():
                watch.arm(field.default_factory)
        if kind.__flags__ & (1 << 26) or isinstance(lookup(kind, "__new__")[0], types.BuiltinFunctionType):
            for value in every if not isinstance(lookup(kind, "__init__")[0], FunctionType) else ():
                container(watch, value, DEPTH)
        return _maker(watch, every)
    watch.impure(f"makes a {kind.__module__}.{kind.__qualname__}")
    return None


def _whole(watch: Observer, value: Any) -> None:
    """All of `value` is read by code in C; iterators are used up."""
    if hasattr(type(value), "__next__"):
        advanced(watch, value)
    elif hasattr(type(value), "__iter__") and not isinstance(value, type):
        iterated(watch, value, DEPTH)
    else:
        container(watch, value, DEPTH)
        if isinstance(value, FunctionType) and not is_trusted(value.__code__):
            function_facts(watch, value)
            watch.arm(value)
        elif isinstance(value, _METHODS) and value in _SPECIAL:
            if value not in (len, callable, isinstance, issubclass):
                watch.impure(f"has {value.__name__} called")
        elif callable(value) and not isinstance(value, (type, FunctionType)):
            called(watch, value, [], {})


def _in_c(watch: Observer, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Then:
    owner = getattr(function, "__self__", None)
    if owner is not None and not isinstance(owner, types.ModuleType):
        return _method(watch, owner, function.__name__, args, kwargs)
    if not isinstance(function, types.BuiltinFunctionType) and args:
        return _method(watch, args[0], function.__name__, args[1:], kwargs)
    special = _SPECIAL.get(function)
    if special is not None:
        then: Then = special(watch, *args)
        return then
    every = [*args, *kwargs.values()]
    module = function.__module__ or ""
    if module.partition(".")[0] == "numpy":
        return _numpy(watch, function, args, kwargs)
    if function in (repr, ascii, format):
        _text(watch, every)
    if function in known.PURE or module in known.PURE_MODULES:
        for value in every:
            _whole(watch, value)
        return _maker(watch, every)
    watch.impure(f"calls {module}.{function.__name__}".replace("builtins.", ""))
    return None


def _getattr(watch: Observer, thing: Any, name: Any, *rest: Any) -> Then:
    if isinstance(name, str):
        attribute(watch, thing, name)
    return None


def _isinstance(watch: Observer, thing: Any, kind: Any) -> Then:
    if not is_plain(thing):
        watch.guard_kind(thing)
    for part in kind if isinstance(kind, tuple) else (kind,):
        _subclass(watch, type(thing), part)
    return None


def _issubclass(watch: Observer, kind: Any, base: Any) -> Then:
    if isinstance(kind, type) and is_heap(kind) and not watch.is_made(kind):
        watch.found(Attribute(Object(Held(kind)), "__bases__"), kind.__bases__)
        container(watch, kind.__bases__)
    for part in base if isinstance(base, tuple) else (base,):
        _subclass(watch, kind, part)
    return None


def _subclass(watch: Observer, kind: Any, base: Any) -> None:
    """A class may be one of `base` because it was registered, or because a metaclass says so."""
    if is_heap(type(base)):
        for asked in ("__instancecheck__", "__subclasscheck__"):
            class_fact(watch, type(base), asked)
    if (isinstance(type(base), type) and is_heap(type(base))) or isinstance(base, abc.ABCMeta):
        watch.arm(type(base))
        asked, owner = lookup(type(base), "__instancecheck__")
        if isinstance(asked, FunctionType) and owner is not abc.ABCMeta and is_trusted(asked.__code__):
            watch.impure(f"asks whether something is a {base.__name__}, which {type(base).__name__} decides")
        if base not in kind.__mro__:
            watch.guard(Result(call, Object(Held(abc.get_cache_token))), "same", abc.get_cache_token())


def _text(watch: Observer, given: list[Any]) -> None:
    """A text is made of what is given."""
    if any(isinstance(value, np.ndarray) for value in given):
        watch.impure("makes a text of an array, which NumPy's print options decide")


def _vars(watch: Observer, *args: Any) -> Then:
    if not args:
        return _locals(watch)
    source = watch.source_of(args[0])
    if source is not None and hasattr(args[0], "__dict__"):
        watch.found(Attribute(source, "__dict__"), vars(args[0]))
        container(watch, vars(args[0]))
    return None


def _locals(watch: Observer) -> Then:
    return lambda value: watch.make(value)


def _globals(watch: Observer) -> Then:
    return lambda value: watch.found(Object(Held(value)), value)


def _next(watch: Observer, iterator: Any, *rest: Any) -> Then:
    advanced(watch, iterator)
    return None


def _setattr(watch: Observer, thing: Any, name: Any, *rest: Any) -> Then:
    watch.wrote(thing, f"attribute {name}")
    watch.arm(thing)
    return None


def _length(watch: Observer, thing: Any) -> Then:
    if isinstance(lookup(type(thing), "__len__")[0], FunctionType):
        watch.guard_kind(thing)
        class_fact(watch, type(thing), "__len__")
        watch.arm(thing)
    else:
        length(watch, thing)
    return None


def _callable(watch: Observer, thing: Any) -> Then:
    watch.guard_kind(thing)
    return None


def _identifier(watch: Observer, thing: Any) -> Then:
    watch.impure("asks for an id")
    return None


def _count(watch: Observer, counter: Any, values: Any) -> Then:
    watch.wrote(counter, "an element")
    _whole(watch, values)
    return None


def _build(watch: Observer, *args: Any) -> Then:
    return _maker(watch, [])


_SPECIAL: dict[Any, Callable[..., Then]] = {
    getattr: _getattr,
    hasattr: _getattr,
    setattr: _setattr,
    delattr: _setattr,
    isinstance: _isinstance,
    issubclass: _issubclass,
    callable: _callable,
    vars: _vars,
    locals: _locals,
    globals: _globals,
    next: _next,
    len: _length,
    id: _identifier,
    builtins.__build_class__: _build,
    collections._count_elements: _count,  # type: ignore[attr-defined]
}


def _method(watch: Observer, owner: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Then:
    """A method in C of `owner`."""
    if name in ("__setattr__", "__delattr__"):
        watch.wrote(owner, f"attribute {args[0] if args else ''}")
        return None
    if name in ("__getattribute__", "__getattr__") and args:
        attribute(watch, owner, args[0])
        return None
    every = [*args, *kwargs.values()]
    if not (
        watch.is_made(owner)
        and name in ("append", "add", "insert", "setdefault", "__setitem__", "appendleft")
    ):
        for value in every:
            _whole(watch, value)
    if isinstance(owner, str) and name.startswith("format") and not all(map(is_plain, every)):
        _text(watch, every)
        for value in every:
            state(watch, value, DEPTH)
    if isinstance(owner, Tensor) or is_plain(owner):
        return _maker(watch, every)
    source = watch.source_of(owner)
    if isinstance(owner, type) and name in ("mro", "__subclasses__") and source is not None:
        return functools.partial(_classes, watch, Attribute(source, name))
    if isinstance(owner, contextvars.ContextVar) and name == "get" and source is not None:
        place = Result(call, Attribute(source, "get"))
        return lambda value: (
            watch.found(place, value)
            if not every or value is not every[0]
            else watch.impure(f"takes the default of {owner.name}, a ContextVar without a value")
        )
    if isinstance(owner, np.ndarray):
        array(watch, owner)
    if source is None and id(owner) not in watch._given:
        if hasattr(type(owner), "__next__") and name in ("send", "throw", "close", "__next__"):
            return None
        if isinstance(owner, (dict, list)) and name in ("get", "pop", "setdefault", "__getitem__", "popitem"):
            return lambda value: watch.found(None, value)
        return _maker(watch, every)
    if isinstance(owner, dict) and name in ("get", "__getitem__") and args:
        item_or_absent(watch, owner, args[0])
        return None
    for kind, names in known.READS.items():
        if isinstance(owner, kind) and name in names:
            if isinstance(owner, known.CONTAINERS):
                container(watch, owner, DEPTH if name in ("index", "count", "__eq__", "__contains__") else 1)
            elif kind is object and name not in ("__new__", "__init__"):
                watch.arm(owner)
            return _maker(watch, [owner, *every]) if name not in ("__getitem__", "get") else None
    if isinstance(owner, type) and (
        name in ("__new__", "fromkeys", "from_bytes", "fromhex") or owner in known.PURE_TYPES
    ):
        return _maker(watch, every)
    if isinstance(owner, GeneratorType):
        advanced(watch, owner)
        return None
    watch.written.append(owner)
    watch.impure(f"calls {type(owner).__name__}.{name} of an object from outside")
    return None


def _classes(watch: Observer, method: Source, value: list[type]) -> None:
    """A method of a class has listed others."""
    watch.guard(Result(call, method), "items", tuple(map(Held, value)))
    watch.make(value)


def item_or_absent(watch: Observer, owner: Any, key: Any) -> None:
    """`dict.get`: unlike a subscript it makes nothing where there is none."""
    known_key = key_of(key)
    source: Source | None = watch.source_of(owner)
    if known_key is known.MISSING:
        container(watch, owner, 2)
    elif key in owner:
        item(watch, owner, key)
    elif source is not None:
        watch.guard(source, "without", known_key)


def _numpy(watch: Observer, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Then:
    every = [*args, *kwargs.values()]
    name = getattr(function, "__name__", type(function).__name__)
    where = (getattr(function, "__module__", None) or "") + "." + type(function).__module__
    if "random" in where or name in known.NUMPY_DENIED:
        watch.impure(f"calls NumPy's {name}, which reads or writes elsewhere")
        return None
    targets = [kwargs["out"]] if kwargs.get("out") is not None else []
    if isinstance(function, np.ufunc):
        targets += args[function.nin :]
    if name in known.NUMPY_WRITES:
        targets += args[:1]
    for target in targets:
        for part in target if isinstance(target, tuple) else (target,):
            if part is not None:
                watch.wrote(part, "the elements")
    for value in every:
        container(watch, value, DEPTH)
    fresh = _maker(watch, every)
    assert fresh is not None

    def made(value: Any) -> None:
        for part in value if isinstance(value, (list, tuple)) else (value,):
            if not isinstance(part, np.ndarray) or part.base is None:
                fresh(part)
        fresh(value) if not isinstance(value, np.ndarray) else None

    return made


def _hands_on(thing: Any) -> bool:
    """Is it a Module that gives what it is called with to a user's `forward`, which is watched itself?"""
    forward = is_module(thing) and "forward" not in vars(thing) and lookup(type(thing), "forward")[0]
    return isinstance(forward, FunctionType) and not is_trusted(forward.__code__)


def _instance(watch: Observer, thing: Any, args: list[Any]) -> Then:
    """An object with a method `__call__`."""
    kind = type(thing)
    raw, _ = lookup(kind, "__call__")
    if not isinstance(raw, FunctionType):
        watch.impure(f"calls {getattr(thing, '__qualname__', '')}, a {kind.__module__}.{kind.__qualname__}")
        return None
    if not watch.is_made(thing):
        watch.guard_kind(thing)
    class_fact(watch, kind, "__call__")
    if is_module(thing):
        module_facts(watch, thing)
    if is_trusted(raw.__code__):
        then = _trusted(watch, raw, [thing] if _hands_on(thing) else [thing, *args], {})
        return None if is_module(thing) else then
    function_facts(watch, raw)
    watch.arm(thing)
    return None
