"""LAMB."""

from __future__ import annotations

from collections.abc import Callable

from .. import functional as F
from ..tensor import Parameter, Tensor
from .adam import direction, moment_numbers, moments
from .optimizer import Group, Optimizer, Params, State, assign, decays


def adapts(group: Group) -> bool:
    """Return whether a step of `group` is as long as the parameter."""
    return bool(group["always_adapt"] or group["weight_decay"])


class LAMB(Optimizer):
    """Adam whose step for each parameter is as long as the parameter, times `lr` (You et al. 2020).

    Parameters
    ----------
    params : Parameter, iterable of Parameter, or dicts
    lr : float
    betas : pair of float
        How much of the running means of the gradient and of its square stays.
    eps : float
        Added to the root of the mean square.
    bias_correction : bool
        Divide the running means by the share that they have seen.
    weight_decay : float
        ``weight_decay * p`` is added to the direction before its length is measured.
    always_adapt : bool
        Without it, a group without weight decay takes Adam's steps.

    Examples
    --------
    >>> w = mgb.Parameter([3.0, 4.0])
    >>> w.grad = mgb.tensor([1.0, 1.0])
    >>> _ = LAMB([w], lr=0.1, always_adapt=True).step()  # by 0.1 times the length of w, which is 5
    >>> np.allclose(np.linalg.norm(w.numpy() - [3, 4]), 0.5)
    True
    """

    _decisions = (adapts,)

    def __init__(
        self,
        params: Params,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        bias_correction: bool = True,
        weight_decay: float = 0.0,
        always_adapt: bool = False,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        switches = {"bias_correction": bias_correction, "always_adapt": always_adapt}
        super().__init__(params, {**defaults, **switches})

    def _new_state(self, param: Parameter, group: Group) -> State:
        return moments(param)

    def _live(self, group: Group) -> dict[str, Callable[[], float]]:
        return moment_numbers(group)

    def _update(
        self, param: Parameter, grad: Tensor, state: State, group: Group, numbers: dict[str, Tensor]
    ) -> None:
        delta = direction(grad, state, numbers, group["bias_correction"])
        if decays(group):
            delta = delta + numbers["weight_decay"] * param
        if adapts(group):
            delta = _trust(param, delta) * delta
        assign(param, param - numbers["lr"] * delta)


def _trust(param: Tensor, delta: Tensor) -> Tensor:
    """Return the ratio of the lengths of `param` and `delta`, or 1 where one of them is 0."""
    ours, theirs = F.sqrt(F.sum(param * param)), F.sqrt(F.sum(delta * delta))
    usable = F.logical_and(ours > 0, theirs > 0)
    return F.where(usable, ours / F.where(usable, theirs, 1.0), 1.0)
