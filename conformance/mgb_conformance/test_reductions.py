"""Reductions: axes, lengths, dtypes, and groups in which values are used after they are folded."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from mgb import dtypes
from mgb.errors import ConversionError
from mgb.ir import Kind, Op
from mgb.ops.bodies.transcendental import exp, log
from mgb.ops.declare import OPS
from mgb.ops.primitives import cast, sqrt
from mgb.ops.reduce import extent, reduce_max, reduce_min, reduce_prod, reduce_sum
from mgb.tensor.apply import apply

from .cases import DTYPES, FLOATS, check, of, samples
from .drive import Driver

CASES = {
    "row": ((5, 33), (1,)),
    "column": ((33, 5), (0,)),
    "all": ((5, 33), (0, 1)),
    "middle": ((3, 17, 5), (1,)),
    "ends": ((3, 5, 17), (0, 2)),
    "last two": ((4, 3, 17), (1, 2)),
    "first two": ((4, 3, 17), (0, 1)),
    "one axis": ((100,), (0,)),
    "length 0": ((4, 0), (1,)),
    "length 0 of none": ((0, 4), (1,)),
    "length 1": ((4, 1), (1,)),
    "length 7": ((4, 7), (1,)),
    "length 1000": ((4, 1000), (1,)),
    "long column": ((1000, 4), (0,)),
    "large": ((300, 1111), (1,)),
    "large column": ((1111, 300), (0,)),
    "large all": ((300, 1111), (0, 1)),
}


def small(dtype: str, shape: tuple[int, ...]) -> Any:
    """Return samples whose products stay in range."""
    x = samples(dtype, shape)
    return (1 + x % 1 / 64).astype(x.dtype) if dtype in FLOATS else x


def mean(x: Any, axis: tuple[int, ...]) -> Any:
    return reduce_sum(x, axis=axis) / extent(x, axis=axis)


def softmax(x: Any, axis: tuple[int, ...]) -> Any:
    e = exp(x - reduce_max(x, axis=axis))
    return e / reduce_sum(e, axis=axis)


def log_softmax(x: Any, axis: tuple[int, ...]) -> Any:
    shifted = x - reduce_max(x, axis=axis)
    return shifted - log(reduce_sum(exp(shifted), axis=axis))


def normalise(x: Any, axis: tuple[int, ...]) -> Any:
    centred = x - mean(x, axis)
    return centred / sqrt(mean(centred * centred, axis) + 1e-5)


def statistics(x: Any, axis: tuple[int, ...]) -> list[Any]:
    """Return several outputs, before, between and after the reductions."""
    centre = mean(x, axis)
    return [x * 2, centre, (x - centre) * 0.5, reduce_sum((x - centre) * (x - centre), axis=axis)]


#: Lengths around those at which libraries of kernels and tilings take another way.
LENGTHS = (4095, 4096, 4097, 65535, 65536, 65537)
FOLDS = {"sum": reduce_sum, "prod": reduce_prod, "max": reduce_max, "min": reduce_min}

GROUPS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (mean, softmax, log_softmax, normalise, statistics)
}


def momentum(x: Any, y: Any, axis: tuple[int, ...]) -> list[Any]:
    """Return an update whose step is as long as what it updates."""
    mean = y * 0.9 + x * 0.1
    ratio = sqrt(reduce_sum(x * x, axis=axis) + 1.0) / sqrt(reduce_sum(mean * mean, axis=axis) + 1.0)
    return [x - ratio * mean * 0.01, mean]


def crossed(x: Any, y: Any, axis: tuple[int, ...]) -> list[Any]:
    """Return results that need all of a row of each operand; passes follow the first one written."""
    low, high = reduce_min(x, axis=axis), reduce_max(y, axis=axis)
    shifted = x - low
    return [y * 2.0, shifted, reduce_max(shifted * y, axis=axis) + high + y]


#: Graphs whose results have the shapes of their operands.
UPDATES: dict[str, Callable[..., Any]] = {f.__name__: f for f in (momentum, crossed)}


def folds(x: Any, axis: tuple[int, ...]) -> list[Any]:
    return [f(x, axis=axis) for f in FOLDS.values()]


def _takes(op: Op, dtype: str) -> bool:
    try:
        return op.promote is None or np.dtype(dtype) in op.promote([np.dtype(dtype)])
    except ConversionError:
        return False


class TestReductions:
    @pytest.mark.parametrize("name", CASES)
    def test_axes(self, driver: Driver, name: str) -> None:
        shape, axis = CASES[name]
        x = small("float32", shape)
        check(driver, of(lambda x: [*folds(x, axis), extent(x, axis=axis)], x), [x])

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("name", ["row", "column"])
    def test_dtypes(self, driver: Driver, dtype: str, name: str) -> None:
        shape, axis = CASES[name]
        x = small(dtype, shape)
        check(driver, of(lambda x: folds(x, axis), x), [x])

    @pytest.mark.parametrize("dtype", [d.name for d in dtypes.HALVES])
    def test_narrow_floats_are_summed_in_float32(self, driver: Driver, dtype: str) -> None:
        x = samples("bool", (3000,)).astype(dtypes.as_dtype(dtype))
        check(driver, of(lambda x: reduce_sum(x, axis=(0,)), x), [x])

    @pytest.mark.parametrize("special", ["nan", "inf", "-inf"])
    @pytest.mark.parametrize("place", [0, 1, 500, 999])
    def test_special_values_propagate(self, driver: Driver, special: str, place: int) -> None:
        if not driver.backend.traits.ieee:
            pytest.skip("traits.ieee is False")
        x = small("float32", (3, 1000))
        x[1, place] = float(special)
        check(driver, of(lambda x: folds(x, (1,)), x), [x])

    @pytest.mark.parametrize("fold", FOLDS)
    @pytest.mark.parametrize("length", LENGTHS)
    def test_special_values_propagate_at_any_place_of_long_axes(
        self, driver: Driver, fold: str, length: int
    ) -> None:
        """Check a reduction alone in its kernel, and one of a computed value."""
        if not driver.backend.traits.ieee:
            pytest.skip("traits.ieee is False")
        word = FOLDS[fold]
        for dtype in FLOATS:
            x = np.ones((length,), dtypes.as_dtype(dtype))
            graphs = [of(lambda x: word(x, axis=(0,)), x), of(lambda x: word(x * 1.5, axis=(0,)), x)]
            for special, place in product(("nan", "inf", "-inf"), (0, length // 2, length - 1)):
                given = x.copy()
                given[place] = float(special)
                for graph in graphs:
                    check(driver, graph, [given])

    @pytest.mark.parametrize("shape", [(3, 4097), (4097, 3)])
    def test_nan_propagates_along_each_axis_of_large_arrays(self, driver: Driver, shape: Any) -> None:
        if not driver.backend.traits.ieee:
            pytest.skip("traits.ieee is False")
        axis = int(np.argmax(shape))
        for fold in FOLDS.values():
            x = small("float32", shape)
            x[tuple(d // 2 for d in shape)] = np.nan
            check(driver, of(lambda x, fold=fold: fold(x, axis=(axis,)), x), [x])

    @pytest.mark.parametrize("length", [7, *LENGTHS])
    def test_extremes_of_negative_zeros_are_negative_zero(self, driver: Driver, length: int) -> None:
        if not driver.backend.traits.ieee:
            pytest.skip("traits.ieee is False")
        for dtype in FLOATS:
            x = np.full((length,), -0.0, dtypes.as_dtype(dtype))
            for fold in (reduce_max, reduce_min):
                check(driver, of(lambda x, fold=fold: fold(x, axis=(0,)), x), [x], signed_zero=True)

    @pytest.mark.parametrize("group", GROUPS)
    @pytest.mark.parametrize("name", ["row", "column", "all", "ends", "length 1", "length 1000", "large"])
    def test_groups_with_reductions(self, driver: Driver, group: str, name: str) -> None:
        shape, axis = CASES[name]
        x = samples("float32", shape)
        check(driver, of(lambda x: GROUPS[group](x, axis), x), [x])

    def test_reduction_of_a_computed_value(self, driver: Driver) -> None:
        x, y = samples("float32", (6, 40)), samples("float32", (40,), 1)
        check(driver, of(lambda x, y: reduce_sum(cast(x < y, dtype=dtypes.int32), axis=(1,)), x, y), [x, y])

    def test_reduction_of_a_broadcast_operand(self, driver: Driver) -> None:
        x, y = samples("float32", (6, 1)), samples("float32", (1, 40), 1)
        check(driver, of(lambda x, y: reduce_sum(x * y, axis=(0,)), x, y), [x, y])

    @pytest.mark.parametrize("group", ["softmax", "normalise"])
    @pytest.mark.parametrize("name", ["row", "column", "all", "large", "large all"])
    def test_result_may_alias_an_input(self, driver: Driver, group: str, name: str) -> None:
        shape, axis = CASES[name]
        x = samples("float32", shape)
        check(driver, of(lambda x: GROUPS[group](x, axis), x), [x], over={0: 0})

    @pytest.mark.parametrize("update", UPDATES)
    @pytest.mark.parametrize("name", ["row", "column", "all", "large", "large column", "large all"])
    def test_results_may_alias_inputs(self, driver: Driver, update: str, name: str) -> None:
        shape, axis = CASES[name]
        x, y = small("float32", shape), small("float32", shape)[::-1].copy()
        graph = of(lambda x, y: UPDATES[update](x, y, axis), x, y)
        for output in range(len(graph.outputs)):
            for given in (0, 1):
                check(driver, graph, [x, y], over={output: given})
        check(driver, graph, [x, y], over={0: 0, 1: 1})
        check(driver, graph, [x, y], over={0: 1, 1: 0})

    @pytest.mark.parametrize("op", [n for n, op in OPS.items() if op.kind is Kind.REDUCE])
    def test_op(self, driver: Driver, op: str) -> None:
        x = small(next(d for d in ("float32", "uint8") if _takes(OPS[op], d)), (6, 40))
        check(driver, of(lambda x: [apply(OPS[op], x, axis=(1,)), x + 1], x), [x])
