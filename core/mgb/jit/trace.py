"""`trace`: record a function once, run it compiled from then on."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from ..autodiff.tape import any_open
from ..errors import TraceInputError
from ..executor import Options, Program, compile_program
from ..ir import Graph
from ..tensor import ACTIVE, Tensor
from .config import GraphOptimizationConfig
from .hostless import MISS, HostlessCall, results_of
from .record import Record
from .recording import Recording
from .replay import Replay
from .tree import flatten
from .variant import Variant

#: Calls kept for the same arguments: they differ in what they find outside, such as a ``grad`` or none.
_STATES = 8

#: Sets of shapes or arguments whose records are kept, the newest: as many as have `_STEPS` steps together,
#: within bounds. A step takes about a kilobyte, its share of graphs and programs included.
_FEWEST, _MOST, _STEPS = 8, 256, 1 << 15

#: Options of MegEngine's `trace` that are accepted with this value only.
_FIXED = {
    "record_only": False,
    "sublinear_memory_config": None,
    "dtr_config": None,
    "profiling": False,
    "symbolic_shape": False,
}


class trace:
    """Decorator that records what a function does and runs it compiled from then on.

    The first call runs the body and records every op, those of the gradient and of the optimizer included.
    Later calls run the body again, match each op against the record, and run the compiled program when a
    value is wanted. With ``without_host=True`` later calls skip the body.

    Parameters
    ----------
    function : callable
        Takes and returns anything; what is traced are the ops on Tensors.
    symbolic : bool
        Run nothing on the first call until it returns: the first call runs compiled too, and no value can
        be read in it.
    capture_as_const : bool
        Tensors from outside become constants, whose values are compared in replay. Positional arguments
        must be Tensors.
    without_host : bool
        Skip Python from the second call on. Parameters, optimizer state and ``lr`` stay live. A body that
        reads values, keeps a new Tensor elsewhere than in its result, or is called while a `GradManager`
        outside records it, keeps running Python. A Module that is called in the body and has changed since,
        by ``eval()`` or another Parameter, makes the body run and be recorded again; other Python state that
        the body looks at is that of the first call.
    imperative : bool
        Match as usual, but run op by op: for debugging.
    opt_level : int
        0: nothing; 1: algebraic identities; 2: and rewrites of the whole graph; 3 (the default): and fusion.
    graph_opt_config : GraphOptimizationConfig, optional
    fast_math : bool
        Allow rewrites that hold for finite numbers only, such as ``x - x`` to 0, as MegEngine does always.
    backend : str, optional
        Overrides ``MGB_JIT_BACKEND`` for this function.
    **options
        MegEngine's other options, at their defaults only: ``record_only``, ``sublinear_memory_config``,
        ``dtr_config``, ``profiling``, ``symbolic_shape``.

    Raises
    ------
    TraceMismatchError
        On a later call: the body did something else than before. The trace stays usable.
    TraceInputError
        An option or argument that this trace cannot take.
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
        without_host: bool = False,
        imperative: bool = False,
        opt_level: int = 3,
        graph_opt_config: GraphOptimizationConfig | None = None,
        fast_math: bool = False,
        backend: str | None = None,
        **options: Any,
    ) -> None:
        _check_fixed(options)
        functools.update_wrapper(self, function)
        self.__wrapped__ = function
        config = graph_opt_config or GraphOptimizationConfig()
        self.options = Options(
            opt_level=opt_level,
            fuse_reduce=config.jit_fuse_reduce,
            fuse_dimshuffle=config.jit_fuse_dimshuffle,
            fast_math=fast_math,
            backend=backend,
        )
        self.symbolic = symbolic
        self.capture_as_const = capture_as_const
        self.without_host = without_host
        self.imperative = imperative
        self._settings: dict[str, Any] = {
            "symbolic": symbolic,
            "capture_as_const": capture_as_const,
            "without_host": without_host,
            "imperative": imperative,
            "opt_level": opt_level,
            "graph_opt_config": graph_opt_config,
            "fast_math": fast_math,
            "backend": backend,
        }
        self._variants: dict[bool, dict[tuple[Any, ...], Variant]] = {False: {}, True: {}}
        self._hostless: dict[tuple[Any, ...], list[HostlessCall]] = {}  # the newest first
        self._hosted: dict[tuple[Any, ...], list[Any]] = {}  # bodies that run; ids in the keys stay taken
        self._plain: HostlessCall | None = None  # the latest one of positional Tensors only, tried first
        self._bound: dict[int, tuple[weakref.ref[Any], trace]] = {}  # by id: an instance may have no hash
        self._lock = threading.RLock()
        self._calls = 0
        self._records = 0

    def __get__(self, instance: Any, owner: type | None = None) -> trace | BoundTrace:
        """A method: one record for each instance."""
        if instance is None:
            return self
        key = id(instance)
        if key not in self._bound:
            try:
                reference = weakref.ref(instance, lambda _: self._bound.pop(key, None))
            except TypeError as error:
                name = type(instance).__name__
                raise TraceInputError(
                    f"{name} has __slots__ without '__weakref__': add it, so that each can have its record"
                ) from error
            self._bound[key] = reference, trace(_bind(self.__wrapped__, reference), **self._settings)
        return BoundTrace(instance, self._bound[key][1])

    # calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if ACTIVE.get() is not None:
            return self.__wrapped__(*args, **kwargs)
        self._calls += 1
        taped = any_open()
        if self._plain is not None and not kwargs and not taped:
            result = self._plain.run(args)
            if result is not MISS:
                return result
        if self.capture_as_const:
            _check_tensors(args)
        if self.without_host and not taped:
            return self._call_hostless(args, kwargs)
        return self._call_with_host(args, kwargs, self._variants[taped])

    def _call_with_host(self, args: Any, kwargs: Any, variants: dict[tuple[Any, ...], Variant]) -> Any:
        key = shapes_of(args, kwargs)
        if not variants:
            with self._lock:
                if not variants:
                    result, variants[key] = self._record(args, kwargs)
                    return result
        variant = variants.get(key) or next(iter(variants.values()))
        session = Replay(variant, self._regrown, self.imperative)
        result = self._run_body(session, args, kwargs)
        try:
            session.finish()
        except BaseException:
            session.abandon()
            raise
        if session.grown:
            self._keep(variants, key, session.variant, session.variant)
        return result

    def _call_hostless(self, args: Any, kwargs: Any) -> Any:
        leaves, structure = flatten((args, kwargs))
        key = (structure, shared_places(leaves), *map(_leaf_key, leaves))
        if key in self._hosted:
            return self._call_with_host(args, kwargs, self._variants[False])
        for call in self._hostless.get(key, ()):
            result = call.run(leaves)
            if result is not MISS:
                self._plain = call if len(args) == len(leaves) and not call.kept else self._plain
                return result
        with self._lock:
            result, variant, new = self._record_hostless(args, kwargs, leaves)
        if new is not None:
            self._keep(self._hostless, key, [new, *self._hostless.get(key, ())][:_STATES], variant)
        else:
            self._keep(self._hosted, key, leaves, variant)
            self._keep(self._variants[False], shapes_of(args, kwargs), variant, variant)
        return result

    def _keep(self, kept: dict[Any, Any], key: Any, value: Any, variant: Variant) -> None:
        """Put `value` into `kept`, and drop the oldest where calls as long as `variant` would be too many."""
        most = min(_MOST, max(_FEWEST, _STEPS // len(variant.record.entries)))
        with self._lock:
            kept[key] = value
            while len(kept) > most:
                del kept[next(iter(kept))]

    def _run_body(self, session: Recording | Replay, args: Any, kwargs: Any) -> Any:
        token = ACTIVE.set(session)
        try:
            return self.__wrapped__(*args, **kwargs)
        except BaseException:
            ACTIVE.set(None)
            session.abandon()
            raise
        finally:
            ACTIVE.reset(token)

    # recording

    def _record(self, args: Any, kwargs: Any) -> tuple[Any, Variant]:
        session = self._recording(flatten((args, kwargs))[0], without_host=False)
        result = self._run_body(session, args, kwargs)
        try:
            if self.capture_as_const:
                results_of(result, session)
            return result, self._close(session, session.finish())
        except BaseException:
            session.abandon()
            raise

    def _record_hostless(
        self, args: Any, kwargs: Any, leaves: list[Any]
    ) -> tuple[Any, Variant, HostlessCall | None]:
        session = self._recording(leaves, without_host=True)
        result = self._run_body(session, args, kwargs)
        try:
            if session.reads:
                return result, self._close(session, session.finish()), None
            structure, refs = results_of(result, session)
            record = session.finish()
            session.check_known()
            variant = self._close(session, record)
        except BaseException:
            session.abandon()
            raise
        skips = not variant.record.escaping(refs)
        return result, variant, HostlessCall(variant, leaves, structure, refs) if skips else None

    def _recording(self, leaves: list[Any], *, without_host: bool) -> Recording:
        return Recording(
            leaves, symbolic=self.symbolic, capture_as_const=self.capture_as_const, without_host=without_host
        )

    def _close(self, session: Recording, record: Record) -> Variant:
        variant = Variant(record, self._compile)
        if self.symbolic:
            for number in range(len(variant.segments)):
                variant.run(number, session.fed, session.values)
        session.settle()
        self._records += 1
        return variant

    def _regrown(self, record: Record, base: Variant) -> Variant:
        return Variant(record, self._compile, base.segments)

    def _compile(self, graph: Graph, updates: Mapping[int, int]) -> Program:
        return compile_program(graph, self.options, updates)

    # looking at it

    def variants(self) -> list[Variant]:
        """Every recorded variant, oldest first."""
        hosted = [v for kept in self._variants.values() for v in kept.values()]
        return hosted + [c.variant for calls in self._hostless.values() for c in reversed(calls)]

    def dry_run(self, *args: Any, **kwargs: Any) -> Variant:
        """Record one call without running its ops: the body runs, no Tensor outside is changed."""
        leaves, _ = flatten((args, kwargs))
        session = Recording(
            leaves, symbolic=True, capture_as_const=self.capture_as_const, without_host=self.without_host
        )
        token = ACTIVE.set(session)
        try:
            result = self.__wrapped__(*args, **kwargs)
            record = session.finish()
            del result
        finally:
            ACTIVE.reset(token)
            session.undo()
        return Variant(record, self._compile)

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """Every stage of one call as text: recorded, simplified, groups, kernels, memory; nothing is run."""
        from .explain import explain

        return explain(self.dry_run(*args, **kwargs))

    @property
    def backend(self) -> str:
        """The backends that compiled something, in order; empty before the first compiled call."""
        names = [n for v in self.variants() for p in v.programs for n in p.backends]
        return ", ".join(dict.fromkeys(names))

    @property
    def graph(self) -> Graph | None:
        """What was recorded first, before any rewriting; None before the first call."""
        variants = self.variants()
        return variants[0].graph(variants[0].segments[-1])[0] if variants else None

    def stats(self) -> dict[str, int]:
        """Counts of ``calls``, ``records``, ``variants`` (sets of input shapes) and compiled ``programs``."""
        variants = self.variants()
        programs = sum(len(v.programs) for v in variants)
        return {
            "calls": self._calls,
            "records": self._records,
            "variants": len(variants),
            "programs": programs,
        }


class BoundTrace:
    """A traced method of one instance; everything but the call is that instance's `trace`."""

    def __init__(self, instance: Any, traced: trace) -> None:
        self.__self__ = instance
        self._traced = traced

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._traced(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._traced, name)


def _bind(function: Callable[..., Any], reference: weakref.ref[Any]) -> Callable[..., Any]:
    """`function` as a method that does not keep its instance alive."""

    @functools.wraps(function)
    def method(*args: Any, **kwargs: Any) -> Any:
        return function(reference(), *args, **kwargs)

    return method


def shapes_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The shapes of the Tensors among the arguments, in containers too."""
    shapes: list[Any] = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, Tensor):
            shapes.append(value.shape)
        elif isinstance(value, list | tuple | dict):
            shapes += [t.shape for t in flatten(value)[0] if isinstance(t, Tensor)]
    return tuple(shapes)


def shared_places(leaves: Sequence[Any]) -> tuple[int, ...]:
    """For each Tensor the first place where it stands itself; empty when all differ."""
    tensors = [id(t) for t in leaves if isinstance(t, Tensor)]
    return tuple(map(tensors.index, tensors)) if len(set(tensors)) < len(tensors) else ()


def _leaf_key(leaf: Any) -> Any:
    """What must be equal for a recorded call to serve another one: what ``==`` says of hashable things."""
    if isinstance(leaf, Tensor):
        return leaf.shape, leaf.dtype, leaf._device
    if isinstance(leaf, np.ndarray):
        return leaf.shape, leaf.dtype, leaf.tobytes()
    return type(leaf), leaf if isinstance(leaf, Hashable) else id(leaf)


def _check_tensors(args: tuple[Any, ...]) -> None:
    for position, value in enumerate(args):
        if not isinstance(value, Tensor):
            raise TraceInputError(
                "Only support tensor type args when capture_as_const is enabled: "
                f"args[{position}] is a {type(value).__name__}; pass it by keyword"
            )


def _check_fixed(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if name not in _FIXED:
            raise TraceInputError(f"trace has no option {name!r}")
        if value != _FIXED[name]:
            raise TraceInputError(f"trace({name}={value!r}) is not supported; leave {name} out")
