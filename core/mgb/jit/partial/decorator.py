"""`partial_trace`: compile a part of a step to a forward and a backward program; the rest is eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack, overload

from ...errors import TraceInputError
from ...executor import Program
from ...tensor.holding import Holder
from ..binding import P, Q, R
from ..call import Recorded
from ..config import PartialOptions
from ..explain import Explanation, explain, explain_program
from ..generated import MISS
from ..trace import S
from ..traced import Traced
from ..tree import flatten
from ..variant import Variant
from ..watch import Observer
from .call import PartialCall
from .record import make_read_error, record_partial

#: Options of `trace` that mean nothing for calls that are recorded with their gradient.
_REFUSED = ("symbolic", "record_only", "imperative")


class PartialTrace(Traced[P, R]):
    """The implementation of `partial_trace`."""

    def __new__(cls, func: Callable[..., Any] | None = None, **settings: Any) -> Any:
        return super().__new__(cls, *(() if func is None else (func,)), **settings)

    def __init__(
        self,
        func: Callable[P, R],
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
        for name in _REFUSED:
            if name in trace_options:
                raise TraceInputError(f"partial_trace has no option {name!r}: use @trace for that")
        chosen = None if backend == "default" else backend
        super().__init__(func, backend=chosen, without_host=True, **trace_options)

    # calling

    _serves_taped = True

    def _note(self, args: Any, kwargs: Any, leaves: list[Any], observer: Observer | None = None) -> Recorded:
        observer = observer or self._make_observer(leaves)
        policy = replace(self._make_policy(), freezes=False, make_error=make_read_error)
        session = self._make_session(args, kwargs, leaves, policy, observer=observer)
        holders = [value for value in leaves if isinstance(value, Holder)]
        found = record_partial(session, self._bind_body(args), kwargs, holders)
        call = PartialCall(found, leaves, self._compiler, self._wrap_watched)
        return Recorded(MISS, call.variant, call, fed=session.fed)

    def _explain_miss(self, candidates: Sequence[Any], leaves: list[Any]) -> str:
        same = [call for call in candidates if call.has_recorded_pattern(leaves)]
        if not same:
            return f"other tensors want gradients of {self.__name__} than before"
        return super()._explain_miss(same, leaves)

    # looking at it

    def variants(self) -> list[Variant]:
        """Return the forward pass of every recorded call, oldest first."""
        return [call.variant for call in self._calls]

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """Return every stage of both programs of one call as text; run nothing."""
        call = self._note(args, kwargs, flatten((args, kwargs))[0]).call
        assert isinstance(call, PartialCall)
        back = call.backward.program() if call.backward is not None else None
        backward = explain_program("the way back", back) if back else "no gradient is wanted"
        return Explanation(f"{explain(call.variant)}\n\n{backward}")

    def programs(self) -> list[Program]:
        """Return everything that was compiled so far, forward passes first."""
        return [*super().programs(), *self.backward_programs]

    @property
    def backward_programs(self) -> list[Program]:
        """Return what was compiled for backward passes, oldest first."""
        return [p for call in self._calls if call.backward is not None for p in call.backward.programs]


class partial_trace(PartialTrace[P, R]):
    """Decorator for the static part of a training step, such as the network.

    The forward pass and the backward pass are compiled to one program each; the rest of the step stays eager.
    The body runs once for each specialization, only to be recorded. Later calls skip it as long as everything
    outside that it read is unchanged. Each set of shapes has its own programs.

    To a `GradManager` outside, the call is a single op. The forward pass saves the fewest bytes from which
    the backward program can recompute the rest element by element. Inside a `trace` it is part of that trace.

    Parameters
    ----------
    func : callable, optional
        Takes and returns Tensors in nested lists, tuples, dicts and dataclasses. Other arguments, such as
        Modules, are guarded by value or identity. Methods work too.
    backend : str
        The name of the backend; ``"default"`` uses ``MGB_JIT_BACKEND``.
    without_host : bool
        Always True.
    trace_gmcallback : bool
        Accepted for compatibility with MegEngine. Callbacks of a `GradManager` in the body are part of the
        program; those of one outside are called once, with the complete gradient, as in eager code.
    **trace_options
        As for `trace`, except ``capture_as_const``, which has no effect: data that the body makes Tensors of
        is constant, and Tensors outside are inputs.

    Raises
    ------
    TraceInputError
        An option is not valid.
    UnsupportedError
        On a call: two `GradManager` record it, or the body attaches Tensors to one from outside or ends it.
    SymbolicReadError
        On a call: the body reads values.
    ImpureBodyError
        On a call: the body has a side effect, such as storing a Tensor outside, or calls code that is not
        known to be pure.
    UnknownInputError
        On a call: the gradient of a Tensor outside is needed that no longer exists.

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

    if TYPE_CHECKING:

        @overload
        def __new__(cls, func: Callable[P, R], **options: Unpack[PartialOptions]) -> partial_trace[P, R]: ...
        @overload
        def __new__(cls, **options: Unpack[PartialOptions]) -> _PartialTrace: ...
        def __new__(cls, *args: Any, **options: Any) -> Any: ...


if TYPE_CHECKING:

    class _PartialTrace(partial_trace[..., Any]):
        """The type of ``partial_trace(...)`` without a function."""

        def __init__(self, **options: Unpack[PartialOptions]) -> None: ...
        def __call__(self, func: Callable[Q, S]) -> partial_trace[Q, S]: ...
