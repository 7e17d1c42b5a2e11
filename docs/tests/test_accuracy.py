"""The published table of accuracy holds on a quick sample, and names what is beyond 2 ULP."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

mpmath = pytest.importorskip("mpmath", reason="the truth of the table is mpmath's")
pytest.importorskip("mgb_cpu_numba", reason="the table is of its compiled functions")

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def accuracy(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import accuracy

    return accuracy


@pytest.fixture
def every_float32(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import every_float32

    return every_float32


def test_every_function_is_published(accuracy) -> None:
    assert set(accuracy.published()) == {row.name for row in accuracy.ROWS}


@pytest.mark.parametrize("names", [("exp", "tanh"), ("sin", "erfc", "gelu")], ids=str)
def test_published_figures_hold(accuracy, names: tuple[str, ...]) -> None:
    assert accuracy.beyond(names) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["exp", "log", "tanh", "erf", "sin", "cos", "sigmoid", "expm1", "log1p", "erfc", "gelu"]
)
def test_every_float32(accuracy, every_float32, name: str) -> None:
    """``pytest -m slow docs/tests/test_accuracy.py``: all 2**32 of them, about a minute a function."""
    (row,) = (row for row in every_float32.ROWS if row.name == name)
    claim = accuracy.published()[name]["float32"]
    for part in range(every_float32.PARTS):
        error, place = every_float32.worst_in(row, part)
        assert error <= claim, place


def test_the_quick_judge_agrees_with_the_slow_one(accuracy, every_float32) -> None:
    random = np.random.default_rng(1)
    got = random.integers(0, 1 << 32, 4000, dtype=np.uint32).view(np.float32)
    got = np.concatenate([got, np.array([0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, 1e-45], np.float32)])
    with np.errstate(all="ignore"):
        want = got.astype(np.float64) * (1 + random.uniform(-3e-7, 3e-7, got.size))
    for i in range(got.size):
        quick, _ = every_float32.worst_of(got[i : i + 1], want[i : i + 1], every_float32.UNITS)
        with np.errstate(all="ignore"):
            assert quick == accuracy.errors(got[i : i + 1], want[i : i + 1])[0], (got[i], want[i])


def test_the_reference_of_the_sweep_has_digits_to_spare(every_float32) -> None:
    """The float64 functions of NumPy and SciPy, against mpmath, in units of float32."""
    for row in every_float32.ROWS:
        if row.inputs != 1 or row.name in ("erfinv", "erfcinv", "mish"):
            continue
        x = np.random.default_rng(2).uniform(row.low, min(row.high, 80), 40).astype(np.float32).astype(float)
        for place, value in zip(x, row.double(x), strict=True):
            with mpmath.workdps(40):
                want = row.truth(mpmath.mpf(float(place)))
                if abs(want) > 1e-38:
                    assert abs(want - mpmath.mpf(float(value))) <= abs(want) * 1e-12, (row.name, place)
