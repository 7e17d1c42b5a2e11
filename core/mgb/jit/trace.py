"""`trace`: record a function once, run it compiled from then on."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

from .. import forking
from ..autodiff.tape import any_open
from ..errors import TraceInputError
from ..executor import DTRConfig, Options, Program, SublinearMemoryConfig, compile_program
from ..ir import Graph
from ..tensor import ACTIVE, Tensor, active_trace, run_in
from . import reasons
from .ahead import AheadOfTime
from .arguments import check_tensors, form_of, key_of, names_of, shapes_of
from .binding import Bindable
from .captured import Captured
from .config import GraphOptimizationConfig, check_options, memory_config
from .dump import Dumpable
from .families import Families, Hosted
from .hostless import MISS, HostlessCall, with_new, with_resized
from .inspection import Inspectable
from .kept import Kept, compiler_of
from .profiling import History, Profilable
from .reach import found_elsewhere
from .record import Record
from .recording import Recording
from .replay import Replay
from .results import results_of
from .statistics import Statistics
from .tree import Structure, flatten
from .variant import Variant
from .variants import most_like

#: Calls kept for the same arguments: they differ in what they find outside, such as a ``grad`` or none.
_STATES = 8


class trace(Bindable, Inspectable, Dumpable, Profilable, AheadOfTime):
    """Decorator that records what a function does and runs it compiled from then on.

    The first call runs the body and records every op, those of the gradient and of the optimizer included.
    Later calls run the body again, match each op against the record, and run the compiled program when a
    value is wanted. With ``without_host=True`` later calls skip the body.

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
    without_host : bool
        Skip Python from the second call on. Parameters, optimizer state and ``lr`` stay live. A body that
        reads values, keeps a new Tensor or an argument elsewhere than in its result, or is called while a
        `GradManager` outside records it, keeps running Python, as without this option. A Module that is
        called in the body and has changed since, by ``eval()``, another Parameter, layer or hook, makes the
        body run and be recorded again; so does another Tensor in a variable outside that the body names, and
        an ``attach`` or ``add_param_group`` of what works in it. A Module that the body itself changes makes
        it run each time; other Python state that the body looks at is that of the first call. Arguments that
        the body could also find elsewhere, such as global Tensors, may make it run at a second call with
        others. Arguments of other lengths are served by the same record; where the body compares lengths with
        another outcome, or looks at one in a way that is not followed, such as ``1 / n`` or ``range(n)``, it
        is recorded again.
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
        config = graph_opt_config or GraphOptimizationConfig()
        self.options = Options(
            opt_level=opt_level,
            fuse_reduce=config.jit_fuse_reduce,
            fuse_dimshuffle=config.jit_fuse_dimshuffle,
            fast_math=fast_math,
            backend=backend,
            memory=memory_config(sublinear_memory_config, dtr_config),
            profiling=profiling,
            launch_graph=cuda_graph,
        )
        self.symbolic = symbolic or record_only
        self.capture_as_const = capture_as_const or record_only
        self.record_only = record_only
        self.without_host = without_host
        self.imperative = imperative
        self.symbolic_shape = symbolic_shape
        self._statistics = Statistics()
        self._history = History() if profiling else None
        self._families = {False: Families(), True: Families()}  # by whether a tape of the caller looks on
        self._hostless: Kept[list[HostlessCall]] = Kept()  # the newest first
        self._followed: Kept[list[HostlessCall]] = Kept()  # those to be resized, the newest first
        self._hosted: Kept[Hosted] = Kept()
        self._hosted_forms: Kept[Hosted] = Kept()  # the newest for arguments of any lengths
        self._compiler = compiler_of(self, self.options)
        self._plain: Callable[..., Any] | None = None  # the latest of positional Tensors only, tried first
        self._changes: str | None = None  # what the latest body changed that decides what it does
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
            return self._call_record_only(args, kwargs, self._families[taped])
        if self.without_host and not taped:
            return self._call_hostless(args, kwargs)
        return self._call_with_host(args, kwargs, self._families[taped])

    def _call_record_only(self, args: Any, kwargs: Any, families: Families) -> Any:
        result, variant = self._note(args, kwargs)
        families.keep(shapes_of(args, kwargs), variant)
        self._statistics.recorded()
        return result

    def _call_with_host(self, args: Any, kwargs: Any, families: Families, *, lenient: bool = False) -> Any:
        shapes = shapes_of(args, kwargs)
        variants, known = families.of(shapes, args, kwargs)
        if variants is None:
            with self._lock:
                variants, known = families.of(shapes, args, kwargs)  # another thread may have been faster
                if variants is None:
                    return self._record_new(args, kwargs, families, shapes)
        resized = None if known is not None else variants.resized(flatten((args, kwargs))[0])
        follows = known or resized or variants.oldest()
        session = Replay(follows, variants, self._regrown, self.imperative, known is None)
        session.symbolic_shape = self.symbolic_shape
        session.lenient = lenient
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
        names = [n for n, leaf in zip(names_of(args, kwargs), leaves) if isinstance(leaf, Tensor)]
        return reasons.of_shapes(self.__name__, families.shapes(), shapes_of(args, kwargs), names)

    def _record_new(self, args: Any, kwargs: Any, families: Families, shapes: tuple[Any, ...]) -> Any:
        reason = None
        if families.finds_other(shapes, args, kwargs):
            reason = reasons.of_found(self.__name__)
        elif families:
            reason = self._reason_of_shapes(families, args, kwargs)
        elif self._statistics.records:
            records = "records" if families is self._families[True] else "does not record"
            reason = f"a GradManager outside of {self.__name__} {records} this call"
        result, variant = self._record(args, kwargs)
        families.keep(shapes, variant)
        if reason is not None:
            self._statistics.again(reason)
        return result

    def _call_hostless(self, args: Any, kwargs: Any) -> Any:
        leaves, structure = flatten((args, kwargs))
        key = key_of(leaves, structure)
        result = self._served(key, leaves, args, kwargs)
        if result is not MISS:
            return result
        with self._lock:
            result = self._served(key, leaves, args, kwargs)  # another thread may have been faster
            if result is not MISS:
                return result
            result = self._resized(key, leaves, args, kwargs)
            if result is not MISS:
                return result
            reason = self._reason_of(key, leaves, args, kwargs)
            result, variant, new = self._record_hostless(args, kwargs, leaves)
            if new is None or variant.record.changes is None:
                self._keep_call(key, leaves, shapes_of(args, kwargs), variant, new)
            self._changes = variant.record.changes
            if reason is not None:
                self._statistics.again(reason)
        return result

    def _served(self, key: tuple[Any, ...], leaves: list[Any], args: Any, kwargs: Any) -> Any:
        """The result by what was recorded for `key`, or `MISS`."""
        hosted = self._hosted.get(key)
        if hosted is not None:
            return self._call_with_host(args, kwargs, hosted.families, lenient=hosted.keeps)
        for call in self._hostless.get(key) or ():
            result = call.run(leaves)
            if result is not MISS:
                if not call.kept and len(args) == len(leaves) and all(map(operator.is_, args, leaves)):
                    self._plain = self._watched(call.run)
                return result
        return MISS

    def _resized(self, key: tuple[Any, ...], leaves: list[Any], args: Any, kwargs: Any) -> Any:
        """The result by a call that was recorded for arguments of other lengths, or `MISS`."""
        for known in self._followed.get(form_of(key)) or ():
            call = known.resized(leaves)
            result = MISS if call is None else call.run(leaves)
            if result is not MISS:
                calls = [call, *(self._hostless.get(key) or ())]
                self._hostless.keep(key, calls[:_STATES], leaves, most_like(known.variant))
                return result
        hosted = self._hosted_forms.get(form_of(key))
        like = None if hosted is None else hosted.families.resized(leaves)
        if hosted is None or like is None:
            return MISS
        self._hosted.keep(key, hosted, leaves, most_like(like))
        return self._call_with_host(args, kwargs, hosted.families, lenient=hosted.keeps)

    def _keep_call(
        self, key: Any, leaves: list[Any], shapes: Any, variant: Variant, call: HostlessCall | None
    ) -> None:
        if call is not None:
            form = form_of(key)
            call, others = with_resized(self._followed.get(form) or (), call, leaves)
            calls = with_new(self._hostless.get(key) or (), call)
            self._hostless.keep(key, calls[:_STATES], leaves, most_like(variant))
            if call.variant.sized is not None:
                self._followed.keep(form, [call, *others][:_STATES], leaves, most_like(variant))
        else:
            hosted = Hosted(leaves, variant.record.keeps)
            hosted.families.keep(shapes, variant)
            self._hosted.keep(key, hosted, leaves, most_like(variant))
            self._hosted_forms.keep(form_of(key), hosted, leaves, most_like(variant))

    def _reason_of(self, key: tuple[Any, ...], leaves: list[Any], args: Any, kwargs: Any) -> str | None:
        """Why no recorded call could skip the body for arguments with `key`; None if there is none yet."""
        if not self._statistics.records:
            return None
        names = names_of(args, kwargs)
        alike = self._hostless.get(key)
        if alike:
            return reasons.of_miss(self.__name__, alike[0].variant.record, leaves, names)
        known = [*self._hosted, *self._hostless]
        if not known and self._changes is not None:
            return f"{self._changes}: {self.__name__} is recorded at every call"
        if not known:
            return f"a GradManager outside of {self.__name__} does not record this call"
        return reasons.of_keys(self.__name__, known, key, names)

    # recording

    def _record(self, args: Any, kwargs: Any) -> tuple[Any, Variant]:
        leaves, arrangement = flatten((args, kwargs))
        session = self._followed_recording(leaves, without_host=False)
        session.record.arrangement = arrangement
        return session.watch_over(self._record_body, session, args, kwargs)

    def _record_body(self, session: Recording, args: Any, kwargs: Any) -> tuple[Any, Variant]:
        result = run_in(session, self.__wrapped__, *args, **kwargs)
        if self.capture_as_const:
            self._captured = Captured.of(args, kwargs, *results_of(result, session), session.record)
        return result, self._close(session, session.finish())

    def _record_hostless(
        self, args: Any, kwargs: Any, leaves: list[Any]
    ) -> tuple[Any, Variant, HostlessCall | None]:
        found = found_elsewhere(leaves, self.__wrapped__, kwargs, self._statistics.records)
        session = self._followed_recording(leaves, without_host=True)
        session.found_elsewhere = found
        result, variant, ends = session.watch_over(self._record_hostless_body, session, args, kwargs)
        if ends is None:
            return result, variant, None
        session.forget()
        skips = not variant.record.keeps and variant.record.gone() is None
        return result, variant, HostlessCall(variant, leaves, *ends) if skips else None

    def _record_hostless_body(
        self, session: Recording, args: Any, kwargs: Any
    ) -> tuple[Any, Variant, tuple[Structure, tuple[int | None, ...]] | None]:
        box = [run_in(session, self.__wrapped__, *args, **kwargs)]
        session.find_kept(box)
        result = box.pop()
        if session.reads:
            return result, self._close(session, session.finish()), None
        ends = results_of(result, session)
        self._captured = Captured.of(args, kwargs, *ends, session.record)
        record = session.finish()
        session.check_known()
        return result, self._close(session, record), ends

    def _followed_recording(self, leaves: list[Any], *, without_host: bool) -> Recording:
        """Of a call that gives values."""
        session = self._recording(leaves, without_host=without_host)
        session.is_call = True
        if not self.symbolic_shape and not self.capture_as_const:
            session.follow(leaves)
        return session

    def _recording(self, leaves: list[Any], *, without_host: bool, symbolic: bool | None = None) -> Recording:
        session = Recording(
            leaves,
            symbolic=self.symbolic if symbolic is None else symbolic,
            capture_as_const=self.capture_as_const,
            without_host=without_host,
            symbolic_shape=self.symbolic_shape,
        )
        if without_host:
            session.surround(self.__wrapped__, self._is_method_of())
        return session

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
        session = self._recording(flatten((args, kwargs))[0], without_host=self.without_host, symbolic=True)
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
        families = [*self._families.values(), *dict.fromkeys(h.families for h in self._hosted.values())]
        hosted = [variant for family in families for variant in family]
        return hosted + [c.variant for calls in self._hostless.values() for c in reversed(calls)]

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
