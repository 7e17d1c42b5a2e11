"""Whole training steps: forward pass, backward pass and update, at three levels of optimisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from mgb_bench.measure import told
from mgb_bench.models import WORKLOADS, Workload, mgb_step
from mgb_bench.peers import Mgb, Peer
from mgb_bench.plugin import Run, timed_race

#: How far the losses of the first three steps may differ from the reference's, relative. Float32 rounds at
#: 6e-8; batch normalisation over few elements and the updates make of it up to 5e-4 in the third loss.
TOLERANCE = 2e-3

Step = Callable[[], Any]


def steps_of(workload: Workload, peer: Peer) -> dict[str, Step]:
    """Return the steps of `peer`: mgb has one for each level, others one, or none."""
    if isinstance(peer, Mgb):
        return {
            peer.name + (f" level {level}" if level < 3 else ""): mgb_step.make(
                workload, opt_level=level, backend=peer.backend
            )
            for level in (3, 2, 0)
        }
    weights = mgb_step.weights(mgb_step.build(workload))
    if peer.name in ("torch", "torch_compile"):
        from mgb_bench.models import torch_step

        return {peer.name: torch_step.make(workload, weights, compiled=peer.name == "torch_compile")}
    if peer.name == "jax":
        from mgb_bench.models import jax_step

        return {peer.name: jax_step.make(workload, weights)}
    return {}


def made(workload: Workload, peers: Mapping[str, Peer]) -> tuple[dict[str, dict[str, Step]], dict[str, str]]:
    """Return the steps of each peer; what went wrong for those that could not make theirs."""
    brought: dict[str, dict[str, Step]] = {}
    failed = {}
    for name, peer in peers.items():
        try:
            brought[name] = steps_of(workload, peer)
        except Exception as error:
            failed[name] = told(error)
    return brought, failed


def curve(step: Step, count: int = 3) -> list[float]:
    """Return the losses of the next `count` steps."""
    return [float(step()) for _ in range(count)]


def agreeing(steps: Mapping[str, Step]) -> tuple[dict[str, Step], dict[str, str]]:
    """Return the steps whose losses are those of PyTorch, or of mgb unoptimised; and errors of others."""
    curves, failed = {}, {}
    for name, step in steps.items():
        try:
            curves[name] = curve(step)
        except Exception as error:
            failed[name] = told(error)
    if not curves:
        return {}, failed
    reference = next((curves[n] for n in curves if n == "torch"), None) or list(curves.values())[-1]
    for name, losses in curves.items():
        if not np.allclose(losses, reference, rtol=TOLERANCE, atol=0):
            failed[name] = f"losses {losses} instead of {reference}"
    return {name: step for name, step in steps.items() if name not in failed}, failed


@pytest.mark.parametrize("name", WORKLOADS)
def test_steps(benchmark: Any, run: Run, name: str) -> None:
    workload = WORKLOADS[name]
    brought, unmade = made(workload, run.peers)
    calls, failed = agreeing({n: step for steps in brought.values() for n, step in steps.items()})
    timed_race(benchmark, run, calls)
    failed |= unmade | benchmark.extra_info["failed"]
    timings = benchmark.extra_info["timings"]
    benchmark.extra_info.update(
        suite="steps",
        case=name,
        size=f"batch {workload.batch}",
        absent=[peer for peer, steps in brought.items() if not steps and peer not in unmade],
        failed=failed,
        notes=[_gain(peer, timings) for peer in timings if f"{peer} level 0" in timings],
    )
    broken = {name: why for name, why in failed.items() if name.startswith("mgb:")}
    assert not broken, broken


def _gain(peer: str, timings: Mapping[str, Mapping[str, float]]) -> str:
    gain = timings[f"{peer} level 0"]["median"] / timings[peer]["median"]
    return f"{peer}: opt_level 3 is {gain:.2f} times as fast as opt_level 0"
