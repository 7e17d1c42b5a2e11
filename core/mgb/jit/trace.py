"""`trace`: record a function once, run it compiled from then on."""

from __future__ import annotations

import functools
import operator
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from .. import config, forking
from ..autodiff.tape import any_open
from ..errors import TraceInputError
from ..executor import DTRConfig, Options, Program, SublinearMemoryConfig, compile_program
from ..ir import Graph
from ..tensor import ACTIVE, active_trace, run_in
from . import reasons
from .ahead import AheadOfTime
from .arguments import (
    ARRAYS,
    arrays_among,
    check_tensors,
    form_of,
    key_of,
    names_of,
    numbers_in,
    pattern_of,
    shapes_of,
)
from .binding import Bindable
from .call import CompiledCall, Recorded
from .captured import Captured
from .config import GraphOptimizationConfig, check_options, memory_config, which_calls_run
from .dump import Dumpable
from .environment import Observer
from .families import Families, Impure
from .guard import MISS
from .inspection import Inspectable
from .kept import Kept, compiler_of
from .profiling import History, Profilable
from .record import Record
from .recording import Recording
from .replay import Replay
from .results import results_of, with_numbers
from .statistics import Statistics
from .tree import Structure, flatten
from .variant import Variant
from .variants import most_like

#: Calls kept for the same arguments: they differ in what they find outside, such as a ``grad`` or none.
_STATES = 8


class trace(Bindable, Inspectable, Dumpable, Profilable, AheadOfTime):
    """Decorator that records what a function does and runs it compiled from then on.

    The first call runs the body and records every op, those of the gradient and of the optimizer included.
    Later calls skip the body and run the compiled program, as long as everything outside that the body was
    seen to read is unchanged. A body that has to run at every call, see `run_body`, is run and matched, op by
    op, against the record.

    It works on functions and on methods, where each instance has its own record. It is pickled by its name,
    as functions are.

    Parameters
    ----------
    function : callable
        Takes and returns anything; what is traced are the ops on Tensors.
    symbolic : bool
        Run nothing on the first call until it returns: the first call runs compiled too, and no value that
        depends on data can be read in it.
    capture_as_const : bool
        Tensors from outside become constants, whose values are compared in replay. Positional arguments
        must be Tensors.
    record_only : bool
        Only record, at every call, as `symbolic` and `capture_as_const` say: nothing is run, results have
        no values, Tensors outside stay as they are. For what looks at the graph.
    run_body : bool, optional
        When is the Python body run? ``None``, the default: to be recorded, once for each kind of arguments,
        and again when something outside that it read has changed; at every call, and matched, if it writes
        outside itself, reads a Tensor's value or calls what is not known to be pure. ``stats()`` names the
        line. ``True``: at every call, as MegEngine does. ``False``: a body that would have to run at every
        call is refused at the first, with the line. While a `GradManager` outside records the call, the body
        runs. ``MGB_RUN_BODY=1`` runs every body. Arguments of other lengths are served by the same record;
        where the body compares lengths with another outcome, or looks at one in a way that is not followed,
        such as ``1 / n`` or ``range(n)``, it is recorded again.
    without_host : bool
        MegEngine's name for ``run_body=False``.
    imperative : bool
        Match as usual, but run op by op: for debugging.
    symbolic_shape : bool
        In the body ``Tensor.shape`` is an int32 Tensor, but ``()`` without axes. MegEngine's default is True;
        a tuple works wherever its code expects a shape, and here shapes may change from call to call either
        way. What is computed of shapes and literals alone is known, and never splits the program.
    opt_level : int
        0: nothing; 1: algebraic identities; 2: and rewrites of the whole graph; 3 (the default): and fusion.
    graph_opt_config : GraphOptimizationConfig, optional
    sublinear_memory_config : SublinearMemoryConfig, optional
        Compute values again for the gradient rather than keep them. The variables
        ``MGB_SUBLINEAR_MEMORY_...`` override its fields.
    dtr_config : DTRConfig, optional
        Drop values where memory passes a threshold, and compute them again when they are wanted.
    profiling : bool
        Measure each step at each call: see `get_profile`, `profile_table`, `save_profile`, `reset_profile`.
    fast_math : bool
        Allow rewrites that hold for finite numbers only, such as ``x - x`` to 0, as MegEngine does always.
    backend : str, optional
        Overrides ``MGB_JIT_BACKEND`` for this function.
    cuda_graph : bool, optional
        Start kernels that follow each other on a GPU as one CUDA graph; by default where that pays.

    Raises
    ------
    TraceMismatchError
        On a later call: the body did something else than before. The trace stays usable.
    TraceInputError
        An option or argument that this trace cannot take.
    ImpureBodyError
        With ``run_body=False``, at a first call: the body would have to run at every call.
    MemoryConfigError
        Both ways to save memory at once.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if not args and "function" not in kwargs:
            return functools.partial(cls, **kwargs)
        return super().__new__(cls)

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        symbolic: bool = False,
        capture_as_const: bool = False,
        record_only: bool = False,
        sublinear_memory_config: SublinearMemoryConfig | None = None,
        dtr_config: DTRConfig | None = None,
        profiling: bool = False,
        opt_level: int = 3,
        graph_opt_config: GraphOptimizationConfig | None = None,
        symbolic_shape: bool = False,
        run_body: bool | None = None,
        without_host: bool = False,
        imperative: bool = False,
        fast_math: bool = False,
        backend: str | None = None,
        cuda_graph: bool | None = None,
        **unknown: Any,
    ) -> None:
        if unknown:
            raise TraceInputError(f"{type(self).__name__} has no option {next(iter(unknown))!r}")
        given = locals()
        settings = {name: given[name] for name in trace.__init__.__kwdefaults__ or ()}
        check_options(type(self).__name__, settings)
        super().__init__(function, settings)
        fuses = graph_opt_config or GraphOptimizationConfig()
        self.options = Options(
            opt_level=opt_level,
            fuse_reduce=fuses.jit_fuse_reduce,
            fuse_dimshuffle=fuses.jit_fuse_dimshuffle,
            fast_math=fast_math,
            backend=backend,
            memory=memory_config(sublinear_memory_config, dtr_config),
            profiling=profiling,
            launch_graph=cuda_graph,
        )
        self.symbolic = symbolic or record_only
        self.capture_as_const = capture_as_const or record_only
        self.record_only = record_only
        self.run_body = which_calls_run(type(self).__name__, run_body, without_host)
        self.imperative = imperative
        self.symbolic_shape = symbolic_shape
        self._statistics = Statistics()
        self._history = History() if profiling else None
        #: By whether a tape of the caller looks on, and by which arguments are NumPy's.
        self._families: defaultdict[tuple[bool, tuple[bool, ...]], Families] = defaultdict(Families)
        self._skips = self.run_body is not True and not imperative and not config.RUN_BODY.on()
        self._calls: Kept[list[CompiledCall]] = Kept()  # the newest first
        self._followed: Kept[list[CompiledCall]] = Kept()  # those to be resized, the newest first
        self._impure: Kept[Impure] = Kept()
        self._compiler = compiler_of(self, self.options)
        self._plain: Callable[..., Any] | None = None  # the latest of positional Tensors only, tried first
        self._lock = forking.lock()

    # calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if active_trace() is not None:
            return self.__wrapped__(*args, **kwargs)
        self._statistics.calls += 1
        taped = any_open()
        if self._plain is not None and not kwargs and not taped:
            result = self._plain(args)
            if result is not MISS:
                return result
        if self._watch is not None:
            return self._watch.call(self._call, taped, args, kwargs)
        return self._call(taped, args, kwargs)

    def _call(self, taped: bool, args: Any, kwargs: Any) -> Any:
        if self.capture_as_const:
            check_tensors(args)
        if self.record_only:
            return self._call_record_only(args, kwargs, self._families[taped, arrays_among(args, kwargs)])
        if taped or not self._skips:
            return self._call_with_body(args, kwargs, self._families[taped, arrays_among(args, kwargs)])
        return self._call_skipping(args, kwargs)

    def _call_record_only(self, args: Any, kwargs: Any, families: Families) -> Any:
        result, variant = self._note(args, kwargs)
        families.keep(shapes_of(args, kwargs), variant)
        self._statistics.recorded()
        return result

    # the body is run, and matched

    def _call_with_body(self, args: Any, kwargs: Any, families: Families) -> Any:
        result = self._follow(args, kwargs, families)
        if result is not MISS:
            return result
        shapes = shapes_of(args, kwargs)
        with self._lock:
            if families.of(shapes, args, kwargs)[0] is None:  # no other thread was faster
                return self._record_new(args, kwargs, families, shapes)
        return self._follow(args, kwargs, families)

    def _follow(self, args: Any, kwargs: Any, families: Families) -> Any:
        """The result of the body, matched against what was recorded; `MISS` where that is none."""
        shapes = shapes_of(args, kwargs)
        variants, known = families.of(shapes, args, kwargs)
        if variants is None:
            return MISS
        resized = None if known is not None else variants.resized(flatten((args, kwargs))[0])
        follows = known or resized or variants.oldest()
        session = Replay(follows, variants, self._regrown, self.imperative, known is None)
        session.symbolic_shape = self.symbolic_shape
        if self._skips:
            session.explained = functools.partial(_is_explained, args, kwargs)
        self._statistics.body_runs += 1
        before = ACTIVE.get()
        try:  # as `run_in`, without a call more
            ACTIVE.set(session)
            result = self.__wrapped__(*args, **kwargs)
            ACTIVE.set(before)
            session.finish(result)
        except BaseException as error:
            try:
                ACTIVE.set(before)
                session.abandon(error)
            except BaseException as another:  # a second interrupt
                ACTIVE.set(before)
                session.abandon(another)
                raise
            raise
        finally:
            if session.left:
                families.part(shapes)
        if session.grown is not None and not (session.left and session.reshaped):
            of_shapes = self._reason_of_shapes(families, args, kwargs) if session.reshaped else None
            reason = of_shapes or reasons.of_difference(self.__name__, session.grown)
            if not session.left:
                families.grow(variants, shapes, session.variant)
            self._statistics.again(reason + "; other ops follow from it, which ran one by one" * session.left)
        elif not session.left:
            families.follow(shapes)
            if resized is not None:
                families.grow(variants, shapes, session.variant)
        return result

    def _reason_of_shapes(self, families: Families, args: Any, kwargs: Any) -> str:
        leaves = flatten((args, kwargs))[0]
        names = [n for n, leaf in zip(names_of(args, kwargs), leaves) if isinstance(leaf, ARRAYS)]
        return reasons.of_shapes(self.__name__, families.shapes(), shapes_of(args, kwargs), names)

    def _reason_of_kinds(self, taped: bool, arrays: tuple[bool, ...]) -> str:
        if any(
            tape is taped and kinds != arrays and found for (tape, kinds), found in self._families.items()
        ):
            return f"other arguments of {self.__name__} are arrays, and others Tensors, than recorded"
        records = "records" if taped else "does not record"
        return f"a GradManager outside of {self.__name__} {records} this call"

    def _record_new(self, args: Any, kwargs: Any, families: Families, shapes: tuple[Any, ...]) -> Any:
        reason = None
        if families.finds_other(shapes, args, kwargs):
            reason = reasons.of_found(self.__name__)
        elif families:
            reason = self._reason_of_shapes(families, args, kwargs)
        elif self._statistics.records:
            reason = self._reason_of_kinds(any_open(), arrays_among(args, kwargs))
        leaves, structure = flatten((args, kwargs))
        session = self._recording(leaves, structure, self._observer(args, kwargs, leaves))
        result, variant = session.watch_over(self._record, session, args, kwargs)
        families.keep(shapes, variant)
        if reason is not None:
            self._statistics.again(reason)
        return result

    # the body is skipped

    def _call_skipping(self, args: Any, kwargs: Any) -> Any:
        leaves, structure = flatten((args, kwargs))
        key = key_of(leaves, structure)
        result = self._served(key, leaves, args, kwargs)
        if result is not MISS:
            return result
        with self._lock:
            result = self._served(key, leaves, args, kwargs)  # another thread may have been faster
            if result is MISS:
                result = self._resized(key, leaves)
            if result is MISS:
                reason = self._reason_of(key, leaves, args, kwargs)
                session = self._recording(leaves, structure, self._observer(args, kwargs, leaves))
                recorded = session.watch_over(self._record_observed, session, args, kwargs)
                self._keep(key, leaves, shapes_of(args, kwargs), recorded)
                if reason is not None:
                    self._statistics.again(reason)
                result = recorded.result
        return result

    def _served(self, key: tuple[Any, ...], leaves: list[Any], args: Any, kwargs: Any) -> Any:
        """The result by what was recorded for `key`, or `MISS`."""
        for call in self._calls.get(key) or ():
            result = call.run(leaves)
            if result is not MISS:
                if not call.kept and len(args) == len(leaves) and all(map(operator.is_, args, leaves)):
                    self._plain = self._watched(call.run)
                return result
        impure = self._impure.get(pattern_of(key))
        if impure is not None and not impure.is_due():
            result = self._follow(args, kwargs, impure.families)
            impure.calls += result is not MISS
            return result
        return MISS

    def _resized(self, key: tuple[Any, ...], leaves: list[Any]) -> Any:
        """The result by a call that was recorded for arguments of other lengths, or `MISS`."""
        for known in self._followed.get(form_of(key)) or ():
            call = known.resized(leaves)
            result = MISS if call is None else call.run(leaves)
            if result is not MISS:
                calls = [call, *(self._calls.get(key) or ())]
                self._calls.keep(key, calls[:_STATES], leaves, most_like(known.variant))
                return result
        return MISS

    def _keep(self, key: Any, leaves: list[Any], shapes: Any, recorded: Recorded) -> None:
        """Keep what was recorded, for calls like it."""
        call, most, pattern = recorded.call, most_like(recorded.variant), pattern_of(key)
        if call is not None:
            self._calls.keep(key, [call, *(self._calls.get(key) or ())][:_STATES], leaves, most)
            if call.variant.sized is not None:
                form = form_of(key)
                self._followed.keep(form, [call, *(self._followed.get(form) or ())][:_STATES], leaves, most)
            return
        impure = self._impure.get(pattern) or Impure(leaves)
        impure.families.keep(shapes, recorded.variant)
        if impure.found(recorded.impurities):
            self._statistics.again(f"the body of {self.__name__} runs at each call: {recorded.impurities[0]}")
        self._impure.keep(pattern, impure, leaves, most)

    def _reason_of(self, key: tuple[Any, ...], leaves: list[Any], args: Any, kwargs: Any) -> str | None:
        """Why no recorded call serves arguments with `key`; None if there is none yet."""
        names = names_of(args, kwargs)
        alike = self._calls.get(key)
        if alike:
            return reasons.of_miss(self.__name__, alike[0].variant.record, leaves, names)
        known = list(self._calls)
        return reasons.of_keys(self.__name__, known, key, names) if known else None

    # recording

    def _recording(self, leaves: list[Any], arrangement: Structure, observer: Observer | None) -> Recording:
        session = Recording(
            leaves,
            symbolic=self.symbolic,
            capture_as_const=self.capture_as_const,
            symbolic_shape=self.symbolic_shape,
            observer=observer,
        )
        self._statistics.body_runs += 1
        session.is_call = True
        session.record.arrangement, session.record.numbers = arrangement, numbers_in(leaves)
        if not self.symbolic_shape and not self.capture_as_const:
            session.follow(leaves)
        session.surround(self._is_method_of())
        return session

    def _observer(self, args: Any, kwargs: Any, leaves: list[Any]) -> Observer:
        return Observer(leaves, self.run_body is False, self._instance is not None)

    def _record(self, session: Recording, args: Any, kwargs: Any) -> tuple[Any, Variant]:
        """Run the body, which will run at later calls as well."""
        assert session.observer is not None
        box = [run_in(session, session.observer.run, *self._body_with(args), **kwargs)]
        box.append(with_numbers(box.pop(), decide=False))
        if self.capture_as_const:
            self._captured = Captured.of(args, kwargs, *results_of(box[0], session), session.record)
        variant = self._close(session, session.finish())
        session.forget()
        return box.pop(), variant

    def _record_observed(self, session: Recording, args: Any, kwargs: Any) -> Recorded:
        """Run the body and find out whether it has to run at later calls."""
        observer = session.observer
        assert observer is not None
        box = [run_in(session, observer.run, *self._body_with(args), **kwargs)]
        box.append(with_numbers(box.pop(), decide=not observer.impurities))
        session.record.guards = observer.guards
        session.record.is_unknown = not all(impurity.once for impurity in observer.impurities)
        freezes = self.capture_as_const and not session.reads
        ends = results_of(box[0], session) if freezes or not observer.impurities else None
        if ends is not None:
            self._captured = Captured.of(args, kwargs, *ends, session.record)
        variant, leaves = self._close(session, session.finish()), session.leaves
        if ends is not None and not observer.impurities:
            box.append(session.handed_out(box.pop(0)))
            session.check_skippable()
        session.forget()
        if ends is None or observer.impurities:
            self._impurity = next(iter(observer.impurities), None)
            return Recorded(with_numbers(box.pop(), decide=False), variant, None, observer.impurities)
        return Recorded(box.pop(), variant, CompiledCall(variant, leaves, *ends))

    def _close(self, session: Recording, record: Record) -> Variant:
        variant = Variant(record, self._compiler)
        if self.symbolic:
            for number in range(len(variant.segments)):
                session.run_segment(variant, number)
        session.settle()
        self._statistics.recorded()
        return variant

    def _note(self, args: Any, kwargs: Any) -> tuple[Any, Variant]:
        """Record one call and run nothing of it; its result has no values."""
        session = self._noting(flatten((args, kwargs))[0], self.capture_as_const, None)
        session.surround(self._is_method_of())
        result, record = session.note(self._noted_body, session, args, kwargs)
        return result, Variant(record, self._compiler)

    def _noted_body(self, session: Recording, args: Any, kwargs: Any) -> tuple[Any, Record]:
        result = self.__wrapped__(*args, **kwargs)
        if self.record_only:
            self._captured = Captured.of(args, kwargs, *results_of(result, session), session.record)
        return result, session.finish()

    # looking at it

    def variants(self) -> list[Variant]:
        """Every recorded variant, oldest first."""
        families = [*self._families.values(), *(impure.families for impure in self._impure.values())]
        matched = [variant for family in families for variant in family]
        return matched + [c.variant for calls in self._calls.values() for c in reversed(calls)]

    def dry_run(self, *args: Any, **kwargs: Any) -> Variant:
        """Record one call without running its ops: the body runs, no Tensor outside is changed."""
        return self._note(args, kwargs)[1]

    def _regrown(self, record: Record, base: Variant) -> Variant:
        return Variant(record, self._compiler, base.segments)

    def _compile(self, graph: Graph, updates: Mapping[int, int]) -> Program:
        options = self._compile_options
        return self._tell_compiled(
            self._statistics.compiled(lambda: compile_program(graph, options, updates))
        )


def _is_explained(args: Any, kwargs: Any, record: Record) -> bool:
    """Is something else outside, or another number among the arguments, than the body of `record` found?"""
    leaves, arrangement = flatten((args, kwargs))
    if record.guards is None:  # nobody has watched, since tapes of the caller looked on
        return True
    return (
        record.is_unknown
        or arrangement != record.arrangement
        or numbers_in(leaves) != record.numbers
        or record.guards.why(leaves) is not None
    )
