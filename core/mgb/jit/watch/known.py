"""Known functions: code that is pure, and what functions and methods in C read and change."""

from __future__ import annotations

import bisect
import builtins
import collections
import contextvars
import datetime
import decimal
import functools
import heapq
import io
import itertools
import logging
import math
import operator
import os
import re
import struct
import sys
import types
import typing
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from ...ir.scalars import SCALARS
from ...runtime.trusted import NUMPY, PACKAGE, PYTHON, is_library, is_python
from ...tensor import Tensor
from ...tensor.holding import Holder
from ..source import MISSING, is_static, lookup, namespace


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Modules of Python's library that read or write what no guard tells.
DENIED_LIBRARY = words(
    "logging random subprocess tempfile shutil socket multiprocessing asyncio pathlib glob datetime "
    "_pydatetime secrets uuid pickle atexit signal warnings linecache traceback importlib inspect gc "
    "concurrent queue select ssl http urllib sqlite3 zipfile bdb pdb"
)
#: Of these, the modules whose objects are what they were made.
_OF_VALUES = words("datetime _pydatetime pathlib uuid inspect signal")
_STATEFUL = DENIED_LIBRARY - _OF_VALUES
#: Those whose functions are not watched: these, and others that are pure functions of their arguments.
_LIBRARY = DENIED_LIBRARY | words(
    "abc _py_abc enum typing re numbers types fractions reprlib keyword tokenize copy json"
)
_TRUSTED = (
    NUMPY, "<frozen importlib", "<frozen abc>",
    *(f"{PYTHON}{name}{end}" for name in _LIBRARY for end in (".py", os.sep)),
)  # fmt: skip

#: What Python calls with a warning that the filters let through.
SHOWS_WARNING: CodeType = warnings._showwarnmsg.__code__  # type: ignore[attr-defined]


#: What it makes of that first.
MAKES_WARNING: CodeType = warnings.WarningMessage.__init__.__code__


#: What asks whether an object has all that a protocol names.
CHECKS_PROTOCOL: CodeType = type(typing.Protocol).__instancecheck__.__code__


def names_of_protocol(protocol: type) -> frozenset[str]:
    """Return the names that a class which derives from `typing.Protocol` asks for."""
    bases = [base for base in protocol.__mro__ if getattr(base, "_is_protocol", False)]
    return frozenset(name for base in bases for name in (*vars(base), *vars(base).get("__annotations__", ())))


@functools.cache
def _is_in_trusted_file(file: str) -> bool:
    if file.startswith(PACKAGE):
        parts = Path(file).with_suffix("").relative_to(Path(PACKAGE).parent).parts
        return said_of(".".join(parts), "*") != "watched"
    return file.startswith(_TRUSTED)


def is_trusted(code: CodeType) -> bool:
    """Return whether it is taken as a pure function of its arguments."""
    if code is SHOWS_WARNING:
        return False
    return _is_in_trusted_file(code.co_filename) or is_made_by_library(code)


#: More functions of Python's library: those that keep methods by classes, ask for ids, make classes.
_MADE = (
    "singledispatch.<locals>.", "_recursive_repr.<locals>.", "namedtuple", "dataclass", "_dataclass",
    "_replace",  # of dataclasses, since Python 3.13
    "RLock",  # of threading, which NumPy's generators make one by
)  # fmt: skip


def is_made_by_library(code: CodeType) -> bool:
    """Return whether it is a method that `dataclass` or `namedtuple` made, or what `singledispatch` did."""
    if code.co_filename == "<string>":
        return code.co_qualname.startswith("__create_fn__.<locals>.") or code.co_names == ("_tuple_new",)
    return code.co_qualname.startswith(_MADE) and is_python(code.co_filename)


def reads_elsewhere(kind: type) -> bool:
    """Return whether it is a class of a module in Python that keeps state where no guard sees it."""
    return any(top_of(base) in _STATEFUL and is_library(base.__module__) for base in kind.__mro__)


def is_users(function: Any) -> bool:
    """Return whether it is a function in Python that is watched when it runs."""
    return isinstance(function, FunctionType) and not is_trusted(function.__code__)


def top_of(thing: Any) -> str:
    """Return the package that a function or class belongs to.

    An empty text, where no module has such a class.
    """
    if isinstance(thing, type) and is_heap(thing) and not is_static(thing):
        return ""
    module = getattr(thing, "__module__", None)
    return module.partition(".")[0] if isinstance(module, str) else ""


def is_pure_library(kind: type) -> bool:
    """Return whether it is a class of Python's library whose methods are not watched."""
    return top_of(kind) in _LIBRARY and is_library(kind.__module__)


@functools.cache
def said_of(module: str, name: str) -> str | None:
    """Return the ``__tracing__`` entry of a function or class, of its module or a package: see `holding`."""
    while module:
        said = getattr(sys.modules.get(module), "__dict__", {}).get("__tracing__", {})
        if (word := said.get(name, said.get("*"))) is not None:
            return str(word)
        module = module.rpartition(".")[0]
    return None


def trusted_base(kind: type) -> type | None:
    """Return the class of mgb that makes a class one of holders.

    None: it is none, or says itself what it holds.
    """
    if Holder in kind.__mro__:
        for base in kind.__mro__[: kind.__mro__.index(Holder)]:
            if "__parts__" in vars(base) and top_of(base) == "mgb":
                return base
    return None


def added_classes(kind: type) -> tuple[type, ...]:
    """Return the classes in the MRO of a module or optimizer class that are not mgb's."""
    base = trusted_base(kind)
    return kind.__mro__[:-1] if base is None else kind.__mro__[: kind.__mro__.index(base)]


def is_trusted_holder(value: Any) -> bool:
    """Return whether it is a holder by a class of mgb, whose methods are not watched."""
    return trusted_base(type(value)) is not None


def is_heap(kind: type) -> bool:
    """Return whether the class was made by Python code and may be changed; followed numbers count too."""
    return kind not in FOLLOWED and kind.__flags__ & 512 != 0 and kind.__flags__ & 256 == 0


def is_note(kind: type, name: str) -> bool:
    """Return whether no op depends on this attribute of a class of Tensors, so that none reports it."""
    _, owner = lookup(kind, name)
    return owner is None or owner.__module__ != Tensor.__module__ or name in NOTES


#: What Tensors of any class have of that kind.
NOTES = words("name format _name _format")

#: What stands for a number.
FOLLOWED = SCALARS


def attributes_of(thing: Any) -> dict[str, Any]:
    """Return those of an object's own, and those of its slots; nothing is called for them."""
    slots = {
        name: getattr(thing, name, MISSING)
        for base in type(thing).__mro__
        if is_heap(base)
        for name, slot in vars(base).items()
        if isinstance(slot, types.MemberDescriptorType)
    }
    return {**{name: value for name, value in slots.items() if value is not MISSING}, **namespace(thing)}


def is_empty(held: Any) -> bool:
    """Return whether the variable of a cell has no value."""
    try:
        held.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


def weakly(get: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function like `get` that does not keep its result alive."""
    if isinstance(get, weakref.ref):
        return get
    try:
        return weakref.ref(get())
    except TypeError:
        return lambda: None  # a list or such, in which Tensors may stand


#: What holds others, and is read by elements.
CONTAINERS: tuple[type, ...] = (
    list, dict, set, frozenset, tuple, bytearray, collections.deque, types.MappingProxyType,
    types.SimpleNamespace, np.ndarray,
)  # fmt: skip

#: Objects that are created at each access; what they are made of is known by itself.
VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))

#: Functions and methods in C.
IN_C = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.MethodWrapperType, types.ClassMethodDescriptorType,
)  # fmt: skip


def _classes(space: Any, base: type = object) -> list[type]:
    return [value for value in vars(space).values() if isinstance(value, type) and issubclass(value, base)]


#: Classes in C whose objects are what they were made; of others it is taken that they change.
UNCHANGING: tuple[type, ...] = (
    int, float, complex, str, bytes, range, slice, type, property, staticmethod, classmethod, super, np.dtype,
    np.generic, np.ufunc, datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, decimal.Decimal,
    re.Pattern, re.Match, weakref.ref, contextvars.ContextVar, types.CodeType, types.FunctionType,
    types.MethodType, types.ModuleType, types.GenericAlias, types.UnionType, types.GetSetDescriptorType,
    types.MemberDescriptorType, *IN_C,
)  # fmt: skip

#: Classes whose call makes an object of what it is given, which is read.
PURE_TYPES = frozenset(
    {
        int, float, complex, bool, str, bytes, bytearray, list, tuple, dict, set, frozenset, range, enumerate,
        zip, map, filter, reversed, slice, object, super, property, staticmethod, classmethod, memoryview,
        type, functools.partial, operator.itemgetter, operator.attrgetter, operator.methodcaller,
        collections.OrderedDict, collections.defaultdict, collections.deque, weakref.ref,
        types.SimpleNamespace, types.MethodType, np.dtype,
        datetime.timedelta, io.StringIO, io.BytesIO, functools._lru_cache_wrapper, *_classes(itertools),
        *_classes(builtins, BaseException),
    }
)  # fmt: skip

#: Further classes whose call does; their other methods that make one may ask the clock or the time zone.
PURE_WHEN_CALLED = PURE_TYPES | {
    datetime.date, datetime.time, datetime.datetime, datetime.timezone, decimal.Decimal,
}  # fmt: skip
#: Classes of random numbers, which are a function of the seed that they are made with.
SEEDED = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, np.random.SeedSequence)

#: The function in C that makes them.
MAKES_RANDOM: Any = np.random.default_rng

_PURE_NAMES = (
    "len abs min max sum any all sorted divmod pow round isinstance issubclass callable repr ascii chr ord "
    "hex bin oct format iter hash"
)
#: Builtin functions that only read what they are given.
PURE: frozenset[Any] = frozenset(
    {
        *(getattr(builtins, name) for name in _PURE_NAMES.split()),
        *(value for value in vars(math).values() if callable(value)),
        *(value for name, value in vars(operator).items() if callable(value) and name[:1] not in "_i"),
        functools.reduce, functools.cmp_to_key, sys.getsizeof, sys.intern, operator.index, operator.inv,
        operator.invert, operator.is_, operator.is_not, operator.indexOf, os.fspath,
    }
)  # fmt: skip
#: Functions that give the same again, and do nothing that they have not done, while nothing else happens.
AGAIN: frozenset[Any] = frozenset(
    {
        logging.getLogger, np.geterr, np.geterrcall, np.getbufsize, np.get_printoptions,
    }
)  # fmt: skip
#: Functions that change an argument, and which.
WRITES: dict[Any, int] = {
    operator.setitem: 0, operator.delitem: 0, bisect.insort_left: 0, bisect.insort_right: 0,
    heapq.heapify: 0, heapq.heappush: 0, heapq.heappop: 0, heapq.heapreplace: 0, heapq.heappushpop: 0,
    struct.pack_into: 1,
}  # fmt: skip
#: Functions of these modules only read what they are given.
PURE_MODULES = words(
    "math cmath _bisect itertools _struct zlib binascii unicodedata _sre _hashlib _md5 _sha1 _sha2 _sha256 "
    "_sha512 _sha3 _blake2"
)

#: Methods that only read, by class; of others it is taken that they write.
READS: dict[type, frozenset[str]] = {
    # what those have that cannot be changed
    list: frozenset({*vars(tuple), "copy", "__reversed__"}),
    dict: frozenset(vars(types.MappingProxyType)) - {"__ior__"},
    set: frozenset(vars(frozenset)),
    collections.deque: frozenset({*vars(tuple), "copy"}),
    bytearray: frozenset(vars(bytes)),
    np.ndarray: words(
        "sum mean max min std var reshape ravel transpose astype copy item tolist argmax argmin cumsum "
        "cumprod dot any all flatten prod round squeeze swapaxes nonzero argsort clip conj diagonal repeat "
        "take trace tobytes __getitem__ __len__ view searchsorted ptp choose compress __array__"
    ),
    types.MappingProxyType: frozenset(vars(types.MappingProxyType)),
    weakref.ref: words("__call__"),
    re.Pattern: words("search match fullmatch sub subn split findall finditer"),
    re.Match: words("group groups groupdict start end span expand"),
    types.FunctionType: words("__get__"),
    datetime.date: frozenset({*vars(datetime.date), *vars(datetime.datetime)})
    - words("today now utcnow fromtimestamp utcfromtimestamp astimezone timestamp"),
    datetime.time: frozenset(vars(datetime.time)),
    datetime.timedelta: frozenset(vars(datetime.timedelta)),
    contextvars.ContextVar: words("get"),
    type: words(
        "mro __subclasses__ __instancecheck__ __subclasscheck__ __call__ __new__ __init__ __prepare__"
    ),
    object: words(
        "__init__ __new__ __eq__ __ne__ __hash__ __repr__ __str__ __format__ __getattribute__ __sizeof__ "
        "__init_subclass__ __subclasshook__ __reduce_ex__ __reduce__ __dir__"
    ),
    BaseException: words("__init__ __new__"),
}
NUMPY_DENIED = words(
    "save load savez savez_compressed savetxt loadtxt genfromtxt fromfile memmap tofile seterr seterrcall "
    "setbufsize set_printoptions printoptions setflags show_config ndarray nditer "
    "array2string array_repr array_str shares_memory may_share_memory"
)
