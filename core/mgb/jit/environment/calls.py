"""What a call may do that nobody sees: which functions in C are pure, and who is called by them."""

from __future__ import annotations

import collections
import contextvars
import functools
import random
import types
from collections.abc import Callable
from types import FunctionType, GeneratorType, MethodType
from typing import Any

import numpy as np

from ...tensor import Tensor
from ..guard import PLAIN, is_plain
from ..source import Attribute, Call, Held
from . import known
from .armed import METHODS
from .attributes import attribute, class_fact, function_facts, special
from .builtin_calls import OBJECTS, SPECIAL, again, logs, text
from .known import (
    IN_C,
    added_classes,
    called_method,
    is_heap,
    is_trusted,
    is_trusted_holder,
    is_users,
    lookup,
    top_of,
)
from .reads import DEPTH, advanced, array, container, iterated, of_mapping, owner_of, tree
from .watch import Then, Watch


def called(watch: Watch, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Then:
    """`function` is about to be called."""
    kind = type(function)
    if kind is MethodType:
        return called(watch, function.__func__, [function.__self__, *args], kwargs)
    if kind is FunctionType:
        return _python(watch, function, args, kwargs)
    if isinstance(function, type):
        return _class(watch, function, args, kwargs)
    if isinstance(function, IN_C):
        return _in_c(watch, function, args, kwargs)
    for callable_kind, handler in OBJECTS.items():
        if isinstance(function, callable_kind):
            return handler(watch, function, args, kwargs)
    if top_of(kind) == "numpy":
        return _numpy(watch, function, args, kwargs)
    return _instance(watch, function, args)


def _maker(watch: Watch, given: list[Any]) -> Callable[[Any], None]:
    """The result is new, unless it is what was given."""
    places = {id(value) for value in given}
    roots = {id(owner_of(value)) for value in given if isinstance(value, np.ndarray)}

    def made(value: Any) -> None:
        if isinstance(value, np.ndarray) and id(owner_of(value)) in roots:
            return  # a view, which is known by what it is of
        if id(value) not in places and not isinstance(value, (Tensor, type, types.ModuleType, FunctionType)):
            watch.make(value)

    return made


# functions in Python


def _python(watch: Watch, function: FunctionType, args: list[Any], kwargs: dict[str, Any]) -> Then:
    if not is_trusted(function.__code__):
        if not watch.is_made(function):
            function_facts(watch, function)
        watch.arm(function)
        is_generator = function.__code__.co_flags & 0x2A0  # or a coroutine
        return _maker(watch, []) if is_generator else None
    if hasattr(function, "registry") and hasattr(function, "dispatch") and args:
        return _dispatched(watch, function, args, kwargs)
    if "registry" in function.__code__.co_freevars:
        watch.impure(f"calls {function.__name__} of a function by classes")
    return _trusted(watch, function, args, kwargs)


def _dispatched(watch: Watch, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Then:
    """A function made by `singledispatch`."""
    watch.part(function, Attribute, "registry", function.registry)
    container(watch, function.registry)
    if not is_plain(args[0]):
        watch.kind(args[0])
    return called(watch, function.dispatch(type(args[0])), args, kwargs)


def _trusted(watch: Watch, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Then:
    """A function of mgb or NumPy, or of Python's library, that is pure as far as it is not denied."""
    top, name = top_of(function), function.__name__
    if function in known.AGAIN:
        return again(watch, function, tuple(args))
    if top == "numpy":
        return _numpy(watch, function, args, kwargs)
    every = [*args, *kwargs.values()]
    if top == "mgb":
        _of_mgb(watch, function, args)
    elif top == "logging":
        return logs(watch, function, args)
    elif top in known.DENIED_LIBRARY or (top == "json" and (name in ("load", "dump") or "cls" in kwargs)):
        watch.impure(f"calls {function.__module__}.{name}")
    for value in every:
        container(watch, value, DEPTH, whole=top in ("copy", "dataclasses"))
        if is_trusted_holder(value):
            holder_facts(watch, value)
        elif isinstance(value, IN_C):  # functions of a user's tell when they are called
            _handed(watch, value)
    return _maker(watch, every)


#: What no call of a holder calls.
_UNCALLED = frozenset({"__init__", "reset_parameters", "_describe", "__repr__", "__setitem__", "__delitem__"})


def _of_mgb(watch: Watch, function: Any, args: list[Any]) -> None:
    name = function.__name__
    said = known.said_of(function.__module__, name)
    if said == "impure":
        watch.impure(f"calls mgb's {function.__qualname__}, which changes or reads what no guard tells")
    elif said == "changes" and args:
        watch.wrote(args[0], f"what {name} changes")
    elif args and is_trusted_holder(args[0]):
        if name in ("__setattr__", "__delattr__"):
            SPECIAL[setattr](watch, *args)
        elif said != "tells":
            tree(watch, args[0])


def holder_facts(watch: Watch, holder: Any) -> None:
    """The class of a holder that is worked with has to be what it was; its functions are armed."""
    kind = type(holder)
    watch.arm(holder)
    if watch.is_made(kind) or not watch.once(kind):
        return
    for base in added_classes(kind):
        for name, value in vars(base).items():
            if isinstance(value, METHODS) and name not in _UNCALLED:
                class_fact(watch, kind, name)
    if callable(holder):
        class_fact(watch, kind, "__call__")


def _instance(watch: Watch, thing: Any, args: list[Any]) -> Then:
    """An object with a method `__call__`."""
    kind = type(thing)
    raw, _ = lookup(kind, "__call__")
    if not isinstance(raw, FunctionType):
        watch.impure(f"calls {getattr(thing, '__qualname__', '')}, a {kind.__module__}.{kind.__qualname__}")
        return None
    special(watch, thing, "__call__")
    if is_trusted_holder(thing):
        holder_facts(watch, thing)
    given = [thing] if is_users(called_method(thing)) else [thing, *args]  # which is watched itself
    then = None if is_users(raw) else _trusted(watch, raw, given, {})
    return None if is_trusted_holder(thing) else then


# classes


def _class(watch: Watch, kind: type, args: list[Any], kwargs: dict[str, Any]) -> Then:
    every, top = [*args, *kwargs.values()], top_of(kind)
    if kind in known.PURE_TYPES:
        return _builtin_class(watch, kind, every)
    if top == "numpy":
        return _numpy(watch, kind, args, kwargs)
    if top == "mgb":
        if known.says(kind, "impure"):
            watch.impure(f"makes a {kind.__name__} of {kind.__module__}")
        for value in every:
            container(watch, value, DEPTH)
    elif is_heap(kind):
        if issubclass(kind, random.Random) and (not every or every[0] is None):
            watch.impure(f"makes a {kind.__name__} without a seed")
        _users_class(watch, kind, every)
    else:
        watch.impure(f"makes a {kind.__module__}.{kind.__qualname__}")
    return _maker(watch, every)


def _builtin_class(watch: Watch, kind: type, every: list[Any]) -> Then:
    if kind is type and len(every) == 1:
        if is_heap(type(every[0])) or isinstance(every[0], known.CONTAINERS):
            watch.kind(every[0])
        return None
    if kind is str:
        text(watch, every)
    for value in every:
        _whole(watch, value)
    return _maker(watch, every)


def _users_class(watch: Watch, kind: type, every: list[Any]) -> None:
    watch.arm(kind)
    if isinstance(lookup(type(kind), "__call__")[0], FunctionType):
        class_fact(watch, type(kind), "__call__")
    for name in ("__init__", "__new__"):
        class_fact(watch, kind, name)
    initial, owner = lookup(kind, "__init__")
    if hasattr(kind, "__dataclass_fields__"):
        if isinstance(initial, FunctionType) and not watch.is_made(owner):
            function_facts(watch, initial)
        for field in kind.__dataclass_fields__.values():
            watch.arm(field.default_factory)
    is_tuple = kind.__flags__ & (1 << 26)
    if is_tuple or isinstance(lookup(kind, "__new__")[0], types.BuiltinFunctionType):
        for value in every if not isinstance(initial, FunctionType) else ():
            container(watch, value, DEPTH)


# functions and methods in C


def _whole(watch: Watch, value: Any) -> None:
    """All of `value` is read by code in C; iterators are used up."""
    if hasattr(type(value), "__next__"):
        advanced(watch, value)
    elif hasattr(type(value), "__iter__") and not isinstance(value, type):
        iterated(watch, value, DEPTH)
    elif is_users(value):
        function_facts(watch, value)
        watch.arm(value)
    elif isinstance(value, IN_C):
        _handed(watch, value)
    else:
        container(watch, value, DEPTH)
        if callable(value) and not isinstance(value, (type, FunctionType)):
            called(watch, value, [], {})


def _handed(watch: Watch, function: Any) -> None:
    """A function in C is handed to code that may call it, with arguments that nobody tells."""
    if function not in SPECIAL:
        called(watch, function, [], {})
    elif function not in (len, callable, isinstance, issubclass):
        watch.impure(f"has {function.__name__} called")


def _in_c(watch: Watch, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Then:
    owner = getattr(function, "__self__", None)
    is_method = owner is not None or isinstance(function, types.MethodWrapperType)
    if is_method and not isinstance(owner, types.ModuleType):
        return _method(watch, owner, function.__name__, args, kwargs)
    if not isinstance(function, types.BuiltinFunctionType):
        return _unbound(watch, function, args, kwargs)
    if function in SPECIAL:
        return SPECIAL[function](watch, *args)
    every = [*args, *kwargs.values()]
    module = function.__module__ or ""
    if function in known.AGAIN:
        return again(watch, function, tuple(args))
    if top_of(function) == "numpy":
        return _numpy(watch, function, args, kwargs)
    if function in (repr, ascii, format):
        text(watch, every)
    if function in known.WRITES:
        for value in args[known.WRITES[function] :][:1]:
            watch.wrote(value, "the contents")
    elif function not in known.PURE and module not in known.PURE_MODULES:
        watch.impure(f"calls {module}.{function.__name__}".replace("builtins.", ""))
        return None
    for value in every:
        _whole(watch, value)
    return _maker(watch, every) if function not in known.WRITES else lambda value: watch.found(None, value)


def _unbound(watch: Watch, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Then:
    """A method of a class, of the first of `args`; without them it is called later, for what was read."""
    kind, name = function.__objclass__, function.__name__
    if args:
        return _method(watch, args[0], name, args[1:], kwargs)
    if kind not in PLAIN and name not in known.READS.get(kind, ()):
        watch.impure(f"has {kind.__name__}.{name} called")
    return None


#: What keeps the objects that are stored in it; others take what stands in these.
_KEEPING = (list, dict, set, collections.deque)
#: Methods that take what they are given into what they are of, and do not look at it.
_STORING = frozenset("append insert appendleft".split())
#: Methods that give an element.
_GIVING = frozenset("get pop setdefault __getitem__ popitem".split())
#: Methods for which the elements are compared.
_COMPARING = frozenset("index count __eq__ __contains__".split())


def hashed(watch: Watch, key: Any) -> None:
    """`key` is looked for by code in C: by its contents, or as the object that it is."""
    kind: Any = type(key)
    if kind.__hash__ is not object.__hash__:
        special(watch, key, "__hash__", "__eq__")
        _whole(watch, key)
    elif not isinstance(key, (type, FunctionType)) and (source := watch.source_of(key)) is not None:
        watch.guard(source, "is", Held(key))


def stores(watch: Watch, thing: Any, key: Any, value: Any) -> None:
    """``thing[key] = value`` is done next by code in C."""
    hashed(watch, key)
    if isinstance(key, slice) or not isinstance(thing, _KEEPING):
        _whole(watch, value)


def _method(watch: Watch, owner: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Then:
    """A method in C of `owner`."""
    if name in ("__setattr__", "__delattr__") and args:
        return SPECIAL[setattr](watch, owner, *args)
    if name in ("__getattribute__", "__getattr__") and args:
        attribute(watch, owner, args[0])
        return None
    every = [*args, *kwargs.values()]
    if name in _COMPARING and isinstance(owner, known.CONTAINERS):
        container(watch, owner, DEPTH)
    if name == "__setitem__" and len(args) == 2:
        stores(watch, owner, *args)
    elif name not in _STORING or not isinstance(owner, _KEEPING) or not watch.is_made(owner):
        for value in every:
            _whole(watch, value)
    if isinstance(owner, Tensor) or is_plain(owner):
        if isinstance(owner, str) and name.startswith("format") and not all(map(is_plain, every)):
            text(watch, every)
            for value in every:
                container(watch, value, DEPTH, whole=True)
        return _maker(watch, every)
    if isinstance(owner, np.ndarray):
        watch.computes()
        array(watch, owner)
    if watch.source_of(owner) is not None or watch.is_argument(owner):
        return _method_outside(watch, owner, name, every)
    if hasattr(type(owner), "__next__") and name in ("send", "throw", "close", "__next__"):
        return None
    if isinstance(owner, (dict, list)) and name in _GIVING:
        return lambda value: watch.found(None, value)
    return _maker(watch, every)


def _method_outside(watch: Watch, owner: Any, name: str, every: list[Any]) -> Then:
    source = watch.source_of(owner)
    if isinstance(owner, type) and name in ("mro", "__subclasses__") and source is not None:
        return functools.partial(_listed_classes, watch, Call(Attribute(source, name)))
    if isinstance(owner, contextvars.ContextVar) and name == "get" and source is not None:
        place = Call(Attribute(source, "get"))
        if every and owner.get(known.MISSING) is known.MISSING:
            asked = Call.given(place.of, (known.MISSING,))
            watch.guard(asked, "is", Held(known.MISSING))
            return None
        return functools.partial(watch.found, place)
    if isinstance(owner, dict) and name in ("get", "__getitem__") and every:
        of_mapping(watch, owner, every[0], is_get=name == "get")
        return None
    for kind, names in known.READS.items():
        if isinstance(owner, kind) and name in names:
            if isinstance(owner, known.CONTAINERS):
                container(watch, owner)
            elif name.startswith("__reduce"):
                container(watch, owner, DEPTH, whole=True)
            elif kind is object and name not in ("__new__", "__init__"):
                watch.arm(owner)
            return _maker(watch, [owner, *every]) if name not in ("__getitem__", "get") else None
    if isinstance(owner, type) and (
        name in ("__new__", "fromkeys", "from_bytes", "fromhex") or owner in known.PURE_TYPES
    ):
        return _maker(watch, every)
    if isinstance(owner, GeneratorType):
        advanced(watch, owner)
    else:
        watch.written.append(owner)
        watch.impure(f"calls {type(owner).__name__}.{name} of an object from outside")
    return None


def _listed_classes(watch: Watch, method: Call, value: list[type]) -> None:
    """A method of a class has listed others."""
    watch.guard(method, "items", tuple(map(Held, value)))
    watch.make(value)


def _numpy(watch: Watch, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Then:
    every = [*args, *kwargs.values()]
    name = getattr(function, "__name__", type(function).__name__)
    if not isinstance(function, type):
        watch.computes()
    where = f"{getattr(function, '__module__', None)}.{type(function).__module__}"
    if "random" in where or name in known.NUMPY_DENIED:
        watch.impure(f"calls NumPy's {name}, which reads or writes elsewhere")
        return None
    targets = [kwargs.get("out")]
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

    def made(value: Any) -> None:
        for part in (value, *value) if isinstance(value, (list, tuple)) else (value,):
            if not isinstance(part, np.ndarray) or part.base is None:
                fresh(part)

    return made
