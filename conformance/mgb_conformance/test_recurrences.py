"""Loops whose steps are element-wise, which backends with ``recurrence`` take as scans: against NumPy's.

Steps that overflow in between, grow and forget show who joins them in another order than theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import pytest
from mgb.jit import scan, trace

from .drive import Driver

R = np.random.default_rng(0)

#: Rows of these shapes: many columns, few, odd numbers, one, two axes, and one number each.
SHAPES = [(64, 700), (400, 33), (5000, 3), (9, 4099), (37, 5, 31), (4500,), (4096, 1)]

Step = Callable[[Any, Any], tuple[Any, Any]]


def average(s: Any, x: Any) -> tuple[Any, Any]:
    s = s * 0.9 + x * 0.1
    return s, s


def before(s: Any, x: Any) -> tuple[Any, Any]:
    """Give what was carried so far, not what is carried on."""
    return s * 0.5 + x, s - x


def reset(s: Any, x: Any) -> tuple[Any, Any]:
    """Grow beyond the range of float32 if it were not for what sets it back to 0."""
    s = np.where(x < 0, 0, s * 100 + x)
    return s, s * 0.01


def curved(s: Any, x: Any) -> tuple[Any, Any]:
    s = np.tanh(s * 0.7 + x)
    return s, s * s + x


def late(s: Any, x: Any) -> tuple[Any, Any]:
    """Give what was carried so far, as it is."""
    return s * 0.9 + x, s


def still(s: Any, x: Any) -> tuple[Any, Any]:
    """Carry on what was carried."""
    return s, s + x


def last(s: Any, x: Any) -> tuple[Any, Any]:
    """Carry on the row alone."""
    return x, s * 2


STEPS = [average, before, reset, curved, late, still, last]


def run_of(driver: Driver, function: Callable[..., Any], *arrays: Any) -> list[np.ndarray]:
    run = trace(function, backend=driver.backend.name)
    for _ in range(3):
        found = run(*(mgb.tensor(a) for a in arrays))
    return [y.numpy() for y in (found if isinstance(found, tuple) else (found,))]


def turned(step: Callable[..., Any], init: Any, xs: Any, reverse: bool) -> tuple[Any, np.ndarray]:
    """Return the end and the rows of a loop of NumPy's."""
    ys = [None] * len(xs)
    for t in reversed(range(len(xs))) if reverse else range(len(xs)):
        init, ys[t] = step(init, xs[t])
    return init, np.stack(ys)


class TestRecurrences:
    @pytest.fixture(autouse=True)
    def where_the_backend_works(self, driver: Driver) -> Iterator[None]:
        """Tensors are made on a device of the backend."""
        with driver.place.as_default():
            yield

    @pytest.mark.parametrize("reverse", [False, True])
    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    @pytest.mark.parametrize("step", STEPS)
    def test_steps(self, driver: Driver, step: Step, shape: tuple[int, ...], reverse: bool) -> None:
        x, init = R.normal(size=shape).astype(np.float32), R.normal(size=shape[1:]).astype(np.float32)
        found = run_of(driver, lambda x, i: scan(step, i, x, reverse=reverse), x, init)
        wanted = turned(step, init.astype(np.float64), x.astype(np.float64), reverse)
        for ours, true in zip(found, wanted, strict=True):
            np.testing.assert_allclose(ours, true, rtol=2e-4, atol=2e-5)

    @pytest.mark.parametrize("dtype", ["float64", "int32", "uint8", "float16", "bfloat16"])
    def test_dtypes(self, driver: Driver, dtype: str) -> None:
        """Check integers that wrap, and that 16-bit floats are rounded at each step."""
        x = mgb.tensor(R.integers(0, 9, (50, 129)), dtype=dtype)
        found = trace(lambda x: scan(lambda s, x: (s + x, s + x), x[0], x)[1], backend=driver.backend.name)
        for _ in range(3):
            got = found(x).numpy()
        want = np.empty_like(got)
        s = x.numpy()[0]
        for t, row in enumerate(x.numpy()):
            want[t] = s = s + row
        np.testing.assert_array_equal(got, want)

    @pytest.mark.parametrize("reverse", [False, True])
    def test_several_carried_values(self, driver: Driver, reverse: bool) -> None:
        def step(c: Any, x: Any) -> tuple[Any, Any]:
            mean, square = c[0] * 0.9 + x * 0.1, c[1] * 0.99 + x * x * 0.01
            return (mean, square), mean / np.sqrt(square + 1e-3)

        x = R.normal(size=(60, 301)).astype(np.float32)
        ones = np.ones(301, np.float32)
        (got,) = run_of(driver, lambda x, i: scan(step, (i * 0.5, i), x, reverse=reverse)[1], x, ones)
        _, want = turned(step, (ones * 0.5, ones.astype(np.float64)), x.astype(np.float64), reverse)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)

    def test_rows_of_other_shapes_and_values_from_outside(self, driver: Driver) -> None:
        """Check what stands before and after, rows of one number, and what all steps read."""
        x, w = R.normal(size=(90, 65)).astype(np.float32), R.uniform(-1, 1, 65).astype(np.float32)

        def function(x: Any, w: Any, scan: Callable[..., Any]) -> tuple[Any, Any]:
            def step(s: Any, row: Any) -> tuple[Any, Any]:
                s = s * w * 0.5 + row[0] * row[1]
                return s, s + row[1]

            end, ys = scan(step, x.mean(axis=0), (x * 2 - 1, x[:, 0] * 0.5))
            return end, (ys * ys).sum(axis=0) + w

        def plain(step: Step, init: Any, xs: Any) -> tuple[Any, Any]:
            return turned(step, init, [*zip(*xs, strict=True)], False)

        found = run_of(driver, lambda x, w: function(x, w, scan), x, w)
        for ours, true in zip(
            found, function(x.astype(np.float64), w.astype(np.float64), plain), strict=True
        ):
            np.testing.assert_allclose(ours, true, rtol=2e-4, atol=1e-4)

    @pytest.mark.parametrize("reverse", [False, True])
    @pytest.mark.parametrize("name", ["rows", "as it is", "carried", "both"])
    def test_results_that_are_equal_in_all_steps(self, driver: Driver, name: str, reverse: bool) -> None:
        steps = {
            "rows": lambda s, x, c: (s * 0.9 + x, c * 2),
            "as it is": lambda s, x, c: (s * 0.9 + x, c),
            "carried": lambda s, x, c: (c, s + x),
            "both": lambda s, x, c: (c * 2, c),
        }
        x, init, c = (R.normal(size=shape).astype(np.float32) for shape in ((64, 256), 256, 256))
        step = steps[name]
        found = run_of(
            driver, lambda x, i, c: scan(lambda s, x: step(s, x, c), i, x, reverse=reverse), x, init, c
        )
        for ours, true in zip(found, turned(lambda s, x: step(s, x, c), init, x, reverse), strict=True):
            assert ours.shape == true.shape
            np.testing.assert_allclose(ours, true, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("order", ["transposed", "every other", "backwards"])
    def test_strided_rows(self, driver: Driver, order: str) -> None:
        x = R.normal(size=(80, 122)).astype(np.float32)
        view = {
            "transposed": lambda x: x.T,
            "every other": lambda x: x[::2, ::2],
            "backwards": lambda x: x[::-1],
        }
        (got,) = run_of(driver, lambda x: scan(average, view[order](x)[0] * 0, view[order](x))[1], x)
        rows = view[order](x).astype(np.float64)
        np.testing.assert_allclose(got, turned(average, rows[0] * 0, rows, False)[1], rtol=1e-5, atol=1e-6)

    def test_nan_and_infinities_stay_in_their_columns(self, driver: Driver) -> None:
        x = R.normal(size=(70, 130)).astype(np.float32)
        x[5, 7], x[9, 11], x[9, 12] = np.nan, np.inf, -np.inf
        (got,) = run_of(driver, lambda x: scan(average, x[0] * 0, x)[1], x)
        np.testing.assert_allclose(got, turned(average, x[0] * 0.0, x, False)[1], rtol=1e-5, atol=1e-6)

    def test_gradient(self, driver: Driver) -> None:
        x = R.normal(size=(64, 128)).astype(np.float32)
        (got,) = run_of(driver, mgb.grad(lambda x: (scan(average, x[0] * 0, x)[1] ** 2).sum()), x)
        ys, want, later = turned(average, x[0] * 0.0, x.astype(np.float64), False)[1], np.empty(x.shape), 0.0
        for t in reversed(range(len(x))):
            later = 2 * ys[t] + 0.9 * later
            want[t] = later * 0.1
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)

    def test_gradient_that_reads_what_was_carried(self, driver: Driver) -> None:
        def step(s: Any, x: Any) -> tuple[Any, Any]:
            s = F.sin(s) * 0.5 + x
            return s, s

        x, init = R.normal(size=(40, 256)).astype(np.float32), R.normal(size=256).astype(np.float32)
        (got,) = run_of(driver, mgb.grad(lambda x, i: scan(step, i, x)[1].sum()), x, init)
        s, slopes = init.astype(np.float64), []
        for row in x:
            slopes.append(np.cos(s) * 0.5)
            s = np.sin(s) * 0.5 + row
        want, later = np.empty(x.shape), np.zeros(256)
        for t in reversed(range(len(x))):
            want[t] = later = 1 + (slopes[t + 1] * later if t + 1 < len(x) else 0)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)

    def test_thread_count_does_not_change_bits(self, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
        x = R.normal(size=(300, 3000)).astype(np.float32)
        found = []
        for threads in ("1", "2", "3"):
            monkeypatch.setenv("MGB_NUM_THREADS", threads)
            found.append(run_of(driver, lambda x: scan(curved, x[0], x * 0.5)[1], x)[0].tobytes())
        assert found[0] == found[1] == found[2]
