"""Calls that share launches, as the updates of many parameters do."""

from __future__ import annotations

import weakref
from typing import Any, ClassVar

import numpy as np

from .programs import total
from .suite import Suite


def launches(device: Any) -> list[tuple[int, int]]:
    """Return the grids of the launches of `device` to come."""
    grids: list[tuple[int, int]] = []
    plain = device.launcher

    def launcher(function: Any, grid: tuple[int, int], threads: int) -> Any:
        launch = plain(function, grid, threads)
        return lambda stream, table: (grids.append(grid), launch(stream, table))

    device.launcher = launcher
    return grids


def update(p: Any, g: Any, m: Any, rate: Any) -> list[Any]:
    """Return a parameter and its momentum after a step."""
    m = m * 0.9 + g
    return [p - rate * m, m]


class Joins(Suite):
    """Launches of several kernels at once.

    Attributes
    ----------
    members : int
        So many updates of vectors are joined,
    launches : int
        and take so many launches at most, with two of matrices.
    """

    members: ClassVar[int]
    launches: ClassVar[int]

    def test_updates_of_many_parameters_take_few_launches(self) -> None:
        backend: Any = self.bench.here(self.bench.device(4))
        random = np.random.default_rng(0)
        shapes = [(int(n),) for n in random.integers(2, 900, self.members)] + [(7, 9), (3, 4)]
        arrays = [[random.normal(size=s).astype(np.float32) for _ in range(3)] for s in shapes]
        rate = np.array(0.25, np.float32)
        flat, square = (backend.compile(self.bench.traced(update, *a, rate)) for a in (arrays[0], arrays[-1]))
        grids = launches(backend.device)
        joined = backend.join([flat] * self.members + [square] * 2)
        assert joined is not None
        inputs = [a for three in arrays for a in (*three, rate)]

        def run_and_check(out: list[Any], atol: float = 1e-5) -> None:
            before = [[a.copy() for a in three] for three in arrays]
            joined.run(*inputs, out=out)
            for k, (p, g, m) in enumerate(before):
                momentum = m * np.float32(0.9) + g
                np.testing.assert_allclose(out[2 * k + 1], momentum, rtol=1e-6, atol=1e-6)
                np.testing.assert_allclose(out[2 * k], p - rate * momentum, rtol=1e-6, atol=atol)

        out = [np.full(s, 77, np.float32) for s in shapes for _ in range(2)]
        run_and_check(out, 1e-6)
        for p, *_ in arrays:  # the very arrays of the last call, with other values
            p *= 2
        run_and_check(out)
        assert len(grids) <= 2 * self.launches
        run_and_check([a for p, g, m in arrays for a in (p, m)])  # in place

    def test_different_kernels_can_be_joined(self) -> None:
        backend = self.bench.here(self.bench.device(4))
        x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.zeros((0, 4), np.float32)
        functions = [(lambda x: x * 2, x), (lambda x: total(x, (1,)), x), (lambda x: x * 2, y)]
        joined = backend.join([backend.compile(self.bench.traced(f, a)) for f, a in functions])
        assert joined is not None
        out = [np.empty((3, 4), np.float32), np.empty((3, 1), np.float32), np.empty((0, 4), np.float32)]
        joined.run(x, x, y, out=out)
        np.testing.assert_array_equal(out[0], x * 2)
        np.testing.assert_array_equal(out[1], x.sum(1, keepdims=True))

    def test_joined_call_does_not_keep_its_arrays_alive(self) -> None:
        backend = self.bench.here(self.bench.device(4))
        x = np.arange(12, dtype=np.float32).reshape(3, 4)
        functions = (lambda x: x * 2, lambda x: total(x, (1,)))
        kernels = [backend.compile(self.bench.traced(f, x)) for f in functions]
        joined = backend.join([kernels[0], *kernels])
        assert joined is not None
        inputs = [x.copy() for _ in range(3)]
        out = [np.empty(shape, np.float32) for shape in [(3, 4), (3, 4), (3, 1)]]
        joined.run(*inputs, out=out)
        np.testing.assert_array_equal(out[2], x.sum(1, keepdims=True))
        seen = [weakref.ref(a) for a in (*inputs, *out)]
        del inputs, out
        assert [r() for r in seen] == [None] * 6
