"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import ArgumentError
from ..tensor import Parameter, Tensor
from .optimizer import Group, Optimizer, Params, State, assign, decays, named, zeros_state


class SGD(Optimizer):
    """``v = momentum * v + g; p -= lr * v``, Nesterov's variant: ``p -= lr * (g + momentum * v)``.

    Parameters
    ----------
    params : Parameter, iterable of Parameter, or dicts
    lr : float
    momentum : float
    nesterov : bool
        Look ahead by one step of the momentum (Sutskever et al. 2013).
    weight_decay : float
        ``weight_decay * p`` is added to the gradient.

    Examples
    --------
    >>> x = mgb.Parameter([3.0])
    >>> manager, optimizer = mgb.autodiff.GradManager().attach([x]), mgb.optimizer.SGD([x], lr=0.5)
    >>> for _ in range(50):
    ...     with manager:
    ...         manager.backward(F.sum(x * x))
    ...     _ = optimizer.step().clear_grad()
    >>> abs(x.item()) < 3
    True
    """

    _takes_complex = True

    def __init__(
        self,
        params: Params,
        lr: float,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        if nesterov and momentum <= 0.0:
            raise ArgumentError("nesterov=True looks ahead by the momentum, which has to be greater than 0")
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov}
        super().__init__(params, defaults)

    def _new_state(self, param: Parameter, group: Group) -> State:
        return {"momentum_buffer": zeros_state(param)} if group["momentum"] else {}

    def _live(self, group: Group) -> dict[str, Callable[[], float]]:
        return named(group, "lr", "momentum", "weight_decay")

    def _update(
        self, param: Parameter, grad: Tensor, state: State, group: Group, numbers: dict[str, Tensor]
    ) -> None:
        if decays(group):
            grad = grad + numbers["weight_decay"] * param
        if state:
            velocity = numbers["momentum"] * state["momentum_buffer"] + grad
            assign(state["momentum_buffer"], velocity)
            grad = grad + numbers["momentum"] * velocity if group["nesterov"] else velocity
        assign(param, param - numbers["lr"] * grad)
