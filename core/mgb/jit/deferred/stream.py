"""The deferred ops of one thread: noted one by one, computed together when a value is needed."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import get_ident
from typing import Any

from ...errors import AutoInterruptedError
from ...executor import Program
from ...ir import Op
from ...runtime import device as devices
from ...runtime import forking
from ...tensor import ACTIVE, Tensor, run_in, wrap
from ...tensor.apply import evaluate
from ..variant import Variant
from .in_flight import REENTRANT_READ, InFlight
from .lengths import Forms
from .link import Link
from .link_builder import LinkBuilder
from .period import find_period
from .plan import Compile, Outcome, SequencePlan, run_op_by_op, schedule
from .results import Lazy, find_updates, number_inputs, set_values, undo
from .seed import adopt_programs, seed
from .sequence_cache import SequenceCache, plan_for
from .tree_session import TreeSession

#: An op with this many different parameters at one position runs at once, without a program for each.
_MOST_VARIANTS = 4

#: After this many unseen sequences the loop that was found is over.
_MOST_UNSEEN = 4


@dataclass(slots=True)
class Counts:
    """Counters of a `Stream`: sequences computed, sequences computed by programs, programs compiled."""

    sequences: int = 0
    compiled: int = 0
    programs: int = 0


class Stream(TreeSession):
    """A session that defers ops until a value is needed.

    An op that never came next before adds a link to the tree. Only the thread that made a stream calls ops
    in it; other threads may read values.

    Parameters
    ----------
    after : int
        How often a sequence runs op by op before it is compiled.
    compile : callable
    """

    _compiles = True

    #: The most ops that wait, and the most bytes of their external inputs.
    most_ops, most_bytes = 4096, 1 << 28

    def __init__(self, after: int, compile: Compile) -> None:
        super().__init__()
        self.counts = Counts()
        self._after, self._compile = after, compile
        self._thread = get_ident()
        self._lock = forking.lock()
        self._cache, self._forms = SequenceCache(), Forms()
        self._period = self._unseen = 0
        self._builder: LinkBuilder | None = None
        self._failure: Exception | None = None
        self._in_flight: InFlight | None = None
        self._roots: dict[int, Link] = {}  # by limit: a sequence seen under a larger one may be longer
        self._busy = False  # while an op is noted
        self._limit = 0
        self._reset(self.most_ops)

    def share(self, forms: Forms) -> None:
        """Use the compiled forms of other streams for sequences that differ in lengths alone."""
        self._forms = forms

    def _reset(self, limit: int, root: Link | None = None) -> None:
        """Begin an empty sequence. An interrupt leaves the old state or the new one, never a mixture."""
        root = root or self._roots.get(limit) or self._roots.setdefault(limit, Link())
        self._limit, self._builder, self._at, self._root, self._fed, self._tensors, self._rebound = (
            limit, None, root, root, [], [], []
        )  # fmt: skip

    def seed(self, variant: Variant) -> None:
        """Count what `variant` recorded of a call as seen once."""
        adopt_programs(seed(variant.record, lambda: self._root, self.symbolic_shape), variant)

    def programs(self) -> Iterator[Program]:
        """Yield the cached programs."""
        waiting = self._get_roots()
        while waiting:
            link = waiting.pop()
            waiting += link.children
            yield from (end.program for end in link.plans.values() if end.program is not None)

    def _get_roots(self) -> list[Link]:
        """Return the links where sequences begin."""
        return list(self._roots.values())

    # the Session protocol

    def step(self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any]) -> Tensor:
        raw, self._raw = self._raw, None
        if len(self._fed) != self._at.fed and not self._busy:
            return self._run_reentrant(op, inputs, params)
        if op in self._at.megamorphic:
            return self._run_at_once(op, inputs, params)
        if op.ordered:
            self.flush()  # its errors come first
            return self._run_at_once(op, inputs, params)
        for tensor in inputs:
            if tensor._session is not None and tensor._session is not self:
                tensor._array()
        full = self._at.index + 1 >= self._limit or self._at.nbytes > self.most_bytes
        try:
            self._busy = True
            # The ops of a finalizer or a signal handler must not enter this session meanwhile.
            out = run_in(None, self._defer, op, inputs, params, raw, full)
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

    def _defer(
        self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any], raw: Any, full: bool
    ) -> Tensor | None:
        """Return the result of the next op, which gets a link if there is room; None: run the op at once."""
        given = raw is not None and raw[0] is op and len(raw[1]) == len(inputs)
        link = self._find_link(op, inputs, params)
        if link is None and self._is_megamorphic(op, params):
            self._at.megamorphic += (op,)
        elif link is None and not full:
            self._on_new_op(op, inputs, params)
            self._builder = self._builder or LinkBuilder(self, self._snapshot)
            link = self._builder.build(self._at, self._fed, op, inputs, params, raw[1] if given else inputs)
        elif link is not None and given:
            link.called_with(raw[1])
        return self._make_result(link) if link is not None else None

    def _on_new_op(self, op: Op, inputs: Sequence[Tensor], params: dict[str, Any]) -> None:
        """Handle an op that never came here before; a strict stream compares it with its record."""

    def _is_megamorphic(self, op: Op, params: dict[str, Any]) -> bool:
        """Check whether `op` came here with many other parameters lately."""
        lately = self._at.children[-4 * _MOST_VARIANTS :]  # of hundreds, where shapes are always new
        return sum(c.op is op and c.params != params for c in lately) >= _MOST_VARIANTS

    def read(self, tensor: Tensor) -> Any:
        """Return the array of `tensor`, and compute everything that waits."""
        if self._in_flight is not None and self.of_trace and get_ident() == self._thread:
            return self._in_flight.value(tensor)
        if get_ident() == self._thread and not self._busy:
            self.flush()
        else:
            self._compute_elsewhere(tensor)
        if tensor._session is self:
            raise AutoInterruptedError(REENTRANT_READ)
        return tensor._array()  # raises if the op failed

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
        """Run an op as eager code does: its other parameters change each time, or it is ordered."""
        return _run_eagerly(op, inputs, [t._array() for t in inputs], params)

    def _run_reentrant(self, op: Op, inputs: Sequence[Tensor], params: dict[str, Any]) -> Tensor:
        """Run an op that a finalizer calls while another op is being noted."""
        at, fed = self._at, self._fed
        arrays = [self._evaluate_apart(at, fed, t) if t._session is self else t._array() for t in inputs]
        return _run_eagerly(op, inputs, arrays, params)

    # computing

    def flush(self) -> None:
        """Compute what waits and is alive; raise what the first failing op raises."""
        if self._at is not self._root and not self._busy:
            self._compute(self._period or self.most_ops, None)
        elif self._fed and not self._busy:  # left by an op that raised
            self._reset(self._period or self.most_ops)

    def _end_at_limit(self) -> None:
        """End a sequence that reached its limit, in a loop that reads no values after an iteration."""
        if self._period:
            self._unseen = 0 if self._at.plans else self._unseen + 1
            if self._unseen > _MOST_UNSEEN:
                self._period = 0
            return self.flush()
        sequence = self._at.sequence()
        found = find_period(sequence) if len(sequence) >= self._limit else None
        if found is None:
            return self.flush()
        self._period, ahead = found
        self._unseen = 0
        return self._compute(ahead or self._period, Link() if ahead else None)

    def _get_in_flight(self) -> InFlight:
        """Return the sequence that waits, with the Tensors that stand for its results."""
        rebound = number_inputs(self._rebound, self._fed) if self._rebound else []
        alive = [t for r in self._tensors if (t := r()) is not None and t._session is self]
        return InFlight(self._at, self._fed, alive, rebound)

    def _compute(self, limit: int, root: Link | None) -> None:
        """Compute the sequence that waits, and begin another one at `root`."""
        with self._lock:
            now = self._get_in_flight()
            values: dict[int, Any] = {}
            errors: dict[int, BaseException] = {}
            try:
                self._in_flight, self._failure = now, None
                self._reset(limit, root)
                values, errors = self._evaluate(now)
                if errors:
                    undo(self, now.rebound, min(errors), now.before | values)
            except BaseException as error:
                if self._fed is now.fed:
                    self._reset(limit, root)
                interrupted = _interrupted(error)
                values, errors = {}, {t._index: interrupted for t in now.alive}
                now.undo(self)
                raise
            finally:
                try:
                    set_values(self, now.alive, values, errors)
                except BaseException:
                    set_values(self, now.alive, values, errors)
                    raise
                finally:
                    self._in_flight = None
            failure, self._failure = self._failure, None
            if errors or failure is not None:
                raise errors[min(errors)] if errors else failure  # type: ignore[misc]

    def abandon(self) -> None:
        """End the sequence as `flush` does, but compute nothing.

        Tensors outside get their old values back; others are computed on first use.
        """
        now = self._get_in_flight()
        self._reset(self._period or self.most_ops)
        if now.at.parent is not None:
            self._cache.touch(now.at)
        now.undo(self)
        lazy = Lazy(lambda tensor: self._evaluate_apart(now.at, now.fed, tensor))
        for tensor in now.alive:
            if tensor._session is self:
                tensor._session = lazy
        now.alive, now.rebound = [], []

    def _evaluate_apart(self, at: Link, fed: list[Any], tensor: Tensor) -> Any:
        """Return the value of a Tensor that stands for an op before `at`, and change nothing else."""
        links = schedule(at.sequence(), (tensor._index,))
        values, errors = run_in(None, run_op_by_op, links, list(fed), {})
        if errors:
            raise errors[min(errors)]
        return values[tensor._index]

    def _evaluate(self, now: InFlight) -> Outcome:
        """Return the values of what is alive, and the errors of what could not be computed."""
        self.counts.sequences += 1
        self._cache.touch(now.at)
        if not now.alive:
            return {}, {}
        if ACTIVE.get() is None:
            return self._run_plan(now)
        return run_in(None, self._run_plan, now)

    def _run_plan(self, now: InFlight) -> Outcome:
        plan = plan_for(now.at, frozenset([t._index for t in now.alive]))
        if plan.program is None and self._compiles:
            plan = self._prepare(plan, now)
        if plan.program is None:  # op by op, nothing is written in place: save the old values for `undo`
            now.before = {b: now.fed[-1 - b] for _, b, _ in now.rebound if isinstance(b, int) and b < 0}
        else:
            self.counts.compiled += 1
            if now.rebound:
                now.updated = find_updates(self, now.rebound)
        failed: list[Exception] = []
        outcome = plan.run(now.fed, now.values, failed)
        if failed and not outcome[1] and self.of_trace:
            self._failure = failed[0]
        return outcome

    def _prepare(self, plan: SequencePlan, now: InFlight) -> SequencePlan:
        """Compile `plan` if its sequence came often enough; return the plan to run."""
        plan.runs = max(plan.runs, now.at.seen)
        try:
            is_new = plan.compile(self._compile, find_updates(self, now.rebound), self._forms, self._after)
        except Exception as error:  # reported after the sequence has run op by op
            self._failure = error
            return SequencePlan(now.at.sequence(), frozenset([t._index for t in now.alive]))
        if is_new:
            self.counts.programs += 1
            self._on_compiled(now.at)
        return plan

    def _on_compiled(self, at: Link) -> None:
        """Handle a new program for the sequence that ends with `at`."""

    def _compute_elsewhere(self, tensor: Tensor) -> None:
        """Compute `tensor` alone, in another thread than that of the stream, which goes on."""
        with self._lock:
            if tensor._session is not self:
                return
            at, fed, index = self._at, list(self._fed), tensor._index
            values, errors = run_in(None, run_op_by_op, schedule(at.sequence(), (index,)), fed, {})
            set_values(self, [tensor], values, errors)


def _run_eagerly(op: Op, inputs: Sequence[Tensor], arrays: Sequence[Any], params: dict[str, Any]) -> Tensor:
    device = params.get("device") or (inputs[0]._device if inputs else devices.HOST)
    return wrap(evaluate(op, arrays, params, device), device)


def _interrupted(error: BaseException) -> AutoInterruptedError:
    return AutoInterruptedError(f"{type(error).__name__} came while this value was computed")
