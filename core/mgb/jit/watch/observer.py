"""One call that is watched from its beginning to its end, by the names in the code that runs."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Any, ParamSpec, TypeVar

from ...errors import ImpureBodyError
from ...ir.scalars import FOLLOWED
from ...tensor import Tensor
from ..arguments import TEXTS, names_of, texts_within
from ..guard import Guards, is_plain
from ..source import Argument, Call, Object, ObjectRef, Source, try_read
from ..tree import flatten, parts_of
from . import ending, known, written
from .changing import Changing
from .events import Events
from .impurity import Impurity, line_of
from .items import items_read
from .protocols import Writes
from .running import Running
from .undoing import undo
from .walk import Walk

Given = ParamSpec("Given")
Value = TypeVar("Value")
#: At most so many impurities are told apart.
_MOST = 100


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
        The function is a method, whose instance is given first and is not an argument.
    follows : frozenset of Source, optional
        Where other Tensors may stand; numbers are not followed here.

    Attributes
    ----------
    guards : Guards
        What has to be as it was.
    impurities : list of Impurity
        Why the body cannot be skipped whatever holds; empty: it can.
    writing : Writes
        What is written outside though the body is skipped.
    """

    #: What is raised at an impurity, where these are refused.
    refusal: type[BaseException] = ImpureBodyError
    #: Is the call only noted, and undone, whatever comes of it?
    is_trial = False
    #: Does it stop to look around once the body is known to run at each call?
    stops = False

    def __init__(
        self,
        leaves: Sequence[Any] = (),
        refuses: bool = False,
        of_instance: bool = False,
        follows: frozenset[Source] = frozenset(),
    ) -> None:
        tensors = frozenset(s for s in follows if isinstance(try_read(s, leaves), Tensor))
        self.walk = Walk(leaves, tensors, self._cannot)
        self.leaves, self.refuses, self._of_instance = leaves, refuses, of_instance
        self.impurities: list[Impurity] = []
        self.writing = Writes()
        self.running = Running(self)
        self.net = Events(self.running, self.running.codes.quiet)
        self.begun: tuple[list[Any], Any] = [], None  # the arguments
        self._errors = ending.handling_of_errors()
        self._has_numbers = bool(follows)
        self.line: tuple[str, int] = ("?", 0)

    # what others ask

    @property
    def guards(self) -> Guards:
        """The guards of the call."""
        return self.walk.guards

    @property
    def changing(self) -> Changing:
        """The captured Tensors that differ from call to call."""
        return self.walk.changing

    @property
    def makes(self) -> Callable[[Any], bool]:
        """Return whether the body made this Tensor. Who records the ops knows."""
        return self.walk.makes

    @makes.setter
    def makes(self, makes: Callable[[Any], bool]) -> None:
        self.walk.makes = makes

    def known(self, value: Any) -> Source | None:
        """Return where it was found."""
        return self.walk.where(value)

    def is_made(self, value: Any) -> bool:
        """Return whether it was made during this call."""
        if self.walk.where(value) is not None:
            return False
        stays = isinstance(value, type) or callable(value) or _is_held(value)
        return id(value) in self.running.made or not stays

    def meets(self, source: Source, value: Any) -> None:
        """Note that `value` is at `source`, where another may be at a later call."""
        self.walk.meets(source, value)

    def takes_array(self, array: Any) -> Source | None:
        """Return where an array is found outside that an op takes."""
        return self.walk.where(array)

    def enters(self, holder: Any) -> None:
        """Note that the library works with a module or other holder."""
        if _watching.observer is self and id(holder) not in self.running.made:
            try:
                self.net.without(self.running.see, self._enters, holder)
            except BaseException:
                self.net.is_lost = True
                raise

    def _enters(self, holder: Any) -> None:
        if self.walk.where(holder) is None:
            self.walk.visit(Object(ObjectRef(holder)), holder)
        self.walk.drain()

    def impure(
        self,
        reason: str,
        frame: FrameType | None = None,
        once: bool = False,
        line: tuple[str, int] | None = None,
        writes: bool = False,
    ) -> None:
        """Note that the body cannot be skipped, because of `line`, or of the user's innermost `frame`."""
        if not self.refuses and len(self.impurities) >= _MOST:
            return
        impurity = Impurity(reason, *(line or line_of(frame or sys._getframe(1))), once, writes)
        if self.refuses:
            raise self.refusal(
                f"the body {reason} at {impurity.file}:{impurity.line}, so it would have to run at each "
                "call: do that outside of it, or use @trace, which runs such a body"
            )
        if impurity not in self.impurities:
            self.impurities.append(impurity)
        self.walk.is_over = self.walk.is_over or (self.stops and not once)

    def _cannot(self, reason: str) -> None:
        """Note a reason why the walk, which began with what runs now, cannot skip the body."""
        runs = _watching.observer is self
        self.impure(reason, line=line_of(sys._getframe(1)) if runs else self.line)

    def forget(self) -> None:
        """Hold nothing of the call any more but what its guards hold."""
        self.leaves = ()
        self.walk.forget()
        self.net.forget()
        self.running.forget()

    def looks_at(self, array: Any) -> None:
        """Guard the values of an array, which decide what follows."""

    def note_number_owner(self, origin: Any) -> None:
        """Note that a number is read at each call before the body's effects: these do not write there."""
        read = getattr(origin, "func", origin)
        self.walk.number_owners.add(id(getattr(read, "__self__", None)))

    def can_write(self, value: Any) -> bool:
        """Return whether a call that skips the body may write it. Plain values follow from the guards."""
        return is_plain(value) and not self.refuses

    def follows_array(self, leaf: Any) -> bool:
        """Return whether an array among the arguments may hold other values, which the body ignores."""
        return False

    def undo(self) -> None:
        """Do nothing: no effect of the body is undone."""

    def writes_so_far(self) -> list[Impurity]:
        """List the external writes so far, with their lines."""
        return [*(i for i in self.impurities if i.writes), *written.impurities_of(self)]

    # the call

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call `function` and watch."""
        outer = _watching.observer
        if outer is not None:
            outer.impure("is watched by two at once")
        self.line = _beginning(function)
        try:
            self.running.see(self._roots, function, args, kwargs)
            result = self._run(function, args, kwargs)
            self.net.end()
            _watching.observer = outer
            if self.net.is_lost:
                self.impure("has its watching ended, as by an exception that it handles", line=self.line)
            self.running.see(self._end, result, args, kwargs)
        except ImpureBodyError:
            if self.refuses:
                undo(self.walk.values, list(self.guards), self.leaves)
            raise
        finally:  # an interrupt may come anywhere
            self.net.end()
            _watching.observer = outer
            self.begun = [], None
            self.walk.release()
        return result

    def _run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        _watching.observer = self  # of whom a signal handler has to know as long as he is told anything
        if trouble := self.net.begin():
            self.impure(f"its calls cannot be watched: {trouble}")
        return function(*args, **kwargs)

    def _roots(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        walk = self.walk
        self._arguments(args[self._of_instance :], kwargs, self._unread(function, args, kwargs))
        if self._of_instance:
            walk.visit(Object(ObjectRef(args[0])), args[0])
        walk.visit(Object(ObjectRef(function)), function)
        walk.drain()

    def _unread(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> set[int]:
        """Return the ids of texts in dicts among the arguments that the body never reads."""
        if isinstance(function, MethodType):
            function, args = function.__func__, (function.__self__, *args)
        if not isinstance(function, FunctionType):
            return set()
        items, unread = items_read(function), set[int]()
        positional = function.__code__.co_varnames[: function.__code__.co_argcount]
        for name, value in (*zip(positional, args, strict=False), *kwargs.items()):
            if name in items and type(value) is dict:
                for key, part in value.items():
                    unread.update(map(id, flatten(part)[0]) if key not in items[name] else ())
        once = Counter(map(id, self.leaves))
        return {id(leaf) for leaf in self.leaves if type(leaf) in TEXTS and once[id(leaf)] == 1} & unread

    def _arguments(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        unread: Collection[int],
    ) -> None:
        leaves, arrangement = self.begun = flatten((args, dict(kwargs)))
        names = dict(zip(map(id, leaves), names_of(arrangement), strict=True))
        walk = self.walk
        waiting: list[Any] = [*args, *kwargs.values()]
        while waiting:
            inside = parts_of(part := waiting.pop())
            if inside is not None and id(part) not in walk.given:
                walk.given[id(part)] = type(part)
                if known.is_heap(type(part)):
                    walk.visit(Object(ObjectRef(type(part))), type(part))
                waiting += inside
        texts = texts_within(leaves, arrangement)
        for index, leaf in enumerate(self.leaves):
            source = Argument(index, names.get(id(leaf), ""))
            if id(leaf) in unread:
                walk.argument(source, leaf, True)
            elif not is_plain(leaf):
                walk.argument(source, leaf, self.follows_array(leaf))
            elif type(leaf) in FOLLOWED and source in self.changing.follows:
                continue
            elif type(leaf) in TEXTS or self._has_numbers or index in texts:
                walk.guard(source, "same", leaf)

    # what happens

    # the end

    def _end(self, result: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        ending.settings(self)
        if self.walk.sees_numpy:
            self.walk.guard(Call(Object(ObjectRef(ending.handling_of_errors))), "same", self._errors)
        self.walk.ends()
        ending.containers(self, args[self._of_instance :], kwargs)
        ending.tensors(self)
        ending.objects(self)
        ending.check_result(self, result)
        written.settle(self)


def _beginning(function: Any) -> tuple[str, int]:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code is not None else ("?", 0)


def _is_held(value: Any) -> bool:
    """Return whether it is a member of an enumeration, or a module."""
    return isinstance(value, ModuleType) or hasattr(type(value), "__members__")


def unwatched(function: Callable[Given, Value], *args: Given.args, **kwargs: Given.kwargs) -> Value:
    """Call `function` unobserved: it is not part of a body, or follows from its Tensors."""
    observer, _watching.observer = _watching.observer, None
    try:
        if observer is None:
            return function(*args, **kwargs)
        return observer.net.without(function, *args, **kwargs)
    finally:
        _watching.observer = observer


def writes_of(function: Callable[Given, Value], *args: Given.args, **kwargs: Given.kwargs) -> tuple[
    Value, list[Impurity]
]:  # fmt: skip
    """Call `function`; return its result and its external writes, which an outer observer sees too."""
    observer = _watching.observer
    if observer is not None:
        before = observer.writes_so_far()
        value = function(*args, **kwargs)
        return value, [impurity for impurity in observer.writes_so_far() if impurity not in before]
    observer = Observer()
    value = observer.run(function, *args, **kwargs)
    return value, [impurity for impurity in observer.impurities if impurity.writes]
