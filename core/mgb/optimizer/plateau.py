"""A learning rate that follows a measure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .optimizer import Optimizer

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}


class ReduceLROnPlateau:
    """Multiply the learning rate by `factor` when a measure has not become better for a while.

    Parameters
    ----------
    optimizer : Optimizer
    mode : str
        ``"min"``: less is better; ``"max"``.
    factor : float
    patience : int
        So many epochs without a better measure change nothing.
    threshold : float
        By how much better is better: a share of the best, or with `threshold_mode` ``"abs"`` the difference.
    threshold_mode : str
        ``"rel"`` or ``"abs"``.
    cooldown : int
        So many epochs after a change do not count.
    min_lr : float, or one for each group
    eps : float
        A smaller change is left out.

    Examples
    --------
    >>> from mgb.optimizer import SGD, ReduceLROnPlateau
    >>> step = SGD([mgb.Parameter([1.0])], lr=1.0)
    >>> schedule = ReduceLROnPlateau(step, patience=1)
    >>> for loss in (0.9, 0.9, 0.9):
    ...     schedule.step(loss)
    >>> step.param_groups[0]["lr"]
    0.1
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ValueError(
                f"ReduceLROnPlateau: mode is 'min' or 'max' and threshold_mode 'rel' or 'abs', not {mode!r} "
                f"and {threshold_mode!r}"
            )
        if factor >= 1:
            raise ValueError(f"ReduceLROnPlateau: factor must be less than 1, got {factor}")
        groups = len(optimizer.param_groups)
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown, self.eps = (
            threshold,
            threshold_mode,
            cooldown,
            eps,
        )
        self.min_lrs = list(min_lr) if isinstance(min_lr, Sequence) else [min_lr] * groups
        self.best = math.inf if mode == "min" else -math.inf
        self.bad_epochs = self.resting = 0

    def _is_better(self, value: float) -> bool:
        sign = 1 if self.mode == "max" else -1
        if self.threshold_mode == "abs":
            return sign * value > sign * self.best + self.threshold
        return sign * value > sign * self.best * (1 + sign * self.threshold)

    def step(self, metrics: Any) -> None:
        """Take the measure of an epoch, a number or a Tensor of one element."""
        value = float(metrics)
        if self._is_better(value):
            self.best, self.bad_epochs = value, 0
        else:
            self.bad_epochs += 1
        if self.resting:
            self.resting, self.bad_epochs = self.resting - 1, 0
        if self.bad_epochs > self.patience:
            for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                lr = max(group["lr"] * self.factor, least)
                if group["lr"] - lr > self.eps:
                    group["lr"] = lr
            self.resting, self.bad_epochs = self.cooldown, 0

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the optimizer."""
        return {name: value for name, value in vars(self).items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        vars(self).update(state_dict)
