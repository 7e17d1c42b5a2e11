"""`partial_trace`: a part of a step by two compiled programs, one forward and one back; the rest is eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack, overload

from ...errors import TraceInputError
from ...executor import Program
from ...holding import Holder
from ..binding import P, Q, R
from ..call import Recorded
from ..config import PartialOptions
from ..explain import Explanation, explain, explain_program
from ..guard import MISS
from ..trace import S
from ..traced import Traced
from ..tree import flatten
from ..variant import Variant
from ..watch import Observer
from .call import PartialCall
from .record import noted, refused

#: Options of `trace` that mean nothing when a call is only ever noted, and its gradient is wanted.
_REFUSED = ("symbolic", "record_only", "imperative")


class PartialTrace(Traced[P, R]):
    """What `partial_trace` is, but for its name."""

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

    def _noted(self, args: Any, kwargs: Any, leaves: list[Any], observer: Observer | None = None) -> Recorded:
        observer = observer or self._observer(leaves)
        policy = replace(self._policy(), freezes=False, refused=refused)
        session = self._session(args, kwargs, leaves, policy, observer=observer)
        holders = [value for value in leaves if isinstance(value, Holder)]
        found = noted(session, self._body_with(args), kwargs, holders)
        call = PartialCall(found, leaves, self._compiler, self._watched)
        return Recorded(MISS, call.variant, call, fed=session.fed)

    def _reason_of_miss(self, alike: Sequence[Any], leaves: list[Any]) -> str:
        same = [call for call in alike if call.wants_as_noted(leaves)]
        if not same:
            return f"other tensors want gradients of {self.__name__} than before"
        return super()._reason_of_miss(same, leaves)

    # looking at it

    def variants(self) -> list[Variant]:
        """The forward pass of every noted call, oldest first."""
        return [call.variant for call in self._calls]

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """Every stage of both programs of one call as text, the way back for all results; nothing is run."""
        call = self._noted(args, kwargs, flatten((args, kwargs))[0]).call
        assert isinstance(call, PartialCall)
        back = call.way_back.program() if call.way_back is not None else None
        way_back = explain_program("the way back", back) if back else "no gradient is wanted"
        return Explanation(f"{explain(call.variant)}\n\n{way_back}")

    def programs(self) -> list[Program]:
        """Everything that was compiled so far, forward passes first."""
        return [*super().programs(), *self.backward_programs]

    @property
    def backward_programs(self) -> list[Program]:
        """What was compiled for backward passes, oldest first."""
        return [p for call in self._calls if call.way_back is not None for p in call.way_back.programs]


class partial_trace(PartialTrace[P, R]):
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

    if TYPE_CHECKING:

        @overload
        def __new__(cls, func: Callable[P, R], **options: Unpack[PartialOptions]) -> partial_trace[P, R]: ...
        @overload
        def __new__(cls, **options: Unpack[PartialOptions]) -> _PartialTrace: ...
        def __new__(cls, *args: Any, **options: Any) -> Any: ...


if TYPE_CHECKING:

    class _PartialTrace(partial_trace[..., Any]):
        """What ``partial_trace(...)`` without a function is."""

        def __init__(self, **options: Unpack[PartialOptions]) -> None: ...
        def __call__(self, func: Callable[Q, S]) -> partial_trace[Q, S]: ...
