"""Calls of functions and methods in C: which are pure, and what these read, keep and give."""

from __future__ import annotations

import collections
import contextvars
import functools
import types
from collections.abc import Callable
from types import FunctionType, GeneratorType
from typing import Any

import numpy as np

from ...tensor import Tensor
from ..guard import PLAIN, is_plain
from ..source import Attribute, Call, Held
from . import known
from .attributes import attribute, function_facts, special
from .builtin_calls import SPECIAL, again, text
from .known import (
    IN_C,
    is_heap,
    is_users,
    top_of,
)
from .reads import DEPTH, advanced, array, container, iterated, of_mapping, owner_of
from .watch import Then, Watch


def maker(watch: Watch, given: list[Any]) -> Callable[[Any], None]:
    """The result is new, unless it is what was given."""
    same = {id(value) for value in given}
    roots = {id(owner_of(value)) for value in given if isinstance(value, np.ndarray)}

    def made(value: Any) -> None:
        if isinstance(value, np.ndarray) and id(owner_of(value)) in roots:
            return  # a view, which is known by what it is of
        if id(value) not in same and not isinstance(value, (Tensor, type, types.ModuleType, FunctionType)):
            watch.make(value)

    return made


def whole(watch: Watch, value: Any, calls: bool = False) -> None:
    """All of `value` is read by code in C: an iterator is used up, a function only called if it `calls`."""
    if hasattr(type(value), "__next__"):
        advanced(watch, value)
    elif hasattr(type(value), "__iter__") and not isinstance(value, type):
        iterated(watch, value, DEPTH)
        if not isinstance(value, known.CONTAINERS) and is_heap(type(value)):
            container(watch, value, DEPTH)  # which may keep in C what it gives
    elif is_users(value):
        if not calls:
            watch.identity(value)
        function_facts(watch, value)
        watch.arm(value)
    elif isinstance(value, IN_C):
        handed(watch, value)
    else:
        container(watch, value, DEPTH)
        if callable(value) and not isinstance(value, (type, FunctionType)):
            watch.calls(value, [], {})


def handed(watch: Watch, function: Any) -> None:
    """A function in C is handed to code that may call it, with arguments that nobody tells."""
    if function not in SPECIAL:
        watch.calls(function, [], {})
    elif function not in (len, callable, isinstance, issubclass):
        watch.impure(f"has {function.__name__} called")


def in_c(watch: Watch, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Then:
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
        return of_numpy(watch, function, args, kwargs)
    if function in (repr, ascii, format):
        text(watch, every)
    if function in known.WRITES:
        for value in args[known.WRITES[function] :][:1]:
            watch.writing.wrote(value, "the contents")
    elif function not in known.PURE and module not in known.PURE_MODULES:
        watch.impure(f"calls {module}.{function.__name__}".replace("builtins.", ""))
        return None
    for value in every:
        whole(watch, value, calls=id(function) in known.CALLING)
    return maker(watch, every) if function not in known.WRITES else lambda value: watch.found(None, value)


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
#: Methods of ufuncs, and how many arguments stand before `out`.
_OF_UFUNCS = {"reduce": 3, "accumulate": 3, "reduceat": 4, "outer": 2, "at": 3}
#: Methods for which the elements are compared.
_COMPARING = frozenset("index count __eq__ __contains__".split())


def hashed(watch: Watch, key: Any) -> None:
    """`key` is looked for by code in C: by its contents, or as the object that it is."""
    kind: Any = type(key)
    if kind.__hash__ is not object.__hash__:
        special(watch, key, "__hash__", "__eq__")
        whole(watch, key)
    elif not isinstance(key, type):
        watch.identity(key)


def stores(watch: Watch, thing: Any, key: Any, value: Any) -> None:
    """``thing[key] = value`` is done next by code in C."""
    hashed(watch, key)
    if isinstance(key, slice) or not isinstance(thing, _KEEPING):
        whole(watch, value)


def _method(watch: Watch, owner: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Then:
    """A method in C of `owner`."""
    if name in ("__setattr__", "__delattr__") and args:
        return SPECIAL[setattr](watch, owner, *args)
    if name in ("__getattribute__", "__getattr__") and args:
        attribute(watch, owner, args[0])
        return None
    if isinstance(owner, np.ufunc) and name in _OF_UFUNCS and len(args) <= _OF_UFUNCS[name]:
        return of_numpy(watch, getattr(owner, name), args, kwargs)
    every = [*args, *kwargs.values()]
    if name in _COMPARING and isinstance(owner, known.CONTAINERS):
        container(watch, owner, DEPTH)
    if name == "__setitem__" and len(args) == 2:
        stores(watch, owner, *args)
    elif name not in _STORING or not isinstance(owner, _KEEPING) or not watch.is_made(owner):
        for value in every:
            whole(watch, value)
    if isinstance(owner, Tensor) or is_plain(owner):
        if isinstance(owner, str) and name.startswith("format") and not all(map(is_plain, every)):
            text(watch, every)
            for value in every:
                container(watch, value, DEPTH, whole=True)
        return maker(watch, every)
    if isinstance(owner, np.ndarray):
        watch.computes()
        array(watch, owner)
    if watch.source_of(owner) is not None or watch.is_argument(owner):
        return _method_outside(watch, owner, name, every)
    if hasattr(type(owner), "__next__") and name in ("send", "throw", "close", "__next__"):
        return None
    if isinstance(owner, (dict, list)) and name in _GIVING:
        return lambda value: watch.found(None, value)
    return maker(watch, every)


def _method_outside(watch: Watch, owner: Any, name: str, every: list[Any]) -> Then:
    source = watch.source_of(owner)
    if isinstance(owner, type) and name in ("mro", "__subclasses__") and source is not None:
        return functools.partial(_listed_classes, watch, Call(Attribute(source, name)))
    if isinstance(owner, contextvars.ContextVar) and name == "get" and source is not None:
        call = Call(Attribute(source, "get"))
        if every and owner.get(known.MISSING) is known.MISSING:
            asked = Call.given(call.of, (known.MISSING,))
            watch.guard(asked, "is", Held(known.MISSING))
            return None
        return functools.partial(watch.found, call)
    is_append = type(owner) is list and name == "append" and len(every) == 1
    if is_append and watch.writing.appends(owner, every[0]):
        return None
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
            return maker(watch, [owner, *every]) if name not in ("__getitem__", "get") else None
    if isinstance(owner, type) and (
        name in ("__new__", "fromkeys", "from_bytes", "fromhex") or owner in known.PURE_TYPES
    ):
        return maker(watch, every)
    if isinstance(owner, GeneratorType):
        advanced(watch, owner)
    else:
        watch.writing.things.append(owner)
        changes = isinstance(owner, known.CONTAINERS)  # what reads them is in the table above
        watch.impure(f"calls {type(owner).__name__}.{name} of an object from outside", writes=changes)
    return None


def _listed_classes(watch: Watch, method: Call, value: list[type]) -> None:
    """A method of a class has listed others."""
    watch.guard(method, "items", tuple(map(Held, value)))
    watch.make(value)


def of_numpy(watch: Watch, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Then:
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
                watch.writing.wrote(part, "the elements")
    for value in every:
        container(watch, value, DEPTH)
    fresh = maker(watch, every)

    def made(value: Any) -> None:
        for part in (value, *value) if isinstance(value, (list, tuple)) else (value,):
            if not isinstance(part, np.ndarray) or part.base is None:
                fresh(part)

    return made
