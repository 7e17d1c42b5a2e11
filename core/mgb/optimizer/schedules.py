"""Schedules of the learning rate in closed form; torch's names and arguments."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from .lr_scheduler import LRScheduler
from .optimizer import Optimizer

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}


class LambdaLR(LRScheduler):
    """The first learning rate times ``lr_lambda(epoch)``.

    Parameters
    ----------
    optimizer : Optimizer
    lr_lambda : callable, or one for each group
    current_epoch : int
        The last finished epoch; -1 before the first.

    Examples
    --------
    >>> from mgb.optimizer import SGD, LambdaLR
    >>> optimizer = SGD([mgb.Parameter([1.0])], lr=1.0)
    >>> schedule, rates = LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch)), []
    >>> for _ in range(4):
    ...     rates.append(round(optimizer.param_groups[0]["lr"], 4))
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.3333, 0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        current_epoch: int = -1,
    ) -> None:
        groups = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * groups if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != groups:
            raise ValueError(f"LambdaLR: {len(self.lr_lambdas)} functions for {groups} groups")
        super().__init__(optimizer, current_epoch)

    def get_lr(self) -> list[float]:
        """Return the learning rate of each group in the current epoch."""
        pairs = zip(self.base_lrs, self.lr_lambdas, strict=True)
        return [base * factor(self.current_epoch) for base, factor in pairs]


class _Factor(LRScheduler):
    """The first learning rate times a factor that all groups share."""

    def factor(self, epoch: int) -> float:
        """Return the factor of `epoch`."""
        raise NotImplementedError

    def get_lr(self) -> list[float]:
        """Return the learning rate of each group in the current epoch."""
        factor = self.factor(self.current_epoch)
        return [base * factor for base in self.base_lrs]


class StepLR(_Factor):
    """Multiply the learning rate by `gamma` every `step_size` epochs.

    Examples
    --------
    >>> from mgb.optimizer import SGD, StepLR
    >>> optimizer = SGD([mgb.Parameter([1.0])], lr=1.0)
    >>> schedule, rates = StepLR(optimizer, step_size=2, gamma=0.5), []
    >>> for _ in range(4):
    ...     rates.append(round(optimizer.param_groups[0]["lr"], 4))
    ...     schedule.step()
    >>> rates
    [1.0, 1.0, 0.5, 0.5]
    """

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, current_epoch: int = -1
    ) -> None:
        self.step_size, self.gamma = _positive("StepLR: step_size", step_size), gamma
        super().__init__(optimizer, current_epoch)

    def factor(self, epoch: int) -> float:
        """Return the factor of `epoch`."""
        return float(self.gamma ** (epoch // self.step_size))


class ExponentialLR(_Factor):
    """Multiply the learning rate by `gamma` every epoch.

    Examples
    --------
    >>> from mgb.optimizer import SGD, ExponentialLR
    >>> optimizer = SGD([mgb.Parameter([1.0])], lr=1.0)
    >>> schedule, rates = ExponentialLR(optimizer, gamma=0.5), []
    >>> for _ in range(4):
    ...     rates.append(round(optimizer.param_groups[0]["lr"], 4))
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.25, 0.125]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, current_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, current_epoch)

    def factor(self, epoch: int) -> float:
        """Return the factor of `epoch`."""
        return float(self.gamma**epoch)


class LinearLR(_Factor):
    """From `start_factor` times the learning rate to `end_factor` times it in `total_iters` equal steps.

    Examples
    --------
    >>> from mgb.optimizer import SGD, LinearLR
    >>> optimizer = SGD([mgb.Parameter([1.0])], lr=1.0)
    >>> schedule, rates = LinearLR(optimizer, start_factor=0.5, total_iters=2), []
    >>> for _ in range(4):
    ...     rates.append(round(optimizer.param_groups[0]["lr"], 4))
    ...     schedule.step()
    >>> rates
    [0.5, 0.75, 1.0, 1.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        current_epoch: int = -1,
    ) -> None:
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = _positive("LinearLR: total_iters", total_iters)
        super().__init__(optimizer, current_epoch)

    def factor(self, epoch: int) -> float:
        """Return the factor of `epoch`."""
        part = min(epoch, self.total_iters) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * part


class ConstantLR(_Factor):
    """`factor` times the learning rate for `total_iters` epochs, then all of it.

    Examples
    --------
    >>> from mgb.optimizer import SGD, ConstantLR
    >>> optimizer = SGD([mgb.Parameter([1.0])], lr=1.0)
    >>> schedule, rates = ConstantLR(optimizer, factor=0.5, total_iters=2), []
    >>> for _ in range(4):
    ...     rates.append(round(optimizer.param_groups[0]["lr"], 4))
    ...     schedule.step()
    >>> rates
    [0.5, 0.5, 1.0, 1.0]
    """

    def __init__(
        self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, current_epoch: int = -1
    ) -> None:
        self.first_factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, current_epoch)

    def factor(self, epoch: int) -> float:
        """Return the factor of `epoch`."""
        return self.first_factor if epoch < self.total_iters else 1.0


class PolynomialLR(_Factor):
    """The learning rate times ``(1 - epoch / total_iters) ** power``, 0 at the end.

    Examples
    --------
    >>> from mgb.optimizer import SGD, PolynomialLR
    >>> optimizer = SGD([mgb.Parameter([1.0])], lr=1.0)
    >>> schedule, rates = PolynomialLR(optimizer, total_iters=4), []
    >>> for _ in range(4):
    ...     rates.append(round(optimizer.param_groups[0]["lr"], 4))
    ...     schedule.step()
    >>> rates
    [1.0, 0.75, 0.5, 0.25]
    """

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, current_epoch: int = -1
    ) -> None:
        self.total_iters, self.power = _positive("PolynomialLR: total_iters", total_iters), power
        super().__init__(optimizer, current_epoch)

    def factor(self, epoch: int) -> float:
        """Return the factor of `epoch`."""
        return float((1 - min(epoch, self.total_iters) / self.total_iters) ** self.power)


def _cosine(start: float, end: float, part: float) -> float:
    """Return a point of half a cosine wave from `start` to `end`."""
    return end + (start - end) * (1 + math.cos(math.pi * part)) / 2


def _linear(start: float, end: float, part: float) -> float:
    return start + (end - start) * part


class CosineAnnealingLR(LRScheduler):
    """Half a wave down to `eta_min` in `T_max` epochs, and up again (Loshchilov and Hutter 2017).

    Examples
    --------
    >>> from mgb.optimizer import SGD, CosineAnnealingLR
    >>> optimizer = SGD([mgb.Parameter([1.0])], lr=1.0)
    >>> schedule, rates = CosineAnnealingLR(optimizer, T_max=2), []
    >>> for _ in range(4):
    ...     rates.append(round(optimizer.param_groups[0]["lr"], 4))
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.0, 0.5]
    """

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, current_epoch: int = -1
    ) -> None:
        self.T_max, self.eta_min = _positive("CosineAnnealingLR: T_max", T_max), eta_min
        super().__init__(optimizer, current_epoch)

    def get_lr(self) -> list[float]:
        """Return the learning rate of each group in the current epoch."""
        part = self.current_epoch / self.T_max
        return [_cosine(base, self.eta_min, part) for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a wave down to `eta_min`, again and again (Loshchilov and Hutter 2017).

    Parameters
    ----------
    optimizer : Optimizer
    T_0 : int
        Epochs of the first wave.
    T_mult : int
        Each further one is so many times as long.
    eta_min : float
    current_epoch : int
        The last finished epoch; -1 before the first.

    Examples
    --------
    >>> from mgb.optimizer import CosineAnnealingWarmRestarts, SGD
    >>> step = SGD([mgb.Parameter([1.0])], lr=1.0)
    >>> schedule, rates = CosineAnnealingWarmRestarts(step, T_0=2), []
    >>> for _ in range(4):
    ...     rates.append(round(step.param_groups[0]["lr"], 4))
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 1.0, 0.5]
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, current_epoch: int = -1
    ) -> None:
        self.T_0 = _positive("CosineAnnealingWarmRestarts: T_0", T_0)
        self.T_mult, self.eta_min = _positive("CosineAnnealingWarmRestarts: T_mult", T_mult), eta_min
        super().__init__(optimizer, current_epoch)

    def get_lr(self) -> list[float]:
        """Return the learning rate of each group in the current epoch."""
        left, length = self.current_epoch, self.T_0
        while left >= length and self.T_mult > 1:
            left, length = left - length, length * self.T_mult
        return [_cosine(base, self.eta_min, left % length / length) for base in self.base_lrs]


class OneCycleLR(LRScheduler):
    """Up to `max_lr` and down to nearly nothing, by steps, not epochs (Smith and Topin 2017).

    Momentum stays what it is: torch turns it with the learning rate unless ``cycle_momentum=False``.

    Parameters
    ----------
    optimizer : Optimizer
    max_lr : float, or one for each group
    total_steps : int
    pct_start : float
        The part of the steps that go up.
    anneal_strategy : str
        ``"cos"`` or ``"linear"``.
    div_factor, final_div_factor : float
        The first learning rate is `max_lr` divided by the one, the last is the first divided by the other.
    three_phase : bool
        Come down to the first learning rate in as many steps as went up, and then to the last.
    current_epoch : int
        The last finished step; -1 before the first.

    Examples
    --------
    >>> from mgb.optimizer import OneCycleLR, SGD
    >>> step = SGD([mgb.Parameter([1.0])], lr=1.0)
    >>> schedule, rates = OneCycleLR(step, max_lr=1.0, total_steps=5), []
    >>> for _ in range(4):
    ...     rates.append(round(step.param_groups[0]["lr"], 4))
    ...     schedule.step()
    >>> rates
    [0.04, 0.9505, 0.6113, 0.1883]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        current_epoch: int = -1,
    ) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"OneCycleLR: anneal_strategy is 'cos' or 'linear', not {anneal_strategy!r}")
        groups = len(optimizer.param_groups)
        self.max_lrs = list(max_lr) if isinstance(max_lr, Sequence) else [max_lr] * groups
        if len(self.max_lrs) != groups:
            raise ValueError(f"OneCycleLR: {len(self.max_lrs)} learning rates for {groups} groups")
        self.total_steps = _positive("OneCycleLR: total_steps", total_steps)
        self.anneal_strategy, self.div_factor = anneal_strategy, div_factor
        self.final_div_factor, last = final_div_factor, total_steps - 1
        top = pct_start * total_steps - 1
        self.ends = [top, 2 * top, last] if three_phase else [top, last]
        super().__init__(optimizer, current_epoch)

    def get_lr(self) -> list[float]:
        """Return the learning rate of each group in the current step."""
        if self.current_epoch >= self.total_steps:
            raise ValueError(
                f"OneCycleLR: step {self.current_epoch} is beyond total_steps = {self.total_steps} (counted "
                "from 0)"
            )
        phase = next((i for i, end in enumerate(self.ends) if self.current_epoch <= end), len(self.ends) - 1)
        start = self.ends[phase - 1] if phase else 0
        part = (self.current_epoch - start) / (self.ends[phase] - start)
        anneal = _cosine if self.anneal_strategy == "cos" else _linear
        levels = [self._levels(top) for top in self.max_lrs]
        return [anneal(lr[phase], lr[phase + 1], part) for lr in levels]

    def _levels(self, top: float) -> list[float]:
        """Return where the phases begin and end."""
        first = top / self.div_factor
        last = first / self.final_div_factor
        return [first, top, first, last] if len(self.ends) == 3 else [first, top, last]


class _Several(LRScheduler):
    """Base class of schedules that are made of others, whose states are part of its own."""

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler]) -> None:
        if not schedulers or any(s.optimizer is not optimizer for s in schedulers):
            raise ValueError(f"{type(self).__name__}: needs at least one schedule, all of the same optimizer")
        self.schedulers = list(schedulers)
        super().__init__(optimizer)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the schedule, without the optimizer."""
        return {**super().state_dict(), "schedulers": [s.state_dict() for s in self.schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        own = self.schedulers
        super().load_state_dict({**state_dict, "schedulers": own})
        for scheduler, state in zip(own, state_dict["schedulers"], strict=True):
            scheduler.load_state_dict(state)


class ChainedScheduler(_Several):
    """Several schedules at once: their factors are multiplied.

    Parameters
    ----------
    schedulers : sequence of LRScheduler
        Of one optimizer.

    Examples
    --------
    >>> from mgb.optimizer import ChainedScheduler, ConstantLR, ExponentialLR, SGD
    >>> step = SGD([mgb.Parameter([1.0])], lr=1.0)
    >>> schedule, rates = ChainedScheduler([ConstantLR(step, 0.5, 2), ExponentialLR(step, 0.9)]), []
    >>> for _ in range(4):
    ...     rates.append(round(step.param_groups[0]["lr"], 4))
    ...     schedule.step()
    >>> rates
    [0.5, 0.45, 0.81, 0.729]
    """

    def __init__(self, schedulers: Sequence[LRScheduler]) -> None:
        if not schedulers:
            raise ValueError("ChainedScheduler: needs at least one schedule")
        super().__init__(schedulers[0].optimizer, schedulers)

    def get_lr(self) -> list[float]:
        """Return the learning rate of each group in the current epoch."""
        found = list(self.base_lrs)
        for scheduler in self.schedulers:
            scheduler.current_epoch = self.current_epoch
            for place, (lr, base) in enumerate(zip(scheduler.get_lr(), scheduler.base_lrs, strict=True)):
                found[place] *= lr / base if base else 1.0
        return found


class SequentialLR(_Several):
    """Several schedules one after the other, as a warm-up and what follows it.

    Parameters
    ----------
    optimizer : Optimizer
    schedulers : sequence of LRScheduler
    milestones : sequence of int
        The epochs at which the second, third, ... begin, each with its own epoch 0.

    Examples
    --------
    >>> from mgb.optimizer import ConstantLR, ExponentialLR, SGD, SequentialLR
    >>> step = SGD([mgb.Parameter([1.0])], lr=1.0)
    >>> parts, rates = [ConstantLR(step, 0.1, 2), ExponentialLR(step, 0.9)], []
    >>> schedule = SequentialLR(step, parts, milestones=[2])
    >>> for _ in range(4):
    ...     rates.append(round(step.param_groups[0]["lr"], 4))
    ...     schedule.step()
    >>> rates
    [0.1, 0.1, 1.0, 0.9]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]
    ) -> None:
        self.milestones = list(milestones)
        if len(schedulers) != len(self.milestones) + 1 or self.milestones != sorted(self.milestones):
            raise ValueError(
                f"SequentialLR: {len(schedulers)} schedules need one milestone less, increasing, "
                f"got {self.milestones}"
            )
        super().__init__(optimizer, schedulers)

    def get_lr(self) -> list[float]:
        """Return the learning rate of each group in the current epoch."""
        place = bisect_right(self.milestones, self.current_epoch)
        scheduler = self.schedulers[place]
        scheduler.current_epoch = self.current_epoch - (self.milestones[place - 1] if place else 0)
        return scheduler.get_lr()


def _positive(name: str, number: int) -> int:
    if number < 1:
        raise ValueError(f"{name} must be at least 1, got {number}")
    return number
