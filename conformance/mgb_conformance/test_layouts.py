"""Broadcasting, strides, and arrays with no elements, one element or no axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mgb.backend import Strided
from mgb.ir import Graph
from mgb.ops.primitives import iota, where

from .cases import check, of, samples
from .drive import Driver

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

ORDER = (Strided.CONTIGUOUS, Strided.MONOTONE, Strided.ANY)


def mixed(x: Any, y: Any) -> list[Any]:
    """A few ops, with an output of the shape of `y` alone."""
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
    def test_places(self, driver: Driver, shape: tuple[int, ...]) -> None:
        x = samples("float32", (2, *shape))
        check(driver, of(lambda x: x * 0 + iota(shape=shape, dtype=np.dtype(np.float32)), x), [x])

    def test_places_of_a_row_and_of_a_column(self, driver: Driver) -> None:
        x, dtype = samples("float32", (5, 9)), np.dtype(np.float32)
        graph = of(lambda x: x + iota(shape=(9,), dtype=dtype) * iota(shape=(5, 1), dtype=dtype), x)
        check(driver, graph, [x])
