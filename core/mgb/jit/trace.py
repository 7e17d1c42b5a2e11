"""`trace`: record a function once, run it compiled from then on."""

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
from .argument_specs import names_of_tensors, parameters_of, stand_ins
from .arguments import Key, check_tensors, key_of, shapes_of
from .binding import P, Q, R
from .bodies import Impure
from .call import CompiledCall, Recorded
from .capture import close, note, run_body, with_numbers
from .captured import Captured
from .config import TraceOptions
from .guard import MISS
from .matching import Matching
from .policy import Policy
from .recording import Recording
from .source import Source, beginning_of
from .tree import Structure, flatten
from .variant import Variant
from .watch import Impurity, Observer

#: Kinds of arguments with which the body is known to run at each call.
_IMPURE = 256

S = TypeVar("S")


class trace(Matching[P, R]):
    """Decorator that records what a function does and runs it compiled from then on.

    The first call runs the body and records every op, those of the gradient and of the optimizer included.
    Later calls skip the body and run the compiled program, as long as everything outside that the body was
    seen to read is unchanged. Where a body has to run at every call, see `run_body`, its ops are deferred,
    and sequences of them that came before run compiled.

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
        Tensors from outside become constants, whose values are compared where the body runs. Positional
        arguments must be Tensors.
    record_only : bool
        Only record, at every call, as `symbolic` and `capture_as_const` say: nothing is run, results have
        no values, Tensors outside stay as they are. For what looks at the graph.
    run_body : bool, optional
        When is the Python body run? ``None``, the default: to be recorded, once for each kind of arguments,
        and again when something outside that it read has changed; at every call, if it writes outside itself,
        reads a Tensor's value or calls what is not known to be pure. ``stats()`` names the line. ``True``: at
        every call, where it has to do what was recorded, as in MegEngine. ``False``: a body that would have
        to run at every call is refused at the first, with the line. While a `GradManager` outside records the
        call, the body runs. ``MGB_RUN_BODY=1`` runs every body. Arguments of other lengths are served by the
        same record; where the body compares lengths with another outcome, or looks at one in a way that is
        not followed, such as ``1 / n`` or ``range(n)``, it is recorded again. A number that is another one
        than recorded becomes an input, and so does a Tensor outside. What else is new call after call makes
        the body run.
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
        Allow rewrites that hold for finite numbers only, such as ``x - x`` to 0, as MegEngine does always. A
        kernel keeps 16-bit floats in float32 from op to op, and rounds what leaves it; without `fast_math` it
        rounds each result, as eager code does.
    backend : str, optional
        Overrides ``MGB_JIT_BACKEND`` for this function.
    cuda_graph : bool, optional
        Start kernels that follow each other on a GPU as one CUDA graph; by default where that pays.

    Raises
    ------
    TraceMismatchError
        With ``run_body=True``, at a later call: the body did something else than before. The trace stays
        usable.
    TraceInputError
        An option or argument that this trace cannot take.
    UnknownBackendError
        No backend is called `backend`.
    ImpureBodyError
        With ``run_body=False``, at a first call: the body would have to run at every call.
    MemoryConfigError
        Both ways to save memory at once.

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

    _captured: Captured | None = None  # what `dump` writes, of the latest call that was recorded
    _impurity: Impurity | None = None  # why nothing was captured

    # calling

    def _call(self, taped: bool, args: Any, kwargs: Any) -> Any:
        if self.capture_as_const:
            self._check_arguments(args)
        if self.record_only:
            recorded = self._noted(args, kwargs, flatten((args, kwargs))[0])
            matched = self._matched_with(recorded.variant)
            self._matches_of(taped, args, kwargs).keep(shapes_of(args, kwargs), matched, alone=True)
            self._statistics.recorded()
            return recorded.result
        if taped or not self._skips:
            return self._call_with_body(taped, args, kwargs)
        return self._call_skipping(args, kwargs)

    def _check_arguments(self, args: tuple[Any, ...]) -> None:
        check_tensors(args)

    # the body is skipped

    def _may_follow(self) -> tuple[bool, bool]:
        return not self.capture_as_const, not self.symbolic_shape and not self.capture_as_const

    def _by_running(self, key: Key, args: Any, kwargs: Any) -> Any:
        impure = self._impure.get(key.pattern)
        if impure is None or impure.is_due():
            return MISS
        if not kwargs and (impure.unsettled is not None or self._calls.newest(key) is None):
            traced = weakref.ref(self)
            again = impure.again(args, lambda args: traced()._run(impure, args, {}))  # type: ignore[union-attr]
            self._plain = None if again is None else self._watched(again)
        return self._run(impure, args, kwargs)

    def _run(self, impure: Impure, args: Any, kwargs: Any) -> Any:
        """The result of a body that runs at each call."""
        self._statistics.body_runs += 1
        return impure.run(self.__wrapped__, args, kwargs)

    def _keep(self, key: Key, leaves: list[Any], recorded: Recorded) -> None:
        super()._keep(key, leaves, recorded)
        self._plain = None
        if recorded.call is not None:
            return
        impure = self._impure.get(key.pattern) or Impure(leaves, self._stream)
        impure.variant = recorded.variant
        if impure.found(recorded.impurities):
            self._statistics.again(f"the body of {self.__name__} runs at each call: {recorded.impurities[0]}")
        self._impure.keep(key.pattern, impure, leaves, _IMPURE)

    # recording

    def _observer_after(self, key: Key, leaves: list[Any], reason: str | None) -> Observer:
        follows = frozenset[Source]() if self.capture_as_const else self._calls.follows(key, leaves)
        observer = self._observer(leaves, follows)
        observer.writing.has_effects = not self.capture_as_const
        impure = self._impure.get(key.pattern)
        if reason is not None and self.run_body is None and (impure is None or impure.unsettled is None):
            if self._calls.is_ever_new(key, leaves, self._statistics.calls):
                impure = impure or Impure(leaves, self._stream)
                impure.unsettled = f"finds what is new at each call: {reason}"
                self._impure.keep(key.pattern, impure, leaves, _IMPURE)
        if impure is not None and impure.unsettled is not None and impure.is_due():
            impure.retried()
        elif impure is not None and impure.unsettled is not None:
            observer.impure(impure.unsettled, line=beginning_of(self.__wrapped__))
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
        session = self._session(args, kwargs, leaves, policy, arrangement, observer=observer)
        session.record.arrangement = arrangement
        self._statistics.body_runs += 1
        return session.watch_over(self._recorded, session, args, kwargs)

    def _recorded(self, session: Recording, args: Any, kwargs: Any) -> Recorded:
        """Run the body, and find out whether it has to run at later calls."""
        leaves = session.leaves
        box = [run_body(session, self._body_with(args), kwargs)]
        variant = Variant(close(session, box[0]), self._compiler)
        if self.symbolic:
            session.run_programs(variant)
        session.settle()
        self._statistics.recorded()
        if self.capture_as_const and session.record.ends is not None:
            self._captured = Captured.of(args, kwargs, session.record)
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

    def _noted(self, args: Any, kwargs: Any, leaves: list[Any], observer: Observer | None = None) -> Recorded:
        policy = self._policy()
        if observer is not None and observer.is_trial:
            policy = replace(policy, gives=True, follows=self._may_follow()[1])
        session = self._session(args, kwargs, leaves, policy, observer=observer)
        session.record.arrangement = flatten((args, kwargs))[1]
        result = note(session, self._body_with(args), kwargs)
        session.check_changes()
        if self.record_only and session.record.ends is not None:
            self._captured = Captured.of(args, kwargs, session.record)
        variant = Variant(session.record, self._compiler)
        call = CompiledCall(variant, leaves) if session.is_pure else None
        impurities = () if observer is None else observer.impurities
        return Recorded(result, variant, call, impurities, session.fed)

    # looking at it

    def variants(self) -> list[Variant]:
        matched = [matched.variant for matches in list(self._matches.values()) for matched in matches]
        impure = [impure.variant for impure in self._impure.values() if impure.variant is not None]
        return matched + impure + [call.variant for call in self._calls]

    def programs(self) -> list[Program]:
        return list(dict.fromkeys(super().programs() + self._programs_of_bodies()))

    # ahead of time, and files

    dump = dump

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Record and compile a call without running its ops; the next one like it compiles nothing.

        The body runs, as it does when a call is recorded, on Tensors without values. No Tensor outside is
        changed.

        Parameters
        ----------
        *args, **kwargs
            What the function takes. For a Tensor its type does: a Tensor of that type, a `Spec`, or a text
            such as ``"f32[64,784]"``.

        Raises
        ------
        ArgumentSpecError
            A text that is no type.
        SymbolicReadError
            The body looks at values, which only a call that runs has.
        ExportError
            The trace only records, or this is called inside another one.
        """
        if self.record_only:
            raise ExportError(
                f"{self.__name__} only records: trace it without record_only=True to compile it"
            )
        _check_outside()
        args, kwargs = stand_ins((args, kwargs))
        if self.capture_as_const:
            self._check_arguments(args)
        leaves, structure = flatten((args, kwargs))
        with self._lock:
            recorded = self._noted(args, kwargs, leaves, self._observer(leaves) if self._skips else None)
            for number, segment in enumerate(recorded.variant.segments):
                if segment.outputs:
                    recorded.variant.program(number)
            self._statistics.recorded()
            if self._skips:
                self._keep(key_of(leaves, structure), leaves, recorded)
            else:
                matched = self._matched_with(recorded.variant)
                self._matches_of(False, args, kwargs).keep(shapes_of(args, kwargs), matched)

    def export(self, path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        """Write a file that `load_compiled` runs where no compiler is: the graph, its constants, its kernels.

        Tensors from outside, such as Parameters, become constants with the values that they have now. Shapes
        are those of the arguments. A processor that lacks what this one has, or another version of mgb, makes
        it compile again. The file holds machine code: load only files that you trust.

        Parameters
        ----------
        path : path
            A file there is replaced in one go, or stays as it was.
        *args, **kwargs
            As for `compile`. Left out, they are those of the latest call that was recorded, if the trace has
            ``capture_as_const=True``. Arguments that are not Tensors are frozen too.

        Raises
        ------
        ExportError
            Nothing says what the arguments are, or a parameter of an op is nothing that a file can hold.
        DumpTrainingError, DumpStateError, DumpOutputError
            The function changes Tensors outside, looks at values, or returns something else than Tensors in a
            flat container: what `dump` refuses too.
        """
        from ..storage.exported import write

        captured, names = self._to_export(args, kwargs)
        captured.check()
        graph, ends = captured.graph(names, None, 1)
        write(path, self.__name__, graph, ends, self._compile(graph, {}), self.options)

    def _to_dump(self) -> Captured | None:
        """What `dump` writes."""
        return self._captured

    def _to_export(self, args: Any, kwargs: Any) -> tuple[Captured, list[str] | None]:
        if not args and not kwargs:
            if self.capture_as_const and self._captured is not None:
                return self._captured, None
            if parameters_of(self.__wrapped__):
                raise ExportError(
                    f"say the types of the arguments of {self.__name__}, as in export(path, 'f32[64,784]')"
                )
        args, kwargs = stand_ins((args, kwargs))
        _check_outside()
        policy = replace(self._policy(), freezes=True)
        session = self._session(args, kwargs, flatten((args, kwargs))[0], policy)
        note(session, self._body_with(args), kwargs)
        if session.record.ends is None:
            raise ExportError(
                f"{self.__name__} looks at values: what Python makes of them would be frozen in the file; "
                "compute it with ops"
            )
        return Captured.of(args, kwargs, session.record), list(names_of_tensors(self.__wrapped__, args))


if TYPE_CHECKING:

    class _Trace(trace[..., Any]):
        """What ``trace(...)`` without a function is."""

        def __init__(self, **options: Unpack[TraceOptions]) -> None: ...
        def __call__(self, function: Callable[Q, S]) -> trace[Q, S]: ...


def _check_outside() -> None:
    if active_trace() is not None:
        raise ExportError("a function is compiled or exported outside of any trace: call it there")
