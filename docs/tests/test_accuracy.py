"""The published table of accuracy holds on a quick sample, and names what is beyond 2 ULP."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("mpmath", reason="the truth of the table is mpmath's")
pytest.importorskip("mgb_cpu_numba", reason="the table is of its compiled functions")

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def accuracy(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import accuracy

    return accuracy


def test_every_function_is_published(accuracy) -> None:
    assert set(accuracy.published()) == {row.name for row in accuracy.ROWS}


@pytest.mark.parametrize("names", [("exp", "log", "tanh", "erf"), ("sin", "pow", "erfc", "sigmoid")], ids=str)
def test_published_figures_hold(accuracy, names: tuple[str, ...]) -> None:
    assert accuracy.beyond(names) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sin"])
def test_every_float32(accuracy, name: str) -> None:
    """``pytest -m slow docs/tests/test_accuracy.py``: all 2**32 of them, about a minute a function."""
    (row,) = (row for row in accuracy.ROWS if row.name == name)
    error, place = accuracy.worst_narrow(row, "float32")
    assert error <= accuracy.BOUND, place
