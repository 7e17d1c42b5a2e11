"""Adagrad."""

from __future__ import annotations

from collections.abc import Callable

from .. import functional as F
from ..tensor import Parameter, Tensor
from .optimizer import Group, Optimizer, Params, State, assign, decays, named, zero_count, zeros_state


class Adagrad(Optimizer):
    """``p -= lr * g / sqrt(sum of g^2)``: shorter steps after large gradients (Duchi, Hazan and Singer 2011).

    Parameters
    ----------
    params : Parameter, iterable of Parameter, or dicts
    lr : float
    lr_decay : float
        In step t the rate is ``lr / (1 + (t - 1) * lr_decay)``.
    eps : float
        Added to the sum under the root.
    weight_decay : float
        ``weight_decay * p`` is added to the gradient.

    Examples
    --------
    >>> x = mgb.Parameter([3.0])
    >>> manager, optimizer = mgb.autodiff.GradManager().attach([x]), mgb.optimizer.Adagrad([x], lr=0.5)
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
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        eps: float = 1e-10,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay})

    def _new_state(self, param: Parameter, group: Group) -> State:
        return {"step": zero_count(param), "square_avg": zeros_state(param)}

    def _live(self, group: Group) -> dict[str, Callable[[], float]]:
        return named(group, "lr", "lr_decay", "eps", "weight_decay")

    def _update(
        self, param: Parameter, grad: Tensor, state: State, group: Group, numbers: dict[str, Tensor]
    ) -> None:
        if decays(group):
            grad = grad + numbers["weight_decay"] * param
        rate = numbers["lr"] / (1 + state["step"] * numbers["lr_decay"])
        total = state["square_avg"] + grad * grad
        assign(state["step"], state["step"] + 1)
        assign(state["square_avg"], total)
        assign(param, param - rate * (grad / F.sqrt(total + numbers["eps"])))
