"""The polynomials of the bodies are as good as the exchange makes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

mpmath = pytest.importorskip("mpmath", reason="fits are made in many digits, by mpmath")

DOCS = Path(__file__).parent.parent
FITS = 35


@pytest.fixture
def minimax(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(DOCS))
    import minimax

    with mpmath.workdps(40):
        yield minimax


#: What stands in names of fits for results that have the digits of float32.
SINGLE = ("float32", "SINGLE", "WIDE", "ERF_REST")


def test_every_fit_error_is_below_rounding(minimax) -> None:
    """What the coefficients in the bodies miss of mpmath's functions is rounded away."""
    fits = minimax.fits()
    assert len(fits) == FITS
    for fit in fits:
        digits = 24 if any(word in fit.name for word in SINGLE) else 53
        assert fit.error(points=5) <= 2.0**-digits, fit.name


@pytest.mark.slow
@pytest.mark.parametrize("i", range(FITS))
def test_refitting_does_not_improve_a_polynomial_much(minimax, i: int) -> None:
    """But ERF in float32, whose first digits are rounded one after the other."""
    fit = minimax.fits()[i]
    fresh = fit.error(fit.exchange(), points=10)
    assert fit.error(points=10) <= (3.2 if fit.name == "ERF float32" else 1.5) * fresh
