"""Adam and AdamW."""

from __future__ import annotations

import math
from collections.abc import Callable

from .. import functional as F
from ..tensor import Parameter, Tensor
from .optimizer import Group, Optimizer, Params, State, assign, decays, named, zero_count, zeros_state


class Adam(Optimizer):
    """Steps of about `lr`, whatever the scale of the gradients (Kingma and Ba 2015).

    Parameters
    ----------
    params : Parameter, iterable of Parameter, or dicts
    lr : float
    betas : pair of float
        How much of the running means of the gradient and of its square stays.
    eps : float
        Added to the root of the mean square.
    weight_decay : float
        ``weight_decay * p`` is added to the gradient.

    Examples
    --------
    >>> x = mgb.Parameter([3.0])
    >>> manager, optimizer = mgb.autodiff.GradManager().attach([x]), mgb.optimizer.Adam([x], lr=0.5)
    >>> for _ in range(50):
    ...     with manager:
    ...         manager.backward(F.sum(x * x))
    ...     _ = optimizer.step().clear_grad()
    >>> abs(x.item()) < 3
    True
    """

    def __init__(
        self,
        params: Params,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def _new_state(self, param: Parameter, group: Group) -> State:
        return moments(param)

    def _live(self, group: Group) -> dict[str, Callable[[], float]]:
        return moment_numbers(group)

    def _update(
        self, param: Parameter, grad: Tensor, state: State, group: Group, numbers: dict[str, Tensor]
    ) -> None:
        if decays(group):
            grad = grad + numbers["weight_decay"] * param
        assign(param, param - numbers["lr"] * direction(grad, state, numbers))


class AdamW(Adam):
    """Adam whose weight decay does not pass through the moments (Loshchilov and Hutter 2019).

    Parameters
    ----------
    params : Parameter, iterable of Parameter, or dicts
    lr : float
    betas : pair of float
        How much of the running means of the gradient and of its square stays.
    eps : float
        Added to the root of the mean square.
    weight_decay : float
        Each step takes ``lr * weight_decay * p`` from `p`.

    Examples
    --------
    >>> x = mgb.Parameter([3.0])
    >>> manager, optimizer = mgb.autodiff.GradManager().attach([x]), mgb.optimizer.AdamW([x], lr=0.5)
    >>> for _ in range(50):
    ...     with manager:
    ...         manager.backward(F.sum(x * x))
    ...     _ = optimizer.step().clear_grad()
    >>> abs(x.item()) < 3
    True
    """

    def __init__(
        self,
        params: Params,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)

    def _update(
        self, param: Parameter, grad: Tensor, state: State, group: Group, numbers: dict[str, Tensor]
    ) -> None:
        delta = direction(grad, state, numbers)
        if decays(group):
            delta = delta + numbers["weight_decay"] * param
        assign(param, param - numbers["lr"] * delta)


def moments(param: Parameter) -> State:
    """Return the state of Adam and its relatives: a count of steps and two running means."""
    return {"step": zero_count(param), "exp_avg": zeros_state(param), "exp_avg_sq": zeros_state(param)}


def moment_numbers(group: Group) -> dict[str, Callable[[], float]]:
    """Return the live numbers of Adam and its relatives.

    ``1 - beta`` is subtracted in Python's double precision: in float32 it would lose most of its digits.
    """
    return {
        **named(group, "lr", "weight_decay", "eps"),
        "keep": lambda: group["betas"][0],
        "keep_sq": lambda: group["betas"][1],
        "take": lambda: 1.0 - group["betas"][0],
        "take_sq": lambda: 1.0 - group["betas"][1],
        "log": lambda: _log(group["betas"][0]),
        "log_sq": lambda: _log(group["betas"][1]),
    }


def direction(grad: Tensor, state: State, numbers: dict[str, Tensor], correct: bool = True) -> Tensor:
    """Update the running means and give the step before `lr`: mean over root mean square.

    Both means start at 0; `correct` divides them by ``1 - beta ** step``, the share that they have seen,
    written as ``-expm1(step * log(beta))``. It multiplies by the reciprocals, which are two numbers: dividing
    each element would take longer than all the rest.
    """
    assign(state["step"], state["step"] + 1)
    mean = numbers["keep"] * state["exp_avg"] + numbers["take"] * grad
    square = numbers["keep_sq"] * state["exp_avg_sq"] + numbers["take_sq"] * (grad * grad)
    assign(state["exp_avg"], mean)
    assign(state["exp_avg_sq"], square)
    if correct:
        mean = mean * (-1.0 / F.expm1(state["step"] * numbers["log"]))
        square = square * (-1.0 / F.expm1(state["step"] * numbers["log_sq"]))
    return mean / (F.sqrt(square) + numbers["eps"])


def _log(beta: float) -> float:
    return math.log(beta) if beta else -math.inf
