"""`GradScaler`: gradients of a scaled loss, so that small ones do not vanish in 16 bits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ..autodiff import GradManager
from ..errors import StateDictError
from ..functional import broadcast_to
from ..ir import dtypes
from ..ops.elementwise import isfinite
from ..ops.layout import reshape
from ..ops.primitives import cast, logical_and, where
from ..ops.reduce import reduce_min
from ..optimizer.optimizer import skip_nan
from ..tensor import ACTIVE, Parameter, Tensor
from ..tensor.holding import Holder

#: What a traced function may call of it: see `holding`.
__tracing__ = {"load_state_dict": "impure", **dict.fromkeys(("backward", "unscale", "update"), "tells")}

_OPTIONS = ("growth_factor", "backoff_factor", "growth_interval")


class GradScaler(Holder):
    """Multiplies what `backward` starts from, and divides the gradients by as much.

    Where a gradient overflows, all of them become NaN, the scale shrinks, and the next step of an optimizer
    leaves these parameters and their states as they are. This is computed, never looked at: in a trace it is
    part of the compiled step.

    Parameters
    ----------
    init_scale : float
        The first scale.
    growth_factor : float
        The scale is multiplied by it after `growth_interval` backward passes in a row without an overflow.
    backoff_factor : float
        The scale is multiplied by it after an overflow.
    growth_interval : int
        0: the scale never grows.

    Attributes
    ----------
    scale_factor : Tensor
        The scale, float32.

    Examples
    --------
    >>> import mgb
    >>> from mgb.autodiff import GradManager
    >>> w = mgb.Parameter([1.0])
    >>> gm, scaler = GradManager().attach(w), mgb.amp.GradScaler(init_scale=1024.0)
    >>> opt = mgb.optimizer.SGD([w], lr=0.5)
    >>> with gm:
    ...     scaler.backward(gm, (w * w).sum())
    ...     _ = opt.step()
    >>> w
    Parameter([0.], device=xpux:0)
    """

    def __init__(
        self,
        init_scale: float = 2.0**4,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        if not init_scale > 0.0:
            raise ValueError(f"GradScaler: init_scale must be above 0, got {init_scale}")
        if growth_factor < 1.0 or not 0.0 < backoff_factor < 1.0:
            given = f"growth_factor = {growth_factor}, backoff_factor = {backoff_factor}"
            raise ValueError(
                "GradScaler: growth_factor must be at least 1 and backoff_factor between 0 and 1, got "
                f"{given}"
            )
        self.growth_factor, self.backoff_factor = growth_factor, backoff_factor
        self.growth_interval = growth_interval
        self.scale_factor = Tensor(init_scale, dtype="float32")
        self._tracker = Tensor(0, dtype="int32")  # backward passes since the scale has changed
        self._finite = Tensor(True)

    def backward(
        self,
        gm: GradManager,
        y: Tensor | Iterable[Tensor] | None = None,
        dy: Tensor | Iterable[Tensor] | None = None,
        *,
        unscale_grad: bool = True,
        update_scale: bool | str = "if_unscale_grad",
    ) -> None:
        """Call ``gm.backward`` on the scaled `y`, then `unscale` the gradients and `update` the scale.

        Parameters
        ----------
        gm : GradManager
        y, dy : Tensor or iterable of Tensor, optional
            As for `GradManager.backward`.
        unscale_grad : bool
            False: gradients stay scaled and add up to those of the next backward passes.
        update_scale : bool or "if_unscale_grad"
        """
        self._tell()
        ys = [] if y is None else [y] if isinstance(y, Tensor) else list(y)
        dys = [None] * len(ys) if dy is None else [dy] if isinstance(dy, Tensor) else list(dy)
        gm.backward(ys, [self._scaled(*pair) for pair in zip(ys, dys, strict=True)])
        if unscale_grad:
            self.unscale(gm.attached_tensors())
        if update_scale is True or (update_scale == "if_unscale_grad" and unscale_grad):
            self.update()

    def _scaled(self, y: Tensor, dy: Tensor | None) -> Tensor:
        """Return the initial gradient of `y`, in its dtype; it overflows where that cannot hold the scale."""
        scaled = broadcast_to(self.scale_factor, y.shape) if dy is None else dy * self.scale_factor
        return scaled if scaled.dtype == y.dtype else cast(scaled, dtype=y.dtype)

    def unscale(self, grad_tensors: Iterable[Tensor]) -> None:
        """Divide the gradients of these tensors by the scale; where one is not finite, make all of them NaN.

        Parameters
        ----------
        grad_tensors : iterable of Tensor
            Those without a gradient are left out.
        """
        self._tell()
        graded = [(tensor, tensor.grad) for tensor in grad_tensors]
        found = [(tensor, grad) for tensor, grad in graded if grad is not None]
        skip_nan(tensor for tensor, _ in found if isinstance(tensor, Parameter))
        finite = self._finite_of([grad for _, grad in found])
        factor = where(finite, 1 / self.scale_factor, np.nan)
        for tensor, grad in found:
            unscaled = where(finite, grad * factor, np.nan)  # 0 times NaN is NaN, but 0 may be folded
            tensor.grad = unscaled if unscaled.dtype == grad.dtype else cast(unscaled, dtype=grad.dtype)
        self._finite._reset(finite)

    def _finite_of(self, grads: list[Tensor]) -> Tensor:
        """Return whether all elements of `grads` are finite."""
        finite = Tensor(True)
        for grad in grads:
            if grad.size:
                least = reduce_min(isfinite(grad), axis=tuple(range(grad.ndim)))
                finite = logical_and(finite, reshape(least, shape=()))
        return finite

    def update(self, new_scale: float | None = None) -> None:
        """Let the scale grow or shrink, by what `unscale` found since; or set it."""
        self._tell()
        if new_scale is not None:
            self.scale_factor._reset(Tensor(new_scale, dtype="float32"))
            self._tracker._reset(Tensor(0, dtype="int32"))
            return
        finite, count = self._finite, self._tracker + 1
        grows = logical_and(finite, count >= (self.growth_interval or np.iinfo(np.int32).max))
        factor = where(finite, where(grows, self.growth_factor, 1.0), self.backoff_factor)
        self.scale_factor._reset(self.scale_factor * cast(factor, dtype=dtypes.float32))
        self._tracker._reset(where(logical_and(finite, ~grows), count, 0))
        self._finite._reset(Tensor(True))

    def _tell(self) -> None:
        session = ACTIVE.get()
        if session is not None:
            session.entered(self)

    # state

    def state_dict(self) -> dict[str, Any]:
        """Return the scale, how long it has been good, and the options; all numbers."""
        numbers = {"scale_factor": self.scale_factor.item(), "tracker": self._tracker.item()}
        return numbers | {name: getattr(self, name) for name in _OPTIONS}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned.

        Raises
        ------
        StateDictError
            Something is missing.
        """
        missing = {"scale_factor", "tracker", *_OPTIONS} - state.keys()
        if missing:
            raise StateDictError(f"the loaded state of a GradScaler has no {', '.join(sorted(missing))}")
        self.scale_factor._reset(Tensor(state["scale_factor"], dtype="float32"))
        self._tracker._reset(Tensor(state["tracker"], dtype="int32"))
        for name in _OPTIONS:
            setattr(self, name, state[name])

    # for the compiler

    def __parts__(self) -> Iterator[tuple[str, Any]]:
        yield from (("scale_factor", self.scale_factor), ("tracker", self._tracker), ("finite", self._finite))

    def __decides__(self) -> Iterator[Any]:
        yield from ("scale_factor", "_tracker", "_finite", *_OPTIONS)

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={getattr(self, name)}" for name in _OPTIONS)
        return f"GradScaler(scale_factor={self.scale_factor.item()}, {options})"
