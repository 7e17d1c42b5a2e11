"""L-BFGS: Newton's direction from the last changes of the gradient."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import functional as F
from ..errors import ArgumentError
from ..tensor import Parameter, Tensor
from .optimizer import Group, Optimizer, Params, State, assign, wide

#: Evaluations of one line search.
_MOST_TRIALS = 25

#: Sufficient decrease, and curvature: Nocedal and Wright, "Numerical optimization" (2006), section 3.1.
_DECREASE, _CURVATURE = 1e-4, 0.9


class LBFGS(Optimizer):
    """Steps along Newton's direction, of which the last steps tell enough (Nocedal 1980).

    A step takes a function that it may call several times: it clears the gradients, computes the loss, calls
    ``backward`` and returns the loss. It may be traced; the step itself runs in Python and reads the loss.

    Parameters
    ----------
    params : Parameter or iterable of Parameter
        One group. Of all together the history holds ``2 * history_size`` copies.
    lr : float
        The length of a step along the direction; of the first to be tried by a line search.
    max_iter : int
        Iterations of one step.
    max_eval : int, optional
        Calls of the function in one step; by default ``max_iter * 5 // 4``.
    tolerance_grad : float
        No element of the gradient is greater: the step ends.
    tolerance_change : float
        The loss, or no parameter, changes by more: the step ends.
    history_size : int
        How many changes of the gradient are kept. They are not part of ``state_dict``.
    line_search_fn : str, optional
        ``"strong_wolfe"``: along each direction a point is searched where the loss is less and the slope
        flat enough, by SciPy's ``line_search``. None: none is.

    Raises
    ------
    ArgumentError
        There are several groups, or a number is out of range.

    Examples
    --------
    >>> import mgb
    >>> from mgb.autodiff import GradManager
    >>> x = mgb.Parameter([-1.5, 2.0])
    >>> manager, optimizer = GradManager().attach([x]), LBFGS([x], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.clear_grad()
    ...     with manager:
    ...         loss = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    ...         manager.backward(loss)
    ...     return loss
    >>> for _ in range(3):
    ...     loss = optimizer.step(closure)
    >>> x.numpy().round(2).tolist()
    [1.0, 1.0]
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        defaults = {
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
            "history_size": history_size, "line_search_fn": line_search_fn,
        }  # fmt: skip
        self._changes: deque[tuple[Tensor, Tensor, Tensor]] = deque(maxlen=max(1, history_size))
        self._last: tuple[Tensor, Tensor] | None = None
        super().__init__(params, defaults)

    def _check(self, group: Group) -> None:
        super()._check(group)
        if self.param_groups:
            raise ArgumentError("LBFGS has one direction for all parameters: give it one group")
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise ArgumentError(f"line_search_fn is None or 'strong_wolfe', not {group['line_search_fn']!r}")
        if min(group["max_iter"], group["max_eval"], group["history_size"]) < 1:
            raise ArgumentError("max_iter, max_eval and history_size are at least 1")

    def step(self, closure: Callable[[], Tensor] | None = None) -> Any:
        """Minimize what `closure` computes, for `max_iter` iterations at most.

        Parameters
        ----------
        closure : callable
            Clears the gradients, computes the loss, calls ``backward`` and returns the loss.

        Returns
        -------
        Tensor
            The loss before the step.
        """
        if closure is None:
            raise TypeError("LBFGS.step(closure): give a function that recomputes loss and gradients")
        self._tell()
        (group,) = self.param_groups
        first = closure()
        here = _Point(group["params"], first.item())
        calls, sought = 1, group["line_search_fn"] is not None
        for iteration in range(group["max_iter"]):
            if here.flat_within(group["tolerance_grad"]):
                break
            direction, length = self._direction(here.grad, group)
            slope = F.sum(here.grad * direction).item()
            if slope > -group["tolerance_change"]:
                break
            move = direction * length
            if sought:
                share, there, tried = _searched(closure, group["params"], here, move, slope * length)
                move = move * share
            else:
                here.moved(group["params"], move)
            self._last = (move, here.grad)
            if not sought:
                if iteration + 1 == group["max_iter"]:
                    break  # the next step begins with the loss here
                there, tried = _Point(group["params"], closure().item()), 1
            calls += tried
            before, here = here, there
            small = F.max(F.abs(move)).item() <= group["tolerance_change"]
            still = abs(here.loss - before.loss) < group["tolerance_change"]
            if calls >= group["max_eval"] or small or still:
                break
        return first

    def _direction(self, grad: Tensor, group: Group) -> tuple[Tensor, float]:
        """Return minus the product of the inverse Hessian, as known, and the gradient; and how far to go."""
        if self._last is None:
            return -grad, min(1.0, 1.0 / F.sum(F.abs(grad)).item()) * group["lr"]
        move, before = self._last
        change = grad - before
        curvature = F.sum(change * move)
        if curvature.item() > 1e-10:
            self._changes.append((move, change, curvature))
        return -_product(self._changes, grad), group["lr"]

    def _new_state(self, param: Parameter, group: Group) -> State:
        return {}

    def _live(self, group: Group) -> dict[str, Callable[[], float]]:
        return {}

    def _update(
        self, param: Parameter, grad: Tensor, state: State, group: Group, numbers: dict[str, Tensor]
    ) -> None:
        raise AssertionError("all parameters move together")


def _product(changes: deque[tuple[Tensor, Tensor, Tensor]], grad: Tensor) -> Tensor:
    """Multiply by the inverse Hessian: Nocedal and Wright (2006), algorithm 7.4."""
    parts = []
    for move, change, curvature in reversed(changes):
        part = F.sum(move * grad) / curvature
        grad = grad - part * change
        parts.append(part)
    if changes:
        _, change, curvature = changes[-1]
        grad = grad * (curvature / F.sum(change * change))
    for (move, change, curvature), part in zip(changes, reversed(parts), strict=True):
        grad = grad + (part - F.sum(change * grad) / curvature) * move
    return grad


class _Point:
    """Where the parameters are, with the loss and the gradient there."""

    def __init__(self, params: list[Parameter], loss: float) -> None:
        self.loss, self.where = loss, [p.detach() for p in params]
        self.grad = F.concat([
            F.zeros(p.size, dtype=wide(p), device=str(p.device)) if p.grad is None
            else p.grad.detach().reshape(-1).astype(wide(p)) for p in params
        ])  # fmt: skip

    def flat_within(self, bound: float) -> bool:
        """Return whether no element of the gradient is greater than `bound`."""
        return bool(F.max(F.abs(self.grad)).item() <= bound)

    def moved(self, params: list[Parameter], move: Tensor) -> None:
        """Put `params` where one comes from here by `move`."""
        start = 0
        for param, here in zip(params, self.where, strict=True):
            part = move[start : start + param.size].reshape(param.shape)
            assign(param, here.astype(part.dtype) + part)
            start += param.size


def _searched(
    closure: Callable[[], Tensor], params: list[Parameter], here: _Point, move: Tensor, slope: float
) -> tuple[float, _Point, int]:
    """Return the share of `move` that meets the strong Wolfe conditions, or the best one.

    How many were tried.
    """
    from scipy.optimize import line_search

    tried: dict[float, tuple[_Point, float]] = {0.0: (here, slope)}

    def at(share: Any) -> tuple[_Point, float]:
        share = float(share[0])
        if share not in tried:
            here.moved(params, move * share)
            point = _Point(params, closure().item())
            tried[share] = point, F.sum(point.grad * move).item()
        return tried[share]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that none was found: the best one is taken
        found = line_search(
            lambda share: at(share)[0].loss, lambda share: np.array([at(share)[1]]), np.zeros(1), np.ones(1),
            gfk=np.array([slope]), old_fval=here.loss, c1=_DECREASE, c2=_CURVATURE, maxiter=_MOST_TRIALS,
        )[0]  # fmt: skip
    share = min(tried, key=lambda s: tried[s][0].loss) if found is None else float(found)
    here.moved(params, move * share)
    return share, tried[share][0], len(tried) - 1
