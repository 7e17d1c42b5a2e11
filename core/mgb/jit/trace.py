"""`trace`: record a function once, then run it compiled."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from ..errors import ExportError
from ..executor import Program
from ..storage.dump import dump
from ..tensor import active_trace
from .argument_specs import make_placeholders, names_of_tensors, parameters_of
from .arguments import Key, check_tensors, key_of
from .binding import P, Q, R
from .body_calls import ImpureCalls
from .call import CompiledCall, Recorded
from .capture import close, note, replace_symbolic, run_body
from .captured import Captured
from .config import TraceOptions
from .generated import MISS
from .policy import Policy
from .recording import Recording
from .source import Source, find_definition
from .tree import Structure, flatten
from .variant import Variant
from .watch import Impurity, Observer
from .with_body import TracedWithBody

#: The most patterns of arguments for which the body runs at each call.
_MOST_IMPURE = 256

S = TypeVar("S")


class trace(TracedWithBody[P, R]):
    """Decorator that records what a function does and runs it compiled from then on.

    The first call runs the body and records every op, including those of the gradient and the optimizer.
    Later calls skip the body and run the compiled program, as long as everything outside that the body read
    is unchanged. If a body must run at every call, see `run_body`, its ops are deferred, and sequences that
    came before run compiled.

    It works on functions and on methods, where each instance has records of its own. It is pickled by name,
    as functions are.

    Parameters
    ----------
    function : callable
        Takes and returns anything; the ops on Tensors are traced.
    symbolic : bool
        Run no op of the first call until it returns: the first call runs compiled too, and cannot read values
        that depend on data.
    capture_as_const : bool
        Tensors from outside become constants, whose values are compared where the body runs. Positional
        arguments must be Tensors.
    record_only : bool
        Only record, at every call, as with `symbolic` and `capture_as_const`: no op runs, results have no
        values, and Tensors outside stay as they are. For inspection of the graph.
    run_body : bool, optional
        When the Python body runs. ``None``, the default: to be recorded, once for each specialization, and
        again when something outside that it read has changed; at every call, if it has side effects, reads
        the value of a Tensor, or calls code that is not known to be pure. ``stats()`` names the line.
        ``True``: at every call, where it must repeat the record, as in MegEngine. ``False``: a body that
        would have to run at every call raises an error at the first, with the line. The body also runs while
        a `GradManager` outside records the call. ``MGB_RUN_BODY=1`` runs every body. One record serves
        arguments of many lengths; if a comparison of lengths has another outcome, or the body uses a length
        that cannot be symbolic, as in ``1 / n`` or ``range(n)``, the body is recorded again. A number that
        changes becomes an input, and so does a Tensor outside. If anything else is new call after call, the
        body runs.
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
        Recompute values for the gradient rather than store them. The variables ``MGB_SUBLINEAR_MEMORY_...``
        override its fields.
    dtr_config : DTRConfig, optional
        Drop values when memory exceeds a threshold, and recompute them on use.
    profiling : bool
        Measure each step at each call: see `get_profile`, `profile_table`, `save_profile`, `reset_profile`.
    fast_math : bool
        Allow rewrites that hold for finite numbers only, such as ``x - x`` to 0, as MegEngine always does. A
        kernel computes 16-bit floats in float32 and rounds only its results; without `fast_math` it rounds
        after each op, as eager code does.
    backend : str, optional
        Overrides ``MGB_JIT_BACKEND`` for this function.
    cuda_graph : bool, optional
        Start consecutive kernels on a GPU as one CUDA graph; by default where that is faster.

    Raises
    ------
    TraceMismatchError
        With ``run_body=True``, at a later call: the body diverged from its record. The trace stays usable.
    TraceInputError
        An option or argument is not valid for this trace.
    UnknownBackendError
        `backend` is not the name of a backend.
    ImpureBodyError
        With ``run_body=False``, at a first call: the body would have to run at every call.
    ArgumentError
        Both memory options are given.

    Examples
    --------
    >>> from mgb.jit import trace
    >>> doubled = trace(lambda x: x * 2)
    >>> doubled(mgb.tensor([1.0])), doubled(mgb.tensor([4.0]))  # recorded; run compiled
    (Tensor([2.], device=xpux:0), Tensor([8.], device=xpux:0))
    """

    if TYPE_CHECKING:

        @overload
        def __new__(cls, function: Callable[P, R], **options: Unpack[TraceOptions]) -> trace[P, R]: ...
        @overload
        def __new__(cls, **options: Unpack[TraceOptions]) -> _Trace: ...
        def __new__(cls, *args: Any, **options: Any) -> Any: ...

    _captured: Captured | None = None  # the latest recorded call, for `dump`
    _impurity: Impurity | None = None  # why nothing was captured

    # calling

    def _call(self, taped: bool, args: Any, kwargs: Any) -> Any:
        if self.capture_as_const:
            self._check_arguments(args)
        if self.record_only:
            recorded = self._note(args, kwargs, flatten((args, kwargs))[0])
            self._cache_strict(taped, args, kwargs, recorded.variant, replaces=True)
            self._statistics.recorded()
            return recorded.result
        if taped or not self._skips:
            return self._call_with_body(taped, args, kwargs)
        return self._call_skipping(args, kwargs)

    def _check_arguments(self, args: tuple[Any, ...]) -> None:
        check_tensors(args)

    # the body is skipped

    def _get_symbolic(self) -> tuple[bool, bool]:
        return not self.capture_as_const, not self.symbolic_shape and not self.capture_as_const

    def _run_known_body(self, key: Key, args: Any, kwargs: Any) -> Any:
        impure = self._impure_calls.get(key.pattern)
        if impure is None or impure.should_record():
            return MISS
        if not kwargs and (impure.megamorphic_reason is not None or self._calls.newest(key) is None):
            traced = weakref.ref(self)
            fast_path = impure.make_fast_path(args, lambda args: traced()._run_impure(impure, args, {}))  # type: ignore[union-attr]
            self._fast_path = None if fast_path is None else self._wrap_watched(fast_path)
        return self._run_impure(impure, args, kwargs)

    def _run_impure(self, impure: ImpureCalls, args: Any, kwargs: Any) -> Any:
        """Run a body with side effects and return its result."""
        self._statistics.body_runs += 1
        return impure.run(self.__wrapped__, args, kwargs)

    def _cache_call(self, key: Key, leaves: list[Any], recorded: Recorded) -> None:
        super()._cache_call(key, leaves, recorded)
        self._fast_path = None
        if recorded.call is not None:
            return
        impure = self._impure_calls.get(key.pattern) or ImpureCalls(leaves, self._make_stream)
        impure.variant = recorded.variant
        if impure.add_reasons(recorded.impurities):
            self._statistics.again(f"the body of {self.__name__} runs at each call: {recorded.impurities[0]}")
        self._impure_calls.keep(key.pattern, impure, leaves, _MOST_IMPURE)

    # recording

    def _make_miss_observer(self, key: Key, leaves: list[Any], reason: str | None) -> Observer:
        follows = frozenset[Source]() if self.capture_as_const else self._calls.find_symbolic(key, leaves)
        observer = self._make_observer(leaves, follows)
        observer.writing.has_effects = not self.capture_as_const
        impure = self._impure_calls.get(key.pattern)
        is_known = impure is not None and impure.megamorphic_reason is not None
        if reason is not None and self.run_body is None and not is_known:
            if self._calls.is_megamorphic(key, leaves, self._statistics.calls):
                impure = impure or ImpureCalls(leaves, self._make_stream)
                impure.megamorphic_reason = f"finds what is new at each call: {reason}"
                self._impure_calls.keep(key.pattern, impure, leaves, _MOST_IMPURE)
        if impure is not None and impure.megamorphic_reason is not None and impure.should_record():
            impure.retry_later()
        elif impure is not None and impure.megamorphic_reason is not None:
            observer.impure(impure.megamorphic_reason, line=find_definition(self.__wrapped__))
        return observer

    def _record(
        self, args: Any, kwargs: Any, leaves: list[Any], arrangement: Structure, observer: Observer | None
    ) -> Recorded:
        policy = Policy(
            runs=not self.symbolic,
            gives=True,
            skips=observer is not None,
            freezes=self.capture_as_const,
            symbolic_shape=self.symbolic_shape,
        )
        session = self._make_session(args, kwargs, leaves, policy, arrangement, observer=observer)
        session.record.arrangement = arrangement
        self._statistics.body_runs += 1
        return session.watch_over(self._run_and_record, session, args, kwargs)

    def _run_and_record(self, session: Recording, args: Any, kwargs: Any) -> Recorded:
        """Run the body, and decide whether later calls must run it."""
        leaves = session.leaves
        box = [run_body(session, self._bind_body(args), kwargs)]
        variant = Variant(close(session, box[0]), self._compiler)
        if self.symbolic:
            session.run_programs(variant)
        session.finish_values()
        self._statistics.recorded()
        if self.capture_as_const and session.record.ends is not None:
            self._captured = Captured.of(args, kwargs, session.record)
        if session.is_pure:
            box.append(session.replace_own_tensors(box.pop()))
            session.check_changes()
            session.check_escapes()
        session.forget()
        if session.is_pure:
            return Recorded(box.pop(), variant, CompiledCall(variant, leaves))
        impurities = session.observer.impurities if session.observer is not None else ()
        self._impurity = next(iter(impurities), None)
        return Recorded(replace_symbolic(box.pop(), decide=False), variant, None, impurities)

    def _note(self, args: Any, kwargs: Any, leaves: list[Any], observer: Observer | None = None) -> Recorded:
        policy = self._make_policy()
        if observer is not None and observer.is_trial:
            policy = replace(policy, gives=True, follows=self._get_symbolic()[1])
        session = self._make_session(args, kwargs, leaves, policy, observer=observer)
        session.record.arrangement = flatten((args, kwargs))[1]
        result = note(session, self._bind_body(args), kwargs)
        session.check_changes()
        if self.record_only and session.record.ends is not None:
            self._captured = Captured.of(args, kwargs, session.record)
        variant = Variant(session.record, self._compiler)
        call = CompiledCall(variant, leaves) if session.is_pure else None
        impurities = () if observer is None else observer.impurities
        return Recorded(result, variant, call, impurities, session.fed)

    # looking at it

    def variants(self) -> list[Variant]:
        strict = [record.variant for records in list(self._strict_records.values()) for record in records]
        impure = [impure.variant for impure in self._impure_calls.values() if impure.variant is not None]
        return strict + impure + [call.variant for call in self._calls]

    def programs(self) -> list[Program]:
        return list(dict.fromkeys(super().programs() + self._list_body_programs()))

    # ahead of time, and files

    dump = dump

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Record and compile a call without running its ops; the next one like it compiles nothing.

        The body runs on Tensors without values. No Tensor outside changes.

        Parameters
        ----------
        *args, **kwargs
            The arguments of a call. A Tensor may be given by its type: a Tensor of that type, a `Spec`, or a
            string such as ``"f32[64,784]"``.

        Raises
        ------
        TraceInputError
            A string is not a type.
        SymbolicReadError
            The body reads values.
        ExportError
            The trace only records, or this is called inside a traced function.
        """
        if self.record_only:
            raise ExportError(
                f"{self.__name__} only records: trace it without record_only=True to compile it"
            )
        _check_outside()
        args, kwargs = make_placeholders((args, kwargs))
        if self.capture_as_const:
            self._check_arguments(args)
        leaves, structure = flatten((args, kwargs))
        with self._lock:
            recorded = self._note(args, kwargs, leaves, self._make_observer(leaves) if self._skips else None)
            for number, segment in enumerate(recorded.variant.segments):
                if segment.outputs:
                    recorded.variant.program(number)
            self._statistics.recorded()
            if self._skips:
                self._cache_call(key_of(leaves, structure), leaves, recorded)
            else:
                self._cache_strict(False, args, kwargs, recorded.variant)

    def export(self, path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        """Write a file that `load_compiled` runs where no compiler is: the graph, its constants, its kernels.

        Tensors from outside, such as Parameters, become constants with their current values. Shapes are those
        of the arguments. On a processor that lacks features of this one, or with another version of mgb, the
        graph is compiled again. The file contains machine code: load only files that you trust.

        Parameters
        ----------
        path : path
            An existing file is replaced atomically.
        *args, **kwargs
            As for `compile`. If omitted, they are those of the latest recorded call, if the trace has
            ``capture_as_const=True``. Arguments that are not Tensors become constants.

        Raises
        ------
        ExportError
            The arguments are unknown, or a file cannot contain a parameter of an op; or the function changes
            Tensors outside, reads values, or returns something else than Tensors in a flat container.
        """
        from ..storage.exported import write

        captured, names = self._to_export(args, kwargs)
        captured.check()
        graph, ends = captured.graph(names, None, 1)
        write(path, self.__name__, graph, ends, self._compile(graph, {}), self.options)

    def _to_dump(self) -> Captured | None:
        """Return what `dump` writes."""
        return self._captured

    def _to_export(self, args: Any, kwargs: Any) -> tuple[Captured, list[str] | None]:
        if not args and not kwargs:
            if self.capture_as_const and self._captured is not None:
                return self._captured, None
            if parameters_of(self.__wrapped__):
                raise ExportError(
                    f"the types of the arguments of {self.__name__} are missing: give them, as in "
                    "export(path, 'f32[64,784]')"
                )
        args, kwargs = make_placeholders((args, kwargs))
        _check_outside()
        policy = replace(self._make_policy(), freezes=True)
        session = self._make_session(args, kwargs, flatten((args, kwargs))[0], policy)
        note(session, self._bind_body(args), kwargs)
        if session.record.ends is None:
            raise ExportError(
                f"{self.__name__} looks at values: what Python makes of them would be frozen in the file; "
                "compute it with ops"
            )
        return Captured.of(args, kwargs, session.record), list(names_of_tensors(self.__wrapped__, args))


if TYPE_CHECKING:

    class _Trace(trace[..., Any]):
        """The type of ``trace(...)`` without a function."""

        def __init__(self, **options: Unpack[TraceOptions]) -> None: ...
        def __call__(self, function: Callable[Q, S]) -> trace[Q, S]: ...


def _check_outside() -> None:
    if active_trace() is not None:
        raise ExportError("a function is compiled or exported outside of any trace: call it there")
