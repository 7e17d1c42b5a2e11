"""Broadcasting, strides, and arrays with no elements, one element or no axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mgb.backends import Strided
from mgb.ir import Graph
from mgb.ops.primitives import iota, where
from mgb.ops.reduce import reduce_max

from .cases import check, of, require, samples
from .drive import Driver
from .judge import judge, problem

SHAPES = {
    "same": ((4, 33), (4, 33)),
    "row": ((4, 33), (33,)),
    "column": ((4, 33), (4, 1)),
    "outer": ((4, 1), (1, 33)),
    "scalar": ((4, 33), ()),
    "one": ((4, 33), (1, 1)),
    "middle": ((3, 1, 7), (3, 5, 7)),
    "ends": ((1, 5, 1), (3, 1, 7)),
    "leading": ((2, 3, 1, 5, 1), (4, 1, 6)),
    "no axes": ((), ()),
    "empty": ((0, 33), (33,)),
    "empty inside": ((4, 0, 3), (4, 1, 3)),
    "empty row": ((4, 1), (4, 0)),
    "single": ((1,), (1, 1)),
    "many axes": ((2, 1, 2, 1, 2, 1, 2), (1, 3, 1, 3, 1, 3, 1)),
    "large": ((300, 701), (701,)),
    "long": ((262_147,), (1,)),
}

#: Views of a (6, 10) array, with what a backend must say of itself to be given them.
VIEWS = {
    "every second row": (lambda x: x[::2], Strided.MONOTONE),
    "part of each row": (lambda x: x[:, 2:7], Strided.MONOTONE),
    "every third column": (lambda x: x[:, ::3], Strided.MONOTONE),
    "one row for all": (lambda x: np.broadcast_to(x[0], (6, 10)), Strided.MONOTONE),
    "one column for all": (lambda x: np.broadcast_to(x[:, :1], (6, 10)), Strided.ANY),
    "transposed": (lambda x: x.T, Strided.ANY),
    "backwards": (lambda x: x[::-1], Strided.ANY),
    "rows backwards": (lambda x: x[:, ::-1], Strided.ANY),
    "everything backwards": (lambda x: x.T[::-1, ::-2], Strided.ANY),
}

#: Windows of arrays of two axes, each twice as long and one longer than what is written.
WINDOWS = {
    "in the middle": lambda y: y[: y.shape[0] // 2, 1 : 1 + y.shape[1] // 2],
    "every second row": lambda y: y[1::2, : y.shape[1] // 2],
    "every second column": lambda y: y[1 : 1 + y.shape[0] // 2, 1::2],
    "backwards": lambda y: y[-2::-2, -1:0:-2],
    "first axis last": lambda y: (
        y.reshape(-1)[: y.shape[0] // 2 * (y.shape[1] // 2)].reshape(y.shape[1] // 2, y.shape[0] // 2).T
    ),
}

ORDER = (Strided.CONTIGUOUS, Strided.MONOTONE, Strided.ANY)


def mixed(x: Any, y: Any) -> list[Any]:
    """Return a few ops, with an output of the shape of `y` alone."""
    return [where(x < y, x * y + 1, x - y), y * 2, (x + y) * 0.5]


class TestLayouts:
    @pytest.mark.parametrize("name", SHAPES)
    def test_broadcast(self, driver: Driver, name: str) -> None:
        arrays = [samples("float32", shape, seed) for seed, shape in enumerate(SHAPES[name])]
        graph = of(mixed, *arrays)
        domain = np.broadcast_shapes(*SHAPES[name])
        if 0 in domain:  # no loop runs, so nothing smaller is visited; the core runs such ops eagerly
            graph = Graph(graph.inputs, tuple(o for o in graph.outputs if o.spec.shape == domain))
        check(driver, graph, arrays)

    @pytest.mark.parametrize("name", VIEWS)
    def test_view(self, driver: Driver, name: str) -> None:
        view, needed = VIEWS[name]
        if ORDER.index(driver.backend.traits.strided) < ORDER.index(needed):
            pytest.skip(f"traits.strided is {driver.backend.traits.strided.value}")
        x = view(samples("float32", (6, 10)))
        y = samples("float32", x.shape, 1)
        check(driver, of(mixed, x, y), [x, y])

    @pytest.mark.parametrize("shape", [(), (7,), (3, 5), (0, 4), (1, 5), (2, 3, 4)])
    def test_iota(self, driver: Driver, shape: tuple[int, ...]) -> None:
        x = samples("float32", (2, *shape))
        check(driver, of(lambda x: x * 0 + iota(shape=shape, dtype=np.dtype(np.float32)), x), [x])

    def test_iota_of_a_row_and_of_a_column(self, driver: Driver) -> None:
        x, dtype = samples("float32", (5, 9)), np.dtype(np.float32)
        graph = of(lambda x: x + iota(shape=(9,), dtype=dtype) * iota(shape=(5, 1), dtype=dtype), x)
        check(driver, graph, [x])

    @pytest.mark.parametrize("name", WINDOWS)
    @pytest.mark.parametrize("dtype", ["float32", "uint8", "float64", "bfloat16"])
    @pytest.mark.parametrize("kind", ["element-wise", "rows", "columns"])
    def test_strided_outputs(self, driver: Driver, name: str, dtype: str, kind: str) -> None:
        """Check outputs of any strides: what is written, and that nothing beside it is."""
        if not driver.backend.traits.strided_outputs:
            pytest.skip("traits.strided_outputs is False")
        shape = (5, 300) if kind == "rows" else (70, 37)
        x, y = samples(dtype, shape), samples(dtype, shape, 1)
        folds = {"element-wise": None, "rows": (1,), "columns": (0,)}[kind]
        graph = of(lambda x, y: [where(x < y, x + y, x), *_folded(x, y, folds)], x, y)
        require(driver, graph)
        got = driver.written(graph, [x, y], WINDOWS[name])
        wants = judge(graph, [x, y], driver.backend.traits.denormals)
        for k, (g, w) in enumerate(zip(got, wants, strict=True)):
            assert problem(g, w) is None, f"output {k}: {problem(g, w)}"


def _folded(x: Any, y: Any, axis: tuple[int, ...] | None) -> list[Any]:
    if axis is None:
        return [y + 1]
    greatest = reduce_max(x, axis=axis)
    return [greatest, where(y < greatest, y, greatest)]
