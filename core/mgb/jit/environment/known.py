"""What is known without looking, besides what stands in `watch.known`."""

from __future__ import annotations

import bdb
import functools
import types
import typing
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from ...trusted import PACKAGE, is_library, is_plugins, is_python
from ..binding import BoundTrace
from ..watch.known import (
    AGAIN as AGAIN,
)
from ..watch.known import (
    CONTAINERS as CONTAINERS,
)
from ..watch.known import (
    DENIED_LIBRARY as DENIED_LIBRARY,
)
from ..watch.known import (
    FOLLOWED as FOLLOWED,
)
from ..watch.known import (
    IN_C as IN_C,
)
from ..watch.known import (
    MISSING as MISSING,
)
from ..watch.known import (
    NOTES as NOTES,
)
from ..watch.known import (
    NUMPY_DENIED as NUMPY_DENIED,
)
from ..watch.known import (
    PURE as PURE,
)
from ..watch.known import (
    PURE_MODULES as PURE_MODULES,
)
from ..watch.known import (
    PURE_TYPES as PURE_TYPES,
)
from ..watch.known import (
    PURE_WHEN_CALLED as PURE_WHEN_CALLED,
)
from ..watch.known import (
    READS as READS,
)
from ..watch.known import (
    SEEDED as SEEDED,
)
from ..watch.known import (
    SHOWS_WARNING as SHOWS_WARNING,
)
from ..watch.known import (
    UNCHANGING as UNCHANGING,
)
from ..watch.known import (
    VIEWS as VIEWS,
)
from ..watch.known import (
    WRITES as WRITES,
)
from ..watch.known import (
    added_classes as added_classes,
)
from ..watch.known import (
    attributes_of as attributes_of,
)
from ..watch.known import (
    is_heap as is_heap,
)
from ..watch.known import (
    is_made_by_library as is_made_by_library,
)
from ..watch.known import (
    is_note as is_note,
)
from ..watch.known import (
    is_pure_library as is_pure_library,
)
from ..watch.known import (
    is_trusted as is_trusted,
)
from ..watch.known import (
    is_trusted_holder as is_trusted_holder,
)
from ..watch.known import (
    is_users as is_users,
)
from ..watch.known import (
    lookup as lookup,
)
from ..watch.known import (
    namespace as namespace,
)
from ..watch.known import (
    reads_elsewhere as reads_elsewhere,
)
from ..watch.known import (
    said_of as said_of,
)
from ..watch.known import (
    top_of as top_of,
)
from ..watch.known import (
    words as words,
)


def is_of_mgb(code: CodeType) -> bool:
    """Is it part of mgb, whatever `functools.wraps` says?"""
    return code.co_filename.startswith(PACKAGE)


#: Functions of modules of pure ones that read more than their arguments.
DENIED = frozenset({typing.get_type_hints})


#: Names of functions that stop at the next line of their caller, if they are debuggers.
DEBUGGERS = words("breakpoint set_trace post_mortem")


def is_debugger(function: Any) -> bool:
    """Is it one, of whoever's? A function that calls another one is one as well."""
    if isinstance(function, types.MethodType):
        if isinstance(function.__self__, bdb.Bdb):
            return True
        function = function.__func__
    if not isinstance(function, FunctionType):
        return function is breakpoint
    return top_of(function) in ("bdb", "pdb") or not DEBUGGERS.isdisjoint(function.__code__.co_names)


def is_librarys(thing: Any) -> bool:
    """Is it such a module, or a class of one?"""
    if isinstance(thing, types.ModuleType):
        return is_library(thing.__name__)
    return isinstance(thing, type) and is_library(thing.__module__)


def is_numpys(kind: type) -> bool:
    """Is it a class that NumPy has written in Python, or derived from one?"""
    return any(top_of(base) == "numpy" and is_heap(base) for base in kind.__mro__)


def is_library_code(code: CodeType) -> bool:
    """Is it Python's own, made by it, or a plugin's?"""
    return is_made_by_library(code) or is_python(code.co_filename) or is_plugins(code.co_filename)


def says(function: Any, word: str) -> bool:
    """Does its module say that of a function or class of mgb?"""
    return said_of(function.__module__, function.__name__) == word


def called_method(thing: Any) -> Any:
    """The function that is given the arguments of a call of `thing`, maybe by one of mgb."""
    name = "__call__"
    if is_trusted_holder(thing):
        name = getattr(type(thing), "__calls__", name)
    return MISSING if name in namespace(thing) else lookup(type(thing), name)[0]


TRANSIENT: tuple[type, ...] = (
    *FOLLOWED, tuple, frozenset, types.MethodType, types.BuiltinMethodType, types.MethodWrapperType, super,
    *VIEWS, type(np.empty(0).flags), BoundTrace,
)  # fmt: skip
#: The ids of functions in C that call functions which they are given, and do nothing else with these.
CALLING = frozenset(map(id, (map, filter, sorted, min, max, functools.reduce, functools.partial)))

#: Functions of NumPy that change what they are given, or read and write elsewhere.
NUMPY_WRITES = words("copyto put place putmask fill_diagonal put_along_axis at shuffle")
