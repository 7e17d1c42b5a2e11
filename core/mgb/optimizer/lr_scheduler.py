"""Learning rates that change from epoch to epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from ..errors import StateDictError
from .optimizer import Optimizer

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}


class LRScheduler(ABC):
    """Sets the ``lr`` of an optimizer's groups, once when it is made and then at each `step`.

    Parameters
    ----------
    optimizer : Optimizer
    current_epoch : int
        The last finished epoch; -1 before the first. To go on later than that, the groups must know their
        ``"initial_lr"``, as they do after an earlier scheduler.

    Raises
    ------
    StateDictError
        A group does not know its ``"initial_lr"``.

    Examples
    --------
    >>> from mgb.optimizer import SGD, StepLR
    >>> step = SGD([mgb.Parameter([1.0])], lr=1.0)
    >>> schedule, rates = StepLR(step, step_size=2, gamma=0.1), []
    >>> for _ in range(4):
    ...     rates.append(round(step.param_groups[0]["lr"], 4))
    ...     schedule.step()
    >>> rates
    [1.0, 1.0, 0.1, 0.1]
    """

    def __init__(self, optimizer: Optimizer, current_epoch: int = -1) -> None:
        self.optimizer = optimizer
        for place, group in enumerate(optimizer.param_groups):
            if current_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise StateDictError(f"group {place} has no 'initial_lr': set it, or use current_epoch=-1")
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.current_epoch = current_epoch
        self.step()

    @abstractmethod
    def get_lr(self) -> list[float]:
        """Return the learning rate of each group in the current epoch."""

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch, or to `epoch`."""
        self.current_epoch = self.current_epoch + 1 if epoch is None else epoch
        for group, lr in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
            group["lr"] = lr

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the optimizer."""
        return {name: value for name, value in vars(self).items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned.

        Raises
        ------
        StateDictError
            It is that of another kind of scheduler.
        """
        if state_dict.keys() != self.state_dict().keys():
            raise StateDictError(f"the loaded state holds {sorted(state_dict)}: another kind of scheduler?")
        vars(self).update(state_dict)


class MultiStepLR(LRScheduler):
    """Multiply the learning rate by `gamma` at each milestone.

    Parameters
    ----------
    optimizer : Optimizer
    milestones : iterable of int
        Epochs, increasing.
    gamma : float
    current_epoch : int
        The last finished epoch; -1 before the first.

    Raises
    ------
    ValueError
        The milestones do not increase.

    Examples
    --------
    >>> from mgb.optimizer import SGD, MultiStepLR
    >>> optimizer = SGD([mgb.Parameter([1.0])], lr=1.0)
    >>> schedule, rates = MultiStepLR(optimizer, milestones=[1, 3], gamma=0.5), []
    >>> for _ in range(4):
    ...     rates.append(round(optimizer.param_groups[0]["lr"], 4))
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.5, 0.25]
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, current_epoch: int = -1
    ) -> None:
        self.milestones = list(milestones)
        if self.milestones != sorted(self.milestones):
            raise ValueError(f"Milestones should be a list of increasing integers. Got {self.milestones}")
        self.gamma = gamma
        super().__init__(optimizer, current_epoch)

    def get_lr(self) -> list[float]:
        """Return the learning rate of each group in the current epoch."""
        factor = self.gamma ** bisect_right(self.milestones, self.current_epoch)
        return [base * factor for base in self.base_lrs]
