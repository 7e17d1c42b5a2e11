"""Relatives of Adam: Adamax and NAdam."""

from __future__ import annotations

import math
from collections.abc import Callable

from .. import functional as F
from ..tensor import Parameter, Tensor
from .adam import Adam, moment_numbers, moments
from .optimizer import Group, Params, State, assign, decays, zero_count, zeros_state


class Adamax(Adam):
    """Adam with the largest of the earlier gradients for their root mean square (Kingma and Ba 2015).

    Parameters
    ----------
    params : Parameter, iterable of Parameter, or dicts
    lr : float
    betas : pair of float
        How much stays of the running mean, and of the largest magnitude.
    eps : float
        Added to magnitudes.
    weight_decay : float
        ``weight_decay * p`` is added to the gradient.

    Examples
    --------
    >>> x = mgb.Parameter([3.0])
    >>> manager, optimizer = mgb.autodiff.GradManager().attach([x]), mgb.optimizer.Adamax([x], lr=0.5)
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
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)

    def _new_state(self, param: Parameter, group: Group) -> State:
        return {"step": zero_count(param), "exp_avg": zeros_state(param), "exp_inf": zeros_state(param)}

    def _update(
        self, param: Parameter, grad: Tensor, state: State, group: Group, numbers: dict[str, Tensor]
    ) -> None:
        if decays(group):
            grad = grad + numbers["weight_decay"] * param
        assign(state["step"], state["step"] + 1)
        mean = numbers["keep"] * state["exp_avg"] + numbers["take"] * grad
        largest = F.maximum(numbers["keep_sq"] * state["exp_inf"], F.abs(grad) + numbers["eps"])
        assign(state["exp_avg"], mean)
        assign(state["exp_inf"], largest)
        factor = numbers["lr"] * (-1.0 / F.expm1(state["step"] * numbers["log"]))
        assign(param, param - factor * (mean / largest))


class NAdam(Adam):
    """Adam with Nesterov's momentum (Dozat 2016).

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
    momentum_decay : float
        How fast the momentum comes near its full size.

    Examples
    --------
    >>> x = mgb.Parameter([3.0])
    >>> manager, optimizer = mgb.autodiff.GradManager().attach([x]), mgb.optimizer.NAdam([x], lr=0.5)
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
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
    ) -> None:
        given = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super(Adam, self).__init__(params, {**given, "momentum_decay": momentum_decay})

    def _new_state(self, param: Parameter, group: Group) -> State:
        return {**moments(param), "log_product": zero_count(param)}

    def _live(self, group: Group) -> dict[str, Callable[[], float]]:
        return {**moment_numbers(group), "fade": lambda: math.log(0.96) * group["momentum_decay"]}

    def _update(
        self, param: Parameter, grad: Tensor, state: State, group: Group, numbers: dict[str, Tensor]
    ) -> None:
        if decays(group):
            grad = grad + numbers["weight_decay"] * param
        assign(state["step"], state["step"] + 1)
        step, keep = state["step"], numbers["keep"]
        mean = keep * state["exp_avg"] + numbers["take"] * grad
        square = numbers["keep_sq"] * state["exp_avg_sq"] + numbers["take_sq"] * (grad * grad)
        assign(state["exp_avg"], mean)
        assign(state["exp_avg_sq"], square)
        now, later = (keep * (1 - 0.5 * F.exp(t * numbers["fade"])) for t in (step, step + 1))
        assign(state["log_product"], state["log_product"] + F.log(now))
        product = state["log_product"]
        direction = (now - 1) / F.expm1(product) * grad - later / F.expm1(product + F.log(later)) * mean
        root = F.sqrt(square * (-1.0 / F.expm1(step * numbers["log_sq"]))) + numbers["eps"]
        assign(param, param - numbers["lr"] * (direction / root))
