"""One recording: what was made during it, where everything else was found, and what cannot be known."""

from __future__ import annotations

import functools
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from ...autodiff.grad_manager import GradManager
from ...errors import ImpureBodyError
from ...sizes import settled
from ...tensor import Tensor
from ..arguments import names_of
from ..guard import Guard, Guards, is_plain
from ..source import Argument, Held, Object, Source
from ..tree import flatten, parts_of
from . import arming
from .instrument import codes_in, instrumented
from .known import (
    CONTAINERS,
    TRANSIENT,
    is_heap,
    is_library,
    is_library_code,
    is_module,
    is_pure_library,
    is_trusted,
)

#: At most so many impurities are told apart.
_MOST = 100

#: The hooks by their names, filled by `hooks`.
HOOKS: dict[str, Callable[..., Any]] = {}


@dataclass(frozen=True, slots=True)
class Impurity:
    """Why a body cannot be skipped, and the line of the user that made it so."""

    reason: str
    file: str
    line: int
    once: bool = False  # may another call do without it?

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


class _Watching(threading.local):
    observer: Observer | None = None


WATCHING = _Watching()


class Observer:
    """Watches one call.

    Parameters
    ----------
    leaves : sequence
        The flattened arguments, which whoever skips the body looks at himself.
    refuses : bool
        Raise an error at the first impurity, before it is done.
    of_instance : bool
        The function is a method, whose instance is given first and is no argument.

    Attributes
    ----------
    guards : Guards
        What has to be as it was.
    impurities : list of Impurity
        Why the body cannot be skipped whatever holds; empty: it can.
    """

    def __init__(self, leaves: Sequence[Any] = (), refuses: bool = False, of_instance: bool = False) -> None:
        self.guards = Guards()
        self.impurities: list[Impurity] = []
        self.written: list[Any] = []  # what has been changed outside
        self.pending: dict[int, Any] = {}  # by frame: what is done with the result of its call
        self.walked: set[Source] = set()  # Modules of which all has been read
        self.busy = False  # it is looking itself
        self.leaves, self._refuses, self._of_instance = leaves, refuses, of_instance
        self._outer: Observer | None = None
        self._made: set[int] = set()  # ids: what is made where such an object was is made here too
        self._found: dict[int, tuple[Source, Any]] = {}
        self._given: set[int] = set()  # containers among the arguments
        self._latest: Any = None  # the array that was read last, until an op has taken it
        self._told: set[int] = set()
        self._armed: dict[int, Any] = {}
        self._closures: dict[int, list[FunctionType]] = {}  # by the id of the code
        self._watched: set[int] = set()  # codes with hooks
        self._unwatched: dict[int, str] = {}  # why a code has none
        self.unaccounted: dict[int, list[Any]] = {}  # by id of an array: reads without an op
        self._net = arming.Net(self._started)

    @staticmethod
    def current() -> Observer | None:
        """The one that watches this thread."""
        return WATCHING.observer

    # the call

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call `function` and watch; afterwards everything is as it was."""
        self._outer = WATCHING.observer
        if self._outer is not None:
            self._outer.impure("is watched by two at once")
        try:
            try:
                result = self._run(function, args, kwargs)
            except BaseException as error:
                _clean(error)
                raise
            finally:
                self._release()
        finally:
            self._release()  # an interrupt may have come before or in the first
        if not self.impurities:
            facts = [guard for guard in self.guards if getattr(guard.source, "name", "") != "__code__"]
            changed = Guards(facts).why(self.leaves)  # another thread may watch the same functions
            if changed is not None:
                self.impure(f"changes what it reads, or reads what is new each time: {changed}", once=True)
        return result

    def _run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._give(args, kwargs)
        HOOKS["begin"](self, function, args, kwargs)
        trouble = self._net.spread()
        if trouble:
            self.impure(f"its calls cannot be watched: {trouble}")
        WATCHING.observer = self
        result = function(*args, **kwargs)
        WATCHING.observer = self._outer
        HOOKS["end"](self)
        self._check_result(result)
        for thing in self.written:
            settled(thing, attrgetter("value"))
        return result

    def _check_result(self, result: Any) -> None:
        """A container from outside is that very object in the result; later calls would make another."""
        waiting = [result]
        while waiting:
            part = waiting.pop()
            inside = parts_of(part)
            if inside is not None and not isinstance(part, tuple):
                if id(part) in self._given or self.known(part) is not None:
                    return self.impure(f"returns a {type(part).__name__} from outside")
            waiting += inside or ()
        return None

    def is_argument(self, thing: Any) -> bool:
        """Is it a container among the arguments, of which the elements are known?"""
        return id(thing) in self._given

    def forget(self) -> None:
        """Hold nothing of the call any more but what its guards hold."""
        self.leaves, self._found, self.written = (), {}, []
        self._net.forget()

    def _release(self) -> None:
        self._net.gather()
        WATCHING.observer = self._outer
        for thing in [*self._armed.values()]:
            if isinstance(thing, FunctionType):
                arming.disarm(thing, id(self))
        self._armed, self._closures = {}, {}
        self.pending.clear()
        self.unaccounted.clear()
        self._latest = None
        self._found = {
            k: (s, v if isinstance(v, weakref.ref) else _reference(v)) for k, (s, v) in self._found.items()
        }

    def _give(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """The arguments are no surroundings: leaves are found in their places, containers need no guards."""
        args = args[self._of_instance :]
        names = dict(zip(map(id, flatten((args, dict(kwargs)))[0]), names_of(args, kwargs), strict=False))
        for place, leaf in enumerate(self.leaves):
            if not is_plain(leaf):
                self._keep(leaf, Argument(place, names.get(id(leaf), "")))
        waiting: list[Any] = [*args, *kwargs.values()]
        while waiting:
            part = waiting.pop()
            inside = parts_of(part)
            if inside is not None and id(part) not in self._given:
                self._given.add(id(part))
                waiting += inside

    # what is where

    def make(self, value: Any) -> None:
        """`value` was made during this call, unless it was found outside before."""
        if id(value) not in self._found and id(value) not in self._given:
            self._made.add(id(value))

    def is_made(self, value: Any) -> bool:
        """Was it made during this call?"""
        if id(value) in self._made:
            return True
        if isinstance(value, np.ndarray) and id(value) not in self._found:
            base = value.base
            return base is not None and not isinstance(base, memoryview) and self.is_made(base)
        return isinstance(value, TRANSIENT) and self.known(value) is None

    def known(self, value: Any) -> Source | None:
        """Where it was found already."""
        entry = self._found.get(id(value))
        if entry is None:
            return None
        kept = (
            entry[1]()
            if isinstance(entry[1], weakref.ref) and not isinstance(value, weakref.ref)
            else entry[1]
        )
        return entry[0] if kept is value else None

    def source_of(self, thing: Any) -> Source | None:
        """Where an object outside is found; None: it was made here, or is a container of arguments."""
        if id(thing) in self._given or is_plain(thing) or self.is_made(thing):
            return None
        known = self.known(thing)
        if known is not None:
            return known
        if isinstance(thing, np.ndarray) and isinstance(thing.base, np.ndarray):
            return self.source_of(self.viewed(thing))
        return self._keep(thing, Object(Held(thing)))

    def viewed(self, view: Any) -> Any:
        """The array that holds the elements of `view`: an argument, which may be one itself, or its base."""
        start, stop = byte_bounds(view)
        for leaf in self.leaves:
            if type(leaf) is np.ndarray and leaf.flags.forc and self.known(leaf) is not None:
                first, last = byte_bounds(leaf)
                if leaf is not view and first <= start and stop <= last:
                    return leaf
        return view.base

    def _keep(self, value: Any, source: Source) -> Source:
        self._made.discard(id(value))
        self._found[id(value)] = source, _reference(value) if isinstance(value, Tensor) else value
        return source

    def found(self, source: Source | None, value: Any) -> None:
        """`value` was read at `source`; without one, in something that was made here."""
        if is_plain(value):
            if source is not None:
                self.guard(source, "same", value)
            return
        known = self.known(value)
        if source is None:
            if known is None and (isinstance(value, CONTAINERS) or is_heap(type(value))):
                self.make(value)
            return
        if id(value) in self._given:
            return
        if known is None:
            self._keep(value, source)
        if self._stands_for_itself(value):
            self.guard(source, "is", Held(value))
        elif known is not None and known != source:
            self.guard(source, "alias", known)

    @staticmethod
    def _stands_for_itself(value: Any) -> bool:
        """Is it known by its identity: not read further, or by others?"""
        if isinstance(value, (Tensor, Enum, type, FunctionType)):
            return True
        if isinstance(value, CONTAINERS):
            return False
        kinds = type(value).__mro__
        if not is_heap(kinds[0]) or isinstance(value, (int, float, complex, str, bytes)):
            return True
        return is_pure_library(kinds[0]) or any((kind.__module__ or "").startswith("mgb.") for kind in kinds)

    def once(self, thing: Any) -> bool:
        """Is it asked for the first time?"""
        first = id(thing) not in self._told
        self._told.add(id(thing))
        return first

    def reads_array(self, array: Any, whole: Any, source: Source) -> None:
        """`array`, a part of `whole`, which is found at `source`, is read: see `takes_array`."""
        pending = self.unaccounted.setdefault(id(array), [])
        pending.append((array, whole, source, _place(sys._getframe(1))))
        self._latest = array

    def takes_array(self, array: Any) -> Source | None:
        """An op takes `array` as an input: what was just read needs no guard. Where it is found outside."""
        source = self.known(array)
        if source is not None and self._latest is array:
            self.unaccounted[id(array)].pop()
            self._latest = None
        return source

    def enters(self, module: Any) -> None:
        """The core calls a Module: its class, and what stands before that, have to stay."""
        if WATCHING.observer is self:
            HOOKS["enters"](self, module)

    def calls(self, function: Any, args: list[Any]) -> None:
        """A function that is perhaps not written in Python is about to be called."""
        HOOKS["calls"](self, function, args)

    # verdicts

    def guard(self, source: Source, test: str, value: Any) -> None:
        """One more fact that has to stay."""
        self.guards.add(Guard(source, test, value))

    def guard_kind(self, thing: Any, source: Source | None = None) -> None:
        """The class of `thing` has to stay; a Tensor is known by itself."""
        source = source or (None if isinstance(thing, Tensor) else self.source_of(thing))
        if source is not None:
            self.guard(source, "type", Held(type(thing)))

    def impure(
        self,
        reason: str,
        frame: FrameType | None = None,
        once: bool = False,
        place: tuple[str, int] | None = None,
    ) -> None:
        """The body cannot be skipped: for what is done at `place`, or by the user's innermost `frame`."""
        file, line = place or _place(frame or sys._getframe(1))
        impurity = Impurity(reason, file, line, once)
        if self._refuses:
            raise ImpureBodyError(
                f"the body {reason} at {file}:{line}, so it would have to run at each call: do that outside "
                "of it, or use @trace, which runs such a body"
            )
        if len(self.impurities) < _MOST and impurity not in self.impurities:
            self.impurities.append(impurity)

    def wrote(self, thing: Any, what: str) -> None:
        """Something of `thing` was changed."""
        if not isinstance(thing, Tensor) and not self.is_made(thing):
            self.written.append(thing)
            self.impure(f"writes {what} of a {type(thing).__name__} from outside", once=True)

    # watching

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
                    if isinstance(value, (FunctionType, staticmethod, classmethod, property)):
                        self.arm(value)
        if type(kind) is not type:
            self._arm_class(type(kind))

    def _arm_function(self, function: FunctionType) -> None:
        if id(function.__code__) in self._watched or is_trusted(function.__code__):
            return
        own = arming.own_code(function)
        self._armed[id(function)] = function
        why = arming.arm(function, self._instrument, id(self))
        if why is not None:
            self._unwatched[id(own)] = why
            self._armed[id(own)] = own  # so that no other gets its id
            return
        self._closures.setdefault(id(own), []).append(function)
        self._watched.update(map(id, codes_in(function.__code__)))

    @staticmethod
    def _instrument(function: FunctionType) -> CodeType | str:
        return instrumented(function.__code__, function.__globals__, HOOKS)

    def closures(self, code: CodeType) -> list[FunctionType]:
        """The armed functions of `code`."""
        return self._closures.get(id(code), [])

    def _started(self, code: CodeType, caller: FrameType | None) -> bool:
        if WATCHING.observer is not self or self.busy:
            return False
        if id(code) in self._watched or is_trusted(code) or code.co_name == "__del__":
            return True
        if (is_library_code(code) and _is_called_by_trusted(caller)) or _is_import(caller):
            return False
        if _is_collecting(code, caller):
            return False
        why = self._unwatched.get(id(code), "nothing told that it would be called")
        self.impure(f"calls {code.co_qualname} ({code.co_filename}), which is not watched: {why}", caller)
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
    """Does the garbage collector tell of its work? It may begin anywhere; the body has no part in that."""
    told = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    while frame is not None and code not in told:
        code, frame = frame.f_code, frame.f_back
    return code in told


def _reference(value: Any) -> Any:
    try:
        return weakref.ref(value)
    except TypeError:
        return None


def _parts(thing: Any) -> Iterator[Any]:
    """What an object holds that is called with it: functions, hooks, modules."""
    for value in getattr(thing, "__dict__", {}).values():
        inside = (
            value.values()
            if isinstance(value, dict)
            else value
            if isinstance(value, (list, tuple))
            else (value,)
        )
        for part in inside:
            if isinstance(thing, GradManager):
                yield from getattr(part, "callbacks", ())
            elif (
                is_module(part)
                or isinstance(part, (FunctionType, MethodType, functools.partial))
                or (is_module(thing) and callable(part))
            ):
                yield part


def _place(frame: FrameType | None) -> tuple[str, int]:
    """The innermost line of the user."""
    library = None
    while frame is not None:
        code = frame.f_code
        if not is_trusted(code):
            if not is_library(frame.f_globals.get("__name__")):
                return code.co_filename, frame.f_lineno
            library = library or (code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return library or ("?", 0)


def _clean(error: BaseException | None) -> None:
    """Take the frames of hooks out of tracebacks."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        trace = error.__traceback__
        while trace is not None:
            while trace.tb_next is not None and trace.tb_next.tb_frame.f_globals.get("HOOKS") is HOOKS:
                if trace.tb_next.tb_next is None:
                    break
                trace.tb_next = trace.tb_next.tb_next
            trace = trace.tb_next
        error = error.__cause__ or error.__context__
