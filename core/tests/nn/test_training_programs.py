"""Training programs train as they do eagerly, and their bodies are not run again."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from mgb import plugins, tensor
from mgb.errors import BackendError
from mgb.jit import trace
from training_programs import PROGRAMS, Life, Program, live


@pytest.fixture(autouse=True, scope="module")
def eager_steps(kernel_folder: None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MGB_JIT_BACKEND", "EAGER")
        yield


@functools.cache
def eager(name: str) -> Life:
    return live(PROGRAMS[name](), lambda step: step)


def shaken(made: Program) -> Program:
    """The program with each element of its start moved by one unit in the last place, up or down."""
    signs = np.random.default_rng(5)
    unit = float(np.finfo(made.precision).eps)
    for value in made.state:
        if value.dtype == np.float32:
            value[...] = value * tensor(
                1.0 + unit * signs.choice([-1.0, 1.0], value.shape).astype(np.float32)
            )
    return made


@functools.cache
def tolerances(name: str) -> list[float]:
    """How far roundings may take each loss and Tensor: what an ulp of the start does, 16 times.

    A step rounds some dozen times between a weight and its update, and another order rounds elsewhere.
    """
    unit = float(np.finfo(PROGRAMS[name]().precision).eps)
    pairs = zip(values(eager(name)), values(live(shaken(PROGRAMS[name]()), lambda step: step)))
    return [16.0 * max(float(np.abs(a - b).max()), unit * float(np.abs(a).max())) for a, b in pairs]


def values(life: Life) -> list[np.ndarray]:
    return [a.astype(np.float64) for a in life.losses + life.state]


def assert_alike(got: Life, name: str) -> None:
    for one, other, tolerance in zip(values(got), values(eager(name)), tolerances(name), strict=True):
        np.testing.assert_allclose(one, other, rtol=0.0, atol=tolerance)


@pytest.mark.parametrize("name", PROGRAMS)
def test_eager_training_moves_further_than_the_tolerance(name: str) -> None:
    made, life = PROGRAMS[name](), eager(name)
    start = [t.numpy().astype(np.float64) for t in made.state]
    moves = [np.abs(a - b).max() for a, b in zip(values(life)[len(life.losses) :], start, strict=True)]
    limits = tolerances(name)[len(life.losses) :]
    far = [move > 10.0 * limit for move, limit in zip(moves, limits) if move > 0]
    assert sum(far) > 0.7 * len(moves)


@pytest.mark.parametrize("name", PROGRAMS)
def test_traced_training_matches_eager_and_skips_the_body(name: str) -> None:
    traced = []

    def wrap(step: Any) -> Any:
        traced.append(trace(step))
        return traced[0]

    life, settled = live(PROGRAMS[name](), wrap), PROGRAMS[name]().settled
    assert_alike(life, name)
    assert life.runs[0] >= 1
    assert [b - a for a, b in itertools.pairwise(life.runs[settled - 1 :])] == [0] * (
        len(life.runs) - settled
    ), (
        life.runs,
        traced[0].stats(),
    )


@pytest.mark.parametrize("name", ["mlp_with_adam", "policy_gradient", "several_tasks_from_a_configuration"])
@pytest.mark.parametrize("asks", ["option", "variable"])
def test_run_body_runs_the_body_at_every_call(monkeypatch: pytest.MonkeyPatch, name: str, asks: str) -> None:
    if asks == "variable":
        monkeypatch.setenv("MGB_RUN_BODY", "1")
    options = {"run_body": True} if asks == "option" else {}
    life = live(PROGRAMS[name](), lambda step: trace(step, **options))
    assert_alike(life, name)
    assert life.runs == list(range(1, len(life.runs) + 1))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["c", "cpu_llvm", "cpu_numba", "mlir", "halide", "xla"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_traced_training_matches_eager_on_each_backend(name: str, backend: str) -> None:
    try:
        plugins.choose_backend("cpu", backend)
    except BackendError as error:
        pytest.skip(str(error))
    assert_alike(live(PROGRAMS[name](), lambda step: trace(step, backend=backend)), name)
