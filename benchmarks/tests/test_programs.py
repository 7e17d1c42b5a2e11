"""The programs behind docs/benchmarks/limits.md still find what they measure."""

from __future__ import annotations

import pytest
from mgb_bench import parts, update_parts


def test_parts_of_a_short_call() -> None:
    for call in parts.of_product(1024).values():
        call()


def test_parts_of_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_parts, "CALLS", 6)
    found = update_parts.parts("SGD", 200, False)
    assert {"kernels", "guards: arguments", "which inputs may be overwritten"} <= set(found)


def test_parts_of_a_whole_step(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
    from mgb_bench import step_parts
    from mgb_bench.models.workload import WORKLOADS

    monkeypatch.setattr(step_parts, "CALLS", 6)
    whole, found = step_parts.ours(WORKLOADS["MLP"])
    assert whole > 0 and found["matrix products"] > 0
