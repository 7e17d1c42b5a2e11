"""Whose code has hooks in one recording: what is found to be called, and functions that nobody announced."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

from ...holding import Holder
from ...tensor import Tensor
from ...trusted import is_library
from ..guard import is_plain
from ..watch.classes import METHODS
from . import arming
from .instrument import codes_in, instrumented
from .known import is_heap, is_library_code, is_trusted, is_trusted_holder

#: Of more code no more is watched in one recording: objects of a large library may reach all of it.
_LARGEST = 1 << 16


class Armed:
    """The functions that are watched.

    Parameters
    ----------
    hooks : mapping
        By their names in `transform`.
    tell : callable
        Told what calls a function that is not watched, and the frame that called it.
    """

    def __init__(
        self, hooks: Mapping[str, Callable[..., Any]], tell: Callable[[str, FrameType | None], None]
    ) -> None:
        self._hooks, self._tell = hooks, tell
        self._armed: dict[int, Any] = {}
        self._watched: set[int] = set()  # codes with hooks
        self._unwatched: dict[int, str] = {}  # why a code has none
        self._size = 0  # of the codes, in bytes

    def arm(self, thing: Any) -> None:
        """Watch the Python functions that `thing` is, or that its class, submodules and hooks have."""
        if id(thing) in self._armed or is_plain(thing) or isinstance(thing, Tensor):
            return
        if isinstance(thing, FunctionType):
            self._arm_function(thing)
        elif isinstance(thing, (MethodType, staticmethod, classmethod)):
            self.arm(thing.__func__)
        elif isinstance(thing, property):
            for function in (thing.fget, thing.fset, thing.fdel):
                self.arm(function)
        elif isinstance(thing, functools.partial):
            for part in (thing.func, *thing.args, *thing.keywords.values()):
                self.arm(part)
        elif isinstance(thing, type):
            self._arm_class(thing)
        elif is_heap(type(thing)):
            self._armed[id(thing)] = thing
            self._arm_class(type(thing))
            for value in _parts(thing):
                self.arm(value)

    def _arm_class(self, kind: type) -> None:
        if id(kind) in self._armed:
            return
        self._armed[id(kind)] = kind
        for base in kind.__mro__:
            if is_heap(base) and not is_library(base.__module__):
                for value in vars(base).values():
                    if isinstance(value, METHODS):
                        self.arm(value)
        if type(kind) is not type:
            self._arm_class(type(kind))

    def _arm_function(self, function: FunctionType) -> None:
        if id(function.__code__) in self._watched or is_trusted(function.__code__):
            return
        own = arming.own_code(function)
        self._armed[id(function)] = function
        self._size += len(own.co_code)
        if self._size > _LARGEST:
            why: str | None = f"the body reaches more code than the {_LARGEST} bytes that are watched"
        else:
            why = arming.arm(function, self._instrument, id(self))
        if why is not None:
            self._unwatched[id(own)] = why
            self._armed[id(own)] = own  # so that no other gets its id
            return
        self._watched.update(map(id, codes_in(function.__code__)))

    def _instrument(self, function: FunctionType) -> CodeType | str:
        return instrumented(function.__code__, function.__globals__, self._hooks)

    def release(self) -> None:
        """Have all functions run without hooks again, and tell nobody any more."""
        for thing in [*self._armed.values()]:
            if isinstance(thing, FunctionType):
                arming.disarm(thing, id(self))
        self._armed, self._tell = {}, lambda *_: None

    def started(self, code: CodeType, caller: FrameType | None) -> bool:
        """`code` starts. True: that need not be told again."""
        if id(code) in self._watched or is_trusted(code) or code.co_name == "__del__":
            return True
        is_evaluated = code.co_filename == "<string>" and code.co_name in ("<module>", "__create_fn__")
        if ((is_evaluated or is_library_code(code)) and _is_called_by_trusted(caller)) or _is_import(caller):
            return False
        if not _is_collecting(code, caller):
            why = self._unwatched.get(id(code), "nothing told that it would be called")
            self._tell(f"calls {code.co_qualname} ({code.co_filename}), which is not watched: {why}", caller)
        return False


def _is_called_by_trusted(frame: FrameType | None) -> bool:
    """Does trusted code call Python's library here, for itself?"""
    while frame is not None and not is_trusted(frame.f_code):
        if not is_library_code(frame.f_code):
            return False
        frame = frame.f_back
    return frame is not None


def _is_import(frame: FrameType | None) -> bool:
    """Is a module being imported? Who asked for that is told from its import."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _is_collecting(code: CodeType, frame: FrameType | None) -> bool:
    """Does the garbage collector tell of its work, or is something finalized? That is no part of the body."""
    told = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    told.add(weakref.finalize.__call__.__code__)
    while frame is not None and code not in told and code.co_name != "__del__":
        code, frame = frame.f_code, frame.f_back
    return frame is not None or code in told


def _parts(thing: Any) -> Iterator[Any]:
    """What an object holds that is called with it: functions, hooks, layers."""
    if isinstance(thing, Holder):
        yield from (part for _, part in thing.__parts__() if not isinstance(part, Tensor))
    if is_trusted_holder(thing):
        return
    for value in getattr(thing, "__dict__", {}).values():
        inside: Any = value.values() if isinstance(value, dict) else value
        for part in inside if isinstance(value, (dict, list, tuple)) else (value,):
            if isinstance(part, (FunctionType, MethodType, functools.partial, Holder)):
                yield part
