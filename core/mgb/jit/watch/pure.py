"""Owners of code and of functions in C, and the functions that do nothing but compute."""

from __future__ import annotations

import _thread
import abc
import builtins
import collections
import contextvars
import datetime
import decimal
import functools
import operator
import re
import sys
import sysconfig
import threading
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from ...runtime.trusted import is_plugins
from ...tensor import Tensor
from ..guard import is_plain
from ..source import is_static
from . import known

_MGB = str(Path(__file__).parents[2])
_NUMPY = str(Path(np.__file__).parent)
_STDLIB = sysconfig.get_paths()["stdlib"]

#: Parts of Python's library whose names, though they are computed, lead to nothing but what others name too.
_TAME = (
    "cached_property.", "partialmethod.", "singledispatchmethod.",
    "_GeneratorContextManager", "contextmanager", "total_ordering", "recursive_repr",
    "_recursive_repr", "_is_type", "Signature.", "Parameter.",
)  # fmt: skip


@functools.cache
def is_stdlib_file(file: str) -> bool:
    """Return whether it is a file of Python's own library, or none, as what is compiled into Python."""
    return file.startswith((f"{_STDLIB}/", "<frozen ")) and "-packages/" not in file


def is_trusted(code: CodeType) -> bool:
    """Return whether it counts as a pure function; what a class decorator made reads objects."""
    return code.co_filename != "<string>" and known.is_trusted(code) and not is_tame(code)


def is_librarys(code: CodeType) -> bool:
    """Return whether it is mgb's, NumPy's, Python's own, or a plugin's."""
    file = code.co_filename
    is_ours = is_stdlib_file(file) or file.startswith((f"{_MGB}/", f"{_NUMPY}/"))
    return is_ours or is_trusted(code) or is_plugins(file)


def is_tame(code: CodeType) -> bool:
    """Return whether it computes names that others name as well."""
    return is_stdlib_file(code.co_filename) and code.co_qualname.startswith(_TAME)


def is_library(module: str | None) -> bool:
    """Return whether its file is of mgb, NumPy, a plugin or Python, whatever a user's module is called."""
    top = (module or "").partition(".")[0]
    if top in ("mgb", "numpy"):
        return True
    found = sys.modules.get(module or "")
    file = getattr(found, "__file__", None)
    if file is None:
        return top in sys.stdlib_module_names and (found is None or isinstance(found, ModuleType))
    return is_stdlib_file(file) or is_plugins(file)


def is_users_class(kind: type) -> bool:
    """Return whether it is a class that may be changed, and that no module of a library has by its name."""
    return known.is_heap(kind) and not (is_library(kind.__module__) and is_static(kind))


def is_of_library(function: Any) -> bool:
    """Return whether a library has this function by its name, so that its scope is the library's, too."""
    return is_library(function.__module__) and is_static(function)


_PURE_C = frozenset(
    {
        getattr, hasattr, setattr, delattr, isinstance, issubclass, callable, vars, next, len, locals, dir,
        builtins.__build_class__, sys.exc_info, sys.exception, collections._count_elements,  # type: ignore[attr-defined]
        abc.get_cache_token, threading.get_ident, functools.reduce,
    }
)  # fmt: skip
#: Modules in C of whose functions the same holds.
_PURE_MODULES = known.PURE_MODULES | frozenset(
    "_operator _collections _functools _abc _weakref _contextvars _json _typing _statistics".split()
)
#: What computes which attribute is asked for: all of them may be.
_BY_ANY_NAME = frozenset({vars, dir})
#: Classes in C whose methods only read and change the object itself, which guards tell.
_OWNERS = (
    *known.CONTAINERS, Tensor, np.generic, np.dtype, np.ufunc, weakref.ref, types.FunctionType,
    contextvars.ContextVar, super, property, re.Pattern, re.Match, _thread.LockType,
    _thread.RLock, datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo,
    types.GenericAlias, types.MethodType, BaseException, functools.partial, decimal.Decimal,
)  # fmt: skip
#: Methods of these that do more.
_DENIED_METHODS = frozenset(
    "tofile dump setflags set reset now today utcnow fromtimestamp utcfromtimestamp astimezone timestamp "
    "localtime".split()
)
_OF_CLASSES = frozenset(
    "__new__ fromkeys from_bytes fromhex mro __subclasses__ __init_subclass__ __subclasshook__ __prepare__ "
    "fromisoformat fromordinal combine strptime from_float maketrans __class_getitem__ __call__ __init__ "
    "__instancecheck__ __subclasscheck__ __setattr__ __delattr__ __getattribute__ register _make".split()
)


#: Equal to nothing.
_NO_METHOD = object()


def asks_any_name(function: Any) -> bool:
    """Return whether a function in C reads attributes whose names nobody reports."""
    name = getattr(function, "__name__", "")
    return function in _BY_ANY_NAME or name in ("__reduce_ex__", "__reduce__", "__getstate__")


def trouble_of(function: Any, is_outside: Callable[[Any], bool]) -> str | None:
    """Return why a body that calls `function`, which is in C, has to run again; None: it need not.

    `is_outside` says whether an object can be named, and so is known by what the walk has found of it.
    """
    owner = getattr(function, "__self__", None)
    is_of_none = owner is None and function == getattr(None, getattr(function, "__name__", ""), _NO_METHOD)
    if is_of_none or not (owner is None or issubclass(type(owner), ModuleType)):
        return _trouble_of_method(owner, function.__name__, is_outside)
    if function is id:
        return "asks for an id"
    module = getattr(function, "__module__", None) or ""
    name = getattr(function, "__name__", type(function).__name__)
    if not _is_hashable(function):
        return f"calls {module}.{name}"
    if function in known.PURE or function in known.WRITES or function in known.AGAIN or function in _PURE_C:
        return None
    if module in _PURE_MODULES:
        return None
    if known.top_of(function) == "numpy":
        return f"calls NumPy's {name}" if name in known.NUMPY_DENIED else None
    return f"calls {module}.{name}".replace("builtins.", "")


def _trouble_of_method(owner: Any, name: str, is_outside: Callable[[Any], bool]) -> str | None:
    kind = type(owner)  # no user's __class__ is asked
    if name in _DENIED_METHODS and not issubclass(kind, (set, dict)):
        return f"calls {kind.__name__}.{name}"
    if is_plain(owner) or issubclass(kind, _OWNERS):
        return None
    if issubclass(kind, type):
        is_known = owner in known.PURE_TYPES or owner in known.PURE_WHEN_CALLED or known.is_heap(owner)
        return None if is_known or name in _OF_CLASSES else f"calls {owner.__name__}.{name}"
    if known.top_of(kind) == "numpy":
        is_harmless = "random" not in kind.__module__ or not is_outside(owner)
        return None if is_harmless else f"calls {kind.__name__}.{name}"
    if known.is_heap(kind) and hasattr(object, name):
        return None
    return f"calls {kind.__name__}.{name} of an object from outside" if is_outside(owner) else None


def only_reads(owner: Any, name: str) -> bool:
    """Return whether the method `name` of a container leaves it as it is."""
    return any(issubclass(type(owner), kind) and name in names for kind, names in known.READS.items())


def _is_hashable(function: Any) -> bool:
    try:
        hash(function)
    except TypeError:
        return False
    return True


def trouble_of_library(module: str, name: str, first: Any, is_outside: Callable[[Any], bool]) -> str | None:
    """Return why a trusted Python function or method is impure, or None; `first` is its first argument."""
    top = module.partition(".")[0]
    if top == "mgb":
        said = known.said_of(module, name)
        if said == "impure":
            return f"calls mgb's {name}, which changes or reads what no guard tells"
        if said == "changes" and is_outside(first):
            return f"writes what {name} changes of a {type(first).__name__} from outside"
    elif top == "numpy" and (name in known.NUMPY_DENIED or ".random" in module):
        return f"calls NumPy's {name}"
    elif top == "numpy" and module.endswith("arrayprint"):
        return "makes a text of an array, which NumPy's print options decide"
    elif top == "typing" and name == "get_type_hints":
        return "calls typing.get_type_hints"
    elif top == "json" and name in ("load", "dump"):
        return f"calls json.{name}"
    elif top in known.DENIED_LIBRARY and top != "logging":
        return f"calls {module}.{name}"
    return None


def names_in(getter: Any) -> list[str]:
    """Return the attributes that one of `operator`'s asks for."""
    given = getter.__reduce__()[1]
    texts = given if isinstance(getter, operator.attrgetter) else given[:1]
    return [name for text in texts for name in text.split(".")]
