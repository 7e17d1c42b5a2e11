"""RMSprop."""

from __future__ import annotations

from collections.abc import Callable

from .. import functional as F
from ..tensor import Parameter, Tensor
from .optimizer import Group, Optimizer, Params, State, assign, decays, named, zeros_state


class RMSprop(Optimizer):
    """Gradients divided by the root of the running mean of their squares (Hinton 2012).

    Parameters
    ----------
    params : Parameter, iterable of Parameter, or dicts
    lr : float
    alpha : float
        How much of the running means stays.
    eps : float
        Added to the root.
    weight_decay : float
        ``weight_decay * p`` is added to the gradient.
    momentum : float
        How much of the last step is added to the next.
    centered : bool
        Divide by the deviation from the running mean of the gradients (Graves 2013).

    Examples
    --------
    >>> x = mgb.Parameter([3.0])
    >>> manager, optimizer = mgb.autodiff.GradManager().attach([x]), mgb.optimizer.RMSprop([x], lr=0.5)
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
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
    ) -> None:
        numbers = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(params, {**numbers, "centered": centered})

    def _new_state(self, param: Parameter, group: Group) -> State:
        names = ["square_avg"]
        names += ["momentum_buffer"] if group["momentum"] else []
        names += ["grad_avg"] if group["centered"] else []
        return {name: zeros_state(param) for name in names}

    def _live(self, group: Group) -> dict[str, Callable[[], float]]:
        return {
            **named(group, "lr", "weight_decay", "eps", "momentum"),
            "keep": lambda: group["alpha"],
            "take": lambda: 1.0 - group["alpha"],
        }

    def _update(
        self, param: Parameter, grad: Tensor, state: State, group: Group, numbers: dict[str, Tensor]
    ) -> None:
        if decays(group):
            grad = grad + numbers["weight_decay"] * param
        keep, take = numbers["keep"], numbers["take"]
        square = keep * state["square_avg"] + take * (grad * grad)
        assign(state["square_avg"], square)
        if "grad_avg" in state:
            mean = keep * state["grad_avg"] + take * grad
            assign(state["grad_avg"], mean)
            square = square - mean * mean
        delta = grad / (F.sqrt(square) + numbers["eps"])
        if "momentum_buffer" in state:
            delta = numbers["momentum"] * state["momentum_buffer"] + delta
            assign(state["momentum_buffer"], delta)
        assign(param, param - numbers["lr"] * delta)
