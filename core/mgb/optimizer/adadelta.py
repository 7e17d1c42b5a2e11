"""Adadelta."""

from __future__ import annotations

from collections.abc import Callable

from .. import functional as F
from ..tensor import Parameter, Tensor
from .optimizer import Group, Optimizer, Params, State, assign, decays, named, zeros_state


class Adadelta(Optimizer):
    """Steps in the parameters' own unit: ``g * rms(earlier steps) / rms(gradients)`` (Zeiler 2012).

    Parameters
    ----------
    params : Parameter, iterable of Parameter, or dicts
    lr : float
    rho : float
        How much of the running means of both squares stays.
    eps : float
        Added to the means under the roots.
    weight_decay : float
        ``weight_decay * p`` is added to the gradient.

    Examples
    --------
    >>> x = mgb.Parameter([3.0])
    >>> manager, optimizer = mgb.autodiff.GradManager().attach([x]), mgb.optimizer.Adadelta([x], lr=0.5)
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
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay})

    def _new_state(self, param: Parameter, group: Group) -> State:
        return {"square_avg": zeros_state(param), "acc_delta": zeros_state(param)}

    def _live(self, group: Group) -> dict[str, Callable[[], float]]:
        return {
            **named(group, "lr", "weight_decay", "eps"),
            "keep": lambda: group["rho"],
            "take": lambda: 1.0 - group["rho"],
        }

    def _update(
        self, param: Parameter, grad: Tensor, state: State, group: Group, numbers: dict[str, Tensor]
    ) -> None:
        if decays(group):
            grad = grad + numbers["weight_decay"] * param
        eps, keep, take = numbers["eps"], numbers["keep"], numbers["take"]
        square = keep * state["square_avg"] + take * (grad * grad)
        delta = F.sqrt(state["acc_delta"] + eps) / F.sqrt(square + eps) * grad
        assign(state["square_avg"], square)
        assign(state["acc_delta"], keep * state["acc_delta"] + take * (delta * delta))
        assign(param, param - numbers["lr"] * delta)
