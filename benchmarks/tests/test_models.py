"""The networks of the training steps at tiny sizes: gradients against PyTorch in float64, losses too."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mgb_bench.models import WORKLOADS, Workload, mgb_step
from mgb_bench.peers import Mgb
from mgb_bench.plugin import Run
from mgb_bench.suites import test_steps as steps
from mgb_bench.suites.test_steps import TOLERANCE, agreeing, curve

TINY = {
    "MLP": WORKLOADS["MLP"].smaller(8, widths=(7, 6, 5, 4)),
    "small conv net": WORKLOADS["small conv net"].smaller(4, width=3),
    "ResNet-18": replace(WORKLOADS["ResNet-18"].smaller(6, width=4, blocks=(1, 2)), image=(3, 8, 8), lr=1e-3),
    "MobileNetV2 blocks": replace(
        WORKLOADS["MobileNetV2 blocks"].smaller(6, width=4, blocks=((4, 1), (6, 2)), expansion=2),
        image=(3, 8, 8),
        lr=1e-3,
    ),
    "transformer block": WORKLOADS["transformer block"].smaller(2, width=8, heads=2),
    "AlexNet, Adam": WORKLOADS["AlexNet, Adam"].smaller(2, width=2, classes=5),
}

tiny = pytest.mark.parametrize("workload", TINY.values(), ids=TINY)


def test_every_workload_has_a_tiny_version() -> None:
    assert TINY.keys() == WORKLOADS.keys()


@tiny
def test_gradients_match_torch(workload: Workload) -> None:
    pytest.importorskip("torch", reason="gradients are judged by PyTorch: pip install torch")
    from mgb_bench.models import torch_step

    loss, grads = mgb_step.gradients(workload)
    weights = mgb_step.weights(mgb_step.build(workload))
    true_loss, true_grads = torch_step.gradients(workload, weights)
    assert loss == pytest.approx(true_loss, rel=1e-5)
    assert grads.keys() == true_grads.keys()
    for name, truth in true_grads.items():
        scale = np.abs(truth).max()
        np.testing.assert_allclose(
            grads[name].reshape(truth.shape), truth, rtol=1e-3, atol=1e-4 * scale + 1e-7, err_msg=name
        )


@tiny
@pytest.mark.parametrize("module", ["torch", "jax"])
def test_losses_match_torch_and_jax(workload: Workload, module: str) -> None:
    pytest.importorskip(
        module, reason=f"the losses are compared with those of {module}: pip install {module}"
    )
    weights = mgb_step.weights(mgb_step.build(workload))
    if module == "torch":
        from mgb_bench.models.torch_step import make
    else:
        from mgb_bench.models.jax_step import make
    expected = curve(make(workload, weights))
    for level in (0, 2, 3):
        np.testing.assert_allclose(curve(mgb_step.make(workload, opt_level=level)), expected, rtol=TOLERANCE)


@tiny
def test_training_steps_reduce_the_loss(workload: Workload) -> None:
    losses = curve(mgb_step.make(workload), 8)
    assert min(losses[1:]) < losses[0]


def test_wrong_loss_is_reported() -> None:
    right, wrong = (lambda: 1.0), (lambda: 1.1)
    calls, failed = agreeing({"mgb:here": wrong, "torch": right, "jax": right})
    assert list(calls) == ["torch", "jax"]
    assert "1.1" in failed["mgb:here"]


def test_reasons_are_reported_when_no_step_can_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("no such layer")

    assert agreeing({}) == ({}, {})
    assert agreeing({"torch": broken}) == ({}, {"torch": "RuntimeError: no such layer"})
    monkeypatch.setattr(mgb_step, "make", broken)
    benchmark = SimpleNamespace(extra_info={}, pedantic=lambda call, **_: call())
    with pytest.raises(AssertionError, match="RuntimeError: no such layer"):
        steps.test_steps(benchmark, Run({"mgb:eager": Mgb("eager")}, {}, quick=True), "MLP")
    assert benchmark.extra_info["failed"] == {"mgb:eager": "RuntimeError: no such layer"}
