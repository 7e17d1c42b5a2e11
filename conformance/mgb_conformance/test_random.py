"""Random graphs, made and shrunk by Hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from mgb.ir import Kind
from mgb.ops.bodies.transcendental import sin, tanh
from mgb.ops.primitives import floor, lt, maximum, minimum, neg, where
from mgb.ops.reduce import reduce_max, reduce_sum

from .cases import check, of, samples
from .drive import Driver

BINARY: tuple[Callable[..., Any], ...] = (
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b * 0.25,
    maximum,
    minimum,
    lambda a, b: where(lt(a, b), a, b * 0.5),
)
UNARY: tuple[Callable[..., Any], ...] = (neg, tanh, sin, floor, lambda a: a * 0.5 + 1)
SHAPES = ((3, 40), (40,), (3, 1), (1, 1))
AXIS = (1,)

#: One step: which op, and which earlier values it reads (counted backwards, modulo how many there are).
STEP = st.tuples(st.integers(0, 12), st.integers(0, 7), st.integers(0, 7))
OUTPUTS = st.lists(st.integers(0, 9), min_size=1, max_size=4)
PROGRAM = st.tuples(st.lists(STEP, min_size=1, max_size=20), OUTPUTS)


def run(program: tuple[Any, Any], folds: bool, *xs: Any) -> list[Any]:
    """Return the outputs of a random program on tensors."""
    steps, outputs = program
    values = [x * 1 for x in xs]
    for op, i, j in steps:
        a, b = values[-1 - i % len(values)], values[-1 - j % len(values)]
        if op < len(BINARY):
            values.append(BINARY[op](a, b))
        elif op < len(BINARY) + len(UNARY):
            values.append(UNARY[op - len(BINARY)](a))
        elif folds and a.shape[-1:] == (40,):
            wide = a if a.ndim == 2 else a + xs[0] * 0
            values.append(reduce_max(wide, axis=AXIS) if op % 2 else reduce_sum(wide, axis=AXIS) * 0.01)
    return [values[-1 - k % len(values)] for k in outputs]


def settings(examples: int) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=examples, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip


class TestRandomGraphs:
    @settings(20)
    @hypothesis.given(program=PROGRAM)
    def test_graph(self, driver: Driver, program: Any) -> None:
        self._try(driver, program)

    @pytest.mark.slow
    @settings(500)
    @hypothesis.given(program=PROGRAM)
    def test_many_graphs(self, driver: Driver, program: Any) -> None:
        self._try(driver, program)

    def _try(self, driver: Driver, program: Any) -> None:
        arrays = [samples("float32", shape, seed) for seed, shape in enumerate(SHAPES)]
        folds = Kind.REDUCE in driver.backend.traits.kinds
        check(driver, of(lambda *xs: run(program, folds, *xs), *arrays), arrays)
