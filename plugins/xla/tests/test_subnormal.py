"""Subnormal numbers may be read and written as 0, and as nothing else; normal ones of any size are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from mgb import functional as F
from mgb.ops.declare import OPS
from mgb.tensor.apply import apply
from xla_helpers import program

#: Functions of XLA's own, in real numbers, and of 0 and infinity.
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], np.ufunc]] = {
    "sqrt": (mpmath.sqrt, np.sqrt), "cbrt": (lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), np.cbrt),
    "sign": (mpmath.sign, np.sign), "exp": (mpmath.exp, np.exp), "log": (mpmath.log, np.log),
    "sin": (mpmath.sin, np.sin), "cos": (mpmath.cos, np.cos), "tan": (mpmath.tan, np.tan),
    "asin": (mpmath.asin, np.arcsin), "acos": (mpmath.acos, np.arccos), "atan": (mpmath.atan, np.arctan),
    "asinh": (mpmath.asinh, np.arcsinh), "acosh": (mpmath.acosh, np.arccosh),
}  # fmt: skip


def binades(dtype: str) -> np.ndarray:
    """A power of two and a number above it, of all binades and both signs; zeros and infinities."""
    info = np.finfo(dtype)
    low, high = (int(np.frexp(x)[1]) - 1 for x in (info.smallest_subnormal, info.max))
    powers = np.ldexp(np.ones(1, dtype), np.arange(low, high + 1, dtype=np.int32))
    above = powers * np.random.default_rng(0).uniform(1, 2, powers.size).astype(dtype)
    found = np.concatenate([[0.0, info.smallest_normal, np.inf], powers, above]).astype(dtype)
    return np.concatenate([found, -found])


def flushed(x: np.ndarray) -> np.ndarray:
    """`x`, with 0 for what is subnormal."""
    tiny = np.abs(x) < np.finfo(x.dtype).smallest_normal
    return np.where(tiny, np.copysign(x.dtype.type(0), x), x)


def exactly(name: str, x: np.ndarray) -> np.ndarray:
    """Compute a function of real numbers in float64; NaN where it is undefined."""
    function, ufunc = FUNCTIONS[name]

    def one(value: float) -> float:
        found = function(mpmath.mpf(value)) if value and np.isfinite(value) else ufunc(value)
        return float("nan") if isinstance(found, mpmath.mpc) else float(found)

    turns = name in ("sin", "cos", "tan")  # as many digits as the largest number has before its point
    with mpmath.workprec(128 + turns * np.finfo(x.dtype).maxexp), np.errstate(all="ignore"):
        return np.array([one(v) for v in x.tolist()])


def is_right(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Within 4 units in the last place, or 0 where it would be subnormal."""
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        unit = np.spacing(np.maximum(np.abs(got), info.smallest_normal))
        near = np.abs(got.astype(want.dtype) - want) <= 4 * unit
        same = (got.astype(want.dtype) == want.astype(got.dtype)) | np.isnan(got) & np.isnan(want)
    return near | same | (got == 0) & (np.abs(want) < info.smallest_normal)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_functions_are_correct_in_all_binades(dtype: str) -> None:
    x = binades(dtype)
    results = program(lambda x: [apply(OPS[name], x) for name in FUNCTIONS], x).run(x)
    for name, got in zip(FUNCTIONS, results, strict=True):
        want, read = exactly(name, x), flushed(x)
        with np.errstate(all="ignore"):
            of_zero = np.where(read == x, want, FUNCTIONS[name][1](read))
        right = is_right(got, want) | is_right(got, of_zero)
        assert right.all(), (name, x[~right][:5], got[~right][:5])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers_are_correct_in_all_binades(dtype: str) -> None:
    """A subnormal base is itself or 0, never the number that its bits would be."""
    exponents = np.array([0.75, -0.5, 1e-5, 0.25, -0.0078125, 1.0, 3.0], dtype)
    a, b = (np.ascontiguousarray(g.ravel()) for g in np.meshgrid(np.abs(binades(dtype)), exponents))
    (got,) = program(lambda a, b: [apply(OPS["pow"], a, b)], a, b).run(a, b)
    with np.errstate(all="ignore"):
        wants = [np.power(x.astype(np.longdouble), b.astype(np.longdouble)) for x in (a, flushed(a))]
        right = is_right(got, wants[0]) | is_right(got, wants[1])
    assert right.all(), (a[~right][:5], b[~right][:5], got[~right][:5])


def test_subnormals_behave_as_documented() -> None:
    """A number below the smallest normal one counts as 0; what moves it keeps it."""
    x = np.array([1e-40, -1e-40, 2.0], np.float32)

    def words(x: Any) -> list[Any]:
        return [x > 0, 0 / x, apply(OPS["log2"], x), apply(OPS["cbrt"], x), F.reshape(x, (3, 1))]

    above, quotient, logarithm, root, moved = program(words, x).run(x)
    assert above.tolist() == [False, False, True]
    np.testing.assert_array_equal(quotient, np.array([np.nan, np.nan, 0.0], np.float32))
    np.testing.assert_array_equal(logarithm, np.array([-np.inf, -np.inf, 1.0], np.float32))
    np.testing.assert_array_equal(root[:2], [0.0, 0.0])
    np.testing.assert_array_equal(np.signbit(root), [False, True, False])
    np.testing.assert_array_equal(moved[:, 0], x)
