"""`trace`: record a function once, run it compiled from then on."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

from .. import config, forking
from ..autodiff.tape import any_open
from ..errors import TraceInputError
from ..executor import DTRConfig, Options, Program, SublinearMemoryConfig, compile_program
from ..ir import Graph
from ..tensor import active_trace
from . import reasons
from .ahead import AheadOfTime
from .arguments import arrays_among, check_tensors, key_of, names_of, pattern_of, shapes_of
from .binding import Bindable
from .call import CompiledCall, Recorded
from .capture import close, note, run_body, with_numbers
from .captured import Captured
from .config import GraphOptimizationConfig, check_options, memory_config, which_calls_run
from .dump import Dumpable
from .environment import Observer
from .guard import MISS
from .inspection import Inspectable
from .kept import Kept, compiler_of
from .matching import Matching
from .policy import Policy
from .profiling import History, Profilable
from .record import Record
from .recording import Recording
from .source import Source, beginning_of
from .specializations import Specializations
from .statistics import Statistics
from .tree import Structure, flatten
from .variant import Variant
from .variants import Impure, Variants

#: Sets of arguments that are arrays for which records are kept where the body runs.
_KINDS = 32

#: Kinds of arguments with which the body is known to run at each call.
_IMPURE = 256


class trace(Bindable, Inspectable, Dumpable, Profilable, AheadOfTime, Matching):
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
        such as ``1 / n`` or ``range(n)``, it is recorded again. A number that is another one than recorded
        becomes an input, and so does a Tensor outside. What else is new call after call makes the body run.
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
        self._variants: dict[tuple[bool, tuple[bool, ...]], Variants] = {}
        self._skips = self.run_body is not True and not imperative and not config.RUN_BODY.on()
        self._calls = Specializations()
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
            return self._call_record_only(args, kwargs, self._variants_of(taped, args, kwargs))
        if taped or not self._skips:
            return self._call_with_body(args, kwargs, self._variants_of(taped, args, kwargs))
        return self._call_skipping(args, kwargs)

    def _variants_of(self, taped: bool, args: Any, kwargs: Any) -> Variants:
        key = taped, arrays_among(args, kwargs)
        found = self._variants.get(key)
        if found is None:
            with self._lock:
                found = self._variants.setdefault(key, Variants())
                while len(self._variants) > _KINDS:
                    del self._variants[next(iter(self._variants))]
        return found

    def _call_record_only(self, args: Any, kwargs: Any, variants: Variants) -> Any:
        result, variant = self._note(args, kwargs)
        variants.keep(shapes_of(args, kwargs), variant)
        self._statistics.recorded()
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
                result = self._calls.resized(key, leaves, lambda call: call.run(leaves))
            if result is MISS:
                reason = self._reason_of(key, leaves, args, kwargs)
                if self._is_run(key, reason):
                    return self.__wrapped__(*args, **kwargs)
                observer = self._observer_after(key, leaves, reason)
                recorded = self._record(args, kwargs, leaves, structure, observer)
                self._keep(key, leaves, shapes_of(args, kwargs), recorded)
                if reason is not None and recorded.call is not None:
                    self._statistics.again(reason)
                result = recorded.result
        return result

    def _is_run(self, key: tuple[Any, ...], reason: str | None) -> bool:
        """Has the call texts or objects that are new at each call? Then its body runs, and that is all."""
        often = self._calls.has_ever_new(key, self._statistics.calls) if self.run_body is None else 0
        if often == 1:
            self._statistics.again(f"the body of {self.__name__} runs at each call: {reason}")
        self._statistics.body_runs += often > 0
        return often > 0

    def _served(self, key: tuple[Any, ...], leaves: list[Any], args: Any, kwargs: Any) -> Any:
        """The result by what was recorded for `key`, or `MISS`."""
        for call in self._calls.of(key):
            result = call.run(leaves)
            if result is not MISS:
                if not call.kept and len(args) == len(leaves) and all(map(operator.is_, args, leaves)):
                    self._plain = self._watched(call.run)
                return result
        impure = self._impure.get(pattern_of(key))
        if impure is not None and not impure.is_due():
            result = self._follow(args, kwargs, impure.variants)
            if result is MISS and not impure.may_record():
                self._statistics.body_runs += 1
                result = self.__wrapped__(*args, **kwargs)
            impure.calls += result is not MISS
            return result
        return MISS

    def _keep(self, key: Any, leaves: list[Any], shapes: Any, recorded: Recorded) -> None:
        """Keep what was recorded, for calls like it."""
        if recorded.call is not None:
            self._calls.keep(key, recorded.call, leaves)
            return
        self._calls.drop(key)
        pattern = pattern_of(key)
        impure = self._impure.get(pattern) or Impure(leaves)
        impure.variants.keep(shapes, recorded.variant)
        if impure.found(recorded.impurities):
            self._statistics.again(f"the body of {self.__name__} runs at each call: {recorded.impurities[0]}")
        self._impure.keep(pattern, impure, leaves, _IMPURE)

    def _reason_of(self, key: tuple[Any, ...], leaves: list[Any], args: Any, kwargs: Any) -> str | None:
        """Why no recorded call serves arguments with `key`; None if there is none yet."""
        alike = self._calls.of(key)
        if alike:
            return reasons.of_miss(self.__name__, alike[0].variant.record, leaves)
        known = self._calls.keys()
        return reasons.of_keys(self.__name__, known, key, names_of(args, kwargs)) if known else None

    # recording

    def _session(
        self, args: Any, kwargs: Any, leaves: list[Any], policy: Policy, observer: Observer | None
    ) -> Recording:
        names = names_of(args, kwargs)
        instance = self._is_method_of()
        return Recording(leaves, policy, names=names, observer=observer, instance=instance)

    def _observer(self, leaves: list[Any], follows: frozenset[Source] = frozenset()) -> Observer:
        return Observer(leaves, self.run_body is False, self._instance is not None, follows)

    def _observer_after(self, key: tuple[Any, ...], leaves: list[Any], reason: str | None) -> Observer:
        """What watches a call that nothing serves, for the `reason`."""
        follows = frozenset[Source]() if self.capture_as_const else self._calls.follows(key, leaves)
        observer = self._observer(leaves, follows)
        impure = self._impure.get(pattern_of(key)) or Impure(leaves)
        if impure.unsettled is None and reason is not None and self.run_body is None:
            if self._calls.is_ever_new(key, self._statistics.calls):
                impure.unsettled = f"finds what is new at each call: {reason}"
                self._impure.keep(pattern_of(key), impure, leaves, _IMPURE)
        if impure.unsettled is not None:
            observer.impure(impure.unsettled, place=beginning_of(self.__wrapped__))
        return observer

    def _policy(self, freezes: bool) -> Policy:
        """How a call is only noted."""
        return Policy(freezes=freezes, symbolic_shape=self.symbolic_shape)

    def _record(
        self, args: Any, kwargs: Any, leaves: list[Any], arrangement: Structure, observer: Observer | None
    ) -> Recorded:
        policy = Policy(
            runs=not self.symbolic,
            gives=True,
            skips=observer is not None,
            freezes=self.capture_as_const,
            symbolic_shape=self.symbolic_shape,
            follows=not self.symbolic_shape and not self.capture_as_const,
        )
        observer = observer or Observer(leaves, False, self._instance is not None)
        session = self._session(args, kwargs, leaves, policy, observer)
        session.record.arrangement = arrangement
        self._statistics.body_runs += 1
        return session.watch_over(self._recorded, session, args, kwargs)

    def _recorded(self, session: Recording, args: Any, kwargs: Any) -> Recorded:
        """Run the body, and find out whether it has to run at later calls."""
        leaves = session.leaves
        box = [run_body(session, self._body_with(args), kwargs)]
        box.append(with_numbers(box.pop(), decide=session.is_pure))
        variant = self._closed(session, close(session, box[0]))
        if variant.record.ends is not None:
            self._captured = Captured.of(args, kwargs, variant.record)
        if session.is_pure:
            box.append(session.handed_out(box.pop()))
            session.check_changes()
            session.check_kept()
        session.forget()
        if session.is_pure:
            return Recorded(box.pop(), variant, CompiledCall(variant, leaves))
        impurities = session.observer.impurities if session.observer is not None else ()
        self._impurity = next(iter(impurities), None)
        return Recorded(with_numbers(box.pop(), decide=False), variant, None, impurities)

    def _closed(self, session: Recording, record: Record) -> Variant:
        variant = Variant(record, self._compiler)
        if self.symbolic:
            for number in range(len(variant.segments)):
                session.run_segment(variant, number)
        session.settle()
        self._statistics.recorded()
        return variant

    def _note(self, args: Any, kwargs: Any) -> tuple[Any, Variant]:
        """Record one call and run nothing of it; its result has no values."""
        leaves, _ = flatten((args, kwargs))
        policy = self._policy(freezes=self.capture_as_const)
        session = self._session(args, kwargs, leaves, policy, None)
        result = note(session, self._body_with(args), kwargs)
        if self.record_only and session.record.ends is not None:
            self._captured = Captured.of(args, kwargs, session.record)
        return result, Variant(session.record, self._compiler)

    # looking at it

    def variants(self) -> list[Variant]:
        """Every recorded variant, oldest first."""
        kept = [*list(self._variants.values()), *(impure.variants for impure in self._impure.values())]
        matched = [variant for variants in kept for variant in variants]
        return matched + [call.variant for call in self._calls]

    def dry_run(self, *args: Any, **kwargs: Any) -> Variant:
        """Record one call without running its ops: the body runs, no Tensor outside is changed."""
        return self._note(args, kwargs)[1]

    def _compile(self, graph: Graph, updates: Mapping[int, int]) -> Program:
        options = self._compile_options
        return self._tell_compiled(
            self._statistics.compiled(lambda: compile_program(graph, options, updates))
        )
