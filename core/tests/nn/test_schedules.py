"""Schedules of the learning rate and optimizers, each against torch's."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import mgb.optimizer as ours
import numpy as np
import pytest
from mgb import Parameter, Tensor
from mgb.errors import StateDictError

torch = pytest.importorskip("torch", reason="torch is not installed")
theirs = torch.optim.lr_scheduler

#: Schedules by a function of the library, ours or torch's, and of an optimizer.
SCHEDULES: dict[str, Callable[[Any, Any], Any]] = {
    "step": lambda s, o: s.StepLR(o, 3, 0.5),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.9),
    "lambda": lambda s, o: s.LambdaLR(o, [lambda e: 0.9**e, lambda e: 1 / (e + 1)]),
    "linear": lambda s, o: s.LinearLR(o, 0.1, 0.8, 6),
    "constant": lambda s, o: s.ConstantLR(o, 0.25, 4),
    "polynomial": lambda s, o: s.PolynomialLR(o, 8, 2.0),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 7, 0.01),
    "warm restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 4, eta_min=0.01),
    "longer restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2),
    "milestones": lambda s, o: s.MultiStepLR(o, [3, 5, 5]),
    "chained": lambda s, o: s.ChainedScheduler([s.LinearLR(o, 0.1, 1.0, 4), s.ExponentialLR(o, 0.9)]),
    "sequential": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, 1.0, 4), s.StepLR(o, 3, 0.5), s.CosineAnnealingLR(o, 5)], [4, 9]
    ),
    **{
        f"one cycle, {how}, {phases} phases": lambda s, o, how=how, phases=phases: s.OneCycleLR(
            o, [0.5, 2.0], 20, anneal_strategy=how, three_phase=phases == 3, **_momentum(s)
        )
        for how in ("cos", "linear")
        for phases in (2, 3)
    },
}


def _momentum(library: Any) -> dict[str, Any]:
    return {"cycle_momentum": False} if library is theirs else {}


def optimizers() -> tuple[Any, Any]:
    groups = [{"params": [Parameter(np.ones(1))], "lr": 0.4}, {"params": [Parameter(np.ones(1))], "lr": 1.0}]
    other = [{**g, "params": [torch.nn.Parameter(torch.ones(1))]} for g in groups]
    return ours.SGD(groups, lr=0.4), torch.optim.SGD(other, lr=0.4)


def rates(optimizer: Any) -> list[float]:
    return [group["lr"] for group in optimizer.param_groups]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_match_torch(name: str) -> None:
    mine, other = optimizers()
    schedule, judge = SCHEDULES[name](ours, mine), SCHEDULES[name](theirs, other)
    for _ in range(19):
        np.testing.assert_allclose(rates(mine), rates(other), rtol=1e-9)
        schedule.step()
        judge.step()


@pytest.mark.parametrize("name", [n for n in SCHEDULES if n != "lambda"])
def test_schedule_resumes_from_its_state_dict(name: str) -> None:
    first, second = optimizers()[0], optimizers()[0]
    schedule, later = SCHEDULES[name](ours, first), SCHEDULES[name](ours, second)
    for _ in range(5):
        schedule.step()
    later.load_state_dict(pickle.loads(pickle.dumps(schedule.state_dict())))
    for _ in range(3):
        schedule.step()
        later.step()
        assert rates(first) == rates(second)
    with pytest.raises(StateDictError, match="another kind"):
        later.load_state_dict({})


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
def test_reduce_lr_on_plateau_matches_torch(mode: str, threshold_mode: str) -> None:
    options = {"mode": mode, "factor": 0.5, "patience": 2, "threshold": 0.05, "cooldown": 1, "min_lr": 0.02}
    mine, other = optimizers()
    schedule = ours.ReduceLROnPlateau(mine, threshold_mode=threshold_mode, **options)
    judge = theirs.ReduceLROnPlateau(other, threshold_mode=threshold_mode, **options)
    for value in np.random.default_rng(0).uniform(0.5, 1.5, 40):
        schedule.step(value)
        judge.step(value)
        assert rates(mine) == rates(other)
        schedule.load_state_dict(pickle.loads(pickle.dumps(schedule.state_dict())))
    assert rates(mine) == [0.02, 0.02]


REFUSED: dict[str, Callable[[Any], Any]] = {
    "step_size must be at least 1": lambda o: ours.StepLR(o, 0),
    "2 groups": lambda o: ours.LambdaLR(o, [abs]),
    "2 groups in all": lambda o: ours.OneCycleLR(o, [0.1], 5),
    "anneal_strategy": lambda o: ours.OneCycleLR(o, 0.1, 5, anneal_strategy="sin"),
    "beyond total_steps = 2": lambda o: [ours.OneCycleLR(o, 0.1, 2).step(e) for e in (1, 2)],
    "one milestone less": lambda o: ours.SequentialLR(o, [ours.StepLR(o, 1)], [3]),
    "all of the same optimizer": lambda o: ours.SequentialLR(o, [ours.StepLR(optimizers()[0], 1)], []),
    "at least one schedule": lambda o: ours.ChainedScheduler([]),
    "mode is": lambda o: ours.ReduceLROnPlateau(o, "most"),
    "less than 1": lambda o: ours.ReduceLROnPlateau(o, factor=1.5),
}


@pytest.mark.parametrize("text", REFUSED)
def test_invalid_schedule_arguments_raise(text: str) -> None:
    with pytest.raises(ValueError, match=text.removesuffix(" in all")):
        REFUSED[text](optimizers()[0])


#: The optimizers of both libraries that share names and arguments.
RULES: list[tuple[str, dict[str, Any]]] = [
    ("RMSprop", {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1}),
    ("RMSprop", {"centered": True, "eps": 0.1}),
    ("Adamax", {"lr": 0.05, "weight_decay": 0.1}),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "momentum_decay": 0.1}),
]


@pytest.mark.parametrize(("name", "options"), RULES)
def test_optimizers_match_torch(name: str, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    start = rng.normal(size=(3, 2))
    mine, other = Parameter(start, dtype="float64"), torch.nn.Parameter(torch.tensor(start))
    first, second = getattr(ours, name)(mine, **options), getattr(torch.optim, name)([other], **options)
    for _ in range(10):
        grad = rng.normal(size=start.shape)
        mine.grad, other.grad = Tensor(grad, dtype="float64"), torch.tensor(grad)
        first.step()
        second.step()
    np.testing.assert_allclose(mine.numpy() - start, other.detach().numpy() - start, rtol=5e-6, atol=1e-7)
