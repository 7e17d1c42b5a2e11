"""One call that is watched from its beginning to its end, by the names in the code that runs."""

from __future__ import annotations

import gc
import logging
import string
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType, FunctionType
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ...errors import ImpureBodyError
from ...holding import SETTINGS, Holder
from ...tensor import Tensor
from ..arguments import TEXTS, names_of, texts_within
from ..environment import known
from ..environment.changing import Changing
from ..environment.impurity import Impurity, line_of
from ..environment.watch import handling_of_errors
from ..guard import Guards, is_plain
from ..source import Argument, Attribute, Call, Grad, Held, Object, Result, Source, Sources, found_at, is_in_argument
from ..tree import flatten, own_names, parts_of
from . import pure, written
from .events import Events
from .walk import Walk

Given = ParamSpec("Given")
Value = TypeVar("Value")
#: At most so many impurities are told apart.
_MOST = 100
#: What the body makes of these is its own.
_PLAIN_CONTAINERS = frozenset({list, dict, set})
#: Functions of NumPy's that tell of its state.
_STATES = frozenset({"geterr", "geterrcall", "getbufsize", "get_printoptions"})
#: Parts of Python's library that read all attributes of what they are given.
_WILD = frozenset({"copy", "dataclasses", "pprint", "inspect"})


class _Watching(threading.local):
    observer: Observer | None = None


_watching = _Watching()


class Observer:
    """Watches one call.

    Parameters
    ----------
    leaves : sequence
        The flattened arguments, which whoever skips the body looks at himself.
    refuses : bool
        Raise an error at the first impurity.
    of_instance : bool
        The function is a method, whose instance is given first and is no argument.
    follows : frozenset of Source, optional
        Where other Tensors may stand; numbers are not followed here.

    Attributes
    ----------
    guards : Guards
        What has to be as it was.
    impurities : list of Impurity
        Why the body cannot be skipped whatever holds; empty: it can.
    effects : list of tuple
        What is written outside though the body is skipped: where, is it appended there, and what.
    """

    #: Are lengths of axes followed?
    follows_lengths = False

    def __init__(
        self,
        leaves: Sequence[Any] = (),
        refuses: bool = False,
        of_instance: bool = False,
        follows: frozenset[Source] = frozenset(),
    ) -> None:
        tensors = frozenset(s for s in follows if isinstance(found_at(s, leaves), Tensor))
        self.walk = Walk(leaves, tensors, self._cannot)
        self.leaves, self.refuses, self._of_instance = leaves, refuses, of_instance
        self.impurities: list[Impurity] = []
        self.effects: list[tuple[Source, bool, Any]] = []
        self.has_effects = False
        self.net = Events(self)
        self._made: set[int] = set()
        self._begun: tuple[list[Any], Any] = [], None  # the arguments
        self._errors = handling_of_errors()
        self._handled = sys.exception()
        self._has_numbers = bool(follows)
        #: By the ids of what a method in C was called of: which, and where.
        self.lines: dict[int, tuple[str, tuple[str, int]]] = {}
        self.line: tuple[str, int] = ("?", 0)

    # what others ask

    @property
    def guards(self) -> Guards:
        """What has to be as it was."""
        return self.walk.guards

    @property
    def changing(self) -> Changing:
        """Which Tensors outside are others from call to call."""
        return self.walk.changing

    @property
    def makes(self) -> Callable[[Any], bool]:
        """Did the body make this Tensor? Who records the ops knows."""
        return self.walk.makes

    @makes.setter
    def makes(self, makes: Callable[[Any], bool]) -> None:
        self.walk.makes = makes

    def known(self, value: Any) -> Source | None:
        """Where it was found."""
        return self.walk.where(value)

    def source_of(self, thing: Any) -> Source | None:
        """The same."""
        return self.walk.where(thing)

    def is_made(self, value: Any) -> bool:
        """Was it made during this call?"""
        if self.walk.where(value) is not None:
            return False
        return id(value) in self._made or not (isinstance(value, type) or callable(value) or _is_held(value))

    def meets(self, source: Source, value: Any) -> None:
        """`value` stands at `source`, where another may stand at a later call."""
        self.walk.meets(source, value)

    def takes_array(self, array: Any) -> Source | None:
        """Where an array is found outside that an op takes."""
        return self.walk.where(array)

    def enters(self, holder: Any) -> None:
        """The library works with a holder."""
        if _watching.observer is self and id(holder) not in self._made:
            self.net.without(self._enters, holder)

    def _enters(self, holder: Any) -> None:
        if self.walk.where(holder) is None:
            self.walk.place(Object(Held(holder)), holder)
        self.walk.drain()

    def arm(self, thing: Any) -> None:
        """Nothing has to be told before it is called."""

    def impure(
        self,
        reason: str,
        frame: FrameType | None = None,
        once: bool = False,
        line: tuple[str, int] | None = None,
        writes: bool = False,
    ) -> None:
        """The body cannot be skipped: for what is done at `line`, or by the user's innermost `frame`."""
        impurity = Impurity(reason, *(line or line_of(frame or sys._getframe(1))), once, writes)
        if self.refuses:
            raise ImpureBodyError(
                f"the body {reason} at {impurity.file}:{impurity.line}, so it would have to run at each "
                "call: do that outside of it, or use @trace, which runs such a body"
            )
        if len(self.impurities) < _MOST and impurity not in self.impurities:
            self.impurities.append(impurity)

    def _cannot(self, reason: str) -> None:
        """Told by the walk, which has begun with what runs now."""
        line = line_of(sys._getframe(1))
        self.impure(reason, line=self.line if line[0] == "?" else line)

    def forget(self) -> None:
        """Hold nothing of the call any more but what its guards hold."""
        self.leaves = ()
        self.walk.forget()
        self.net.forget()
        self.lines.clear()

    def writes_so_far(self) -> list[Impurity]:
        """What has changed something outside, with its line."""
        return [*(i for i in self.impurities if i.writes), *written.impurities_of(self)]

    # the call

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call `function` and watch."""
        outer = _watching.observer
        if outer is not None:
            outer.impure("is watched by two at once")
        self.line = _beginning(function)
        try:
            self._roots(function, args, kwargs)
            result = self._run(function, args, kwargs)
            _watching.observer = outer
            self.net.end()
            self._end(result, args, kwargs)
        finally:  # an interrupt may come anywhere
            _watching.observer = outer
            self.net.end()
            self._begun = [], None
            self.walk.release()
        return result

    def _run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if trouble := self.net.begin():
            self.impure(f"its calls cannot be watched: {trouble}")
        _watching.observer = self
        return function(*args, **kwargs)

    def _roots(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        walk = self.walk
        self._arguments(args[self._of_instance :], kwargs)
        if self._of_instance:
            walk.place(Object(Held(args[0])), args[0])
        walk.place(Object(Held(function)), function)
        walk.drain()

    def _arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        leaves, arrangement = self._begun = flatten((args, dict(kwargs)))
        names = dict(zip(map(id, leaves), names_of(arrangement), strict=True))
        walk = self.walk
        waiting: list[Any] = [*args, *kwargs.values()]
        while waiting:
            inside = parts_of(part := waiting.pop())
            if inside is not None and id(part) not in walk.given:
                walk.given.add(id(part))
                if known.is_heap(type(part)):
                    walk.place(Object(Held(type(part))), type(part))
                waiting += inside
        texts = texts_within(leaves, arrangement)
        for index, leaf in enumerate(self.leaves):
            source = Argument(index, names.get(id(leaf), ""))
            if not is_plain(leaf):
                walk.argument(source, leaf)
            elif type(leaf) in TEXTS or self._has_numbers or index in texts:
                walk.guard(source, "same", leaf)

    # what happens

    def _see(self, do: Callable[..., object], *args: Any) -> None:
        """What fails in watching is no failure of the body."""
        try:
            do(*args)
        except ImpureBodyError:
            raise
        except Exception as error:
            self.impure(f"could not be watched: {type(error).__name__}: {error}", line=self.line)

    def starts(self, frame: FrameType) -> None:
        """A function in Python starts, or a generator goes on."""
        self._see(self._starts, frame)

    def calls(self, function: Any, frame: FrameType) -> None:
        """`frame` calls a function in C."""
        owner = getattr(function, "__self__", None)
        if type(owner) not in _PLAIN_CONTAINERS or self.walk.where(owner) is not None:
            self._see(self._calls, function, frame)

    def _starts(self, frame: FrameType) -> None:
        code = frame.f_code
        if code.co_name == "__init__" and code.co_varnames:
            self._made.add(id(frame.f_locals.get(code.co_varnames[0])))
        if self.walk.has_run(code):
            return
        if code is known.SHOWS_WARNING:
            self._warns(frame)
        elif pure.is_trusted(code) or _is_made_by_library(frame, code):
            self._library(frame, code)
        elif not _is_import(frame) and not _is_called_by_trusted(frame, code) and not _is_collecting(code, frame):
            if not self.walk.starts(code, frame.f_globals) and not pure.is_librarys(code):
                self.impure(f"calls {code.co_qualname}, which nothing leads to", frame)

    def _warns(self, frame: FrameType) -> None:
        caller = frame.f_back
        of_mgb = caller is not None and caller.f_globals.get("__name__", "").startswith("mgb.")
        if not self.refuses and not of_mgb:
            self.impure("gives a warning", caller, once=True)

    def _library(self, frame: FrameType, code: CodeType) -> None:
        """A function that is trusted starts."""
        module, back = frame.f_globals.get("__name__") or "", frame.f_back
        top = module.partition(".")[0]
        first = frame.f_locals.get(code.co_varnames[0]) if code.co_varnames else None
        if back is None or _is_within_trusted(back) or module.startswith("importlib._bootstrap"):
            return
        if isinstance(first, Holder) and known.said_of(module, code.co_name) != "tells":
            self.walk.whole(first)
        if code in _quiet:
            return
        words = (code.co_name, code.co_qualname.partition(".")[0])
        if top == "numpy" and code.co_name in _STATES and getattr(np, code.co_name, None) in known.AGAIN:
            function = getattr(np, code.co_name)
            self.walk.place(Call.given(Object(Held(function)), ()), function())
            self.walk.drain()
        if top == "logging":
            self._logs(frame, back)
        elif top in _WILD:
            self.walk.goes_wild()
        elif not any(pure.trouble_of_library(module, word, first, lambda _: True) for word in words):
            return _quiet.add(code)
        for word in words:
            why = pure.trouble_of_library(module, word, first, self._is_outside)
            if why is not None and not _is_import(frame):
                changes = "changes of a" in why
                self.impure(why, back, once=changes, writes=changes)
        return None

    def _is_outside(self, thing: Any) -> bool:
        return self.walk.where(thing) is not None

    def _logs(self, frame: FrameType, back: FrameType) -> None:
        """A message of a level that nobody wants does nothing, while that is so."""
        name = frame.f_code.co_name
        logger = frame.f_locals.get("self", logging.root)
        if name == "getLogger":
            return
        if not isinstance(logger, logging.Logger):
            return self.impure(f"calls logging.{name}", back)
        asks = name in ("isEnabledFor", "getEffectiveLevel")
        level = frame.f_locals.get("level", 0) if asks else getattr(logging, name.upper(), None)
        if not isinstance(level, int) or (logger.isEnabledFor(level) and not asks):
            return self.impure(f"calls logging.{name}", back)
        asked = Attribute(Object(Held(logger)), "isEnabledFor")
        return self.walk.guard(Call.given(asked, (level,)), "same", logger.isEnabledFor(level))

    def _calls(self, function: Any, frame: FrameType) -> None:
        if not isinstance(function, known.IN_C):
            return
        if pure.is_tame(frame.f_code) or _is_within_trusted(frame) or _is_import(frame):
            return
        owner = getattr(function, "__self__", None)
        if self.walk.where(owner) is not None and not isinstance(owner, type):
            if isinstance(owner, known.CONTAINERS) and not pure.only_reads(owner, function.__name__):
                self.lines[id(owner)] = function.__name__, line_of(frame)
        if pure.asks_any_name(function):
            self.walk.goes_wild()
        if isinstance(owner, str) and function.__name__ in ("format", "format_map"):
            self.walk.add_names(_names_in_format(owner))
        if function in (isinstance, issubclass):
            self.walk.asks_classes()
        elif function in (sys.exception, sys.exc_info) and sys.exception() is self._handled:
            if self._handled is not None:
                self.impure("asks for an exception that is handled outside", frame)
            self.walk.guard(Call(Object(Held(sys.exception))), "same", None)
        elif why := pure.trouble_of(function, self._is_outside):
            self.impure(why, frame)

    # the end

    def _settings(self) -> None:
        """What ops depend on without naming it; the first of them may make it."""
        walk = self.walk
        for module, setting in SETTINGS:
            of = Object(Held(module))
            if callable(setting):
                walk.place(Result(setting, of), setting(module))
            else:
                walk.place(Attribute(of, setting), vars(module)[setting])
        walk.drain()

    def _end(self, result: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._settings()
        if self.walk.sees_numpy:
            self.walk.guard(Call(Object(Held(handling_of_errors))), "same", self._errors)
        self.walk.ends()
        self._containers(args[self._of_instance :], kwargs)
        self._tensors()
        self._objects()
        self._check_result(result)
        written.settle(self)

    def _containers(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Containers among the arguments hold what they held; what else they have nobody guards."""
        leaves, arrangement = flatten((args, dict(kwargs)))
        before, arranged = self._begun
        if arrangement != arranged or any(a is not b for a, b in zip(leaves, before, strict=True)):
            line = self.walk.stored.get("", self.line)
            self.impure("writes an element of an argument", None, True, line, writes=True)
        waiting: list[Any] = [*args, *kwargs.values()]
        while waiting:
            part = waiting.pop()
            extra = own_names(part) if id(part) in self.walk.given else ()
            if extra and (self.walk.is_wild or self.walk.names.intersection(extra)):
                kind = type(part).__name__
                self.impure(
                    f"reads {extra[0]} of a {kind} among the arguments, which is none of its elements",
                    line=self.line,
                )
            waiting += parts_of(part) or ()

    def _tensors(self) -> None:
        """An argument may be a Tensor that is also found outside, or a `grad`."""
        walk, reads_grads = self.walk, "grad" in self.walk.loaded or self.walk.is_wild
        found = [(source, value) for source, value in walk.outside() if isinstance(value, Tensor)]
        arguments = [n for n, leaf in enumerate(self.leaves) if isinstance(leaf, Tensor)]
        for number in arguments:
            if id(self.leaves[number]) in walk.also:
                walk.is_(Argument(number), self.leaves[number])
        others = tuple(Argument(n) for n in arguments if id(self.leaves[n]) not in walk.also)
        fixed = frozenset(id(t) for source, t in found if walk.changing.path_to(t) is None and not isinstance(source, Grad))
        if others and fixed:
            walk.guard(Sources(others), "other than", fixed)
        for source, tensor in found:
            if reads_grads if isinstance(source, Grad) else walk.changing.path_to(tensor) is not None:
                for other in others:
                    walk.guard(other, "apart", source)

    def _objects(self) -> None:
        """Objects of one class that are compared, or are keys, stay as many."""
        groups: dict[type, list[Source]] = {}
        moving: set[type] = set()  # of which there may be others
        functions: dict[bool, dict[int, Source]] = {True: {}, False: {}}  # are they in arguments?
        for source, value in self.walk.found():
            if isinstance(value, FunctionType):
                functions[is_in_argument(source)][id(value)] = source
            elif known.is_heap(type(value)) and not isinstance(value, (Tensor, type)):
                groups.setdefault(type(value), []).append(source)
                if id(value) not in self.walk.fixed:
                    moving.add(type(value))
        if functions[True]:
            given = tuple(functions[True].values())
            self.walk.guard(Sources(given), "other than", frozenset(functions[False]))
            self.walk.guard(Sources(given), "different", len(given))
        for kind, sources in groups.items():
            if len(sources) > 1 and kind in moving:
                self.walk.guard(Sources(tuple(sources)), "different", len(sources))

    def _check_result(self, result: Any) -> None:
        """What comes from outside is that very object in the result; a list would be another one."""
        waiting, seen = [(result, False)], set[int]()
        while waiting:
            part, in_outside = waiting.pop()
            inside = parts_of(part) if id(part) not in seen else None
            seen.add(id(part))
            if isinstance(part, Tensor) and self.makes(part) and (notes := written.notes_of(part)):
                return self.impure(f"returns a Tensor that it gives the attribute {notes[0]}", line=self.line)
            is_outside = in_outside or id(part) in self.walk.given or self.known(part) is not None
            if inside is not None and not isinstance(part, tuple):
                if is_outside:
                    return self.impure(f"returns a {type(part).__name__} from outside", line=self.line)
            elif inside is None and not is_plain(part) and not isinstance(part, Tensor):
                if (source := self.known(part)) is not None:
                    self.walk.is_(source, part)
            waiting += [(each, is_outside) for each in inside or ()]
        return None


#: Codes of functions that are trusted and of which nothing is said.
_quiet: weakref.WeakSet[CodeType] = weakref.WeakSet()


def _beginning(function: Any) -> tuple[str, int]:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code is not None else ("?", 0)


def _is_held(value: Any) -> bool:
    """Is it a member of an enumeration, or a module?"""
    return isinstance(value, (known.types.ModuleType,)) or hasattr(type(value), "__members__")


def _names_in_format(text: str) -> list[str]:
    """The attributes that a format asks for."""
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(text) if field]
    except ValueError:
        return []
    return [word for field in fields for word in field.replace("[", ".").split(".")[1:] if word.isidentifier()]


def _is_made_by_library(frame: FrameType, code: CodeType) -> bool:
    """Is it a method that `dataclass` has made for a class of a library?"""
    return code.co_filename == "<string>" and pure.is_library(frame.f_globals.get("__name__"))


def _is_within_trusted(frame: FrameType | None) -> bool:
    """Is `frame` of trusted code, or of Python's library that such code has called for itself?"""
    while frame is not None and not pure.is_trusted(frame.f_code):
        if not pure.is_librarys(frame.f_code):
            return False
        frame = frame.f_back
    return frame is not None


def _is_called_by_trusted(frame: FrameType, code: CodeType) -> bool:
    is_evaluated = code.co_filename == "<string>" and code.co_name in ("<module>", "__create_fn__")
    return (is_evaluated or pure.is_librarys(code)) and _is_within_trusted(frame.f_back)


def _is_import(frame: FrameType | None) -> bool:
    """Is a module being imported?"""
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


def unwatched(function: Callable[Given, Value], *args: Given.args, **kwargs: Given.kwargs) -> Value:
    """What `function` gives while nobody watches: it is no part of a body, or follows from its Tensors."""
    observer, _watching.observer = _watching.observer, None
    try:
        return function(*args, **kwargs) if observer is None else observer.net.without(function, *args, **kwargs)
    finally:
        _watching.observer = observer


def writes_of(function: Callable[Given, Value], *args: Given.args, **kwargs: Given.kwargs) -> tuple[
    Value, list[Impurity]
]:  # fmt: skip
    """What `function` gives, and what it changes outside; whoever watches now sees it too."""
    observer = _watching.observer
    if observer is not None:
        before = observer.writes_so_far()
        value = function(*args, **kwargs)
        return value, [impurity for impurity in observer.writes_so_far() if impurity not in before]
    observer = Observer()
    value = observer.run(function, *args, **kwargs)
    return value, [impurity for impurity in observer.impurities if impurity.writes]
