"""The polynomials in the bodies of the transcendental functions: minimax fits by the Remez exchange.

The exchange is Remez's second algorithm (J.-M. Muller, "Elementary Functions", 3rd ed., section 3.5) in 60
digits; the coefficients are then rounded to the dtype. Those whose result is a sum with a dominant first
coefficient have their intervals' centre where that one is nearly a number of the dtype.

    python docs/minimax.py            what every fit is, and the error of the coefficients in the core
    python docs/minimax.py EXP        fit anew those whose name begins so
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

import mpmath
import numpy as np
from mgb.ops import activations
from mgb.ops.bodies import circular, exponential, hyperbolic, special

Function = Callable[[Any], Any]

DIGITS = 60
EXCHANGES = 12


@dataclass(frozen=True)
class Fit:
    """``target(x) ~ c[0] + c[1] * x + ... + c[degree] * x**degree`` on an interval.

    Attributes
    ----------
    name : str
        Of the table in the core.
    held : tuple of float
        The coefficients there.
    target : function
    interval : tuple of two numbers
    weight : function
        What an error of the polynomial is multiplied with to make a relative error of the result.
    """

    name: str
    held: tuple[float, ...]
    target: Function
    interval: tuple[Any, Any]
    weight: Function

    @property
    def degree(self) -> int:
        """Of the polynomial."""
        return len(self.held) - 1

    @property
    def ends(self) -> tuple[Any, Any]:
        """The interval in mpmath numbers."""
        low, high = self.interval
        return mpmath.mpf(low), mpmath.mpf(high)

    @property
    def single(self) -> bool:
        """Whether the coefficients in the core are of float32, as few digits of them tell."""
        return all(repr(c) == str(np.float32(c)) for c in self.held)

    def error(self, coefficients: Sequence[Any] | None = None, points: int = 40) -> Any:
        """The largest weighted error, of the coefficients in the core where no others are given."""
        known = [self.round(c) for c in (coefficients or self.held)]
        return max(abs(self._error(x, known)) for x in _chebyshev(*self.ends, points * (self.degree + 2)))

    def round(self, c: Any) -> Any:
        """`c` in the precision of the coefficients in the core."""
        return mpmath.mpf(float(np.float32(float(c))) if self.single else float(c))

    def _error(self, x: Any, coefficients: Sequence[Any]) -> Any:
        value = reduce(lambda total, c: total * x + c, reversed(coefficients))  # Horner's scheme
        return (value - self.target(x)) * self.weight(x)

    def exchange(self) -> list[Any]:
        """The coefficients of the best fit, unrounded."""
        low, high = self.ends
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


def _over(function: Function, at_zero: Any) -> Function:
    """`function`, and its limit at 0."""
    return cache(lambda x: mpmath.mpf(at_zero) if abs(x) < mpmath.mpf(10) ** -20 else function(x))


def fits() -> list[Fit]:
    """Every polynomial of the bodies; mpmath's precision is that of the call."""
    return [*_exponentials(), *_odd_functions(), *_circular(), *_error_functions(), *_inverse_errors()]


def _by_dtype(table: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Names of the dtypes, and their entries."""
    return ((str(dtype), held) for dtype, held in table.items())


def _exponentials() -> Iterator[Fit]:
    end = mpmath.log(2) / 2 + mpmath.mpf(2) ** -20
    tail = _over(lambda r: (mpmath.expm1(r) - r) / r**2, 0.5)
    for name, held in _by_dtype(exponential.EXP):
        yield Fit(f"EXP {name}", held, tail, (-end, end), lambda r: r**2)
    root = mpmath.sqrt(2)
    tail = _over(lambda f: (mpmath.log1p(f) - f) / f**2, -0.5)
    weight = _over(lambda f: abs(f**2 / mpmath.log1p(f)), 0)
    yield Fit("LOG_SINGLE", exponential.LOG_SINGLE, tail, (1 / root - 1, root - 1), weight)
    highest = ((root - 1) / (root + 1)) ** 2
    atanh, _ = _odd_tail(mpmath.atanh, mpmath.mpf(1) / 3)
    for name in ("LOG_WIDE", "LOG_DOUBLE"):
        held = getattr(exponential, name)
        yield Fit(name, held, lambda z: 2 * atanh(z), (0, highest), lambda z: z / 2)
    second = _over(lambda z: (atanh(z) - mpmath.mpf(1) / 3) / z, mpmath.mpf(1) / 5)
    yield Fit("ATANH_TAIL", exponential.ATANH_TAIL, second, (0, highest), lambda z: z**2)


def _odd_functions() -> Iterator[Fit]:
    """Of each the table, the function, the coefficient of its cube, the end of the interval."""
    for name, table, function, third, end in (
        ("TANH", exponential.TANH, mpmath.tanh, -mpmath.mpf(1) / 3, mpmath.mpf("0.55")),
        ("SINH", hyperbolic.SINH, mpmath.sinh, mpmath.mpf(1) / 6, 1),
        ("ASIN", hyperbolic.ASIN, mpmath.asin, mpmath.mpf(1) / 6, 0.5),
        ("ATAN", {"float32": circular.ATAN_SINGLE}, mpmath.atan, -mpmath.mpf(1) / 3, 0.625),
        ("ATAN", {"float64": circular.ATAN_DOUBLE}, mpmath.atan, -mpmath.mpf(1) / 3, 0.5),
        ("SIN", circular.SIN, mpmath.sin, -mpmath.mpf(1) / 6, mpmath.pi / 4),
    ):
        tail, weight = _odd_tail(function, third)
        for dtype, held in _by_dtype(table):
            yield Fit(f"{name} {dtype}", held, tail, (0, mpmath.mpf(end) ** 2), weight)


def _circular() -> Iterator[Fit]:
    """What is left of the cosine, and of ``x - tanh(x)``."""
    tail = _over(lambda z: (mpmath.cos(mpmath.sqrt(z)) - 1 + z / 2) / z**2, mpmath.mpf(1) / 24)
    for dtype, held in _by_dtype(circular.COS):
        end = (mpmath.pi / 4) ** 2
        yield Fit(f"COS {dtype}", held, tail, (0, end), lambda z: z**2 / mpmath.cos(mpmath.sqrt(z)))
    shrink = _over(lambda z: -_tail_of(mpmath.tanh)(z), mpmath.mpf(1) / 3)
    for dtype, held in _by_dtype(activations.TANHSHRINK):
        end = mpmath.mpf(0.625) ** 2
        yield Fit(f"TANHSHRINK {dtype}", held, shrink, (0, end), lambda z: 1 / shrink(z))


def _error_functions() -> Iterator[Fit]:
    limit = 2 / mpmath.sqrt(mpmath.pi) - 1
    ratio = _over(lambda z: mpmath.erf(mpmath.sqrt(z)) / mpmath.sqrt(z) - 1, limit)
    for dtype, held in _by_dtype(special.ERF):
        yield Fit(f"ERF {dtype}", held, ratio, (0, 1), lambda z: 1 / (1 + ratio(z)))
    centre, highest = mpmath.mpf(special.ERF_CENTRE), special.ERF_HIGHEST
    rest = _shifted(mpmath.erfc, centre)
    yield Fit("ERF_REST", special.ERF_REST, rest, (1 - centre, highest - centre), lambda _: 1)
    near = _shifted(mpmath.erfc, 1)
    yield Fit("ERFC_NEAR", special.ERFC_NEAR, near, (-1, 0), lambda u: 1 / near(u))
    for (dtype, (middle, held)), start in zip(_by_dtype(special.ERFC), (0, 1), strict=True):
        low, high = ((a - 2) / mpmath.mpf(a + 2) for a in (start, special.ERFC_HIGHEST[np.dtype(dtype)]))
        target = _shifted(_slow_factor, mpmath.mpf(middle))
        yield _relative(f"ERFC {dtype}", held, target, (low - middle, high - middle))
    for dtype, (centre, middle, held) in _by_dtype(special.NORMAL):
        end = mpmath.mpf(special.NORMAL_HIGHEST[np.dtype(dtype)])
        interval = (-middle, end / (end + centre) - middle)
        yield _relative(f"NORMAL {dtype}", held, _normal_tail(centre, middle), interval)


def _inverse_errors() -> Iterator[Fit]:
    """Of each table where it begins, and where the piece ends that has no end: `w` of the last float."""
    far = _of_square(_erfinv_ratio)
    for name, function, start, last in (
        ("ERFINV_SINGLE", _erfinv_ratio, 0, None),
        ("ERFINV_SINGLE_FAR", far, 2.5, 4.1),
        ("ERFINV_NEAR", _erfinv_ratio, 0, None),
        ("ERFINV_MIDDLE", far, 2.5, None),
        ("ERFINV_FAR", far, 7, 27.5),
    ):
        for end, centre, held in getattr(special, name):
            end = last if end == special.INF else end
            target = _shifted(function, mpmath.mpf(centre))
            yield _relative(f"{name} to {end}", held, target, (start - centre, end - centre))
            start = end


def _relative(name: str, held: tuple[float, ...], target: Function, interval: tuple[Any, Any]) -> Fit:
    """A fit whose result is proportional to the polynomial."""
    return Fit(name, held, target, interval, lambda x: 1 / target(x))


def _of_square(function: Function) -> Function:
    return lambda x: function(x * x)


def _tail_of(function: Function) -> Function:
    def tail(z: Any) -> Any:
        x = mpmath.sqrt(z)
        return (function(x) / x - 1) / z

    return tail


def _odd_tail(function: Function, third: Any) -> tuple[Function, Function]:
    """What an odd function is beyond `x`, ``(f(x) / x - 1) / x**2`` in ``z = x**2``, and its weight."""
    safe = _over(_tail_of(function), third)
    return safe, cache(lambda z: z / (1 + z * safe(z)))


def _shifted(function: Function, centre: Any) -> Function:
    return cache(lambda u: function(centre + u))


@cache
def _slow_factor(t: Any) -> Any:
    """``(a + 2) * exp(a**2) * erfc(a)`` of ``t = (a - 2) / (a + 2)``."""
    a = 2 * (1 + t) / (1 - t)
    return (a + 2) * mpmath.exp(a * a) * mpmath.erfc(a)


def _normal_tail(centre: float, middle: float) -> Function:
    """``(a + centre) * exp(a**2 / 2) * Phi(-a)`` of ``s = a / (a + centre) - middle``."""

    def tail(s: Any) -> Any:
        part = s + middle
        a = centre * part / (1 - part)
        return (a + centre) * mpmath.exp(a * a / 2) * mpmath.erfc(a / mpmath.sqrt(2)) / 2

    return cache(tail)


@cache
def _erfinv_ratio(w: Any) -> Any:
    """``erfinv(x) / x`` of ``w = -log(1 - x**2)``, by Newton's method on the logarithm of erfc."""
    if w < mpmath.mpf(10) ** -20:
        return mpmath.sqrt(mpmath.pi) / 2
    x = mpmath.sqrt(-mpmath.expm1(-w))
    if w < 1:
        return mpmath.erfinv(x) / x
    wanted, z, step = -w - mpmath.log1p(x), 0.97 * mpmath.sqrt(w), mpmath.mpf(1)
    while abs(step) > z * mpmath.mpf(10) ** (8 - mpmath.mp.dps):
        left = mpmath.erfc(z)
        step = (mpmath.log(left) - wanted) * left * mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(z * z)
        z += step
    return z / x


def main(wanted: str | None) -> None:
    """Print what fits there are, or fit some anew."""
    mpmath.mp.dps = DIGITS
    for fit in fits():
        if wanted is None:
            low, high = (float(end) for end in fit.ends)
            print(f"{fit.name}: degree {fit.degree} on [{low:.6g}, {high:.6g}], error {_size(fit.error())}")
        elif fit.name.startswith(wanted):
            fresh = fit.exchange()
            print(f"{fit.name}: error {_size(fit.error())}, fitted anew {_size(fit.error(fresh))}")
            rounded = [float(fit.round(c)) for c in fresh]
            print("   ", ", ".join(str(np.float32(c)) if fit.single else repr(c) for c in rounded))


def _size(error: Any) -> str:
    return f"2**{float(mpmath.log(error, 2)):.1f}"


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
