"""The suite for GPUs: what it computes, with a stand-in for CuPy; and what it says where there is no GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mgb import jit
from mgb_bench import gpu, run
from scipy import special

standin = pytest.importorskip("mgb_conformance.standin", reason="mgb-conformance is not installed")

SMALL = [replace(case, shape=(70, 40)) for case in gpu.CASES]


@pytest.fixture
def cupy() -> Iterator[Any]:
    yield standin.install(1)
    standin.uninstall()


def arrays(case: gpu.Case) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal(case.shape, dtype=np.float32) for _ in range(case.inputs)]


@pytest.mark.parametrize("case", SMALL, ids=lambda c: c.name)
@pytest.mark.parametrize("name", ["mgb eager", "cupy"])
def test_what_is_timed_is_right(
    case: gpu.Case, name: str, cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = gpu._cupy(fused=False) if name == "cupy" else gpu._mgb("eager")
    contestant = gpu.Contestant(name, (), build)
    before = dict(os.environ)
    monkeypatch.setattr(gpu, "seconds", lambda call, rounds: 1e-6)
    (line,) = gpu.measure(case, 1e12, [contestant], 1)
    assert line.problem == "" and line.microseconds == 1.0
    assert line.of_copy == round(case.nbytes() / 1e6, 3)
    assert dict(os.environ) == before, "whatever is traced later would have this backend too"


def test_each_backend_is_timed_under_its_own_name(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The builds of all contestants are alive at once; none may decide for another."""
    monkeypatch.setenv("MGB_JIT_BACKEND", "nobody")
    (x,) = arrays(SMALL[1])
    asked: list[str] = []
    kept = jit.trace

    def noting(function: Any, **options: Any) -> Any:
        asked.append(options["backend"])
        return kept(function, **options | {"backend": "eager"})

    monkeypatch.setattr(jit, "trace", noting)
    calls = [gpu._mgb(name)(SMALL[1], [x])[0] for name in ("nvrtc", "triton")]
    for call in calls:
        call()
    assert asked == ["nvrtc,eager", "triton,eager"]


def test_a_wrong_result_is_not_timed(cupy: Any) -> None:
    wrong = gpu.Contestant("wrong", (), lambda case, arrays: (lambda: np.zeros(case.shape), lambda x: x))
    (line,) = gpu.measure(SMALL[0], 1e12, [wrong], 1)
    assert line.microseconds is None and "AssertionError" in line.problem


def test_the_truth_is_the_textbook() -> None:
    by_name = {case.name: case for case in SMALL}
    (x,) = arrays(by_name["softmax"])
    np.testing.assert_allclose(
        gpu.truth(by_name["softmax"], [x]), special.softmax(x[:64].astype(float), axis=-1)
    )
    a, b = arrays(by_name["chain"])
    assert gpu.truth(by_name["chain"], [a, b]).shape == (64, 40)
    assert by_name["softmax"].nbytes() == 70 * 40 * 8


def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    standin.install(0)
    try:
        assert run.bench(["gpu"], out=tmp_path / "out") == 2
    finally:
        standin.uninstall()
    assert "no GPU: CuPy finds no GPU here" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
