"""The bodies of the transcendental functions, compiled: NumPy's own validation tables, and special values.

The tables are in NumPy's wheel: the correctly rounded result of each argument, and by how many ULPs one may
miss it.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_numba_helpers import BACKEND, SENTINEL, traced
from mgb.backends import Kernel
from mgb.ops import elementwise
from mgb.ops.bodies import hyperbolic, transcendental

TABLES = sorted((Path(np.__file__).parent / "_core" / "tests" / "data").glob("umath-validation-set-*.csv"))
NAMES = {"arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
         "arctanh": "atanh"}  # fmt: skip
MODULES = (transcendental, elementwise, hyperbolic)

if not TABLES:
    pytest.skip("this NumPy was installed without its validation tables", allow_module_level=True)


def name_of(path: Path) -> str:
    name = path.stem.rsplit("-", 1)[1]
    return NAMES.get(name, name)


@cache
def compiled(name: str, dtype: np.dtype[Any]) -> Kernel:
    """The kernel of a function, which serves any number of elements."""
    function = next(getattr(module, name) for module in MODULES if hasattr(module, name))
    return BACKEND.compile(traced(function, [np.ones(2, dtype)]))


def run(name: str, x: Any) -> Any:
    """The function of each element of `x`."""
    out = np.full_like(x, SENTINEL)
    compiled(name, x.dtype).run(x, out=(out,))
    return out


def rows_of(path: Path, dtype: str) -> tuple[Any, Any, Any]:
    """Arguments, results and bounds."""
    lines = [line for line in path.read_text().splitlines() if line and line[0] not in "#$"]
    rows = [row for row in csv.reader(lines[1:]) if row[0] == f"np.{dtype}"]
    unsigned = f"uint{np.dtype(dtype).itemsize * 8}"
    columns = [np.array([int(row[i], 16) for row in rows], unsigned).view(dtype) for i in (1, 2)]
    return *columns, np.array([int(row[3]) for row in rows])


def places_between(a: Any, b: Any) -> Any:
    """How many floats of their dtype lie from `a` to `b`."""
    signed = f"int{a.dtype.itemsize * 8}"
    steps = [np.where(v < 0, np.iinfo(signed).min - v, v) for v in (a.view(signed), b.view(signed))]
    return np.abs(steps[0].astype(object) - steps[1].astype(object))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem.rsplit("-", 1)[1])
def test_results_are_within_numpys_accuracy_tables(path: Path, dtype: str) -> None:
    x, want, bound = rows_of(path, dtype)
    if not x.size:
        pytest.skip(f"the table has no rows for {dtype}")
    got = run(name_of(path), x)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    finite = ~np.isnan(want)
    missed = places_between(got[finite], want[finite])
    worst = int(np.argmax(missed - bound[finite]))
    assert np.all(missed <= bound[finite]), (x[finite][worst], got[finite][worst], want[finite][worst])


SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1.0, -1.0, 5e-324, -5e-324, 1e-310, 1e-40, 1e-45,
           88.72283, 88.72284, 709.78, 709.79, -87.4, -103.9, -104.1, -745.1, -745.2, 3.4e38,
           1.7e308]  # fmt: skip
EVERYWHERE = ["exp", "exp2", "expm1", "tanh", "sin", "cos", "atan", "sinh", "cosh", "asinh", "log", "log1p",
              "log2", "log10", "asin", "acos", "acosh", "atanh"]  # fmt: skip
NUMPY = {short: long for long, short in NAMES.items()}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", EVERYWHERE)
def test_special_values_match_numpy(name: str, dtype: str) -> None:
    with np.errstate(all="ignore"):
        x = np.array(SPECIAL).astype(dtype)
        wide = getattr(np, NUMPY.get(name, name))(x.astype(np.float64))
        want = wide.astype(dtype)
    got = run(name, x)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))
    tiny = float(np.finfo(dtype).smallest_subnormal)
    np.testing.assert_allclose(got, want, rtol=3e-7 if dtype == "float32" else 1e-15, atol=tiny)


@pytest.mark.parametrize("payload", [1, 0x1234, 0x3FFFFF])
def test_nan_with_any_payload_stays_nan(payload: int) -> None:
    x = np.array([0x7FC00000 | payload, 0xFFC00000 | payload], np.uint32).view(np.float32)
    for name in EVERYWHERE:
        got = run(name, x)
        assert np.isnan(got).all(), name
