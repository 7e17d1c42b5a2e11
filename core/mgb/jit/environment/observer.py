"""One call that is watched from its beginning to its end."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

from ...holding import SETTINGS
from ...scalars import FOLLOWED, plain
from ...sizes import settled, tuple_like
from ...tensor import Tensor
from ..arguments import TEXTS, names_of, texts_within
from ..guard import Guard, is_plain
from ..source import Argument, Attribute, Held, Object, Result, Source
from ..tree import flatten, parts_of, put
from ..watch.impurity import Impurity
from . import calls, reads
from .armed import Armed
from .arming import Given, Net, Value
from .hooks import HOOKS
from .instrument import has_source
from .known import CONTAINERS, SHOWS_WARNING, is_numpys, namespace
from .watch import WATCHING, Then, Watch


class Observer(Watch):
    """Watches one call.

    Parameters
    ----------
    leaves : sequence
        The flattened arguments, which whoever skips the body looks at himself.
    refuses : bool
        Raise an error at the first impurity, before it is done.
    of_instance : bool
        The function is a method, whose instance is given first and is no argument.
    follows : frozenset of Source, optional
        Where numbers and Tensors are followed. Then numbers among the arguments are asked for by guards, too.

    Attributes
    ----------
    guards : Guards
        What has to be as it was.
    impurities : list of Impurity
        Why the body cannot be skipped whatever holds; empty: it can.
    """

    #: Are lengths of axes followed?
    follows_lengths = True
    #: Is the call only noted, and undone, whatever comes of it?
    is_trial = False

    def __init__(
        self,
        leaves: Sequence[Any] = (),
        refuses: bool = False,
        of_instance: bool = False,
        follows: frozenset[Source] = frozenset(),
    ) -> None:
        super().__init__(leaves, refuses, Armed(HOOKS, self.impure), follows)
        self._of_instance = of_instance
        self._outer: Watch | None = None
        self.net = Net(self._started)
        self._shared: set[int] = set()  # containers that stand in several places
        self._borrowers: list[Any] = []  # containers that hold what stands for numbers

    def _started(self, code: CodeType, caller: FrameType | None) -> bool:
        if WATCHING.watch is not self or self.busy:
            return False
        if code is not SHOWS_WARNING:
            return self._armed.started(code, caller)
        of_number = caller is not None and caller.f_globals.get("__name__", "").startswith("mgb.")
        if not self.refuses and not of_number:  # that is computed at each call, and tells of itself
            self.impure("gives a warning", caller, once=True)
        return False

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call `function` and watch; afterwards everything is as it was."""
        self._outer = WATCHING.watch
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
            written = (source for source, appends, _ in self.writing.effects if not appends)
            codes = (g.source for g in self.guards if getattr(g.source, "name", "") == "__code__")
            changed = self.guards.why(self.leaves, {*written, *codes})  # codes: another thread may watch
            if changed is not None:
                self.impure(f"changes what it reads, or reads what is new each time: {changed}", once=True)
        return result

    def _run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._give(args[self._of_instance :], kwargs)
        calls.called(self, function, list(args), kwargs)
        for value in (*args, *kwargs.values()):
            if not isinstance(value, CONTAINERS):
                self.arm(value)
        if trouble := self.net.spread():
            self.impure(f"its calls cannot be watched: {trouble}")
        WATCHING.watch = self
        args, kwargs = self._with_numbers(args, kwargs)
        try:
            result = function(*args, **kwargs)
            WATCHING.watch = self._outer
            self.net.without(self._end, result)
        finally:  # also what a body that raises has written
            for thing in self.writing.things:
                settled(thing, operator.attrgetter("value"))
        return result

    def _give(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """The arguments are no surroundings: leaves are found where they stand, containers need no guards."""
        leaves, arrangement = flatten((args, dict(kwargs)))
        names = dict(zip(map(id, leaves), names_of(arrangement), strict=True))
        within = texts_within(leaves, arrangement)
        for index, leaf in enumerate(self.leaves):
            source = Argument(index, names.get(id(leaf), ""))
            if not is_plain(leaf):
                self.keep(leaf, source)
            elif type(leaf) in TEXTS and index not in within:
                self.guard(source, "same", leaf)
            elif type(leaf) in TEXTS:
                self.texts.setdefault(id(leaf), []).append(Guard(source, "same", leaf))
        waiting: list[Any] = [*args, *kwargs.values()]
        while waiting:
            part = waiting.pop()
            inside = parts_of(part)
            if inside is not None and id(part) in self._given:
                self._shared.add(id(part))
            elif inside is not None:
                self._given.add(id(part))
                waiting += inside

    def _with_numbers(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The arguments with what stands for those numbers among them that are followed; others stay."""
        if not self.changing.follows:
            return args, kwargs
        instance, args = args[: self._of_instance], args[self._of_instance :]
        words = names_of(flatten((args, kwargs))[1])
        leaves = iter([(Argument(n, words[n]), leaf) for n, leaf in enumerate(self.leaves)])
        args = tuple([self._lent(value, leaves) for value in args])
        return (*instance, *args), {name: self._lent(value, leaves) for name, value in kwargs.items()}

    def _lent(self, value: Any, leaves: Iterator[tuple[Argument, Any]], is_shared: bool = False) -> Any:
        """`value` with what stands for numbers; what holds them holds these as long as the call lasts.

        What `is_shared` by several places keeps its own: later there may be several in these.
        """
        inside = parts_of(value)
        if inside is None:
            return self._number_among(*next(leaves), is_shared)
        is_shared = is_shared or id(value) in self._shared
        parts = [self._lent(part, leaves, is_shared) for part in inside]
        if all(map(operator.is_, parts, inside)):
            return value
        if isinstance(value, tuple):
            self._given.add(id(made := tuple_like(value, parts)))
            self._borrowers.append(made)
            return made
        self._borrowers.append(value)
        put(value, parts)
        return value

    def _number_among(self, source: Argument, leaf: Any, is_shared: bool) -> Any:
        """An argument, or what stands for it, if it is a number that is followed; others have to stay."""
        if type(leaf) not in FOLLOWED:
            return leaf
        if source in self.changing.follows and not is_shared:
            return self.changing.numbers.at(source, leaf)
        self.guard(source, "same", leaf)
        return leaf

    def keep(self, value: Any, source: Source) -> Source:
        super().keep(value, source)
        if is_numpys(type(value)):  # its methods are not watched: they may read all of it
            self.kind(value)
            self.found(Attribute(source, "__dict__"), namespace(value))
            reads.container(self, namespace(value), reads.DEPTH, whole=True)
            self._latest = None
        return source

    def _give_back(self) -> None:
        while self._borrowers:
            borrower = self._borrowers[-1]
            if not isinstance(borrower, tuple):
                put(borrower, [plain(part) for part in parts_of(borrower) or ()])
            self._borrowers.pop()

    def _end(self, result: Any) -> None:
        """Arrays that no op has taken were read by others; what ops depend on without naming it is read."""
        for pending in self.unaccounted.values():
            for _, whole, source, line in pending:
                reads.array_contents(self, whole, source, line)
        self.writing.tell()
        for module, setting in SETTINGS:
            of = Object(Held(module))
            if callable(setting):
                self.found(Result(setting, of), setting(module))
            else:
                value = vars(module)[setting]
                self.found(Attribute(of, setting), value)
                reads.container(self, value)
        self._check_result(result)

    def _check_result(self, result: Any) -> None:
        """What comes from outside is that very object in the result; a list would be another one."""
        waiting, seen = [(result, False)], set[int]()
        while waiting:
            part, in_outside = waiting.pop()
            inside = parts_of(part) if id(part) not in seen else None
            seen.add(id(part))
            if isinstance(part, Tensor) and self.is_made(part) and (notes := notes_of(part)):
                return self.impure(f"returns a Tensor that it gives the attribute {notes[0]}")
            is_outside = in_outside or self.is_argument(part) or self.known(part) is not None
            if inside is not None and not isinstance(part, tuple):
                if is_outside:
                    return self.impure(f"returns a {type(part).__name__} from outside")
            elif inside is None and not is_plain(part) and not isinstance(part, Tensor):
                if (source := self.known(part)) is not None:
                    self.guard(source, "is", Held(part))
            waiting += [(each, is_outside) for each in inside or ()]
        return None

    def _release(self) -> None:
        self.changing.numbers.open = False
        self._give_back()
        self.net.gather()
        WATCHING.watch = self._outer
        self._armed.release()
        self.pending.clear()
        self.unaccounted.clear()
        self._latest = None
        self._found = {key: (source, _weakly(get)) for key, (source, get) in self._found.items()}

    def calls(self, function: Any, args: list[Any], kwargs: dict[str, Any] | None = None) -> Then:
        return calls.called(self, function, args, kwargs or {})

    def undo(self) -> None:
        """Nothing that the body does is undone."""

    def forget(self) -> None:
        super().forget()
        self.net.forget()

    def enters(self, holder: Any) -> None:
        """The library works with a holder: what its class adds to that of the library has to stay."""
        if WATCHING.watch is self:
            self.net.without(calls.holder_facts, self, holder)


def may_follow(function: Any) -> bool:
    """Can numbers and lengths be followed in a body?"""
    return has_source(function)


def unwatched(function: Callable[Given, Value], *args: Given.args, **kwargs: Given.kwargs) -> Value:
    """What `function` gives while nobody watches: it is no part of a body, or follows from its Tensors."""
    watch, WATCHING.watch = WATCHING.watch, None
    try:
        return function(*args, **kwargs) if watch is None else watch.net.without(function, *args, **kwargs)
    finally:
        WATCHING.watch = watch


def writes_of(function: Callable[Given, Value], *args: Given.args, **kwargs: Given.kwargs) -> tuple[
    Value, list[Impurity]
]:  # fmt: skip
    """What `function` gives, and what it changes outside; whoever watches now sees it too."""
    watch = WATCHING.watch
    if watch is not None:
        before = watch.writing.so_far()
        watch.see(calls.called, function, list(args), dict(kwargs))
        value = function(*args, **kwargs)
        return value, [impurity for impurity in watch.writing.so_far() if impurity not in before]
    observer = Observer()
    value = observer.run(function, *args, **kwargs)
    return value, observer.writing.so_far()


def notes_of(tensor: Tensor) -> list[str]:
    """The attributes that a Tensor has been given."""
    return [*namespace(tensor), *(name for name in ("name", "format") if hasattr(tensor, f"_{name}"))]


def _weakly(get: Callable[[], Any]) -> Callable[[], Any]:
    try:
        return get if isinstance(get, weakref.ref) else weakref.ref(get())
    except TypeError:
        return lambda: None


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
