"""The choice by measuring, on a device whose clock says what a test wants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mgb import config
from mgb.ops.reduce import reduce_sum
from mgb.runtime import cache
from mgb_cuda.testing.programs import check, softmax
from mgb_triton import tuning
from mgb_triton.testing.interpreter import Interpreter, missing
from triton_helpers import OnInterpreter, Timed, call, traced

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(config.CACHE_DIR.name, str(tmp_path))
    monkeypatch.setenv(config.CACHE.name, "1")
    monkeypatch.setattr(tuning, "_known", {})
    monkeypatch.setattr(tuning, "WORTH_IT", 1000)


def chosen(device: Interpreter, x: Any, function: Any = lambda x: x * 2 + 1) -> Any:
    """The variant that served a call, whose results are right."""
    graph = traced(function, x)
    kernel = OnInterpreter(device).compile(graph)
    (found,) = call(kernel.run, graph, [x])
    np.testing.assert_allclose(
        found, function(x) if function.__name__ == "<lambda>" else wanted(x), rtol=1e-5
    )
    (plan,) = kernel.state.unit().plans.values()
    return plan.choice.variant


def sums(x: Any) -> Any:
    return reduce_sum(x, axis=(1,))


def wanted(x: np.ndarray) -> np.ndarray:
    return x.sum(axis=1, keepdims=True, dtype=np.float64)


X = np.arange(5000, dtype=np.float32)


def test_fastest_variant_is_used() -> None:
    rule = chosen(Interpreter(), X)
    found = chosen(Timed(1.0, 0.9, 0.5, 0.8), X)
    assert found != rule and found.warps == 2 * rule.warps


def test_slightly_faster_variant_is_not_used() -> None:
    assert chosen(Timed(1.0, 0.99, 0.98, 0.975, 0.98), X) == chosen(Interpreter(), X)


def test_nothing_is_measured_during_stream_capture() -> None:
    """Events are no work for a graph; what is chosen then is not remembered."""
    device = Timed(1.0, 0.9, 0.5, 0.8)
    device.is_capturing = lambda: True  # type: ignore[method-assign]
    rule = chosen(device, X)
    assert rule == chosen(Interpreter(), X) and device.asked == 0
    assert chosen(Timed(1.0, 0.9, 0.5, 0.8), X).warps == 2 * rule.warps


def test_variant_that_does_not_fit_is_skipped() -> None:
    assert chosen(Timed(None, None, 0.5), X).warps == 2 * chosen(Interpreter(), X).warps


def test_rule_is_used_if_no_variant_fits() -> None:
    assert chosen(Timed(*[None] * 9), X) == chosen(Interpreter(), X)


@pytest.mark.parametrize("shape", [(40, 300), (3, 20_000)])
def test_every_candidate_is_correct(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(config.CACHE.name, "0")
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32) + 3
    for which in range(5):
        tuning._known.clear()
        times = [2.0] * 9
        times[which] = 1.0
        chosen(Timed(*times), x, sums)


def test_transposing_tile_is_tried_next_to_plain_rows() -> None:
    x = np.random.default_rng(0).normal(size=(700, 40)).astype(np.float32).T
    tall = set()
    for seconds in ([1.0, 2.0, 2.0, 2.0], [2.0, 2.0, 2.0, 1.0]):
        tuning._known.clear()
        cache.clear()
        graph = traced(softmax, x)
        kernel = OnInterpreter(Timed(*seconds)).compile(graph)
        check(softmax, x, (1,), call(kernel.run, graph, [x])[0])
        (plan,) = kernel.state.unit().plans.values()
        tall.add(plan.choice.variant.tall)
    assert tall == {1, 16}


def test_tuning_result_is_cached_per_size(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Timed(1.0, 0.5), Timed()
    found = chosen(first, X)
    tuning._known.clear()  # as in another process
    assert first.asked > 1
    assert chosen(second, X) == found and second.asked == 0
    third = Timed()
    chosen(third, np.concatenate([X, X]))  # of another size
    assert third.asked > 1


def test_measuring_preserves_overwritten_inputs() -> None:
    """Trial runs write elsewhere: a call in place runs once."""
    x = X.copy()
    graph = traced(lambda x: x * 2 + 1, x)
    kernel = OnInterpreter(Timed()).compile(graph)
    kernel.run(x, out=(x,))
    np.testing.assert_array_equal(x, X * 2 + 1)


def test_tuning_can_be_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tuning.SETTING.name, "0")
    device = Timed(1.0, 0.5)
    assert chosen(device, X) == chosen(Interpreter(), X) and device.asked == 0


def test_small_calls_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "WORTH_IT", 1 << 20)
    device = Timed(1.0, 0.5)
    chosen(device, X)
    assert device.asked == 0
