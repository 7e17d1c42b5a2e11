"""The ops of one thread on their way: deferred one by one, and computed together when a value is wanted."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import get_ident
from typing import Any

from ... import device as devices
from ... import forking
from ...apply import evaluate
from ...errors import AutoInterruptedError
from ...executor import Program
from ...ir import Op
from ...tensor import ACTIVE, Tensor, run_in, wrap
from ..variant import Variant
from .ending import Compile, Ending, Outcome, order, run_one_by_one
from .following import Following
from .growth import Growth
from .lengths import Forms
from .link import Link
from .links import Ends, ending_at
from .now import WANTED, Now
from .period import period_of
from .results import Late, Rebound, hand_over, undo, updates, without_fed
from .seed import seed, take_programs

#: So many different parameters of one op in one place, and it runs at once: no program for each.
_VARIETY = 4

#: So many sequences that nobody has seen before, and the loop that was found is over.
_STRANGERS = 4


@dataclass(slots=True)
class Counts:
    """What a `Stream` did: sequences computed, those by programs, and programs made."""

    sequences: int = 0
    compiled: int = 0
    programs: int = 0


class Stream(Following):
    """A session that only notes ops, until a value is wanted.

    An op that is not the one which came next before adds a link to the tree. The thread that made a stream
    uses it; others may ask for values.

    Parameters
    ----------
    after : int
        A sequence runs op by op so often before it is compiled.
    compile : callable
    """

    _compiles = True  # is what came often enough compiled now?

    #: Ops, and bytes of what they read from outside, that wait at most.
    most_ops, most_bytes = 4096, 1 << 28

    def __init__(self, after: int, compile: Compile) -> None:
        super().__init__()
        self.counts = Counts()
        self._after, self._compile = after, compile
        self._thread = get_ident()
        self._lock = forking.lock()
        self._ends, self._forms = Ends(), Forms()
        self._period = self._strangers = 0
        self._growth: Growth | None = None
        self._failure: Exception | None = None
        self._now: Now | None = None
        self._roots: dict[int, Link] = {}  # by the limit: what was seen under another may go on beyond it
        self._busy = False  # is an op being noted?
        self._limit = 0
        self._begin(self.most_ops)

    def share(self, forms: Forms) -> None:
        """Let sequences that differ in lengths have the programs that other streams have."""
        self._forms = forms

    def _begin(self, limit: int, root: Link | None = None) -> None:
        """Nothing waits; this is done as a whole or, when an interrupt comes, not at all."""
        root = root or self._roots.get(limit) or self._roots.setdefault(limit, Link())
        self._limit, self._growth, self._at, self._root, self._fed, self._tensors, self._rebound = (
            limit, None, root, root, [], [], []
        )  # fmt: skip

    def seed(self, variant: Variant) -> None:
        """What `variant` says that a call did has been seen once."""
        take_programs(seed(variant.record, lambda: self._root, self.symbolic_shape), variant)

    def programs(self) -> Iterator[Program]:
        """What was compiled, and is remembered."""
        waiting = self._begun()
        while waiting:
            link = waiting.pop()
            waiting += link.children
            yield from (end.program for end in link.endings.values() if end.program is not None)

    def _begun(self) -> list[Link]:
        """Where sequences begin."""
        return list(self._roots.values())

    # the Session protocol

    def step(self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any]) -> Tensor:
        raw, self._raw = self._raw, None
        if len(self._fed) != self._at.fed and not self._busy:
            return self._run_beside(op, inputs, params)
        if op in self._at.restless:
            return self._run_at_once(op, inputs, params)
        if op.ordered:
            self.flush()  # whose errors come first
            return self._run_at_once(op, inputs, params)
        for tensor in inputs:
            if tensor._session is not None and tensor._session is not self:
                tensor._array()
        full = self._at.index + 1 >= self._limit or self._at.nbytes > self.most_bytes
        try:
            self._busy = True
            # What a finalizer or a signal handler does meanwhile is no part of this.
            out = run_in(None, self._followed, op, inputs, params, raw, full)
            self._busy = False
        except BaseException:
            self._busy = False
            raise
        if out is not None:
            return out
        if not full:
            return self._run_at_once(op, inputs, params)
        self._end_at_limit()
        return self.step(op, inputs, params)

    def _followed(
        self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any], raw: Any, full: bool
    ) -> Tensor | None:
        """The result of the next op, unless it is to run at once; a link for it is added if there is room."""
        given = raw is not None and raw[0] is op and len(raw[1]) == len(inputs)
        link = self._known(op, inputs, params)
        if link is None and self._is_restless(op, params):
            self._at.restless += (op,)
        elif link is None and not full:
            self._leaves(op, inputs, params)
            self._growth = self._growth or Growth(self, self._as_it_is_now)
            link = self._growth.link(self._at, self._fed, op, inputs, params, raw[1] if given else inputs)
        elif link is not None and given:
            link.called_with(raw[1])
        return self._result(link) if link is not None else None

    def _leaves(self, op: Op, inputs: Sequence[Tensor], params: dict[str, Any]) -> None:
        """Told of an op that never came here."""

    def _is_restless(self, op: Op, params: dict[str, Any]) -> bool:
        """Did `op` come here with many other parameters?"""
        return sum(c.op is op and c.params != params for c in self._at.children) >= _VARIETY

    def read(self, tensor: Tensor) -> Any:
        """The array of `tensor`; everything that waits is computed."""
        if self._now is not None and self.of_trace and get_ident() == self._thread:
            return self._now.value(tensor)
        if get_ident() == self._thread and not self._busy:
            self.flush()
        else:
            self._compute_apart(tensor)
        if tensor._session is self:
            raise AutoInterruptedError(WANTED)
        return tensor._array()  # of a Tensor that failed, by raising

    def adopt(self, alias: Tensor, original: Tensor) -> None:
        if alias._session is self:
            if get_ident() == self._thread:
                self._tensors.append(weakref.ref(alias))
            else:
                alias._data, alias._session, alias._index = original._array(), None, -1

    def rebound(self, tensor: Tensor, value: Tensor) -> None:
        if value._session is self:
            if get_ident() == self._thread:
                reference = weakref.ref(tensor)
                self._tensors.append(reference)
                before = tensor._index if tensor._session is self else tensor._data
                self._rebound.append((reference, before, self._at.index))
            else:
                value._array()

    def _run_at_once(self, op: Op, inputs: Sequence[Tensor], params: dict[str, Any]) -> Tensor:
        """The result as in eager code: this op comes with other parameters each time."""
        device = params.get("device") or (inputs[0]._device if inputs else "xpux:0")
        return wrap(evaluate(op, [t._array() for t in inputs], params, device), device)

    def _run_beside(self, op: Op, inputs: Sequence[Tensor], params: dict[str, Any]) -> Tensor:
        """The result of an op of a finalizer that runs in the midst of another op."""
        at, fed = self._at, self._fed
        arrays = [self._apart(at, fed, t) if t._session is self else t._array() for t in inputs]
        device = params.get("device") or (inputs[0]._device if inputs else devices.HOST)
        return wrap(evaluate(op, arrays, params, device), device)

    # computing

    def flush(self) -> None:
        """Compute what waits and is alive; raises what the first of those ops raises."""
        if self._at is not self._root and not self._busy:
            self._compute(self._period or self.most_ops, None)
        elif self._fed and not self._busy:  # of an op that an exception ended
            self._begin(self._period or self.most_ops)

    def _end_at_limit(self) -> None:
        """As `flush`, where too many ops wait: in a loop that asks for no values, after each iteration."""
        if self._period:
            self._strangers = 0 if self._at.endings else self._strangers + 1
            if self._strangers > _STRANGERS:
                self._period = 0
            return self.flush()
        sequence = self._at.sequence()
        found = period_of(sequence) if len(sequence) >= self._limit else None
        if found is None:
            return self.flush()
        self._period, ahead = found
        self._strangers = 0
        return self._compute(ahead or self._period, Link() if ahead else None)

    def _compute(self, limit: int, root: Link | None) -> None:
        with self._lock:
            at, fed, tensors = self._at, self._fed, self._tensors
            rebound = without_fed(self._rebound, fed) if self._rebound else []
            alive = [t for r in tensors if (t := r()) is not None and t._session is self]
            before: dict[int, Any] = {}
            values: dict[int, Any] = {}
            errors: dict[int, BaseException] = {}
            try:
                self._now, self._failure = Now(at, fed, {}, {}), None
                self._begin(limit, root)
                values, errors = self._outcome(at, alive, fed, rebound, before)
                if errors:
                    undo(self, rebound, min(errors), before | values)
            except BaseException as error:
                if self._fed is fed:
                    self._begin(limit, root)
                stopped = _stopped(error)
                values, errors = {}, {t._index: stopped for t in alive}
                undo(self, rebound, -1, {-1 - n: array for n, array in enumerate(fed)} | before)
                raise
            finally:
                try:
                    hand_over(self, alive, values, errors)
                except BaseException:
                    hand_over(self, alive, values, errors)
                    raise
                finally:
                    self._now = None
            failure, self._failure = self._failure, None
            if errors or failure is not None:
                raise errors[min(errors)] if errors else failure  # type: ignore[misc]

    def give_up(self) -> None:
        """As `flush`, but nothing is computed: Tensors outside are what they were, others wait."""
        at, fed, tensors, rebound = self._at, self._fed, self._tensors, self._rebound
        rebound = without_fed(rebound, fed)
        alive = [t for r in tensors if (t := r()) is not None and t._session is self]
        self._begin(self._period or self.most_ops)
        if at.parent is not None:
            self._ends.used(at)
        undo(self, rebound, -1, {-1 - n: array for n, array in enumerate(fed)})
        late = Late(lambda tensor: self._apart(at, fed, tensor))
        for tensor in alive:
            if tensor._session is self:
                tensor._session = late

    def _apart(self, at: Link, fed: list[Any], tensor: Tensor) -> Any:
        """The value of a Tensor that stands for an op before `at`; nothing else changes."""
        links = order(at.sequence(), (tensor._index,))
        values, errors = run_in(None, run_one_by_one, links, list(fed), {})
        if errors:
            raise errors[min(errors)]
        return values[tensor._index]

    def _outcome(
        self,
        at: Link,
        alive: Sequence[Tensor],
        fed: list[Any],
        rebound: Sequence[Rebound],
        before: dict[int, Any],
    ) -> Outcome:
        """The values of what is `alive`; `before` gets the old ones that `fed` will have no more."""
        self.counts.sequences += 1
        self._ends.used(at)
        if not alive:
            return {}, {}
        if ACTIVE.get() is None:
            return self._run(at, alive, fed, rebound, before)
        return run_in(None, self._run, at, alive, fed, rebound, before)

    def _run(
        self,
        at: Link,
        alive: Sequence[Tensor],
        fed: list[Any],
        rebound: Sequence[Rebound],
        before: dict[int, Any],
    ) -> Outcome:
        assert self._now is not None
        ending = ending_at(at, frozenset([t._index for t in alive]))
        if ending.program is None and self._compiles:
            ending = self._prepared(ending, at, alive, rebound)
        if ending.program is None:  # it would not write in place what is held here
            before.update((b, fed[-1 - b]) for _, b, _ in rebound if isinstance(b, int) and b < 0)
        else:
            self.counts.compiled += 1
            if rebound:
                self._now.updated = updates(self, rebound)
        failed: list[Exception] = []
        outcome = ending.run(fed, self._now.values, failed)
        if failed and not outcome[1] and self.of_trace:
            self._failure = failed[0]
        return outcome

    def _prepared(
        self, ending: Ending, at: Link, alive: Sequence[Tensor], rebound: Sequence[Rebound]
    ) -> Ending:
        """How to compute what is `alive` at the end of a sequence; compiled, if it came often enough."""
        ending.runs = max(ending.runs, at.seen)
        try:
            is_new = ending.compile(self._compile, updates(self, rebound), self._forms, self._after)
        except Exception as error:  # that no program can be made is said when all is done without one
            self._failure = error
            return Ending(at.sequence(), frozenset([t._index for t in alive]))
        if is_new:
            self.counts.programs += 1
            self._has_compiled(at)
        return ending

    def _has_compiled(self, at: Link) -> None:
        """Told of a sequence that has a new program."""

    def _compute_apart(self, tensor: Tensor) -> None:
        """Give `tensor` its value from another thread than the one whose ops wait, which may go on."""
        with self._lock:
            if tensor._session is not self:
                return
            at, fed, index = self._at, list(self._fed), tensor._index
            values, errors = run_in(None, run_one_by_one, order(at.sequence(), (index,)), fed, {})
            hand_over(self, [tensor], values, errors)


def _stopped(error: BaseException) -> AutoInterruptedError:
    return AutoInterruptedError(f"{type(error).__name__} came while this value was computed")
