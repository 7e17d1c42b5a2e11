"""The polynomials in the bodies of the transcendental functions: minimax fits by the Remez exchange.

The exchange is Remez's second algorithm (J.-M. Muller, "Elementary Functions", 3rd ed., section 3.5) in 60
digits; the coefficients are then rounded to the dtype.

    python docs/minimax.py            what every fit is, and its error
    python docs/minimax.py EXP        the coefficients of those whose name begins so
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import mpmath
import numpy as np

Function = Callable[[Any], Any]

DIGITS = 60
EXCHANGES = 12


@dataclass(frozen=True)
class Fit:
    """``target(x) ~ c[0] + c[1] * x + ... + c[degree] * x**degree`` on an interval.

    Attributes
    ----------
    name, dtype : str
        Of the table in the core, and whose precision the coefficients have.
    target : function
    interval : tuple of two floats
    degree : int
    weight : function
        What an error of the polynomial is multiplied with to make a relative error of the result.
    """

    name: str
    dtype: str
    target: Function
    interval: tuple[Any, Any]
    degree: int
    weight: Function = lambda _x: mpmath.mpf(1)

    def coefficients(self) -> tuple[list[Any], Any]:
        """The coefficients, each rounded to the dtype, and the largest weighted error with them."""
        low, high = (mpmath.mpf(end) for end in self.interval)
        known = [self._round(c) for c in self._exchange(low, high)]
        points = _chebyshev(low, high, 40 * (self.degree + 2))
        error = max(abs(self._error(x, known)) for x in points)
        return known, error

    def _round(self, c: Any) -> Any:
        if self.dtype == "float64":
            return mpmath.mpf(float(c))
        return mpmath.mpf(float(np.float32(float(c))))

    def _error(self, x: Any, coefficients: list[Any]) -> Any:
        return (mpmath.polyval(coefficients[::-1], x) - self.target(x)) * self.weight(x)

    def _exchange(self, low: Any, high: Any) -> list[Any]:
        points = _chebyshev(low, high, self.degree + 2)
        points = [x if self.weight(x) else x + (high - low) / 97 for x in points]
        found: list[Any] = []
        for _ in range(EXCHANGES):
            found = self._level(points)
            new = self._extrema(low, high, found, len(points))
            if len(new) < len(points):
                break
            moved = max(abs(a - b) for a, b in zip(new, points, strict=True))
            points = new
            if moved < (high - low) * 1e-6:
                break
        return found

    def _level(self, points: list[Any]) -> list[Any]:
        """The coefficients whose errors at `points` are alike but for their signs."""
        rows, right = [], []
        for i, x in enumerate(points):
            w = self.weight(x)
            rows.append([w * x**k for k in range(self.degree + 1)] + [mpmath.mpf((-1) ** i)])
            right.append(w * self.target(x))
        return list(mpmath.lu_solve(mpmath.matrix(rows), mpmath.matrix(right)))[:-1]

    def _extrema(self, low: Any, high: Any, coefficients: list[Any], count: int) -> list[Any]:
        """Where the error is largest between its changes of sign."""
        grid = _chebyshev(low, high, 24 * count)
        errors = [self._error(x, coefficients) for x in grid]
        found: list[tuple[Any, Any]] = []
        for x, error in zip(grid, errors, strict=True):
            if found and (found[-1][1] > 0) == (error > 0):
                if abs(error) > abs(found[-1][1]):
                    found[-1] = (x, error)
            else:
                found.append((x, error))
        while len(found) > count:
            _drop_least(found)
        return [x for x, _ in found]


def _drop_least(found: list[tuple[Any, Any]]) -> None:
    """Remove the smallest extremum; from the middle with a neighbour, so that signs still alternate."""
    least = min(range(len(found)), key=lambda i: abs(found[i][1]))
    del found[least]
    if 0 < least < len(found):
        del found[least - (abs(found[least - 1][1]) < abs(found[least][1]))]


def _chebyshev(low: Any, high: Any, count: int) -> list[Any]:
    """The extrema of a Chebyshev polynomial, ends included."""
    middle, half = (low + high) / 2, (high - low) / 2
    last = max(count - 1, 1)
    return [middle - half * mpmath.cos(mpmath.pi * k / last) for k in range(count)]


def _over(function: Function, at_zero: float) -> Function:
    """`function`, and its limit at 0."""
    return cache(lambda x: mpmath.mpf(at_zero) if abs(x) < mpmath.mpf(10) ** -25 else function(x))


def fits() -> Iterator[Fit]:
    """Every fit of this program."""
    half_ln2 = mpmath.log(2) / 2 + mpmath.mpf(2) ** -20
    exp_tail = _over(lambda r: (mpmath.expm1(r) - r) / r**2, 0.5)
    for dtype, degree in (("float32", 4), ("float64", 9)):
        yield Fit("EXP", dtype, exp_tail, (-half_ln2, half_ln2), degree, lambda r: r**2)
    root = mpmath.sqrt(2)
    log_tail = _over(lambda f: (mpmath.log1p(f) - f) / f**2, -0.5)
    log_weight = _over(lambda f: abs(f**2 / mpmath.log1p(f)), 0.0)
    yield Fit("LOG_SINGLE", "float32", log_tail, (1 / root - 1, root - 1), 8, log_weight)
    highest = ((root - 1) / (root + 1)) ** 2
    atanh_tail, _ = _odd_tail(mpmath.atanh, mpmath.mpf(1) / 3)
    yield Fit("LOG_WIDE", "float64", lambda z: 2 * atanh_tail(z), (0, highest), 4, lambda z: z / 2)
    for name, function, slope, end, degrees in (
        ("TANH", mpmath.tanh, -mpmath.mpf(1) / 3, 0.55, (4, 10)),
        ("SINH", mpmath.sinh, mpmath.mpf(1) / 6, 1, (3, 7)),
        ("ATAN", mpmath.atan, -mpmath.mpf(1) / 3, 0.5, (6, 13)),
        ("ASIN", mpmath.asin, mpmath.mpf(1) / 6, 0.5, (5, 12)),
    ):
        tail, weight = _odd_tail(function, slope)
        for dtype, degree in zip(("float32", "float64"), degrees, strict=True):
            yield Fit(name, dtype, tail, (0, mpmath.mpf(end) ** 2), degree, weight)
    start, end = mpmath.mpf(1), mpmath.mpf("3.93")
    middle = (start + end) / 2
    yield Fit("ERF_REST", "float32", _shifted(mpmath.erfc, middle), (start - middle, end - middle), 14)
    near = _shifted(mpmath.erfc, 1)
    yield Fit("ERFC_NEAR", "float64", near, (-1, 0), 18, lambda u: 1 / near(u))
    for dtype, end, degree in (("float32", 10.2, 10), ("float64", 27.5, 25)):
        slow = _slow_factor(2)
        top = mpmath.mpf(end - 2) / (end + 2)
        yield Fit("ERFC", dtype, slow, (-1, top), degree, lambda t, slow=slow: 1 / slow(t))  # type: ignore[misc]
    centre = mpmath.mpf(float(np.float32(8**0.5)))
    tail = _normal_tail(centre)
    yield Fit("NORMAL", "float32", tail, (-1, (14.5 - centre) / (14.5 + centre)), 9, lambda t: 1 / tail(t))
    near = _shifted(_erfinv_ratio, mpmath.mpf(1.5))
    yield Fit("ERFINV_SINGLE", "float32", near, (-1.5, 6.25 - 1.5), 10, lambda u: 1 / near(u))
    middle = (mpmath.sqrt(6.25) + mpmath.mpf("4.1")) / 2
    far = _shifted(lambda root: _erfinv_ratio(root**2), middle)
    ends = (mpmath.sqrt(6.25) - middle, mpmath.mpf("4.1") - middle)
    yield Fit("ERFINV_SINGLE_FAR", "float32", far, ends, 7, lambda u: 1 / far(u))


def _odd_tail(function: Function, third: Any) -> tuple[Function, Function]:
    """What an odd function is beyond `x`, ``(f(x) / x - 1) / x**2`` in ``z = x**2``, and its weight."""

    def tail(z: Any) -> Any:
        x = mpmath.sqrt(z)
        return (function(x) / x - 1) / z

    safe = _over(tail, third)
    return safe, cache(lambda z: z / (1 + z * safe(z)))


def _shifted(function: Function, centre: Any) -> Function:
    return cache(lambda u: function(centre + u))


def _slow_factor(centre: int) -> Function:
    """``(a + centre) * exp(a**2) * erfc(a)`` of ``t = (a - centre) / (a + centre)``."""

    def slow(t: Any) -> Any:
        a = centre * (1 + t) / (1 - t)
        return (a + centre) * mpmath.exp(a * a) * mpmath.erfc(a)

    return cache(slow)


def _normal_tail(centre: Any) -> Function:
    """``(a + centre) * exp(a**2 / 2) * Phi(-a)`` of ``t = (a - centre) / (a + centre)``."""

    def tail(t: Any) -> Any:
        a = centre * (1 + t) / (1 - t)
        return (a + centre) * mpmath.exp(a * a / 2) * mpmath.erfc(a / mpmath.sqrt(2)) / 2

    return cache(tail)


@cache
def _erfinv_ratio(w: Any) -> Any:
    """``erfinv(x) / x`` of ``w = -log(1 - x**2)``."""
    if w == 0:
        return mpmath.sqrt(mpmath.pi) / 2
    x = mpmath.sqrt(-mpmath.expm1(-w))
    return mpmath.erfinv(x) / x


def main(wanted: str | None) -> None:
    """Print what fits there are, or the coefficients of some."""
    mpmath.mp.dps = DIGITS
    for fit in fits():
        if wanted is not None and not fit.name.startswith(wanted):
            continue
        coefficients, error = fit.coefficients()
        low, high = (float(end) for end in fit.interval)
        size = f"2**{float(mpmath.log(error, 2)):.1f}"
        print(f"{fit.name} {fit.dtype} degree {fit.degree} on [{low:.6g}, {high:.6g}]: error {size}")
        if wanted is not None:
            number = np.float32 if fit.dtype == "float32" else np.float64
            print("   ", ", ".join(repr(number(float(c)).item()) if number is np.float64
                                   else str(number(float(c))) for c in coefficients))  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
