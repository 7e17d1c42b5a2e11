"""`partial_trace`: a part of a step by two compiled programs, one forward and one back; the rest is eager."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ... import forking
from ...autodiff.stretch import recording
from ...errors import TraceInputError
from ...executor import Program, compile_program
from ...ir import Graph
from ...tensor import active_trace
from .. import reasons
from ..arguments import key_of, names_of
from ..binding import Bindable
from ..environment import Observer
from ..explain import explain, explain_program
from ..guard import MISS
from ..inspection import Inspectable
from ..kept import compiler_of
from ..policy import Policy
from ..profiling.profilable import Profilable
from ..recording import Recording
from ..source import Source
from ..specializations import Specializations
from ..statistics import Statistics
from ..trace import trace
from ..tree import flatten
from ..variant import Variant
from .call import PartialCall
from .record import Noted, noted, refused

#: Options of `trace` that mean nothing when a call is only ever noted, and its gradient is wanted.
_REFUSED = frozenset({"symbolic", "record_only", "imperative"})


class partial_trace(Bindable, Inspectable, Profilable):
    """Decorator for the part of a training step that is static, such as a network in a step that is not.

    Its forward pass and its backward pass are compiled, each as one program; what is around it stays eager.
    The body runs once for each kind of arguments, and runs nothing then: later calls skip it, as long as
    everything outside that it was seen to read is unchanged. Those of other shapes are compiled as well, and
    the old ones kept.

    A `GradManager` outside takes the call for a single op. From the forward pass it keeps the fewest bytes
    from which the backward program can compute the rest element by element. Inside a `trace` it is part of
    that.

    Parameters
    ----------
    func : callable, optional
        Takes and returns Tensors in nested lists, tuples, dicts and dataclasses; other arguments, Modules
        among them, are known by their value or identity. Methods work too.
    backend : str
        The backend's name; ``"default"``: what ``MGB_JIT_BACKEND`` says.
    without_host : bool
        Always True.
    trace_gmcallback : bool
        Accepted for MegEngine's sake. Callbacks of a `GradManager` in the body are part of the program;
        those of one outside are called as ever, once, with the complete gradient.
    **trace_options
        As for `trace`. Data that the body makes Tensors of is constant and what lives outside stays live,
        with ``capture_as_const=True`` and without.

    Raises
    ------
    TraceInputError
        An option that this cannot take.
    PartialTapeError
        On a call: two `GradManager` see it, or one from outside is given tensors, or ended, in the body.
    PartialReadError
        On a call: the body looks at values.
    ImpureBodyError
        On a call: the body writes outside itself, as where it keeps a Tensor elsewhere than in its result, or
        calls what is not known to be pure.
    UnknownInputError
        On a call: the gradient of a Tensor is wanted that the body found outside and that is gone since.

    Examples
    --------
    >>> from mgb import tensor
    >>> from mgb.autodiff import GradManager
    >>> from mgb.jit import partial_trace
    >>> @partial_trace
    ... def cube(x):
    ...     return x * x * x
    >>> x = tensor([1.0, 2.0])
    >>> with GradManager().attach(x) as gm:
    ...     gm.backward(cube(x))
    >>> x.grad
    Tensor([ 3., 12.], device=xpux:0)
    """

    def __new__(cls, func: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
        if func is None:
            return functools.partial(cls, **kwargs)
        return super().__new__(cls)

    def __init__(
        self,
        func: Callable[..., Any],
        *,
        backend: str = "default",
        without_host: bool = True,
        trace_gmcallback: bool = True,
        **trace_options: Any,
    ) -> None:
        if without_host is not True:
            raise TraceInputError(
                "partial_trace always skips the body: leave without_host out, or use @trace on the whole step"
            )
        for name in _REFUSED.intersection(trace_options):
            raise TraceInputError(f"partial_trace has no option {name!r}: use @trace for that")
        settings = {"backend": backend, "trace_gmcallback": trace_gmcallback, **trace_options}
        super().__init__(func, settings)
        like = trace(
            func, backend=None if backend == "default" else backend, without_host=True, **trace_options
        )
        self.options, self._history = like.options, like._history
        self.capture_as_const, self.symbolic_shape = like.capture_as_const, like.symbolic_shape
        self._statistics = Statistics()
        self._calls = Specializations()
        self._compiler = compiler_of(self, self.options)
        self._lock = forking.lock()

    # calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if active_trace() is not None:
            return self.__wrapped__(*args, **kwargs)
        self._statistics.calls += 1
        return self._watched(self._call)(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        leaves, structure = flatten((args, kwargs))
        key = key_of(leaves, structure)
        result = self._served(key, leaves)
        if result is not MISS:
            return result
        with self._lock:
            result = self._served(key, leaves)  # another thread may have been faster
            if result is MISS:
                reason = self._reason_of(key, leaves, args, kwargs)
                call = self._compiled(leaves, args, kwargs, self._calls.follows(key, leaves))
                if call.variant.record.changes is None:
                    self._calls.keep(key, call, leaves)
                self._statistics.body_runs += 1
                self._statistics.recorded()
                if reason is not None:
                    self._statistics.again(reason)
                result = call.run(leaves, recording())
        assert result is not MISS, "a call that was just noted does not serve its own arguments"
        return result

    def _served(self, key: tuple[Any, ...], leaves: Sequence[Any]) -> Any:
        """The result by what was noted for `key`, or `MISS`."""
        tapes = recording()
        for call in self._calls.of(key):
            result = call.run(leaves, tapes)
            if result is not MISS:
                return result
        return MISS

    def _compiled(
        self,
        leaves: list[Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        follows: frozenset[Source] = frozenset(),
    ) -> PartialCall:
        return PartialCall(self._note(leaves, args, kwargs, follows), leaves, self._compiler, self._watched)

    def _note(
        self,
        leaves: list[Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        follows: frozenset[Source] = frozenset(),
    ) -> Noted:
        session = Recording(
            leaves,
            Policy(symbolic_shape=self.symbolic_shape, refused=refused),
            names=names_of(args, kwargs),
            observer=Observer(leaves, True, self._instance is not None, follows),
            instance=self._is_method_of(),
        )
        modules = [value for value in leaves if hasattr(value, "forward")]
        return noted(session, self._body_with(args), kwargs, modules)

    def _reason_of(
        self, key: tuple[Any, ...], leaves: list[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> str | None:
        """Why no noted call serves arguments with `key`; None if there is none yet."""
        if not self._calls:
            return None
        known = self._calls.of(key)
        if not known:
            return reasons.of_keys(self.__name__, self._calls.keys(), key, names_of(args, kwargs))
        tapes = recording()
        alike = [call for call in known if call.wants_as_noted(leaves, tapes)]
        if not alike:
            return f"other tensors want gradients of {self.__name__} than before"
        return reasons.of_miss(self.__name__, alike[0].variant.record, leaves)

    def _compile(self, graph: Graph, updates: Mapping[int, int]) -> Program:
        options = self._compile_options
        return self._tell_compiled(
            self._statistics.compiled(lambda: compile_program(graph, options, updates))
        )

    # looking at it

    def variants(self) -> list[Variant]:
        """The forward pass of every noted call, oldest first."""
        return [call.variant for call in self._calls]

    def dry_run(self, *args: Any, **kwargs: Any) -> Variant:
        """Note one call; the body runs, no Tensor outside is changed. The forward pass of it."""
        leaves, _ = flatten((args, kwargs))
        return Variant(self._note(leaves, args, kwargs).record, self._compiler)

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """Every stage of both programs of one call as text, the way back for all results; nothing is run."""
        leaves, _ = flatten((args, kwargs))
        call = self._compiled(leaves, args, kwargs)
        forward = explain(call.variant)
        back = call.way_back.program() if call.way_back is not None else None
        return f"{forward}\n\n{explain_program('the way back', back) if back else 'no gradient is wanted'}"

    def programs(self) -> list[Program]:
        """Everything that was compiled so far, forward passes first."""
        return [*super().programs(), *self.backward_programs]

    @property
    def backward_programs(self) -> list[Program]:
        """What was compiled for backward passes, oldest first."""
        return [p for call in self._calls if call.way_back is not None for p in call.way_back.programs]
