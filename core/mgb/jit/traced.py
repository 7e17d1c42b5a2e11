"""The base of `trace`, `xla_trace` and `partial_trace`: record a call, serve equal calls from the record."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..autodiff.tape import any_open
from ..errors import TraceInputError
from ..executor import DTRConfig, Options, Program, SublinearMemoryConfig
from ..ir import Graph
from ..profiling import (
    History,
    Statistics,
    Watch,
    get_profile,
    profile_table,
    reset_profile,
    save_profile,
    watch_of,
)
from ..runtime import config, forking
from ..runtime.forking import cached_property
from ..storage.kept import compile_kept
from ..tensor import Tensor, active_trace
from . import reasons
from .arguments import Key, key_of, names_of
from .binding import Bindable, P, R
from .call import Recorded
from .config import GraphOptimizationConfig, check_options, memory_config, resolve_run_body
from .explain import Explanation, explain
from .follow import Following, NotFollowed, agree
from .generated import MISS
from .policy import Policy
from .recording import Recording
from .resize import lengths_of
from .source import Source
from .specializations import Specializations
from .tree import Structure, flatten
from .variant import Variant
from .watch import Observer
from .weak_cache import make_compiler


class Traced(Bindable[P, R], ABC):
    """A function that is recorded, and compiled for later calls.

    Parameters
    ----------
    function : callable
    **options
        As for `trace`.
    """

    def __init__(
        self,
        function: Callable[P, R],
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
        owner = type(self).__name__
        if unknown:
            raise TraceInputError(f"{owner} has no option {next(iter(unknown))!r}")
        check_options(owner, locals())
        super().__init__(function)
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
        self.run_body = resolve_run_body(owner, run_body, without_host)
        self.imperative = imperative
        self.symbolic_shape = symbolic_shape
        self._skips = self.run_body is not True and not imperative and not config.RUN_BODY.on()
        self._statistics = Statistics()
        self._history = History() if profiling else None
        self._calls = Specializations()
        self._compiler = make_compiler(self, self.options)
        self._fast_path: Callable[..., Any] | None = None  # the latest for positional arguments, tried first
        self._lock = forking.lock()
        self._revision = 0  # incremented when a call is cached

    # calling

    #: Calls under a tape of the caller are served from the record.
    _serves_taped = False

    def _get_symbolic(self) -> tuple[bool, bool]:
        """Return whether numbers that change become symbolic, and whether lengths do."""
        return True, False

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: Any
        if active_trace() is not None:
            return self.__wrapped__(*args, **kwargs)
        self._statistics.calls += 1
        taped = any_open()
        if self._fast_path is not None and not kwargs and (not taped or self._serves_taped):
            result = self._fast_path(args)
            if result is not MISS:
                return result  # type: ignore[no-any-return]
        if (watch := self._watch) is None:
            return self._call(taped, args, kwargs)  # type: ignore[no-any-return]
        return watch.call(self._call, taped, args, kwargs)  # type: ignore[no-any-return]

    def _call(self, taped: bool, args: Any, kwargs: Any) -> Any:
        """Return the result of a call. `taped`: a tape of the caller is open."""
        return self._call_skipping(args, kwargs)

    def _call_skipping(self, args: Any, kwargs: Any) -> Any:
        leaves, structure = flatten((args, kwargs))
        key, known = key_of(leaves, structure), self._revision
        result = self._call_cached(key, leaves, args, kwargs)
        if result is not MISS:
            return result
        with self._lock:
            if self._revision != known:  # another thread was faster
                result = self._call_cached(key, leaves, args, kwargs)
            if result is MISS:
                result = self._calls.resized(key, leaves, lambda call: call.run(leaves))
                if result is MISS:
                    result = self._call_new(key, leaves, structure, args, kwargs)
                self._revision += 1
        assert result is not MISS, "a call that was just recorded does not serve its own arguments"
        return result

    def _call_cached(self, key: Key, leaves: list[Any], args: Any, kwargs: Any) -> Any:
        """Return the result by a record for `key`, or `MISS`."""
        for call in self._calls.find(key):
            result = call.run(leaves)
            if result is not MISS:
                if not call.opaque and (fast_path := _make_fast_path(call.run, key[0], args, leaves)):
                    self._fast_path = self._wrap_watched(fast_path)
                return result
        return self._run_known_body(key, args, kwargs)

    def _run_known_body(self, key: Key, args: Any, kwargs: Any) -> Any:
        """Return the result of a body that is known to run at each call, or `MISS`."""
        return MISS

    def _call_new(self, key: Key, leaves: list[Any], structure: Structure, args: Any, kwargs: Any) -> Any:
        """Record a call, cache it, and report why no other call served it."""
        reason = self._explain_no_record(key, leaves)
        if self._must_run_body(key, reason):
            return self.__wrapped__(*args, **kwargs)
        general = self._note_general(key, leaves, args, kwargs)
        observer = self._make_miss_observer(key, leaves, reason)
        if general is None:
            observer.walk.may_follow = self._calls.newest(key) is None
        recorded = self._record(args, kwargs, leaves, structure, observer)
        if general is not None and recorded.call is not None and agree(general, recorded):
            recorded = replace(general, result=recorded.result)
        self._cache_call(key, leaves, recorded)
        result = recorded.result
        if recorded.call is not None and result is MISS:  # no op has run
            result = recorded.call.run(leaves)
        if recorded.call is not None and reason is not None:
            self._report(reason, recorded)
        return result

    def _note_general(self, key: Key, leaves: list[Any], args: Any, kwargs: Any) -> Recorded | None:
        """Note a call for any numbers and lengths where they differ from those of the latest record.

        Return None if no call like it was recorded, or if Python decides otherwise with symbolic values.
        """
        newest = self._calls.newest(key)
        numbers, lengths = self._get_symbolic()
        if newest is None:
            return None
        follows = self._calls.find_symbolic(key, leaves) if numbers else frozenset()
        is_other = lengths_of(leaves) != newest.lengths or newest.variant.sized is not None
        if not follows and not (is_other and lengths):
            return None
        observer = Following(leaves, self._instance is not None, follows)
        try:
            recorded = self._note(args, kwargs, leaves, observer)
        except (Exception, NotFollowed):  # e.g. Python raises it for symbolic numbers alone
            observer.forget()
            return None
        return recorded if recorded.call is not None else None

    def _must_run_body(self, key: Key, reason: str | None) -> bool:
        """Check whether strings or objects are new at each call: then the body runs without a record."""
        often = self._calls.count_megamorphic(key, self._statistics.calls) if self.run_body is None else 0
        if often == 1:
            self._statistics.again(f"the body of {self.__name__} runs at each call: {reason}")
        self._statistics.body_runs += often > 0
        return often > 0

    def _cache_call(self, key: Key, leaves: list[Any], recorded: Recorded) -> None:
        """Cache what was recorded, for equal calls."""
        if recorded.call is not None and recorded.variant.abstract_record.changes is None:
            self._calls.add(key, recorded.call, leaves)

    def _explain_no_record(self, key: Key, leaves: list[Any]) -> str | None:
        """Describe why no recorded call serves arguments with `key`; None if there is none yet."""
        candidates = self._calls.find(key)
        if candidates:
            return self._explain_miss(candidates, leaves)
        known = self._calls.keys()
        if not known:
            return None
        reason = reasons.explain_keys(self.__name__, known, key, names_of(key[0]))
        line = self._calls.find_deciding_line(key, leaves)
        return reason if line is None else f"{reason}; lengths decide at {line}"

    def _explain_miss(self, candidates: Sequence[Any], leaves: list[Any]) -> str:
        """Describe why none of the `candidates` calls serves arguments of their types."""
        return reasons.explain_miss(self.__name__, candidates[0].variant.abstract_record, leaves)

    def _report(self, reason: str, recorded: Recorded) -> None:
        """Report why a call was `recorded`."""
        self._statistics.again(reason)

    # recording

    def _record(
        self, args: Any, kwargs: Any, leaves: list[Any], arrangement: Structure, observer: Observer | None
    ) -> Recorded:
        """Return the result of a call, with what serves equal calls."""
        self._statistics.body_runs += 1
        recorded = self._note(args, kwargs, leaves, observer)
        self._statistics.recorded()
        return recorded

    @abstractmethod
    def _note(self, args: Any, kwargs: Any, leaves: list[Any], observer: Observer | None = None) -> Recorded:
        """Record a call without running its ops; return what serves equal calls."""

    def _make_policy(self) -> Policy:
        """Return how a call is recorded that is only noted."""
        return Policy(freezes=self.capture_as_const, symbolic_shape=self.symbolic_shape)

    def _make_session(
        self,
        args: Any,
        kwargs: Any,
        leaves: list[Any],
        policy: Policy,
        arrangement: Structure | None = None,
        **others: Any,
    ) -> Recording:
        arrangement = arrangement or flatten((args, kwargs))[1]
        names, instance = names_of(arrangement), self._get_instance()
        return Recording(leaves, policy, names=names, instance=instance, **others)

    def _make_observer(self, leaves: list[Any], follows: frozenset[Source] = frozenset()) -> Observer:
        observer = Observer(leaves, self.run_body is False, self._instance is not None, follows)
        observer.stops = True
        return observer

    def _make_miss_observer(self, key: Key, leaves: list[Any], reason: str | None) -> Observer:
        """Return the observer of a call that no record serves, for the `reason`."""
        return self._make_observer(leaves, self._calls.find_symbolic(key, leaves))

    def _compile(self, graph: Graph, updates: Mapping[int, int]) -> Program:
        watch = self._watch
        options = self.options if watch is None else replace(self.options, profiling=True)
        program = self._statistics.compiled(lambda: compile_kept(graph, options, updates))
        if watch is not None:
            watch.compiled(program)
        return program

    # looking at it

    @abstractmethod
    def variants(self) -> list[Variant]:
        """Return every recorded variant, oldest first."""

    def dry_run(self, *args: Any, **kwargs: Any) -> Variant:
        """Record one call without running its ops. The body runs; no Tensor outside changes."""
        return self._note(args, kwargs, flatten((args, kwargs))[0]).variant

    def programs(self) -> list[Program]:
        """Return everything that was compiled so far, variant by variant.

        A segment is compiled when one of its values is needed: after a call whose results nothing has read
        there may be none. `explain` shows them in any case.
        """
        return [program for variant in self.variants() for program in variant.programs]

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """Return every stage of one call as text: recorded, simplified, groups, kernels, memory."""
        return Explanation(explain(self.dry_run(*args, **kwargs)))

    def __repr__(self) -> str:
        settings = "".join(f", {name}={value!r}" for name, value in self._settings.items())
        calls, records = self._statistics.calls, self._statistics.records
        done = (
            f"{calls} calls, {records} records, {self.backend or 'nothing compiled'}"
            if calls
            else "not called"
        )
        return f"<{type(self).__name__} of {self.__qualname__}{settings}: {done}>"

    @property
    def backend(self) -> str:
        """Return the backends that compiled something, in order; empty before the first compiled call."""
        names = [name for program in self.programs() for name in program.backends]
        return ", ".join(dict.fromkeys(names))

    @property
    def graph(self) -> Graph | None:
        """Return what was recorded first, before any rewriting; None before the first call."""
        variants = self.variants()
        return variants[0].graph(variants[0].segments[-1])[0] if variants else None

    def stats(self) -> dict[str, Any]:
        """Return statistics of this function.

        Returns
        -------
        dict
            ``calls``; ``body_runs``, the other calls skipped the body; ``records`` of the body; ``variants``
            of them, which differ in shapes; compiled ``programs``; ``compile_seconds``, including
            simplification and planning; of its kernels ``kernel_compiles``, ``kernel_memory_hits`` and
            ``kernel_disk_hits``; and ``reasons`` why it was recorded or compiled again, or why its body runs
            at each call, the latest last. The logger ``mgb.jit`` reports them at INFO.
        """
        counts = {"variants": len(self.variants()), "programs": len(self.programs())}
        return {**self._statistics.as_dict(), **counts}

    # profiling

    @cached_property
    def _watch(self) -> Watch | None:
        """Return what profiles the calls, if anything. It is looked up at the first call."""
        return watch_of(self.__name__, self._statistics, self._history, MISS)

    def _wrap_watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function`, wrapped so that its calls are profiled if somebody profiles this trace."""
        watch = self._watch
        return function if watch is None else lambda *args: watch.call(function, *args)

    get_profile, profile_table = get_profile, profile_table
    save_profile, reset_profile = save_profile, reset_profile


def _make_fast_path(
    run: Callable[[Sequence[Any]], Any], structure: Structure, args: Any, leaves: Sequence[Any]
) -> Callable[[Any], Any] | None:
    """Return what serves positional arguments like `args` without a key; None if `run` does not see all."""
    positional, named = structure.children
    if named.children:
        return None
    if len(args) == len(leaves) and all(map(operator.is_, args, leaves)):
        return run
    if structure.exact or not positional.open(args, []) or not all(isinstance(x, Tensor) for x in leaves):
        return None  # `run` would see neither that a list occurs twice nor what another leaf is

    def fast_path(args: Any) -> Any:
        found: list[Any] = []
        return run(found) if positional.open(args, found) else MISS

    return fast_path
