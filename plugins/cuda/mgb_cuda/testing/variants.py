"""Every way in which the work may be shared out, forced by sizes and by the device, against NumPy."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from mgb.ops.bodies.transcendental import exp
from mgb.ops.reduce import reduce_max, reduce_min, reduce_prod, reduce_sum
from mgb_conformance.cases import of
from mgb_conformance.judge import judge, problem

from ..device import ResourceError
from .bench import call
from .programs import Axes, check, log_sum, normalise, rows_of, softmax, total
from .suite import Suite

#: Shape, folded axes, multiprocessors of the device, and what must hold of the variant.
Geometry = tuple[tuple[int, ...], tuple[int, ...], int, Callable[[Any], bool]]


def limited(device: Any, most: int) -> Any:
    """Return `device`, when it has registers for so many threads of a block."""

    def refuse(function: Any, threads: int) -> None:
        if threads > most:
            raise ResourceError(f"{threads} threads")

    device.check = refuse
    return device


def view(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return an array of this shape that lies in memory anyhow."""
    order = random.permutation(len(shape))
    steps = random.choice([1, 1, 1, 2, -1], len(shape))
    wide = [shape[axis] * abs(int(step)) for axis, step in zip(order, steps, strict=True)]
    x = random.uniform(-1, 1, wide).astype(np.float32)[tuple(slice(None, None, int(s)) for s in steps)]
    x = x.transpose(np.argsort(order))
    still = random.integers(len(shape)) if random.random() < 0.3 else None
    where = tuple(slice(0, 1) if axis == still else slice(None) for axis in range(len(shape)))
    return np.broadcast_to(x[where], shape)


class Variants(Suite):
    """Running, and seeing which variant ran."""

    def run(self, function: Callable[..., Any], device: Any, *arrays: Any) -> tuple[tuple[Any, ...], Any]:
        """Return the outputs, the same when all runs in the other order, and the variant that made them."""
        graph = self.bench.traced(function, *arrays)
        kernel = self.bench.here(device).compile(graph)
        found = call(kernel.run, graph, arrays)
        device.reverse = True
        again = call(kernel.run, graph, arrays)
        device.reverse = False
        for a, b in zip(found, again, strict=True):
            assert np.array_equal(a, b, equal_nan=True), "the order in which blocks and warps run shows"
        (plan,) = kernel.state.unit().plans.values()
        self.check_variant(plan.choice.variant)
        return found, plan.choice.variant

    def check_variant(self, variant: Any) -> None:
        """Check the invariants of every variant."""


class Geometries(Variants):
    """Shapes of rows and blocks.

    Attributes
    ----------
    tables : mapping
        Has ``geometry``, a `Geometry` for each name; some of these names as ``narrow``, for blocks of few
        threads, and how many these are as ``most``.
    staying : set of int
        Of the rows of 1000, 3000 and 20,000 elements here, those that stay in registers between passes.
    """

    staying: ClassVar[frozenset[int]]

    def geometry(self, name: str) -> Geometry:
        geometries = self.tables["geometry"]
        assert isinstance(geometries, Mapping)
        found: Geometry = geometries[name]
        return found

    def tells(self, name: str, function: Any) -> bool:
        """Return whether this is the function that a geometry was chosen for."""
        return True

    @pytest.mark.parametrize("function", [total, softmax, normalise], ids=lambda f: f.__name__)
    def test_row_functions_of_every_geometry(self, geometry: str, function: Any) -> None:
        shape, axis, multiprocessors, holds = self.geometry(geometry)
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32) * 3
        (found,), variant = self.run(lambda x: function(x, axis), self.bench.device(multiprocessors), x)
        check(function, x, axis, found)
        if self.tells(geometry, function):
            assert holds(variant), variant

    def test_schedules_with_limited_threads_per_block(self, narrow: str, most: int) -> None:
        """Check the schedules of a device that has no registers for more threads."""
        shape, axis, multiprocessors, _ = self.geometry(narrow)
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32) * 3
        device = limited(self.bench.device(multiprocessors), most)
        (found,), variant = self.run(lambda x: softmax(x, axis), device, x)
        assert variant.threads <= most
        check(softmax, x, axis, found)

    @pytest.mark.parametrize("multiprocessors", [1, 8])
    @pytest.mark.parametrize(("shape", "axis"), [((2, 20_000), 1), ((3000, 64), 0), ((2, 1000), 1)])
    def test_sum_max_and_min_in_one_kernel(
        self, shape: tuple[int, int], axis: int, multiprocessors: int
    ) -> None:
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        (added, greatest, least), variant = self.run(
            lambda x: [f(x, axis=(axis,)) for f in (reduce_sum, reduce_max, reduce_min)],
            self.bench.device(multiprocessors),
            x,
        )
        assert variant.stays is (shape[axis] in self.staying)
        np.testing.assert_array_equal(greatest, x.max(axis, keepdims=True))
        np.testing.assert_array_equal(least, x.min(axis, keepdims=True))
        scale = np.abs(x).sum(axis=axis, keepdims=True, dtype=np.float64)
        assert np.all(np.abs(added - x.sum(axis, keepdims=True, dtype=np.float64)) <= 2e-6 * scale)

    @pytest.mark.parametrize(("shape", "axis"), [((2, 20_000), 1), ((3000, 64), 0)])
    def test_three_arrays_read_twice_in_one_reduction(self, shape: tuple[int, int], axis: int) -> None:
        def function(x: Any, g: Any, h: Any) -> Any:
            s = reduce_sum(x * g + h, axis=(axis,))
            return x * s + g * h - s

        arrays = np.random.default_rng(0).uniform(-1, 1, (3, *shape)).astype(np.float32)
        (found,), variant = self.run(function, self.bench.device(4), *arrays)
        assert variant.stays is (shape[axis] in self.staying)
        x, g, h = arrays.astype(np.float64)
        s = (x * g + h).sum(axis, keepdims=True)
        scale = np.abs(x * g + h).sum(axis, keepdims=True) + 1
        assert np.all(np.abs(found - (x * s + g * h - s)) <= 4e-6 * scale)

    @pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64", "bool", "float64"])
    def test_reductions_of_every_kind_and_dtype(self, dtype: str) -> None:
        x = (np.random.default_rng(1).integers(0, 250, (7, 300)) - 120 * (dtype[0] != "u")).astype(dtype)
        x[0] = 1 if dtype == "bool" else np.iinfo(dtype).max if dtype != "float64" else -np.inf
        x[1] = 0 if dtype == "bool" else np.iinfo(dtype).min if dtype != "float64" else np.inf
        folds: list[Any] = [reduce_max, reduce_min]
        if dtype != "bool":
            folds = [reduce_sum, *([] if dtype == "float64" else [reduce_prod]), *folds]
        found, _ = self.run(lambda x: [f(x, axis=(1,)) for f in folds], self.bench.device(4), x)
        rules: dict[Any, Any] = {
            reduce_sum: np.sum,
            reduce_prod: np.prod,
            reduce_max: np.max,
            reduce_min: np.min,
        }
        with np.errstate(all="ignore"):
            for got, f in zip(found, folds, strict=True):
                kept = {} if f in folds[-2:] else {"dtype": x.dtype}
                np.testing.assert_allclose(got, rules[f](x, axis=1, keepdims=True, **kept), rtol=1e-12)


class Layouts(Variants):
    """Where arrays begin, and how they step.

    Attributes
    ----------
    unaligned : str, set
        What a variant says of arrays that begin at no multiple of 16 bytes: its attribute, and its values
        where some do and some do not.
    """

    unaligned: ClassVar[tuple[str, set[Any]]]

    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8"])
    def test_elementwise_kernels_use_16_byte_lanes(self, dtype: str) -> None:
        x = np.arange(5000).astype(dtype)
        (found,), variant = self.run(lambda x: x + x, self.bench.device(4), x)
        assert variant.lanes == 16 // x.itemsize and variant.tail == (5000 % variant.lanes != 0)
        np.testing.assert_array_equal(found, x + x)

    def test_unaligned_array_uses_its_own_variant(self) -> None:
        x = np.arange(1002, dtype=np.float32)
        graph = self.bench.traced(lambda x: x * 2 + 1, x[:1000])
        kernel = self.bench.here(self.bench.device(4)).compile(graph)
        for start in (1, 0, 2):
            view = x[start : start + 1000]
            np.testing.assert_array_equal(call(kernel.run, graph, [view])[0], view * 2 + 1)
        name, values = self.unaligned
        assert {getattr(p.choice.variant, name) for p in kernel.state.unit().plans.values()} == values

    def test_unaligned_scalar_does_not_change_the_variant(self) -> None:
        x, rates = np.arange(1000, dtype=np.float32), np.arange(5, dtype=np.float32)
        graph = self.bench.traced(lambda x, rate: x * rate, x, rates[0])
        kernel = self.bench.here(self.bench.device(4)).compile(graph)
        for k in range(5):
            rate = rates[k : k + 1].reshape(())
            np.testing.assert_array_equal(call(kernel.run, graph, [x, rate])[0], x * k)
        assert {plan.choice.variant.lanes for plan in kernel.state.unit().plans.values()} == {4}

    def test_strides_that_are_not_a_multiple_of_the_element_size(self) -> None:
        """Check strides that are not a multiple of an element, as fields of records have."""
        records = np.zeros(50, np.dtype([("flag", np.uint8), ("x", "<f4")]))
        records["x"] = np.arange(50)
        graph = self.bench.traced(lambda x: x + 1, records["x"])
        kernel = self.bench.here(self.bench.device(4)).compile(graph)
        for _ in range(2):
            np.testing.assert_array_equal(call(kernel.run, graph, [records["x"]])[0], records["x"] + 1)

    def test_elementwise_kernels_of_any_strides(self) -> None:
        x = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
        views = [x, x[:, ::-1, ::2, 1:4:2][:, :, :, ::-1], x.transpose(3, 1, 0, 2), x[:, :1, :1, ::-1]]
        for view in views:
            other = np.ones(view.shape[-1], np.float32) * 3
            (found,), _ = self.run(lambda a, b: a * b + 1, self.bench.device(4), view, other)
            np.testing.assert_array_equal(found, view * other + 1)

    @pytest.mark.parametrize("function", [total, softmax, normalise], ids=lambda f: f.__name__)
    @pytest.mark.parametrize("axis", [(0,), (1,), (0, 1)], ids=["first", "last", "both"])
    @pytest.mark.parametrize("shape", [(90, 70), (3, 5000), (3000, 9)], ids=str)
    def test_reductions_of_transposed_arrays(self, shape: Axes, axis: Axes, function: Any) -> None:
        """Check that rows lie as memory does where transposed arrays are all there is to load and store."""
        x = np.random.default_rng(4).normal(size=shape).astype(np.float32) * 3
        (found,), variant = self.run(lambda x: function(x, axis), self.bench.device(4), x.T)
        check(function, x.T, axis, found)
        if function is total:
            assert variant.folded == {(0,): (False, True), (1,): (True, False), (0, 1): (True,)}[axis]

    @pytest.mark.parametrize("seed", range(6))
    def test_reductions_of_any_strides(self, seed: int) -> None:
        """Check axes in any order, some backwards, spread or broadcast; any axes are reduced."""
        random = np.random.default_rng(seed)
        shape = tuple(random.integers(2, 12, 4).tolist())
        axis = tuple(sorted(random.choice(4, random.integers(1, 4), replace=False).tolist()))
        x, y = (view(random, shape) for _ in range(2))
        z = view(random, tuple(1 if d in axis else n for d, n in enumerate(shape)))

        def function(x: Any, y: Any, z: Any) -> list[Any]:
            s = reduce_sum(x * y + z, axis=axis)
            return [s, x * s + y, reduce_max(x + y * s, axis=axis)]

        found, _ = self.run(function, self.bench.device(int(random.choice([1, 64]))), x, y, z)
        x, y, z = (a.astype(np.float64) for a in (x, y, z))
        s = (x * y + z).sum(axis, keepdims=True)
        for got, want in zip(found, [s, x * s + y, (x + y * s).max(axis, keepdims=True)], strict=True):
            scale = np.abs(x * y + z).sum(axis, keepdims=True).max() * 4
            np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * scale)

    @pytest.mark.parametrize("apart", [1 << 20, (1 << 31) + 16])
    def test_offsets_beyond_32_bits(self, apart: int) -> None:
        """Check rows further apart than 32 bits count; only the rows themselves are backed by memory."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        memory = np.frombuffer(mmap.mmap(-1, 4 * (2 * apart + 4), flags=flags), np.float32)
        x = np.lib.stride_tricks.as_strided(memory, (3, 4), (4 * apart, 4), writeable=True)
        x[...] = np.arange(12).reshape(3, 4)
        for function, want in ((lambda x: x * 2, x * 2), (lambda x: total(x, (1,)), x.sum(1, keepdims=True))):
            (found,), variant = self.run(function, self.bench.device(4), x)
            assert variant.wide is (apart > 1 << 30)
            np.testing.assert_array_equal(found, want)


class Online(Variants):
    """Rows too long for registers, whose second folds are found in the first pass.

    Attributes
    ----------
    tables : mapping
        Has the kinds of columns as ``columns``.
    """

    @pytest.mark.parametrize("function", [softmax, log_sum, normalise], ids=lambda f: f.__name__)
    def test_long_row_reductions(self, function: Any, rows: str) -> None:
        self.check(function, rows_of(rows, (6, 40_000)), (1,))

    @pytest.mark.parametrize("function", [softmax, log_sum, normalise], ids=lambda f: f.__name__)
    def test_long_column_reductions(self, function: Any, columns: str) -> None:
        self.check(function, np.repeat(rows_of(columns, (6, 2500)).T, 44, axis=1), (0,))

    @pytest.mark.parametrize("function", [softmax, log_sum, normalise], ids=lambda f: f.__name__)
    def test_long_rows_split_across_blocks(self, function: Any, shared: str) -> None:
        self.check(function, rows_of(shared, (6, 60_000)), (1,), multiprocessors=16)

    @pytest.mark.parametrize("function", [log_sum, normalise], ids=lambda f: f.__name__)
    def test_long_columns_split_across_blocks(self, function: Any, shared: str) -> None:
        self.check(function, np.repeat(rows_of(shared, (6, 9001)).T, 5, axis=1), (0,), multiprocessors=16)

    def check(self, function: Any, x: Any, axis: tuple[int, ...], multiprocessors: int = 1) -> None:
        (found,), variant = self.run(lambda x: function(x, axis), self.bench.device(multiprocessors), x)
        assert variant.online and not variant.stays and variant.split is (multiprocessors > 1)
        assert problem(found, judge(of(lambda x: function(x, axis), x), [x])[0]) is None

    def test_online_variant_is_not_used_if_the_second_pass_needs_x(self) -> None:
        """Check a second pass that also has a use of its own for x."""

        def both(x: Any) -> list[Any]:
            top = reduce_max(x, axis=(1,))
            return [reduce_sum(exp(x - top), axis=(1,)), reduce_sum(x * top, axis=(1,))]

        x = rows_of("plain", (6, 40_000))
        found, variant = self.run(both, self.bench.device(1), x)
        assert not variant.online
        top = x.max(axis=1, keepdims=True).astype(np.float64)
        np.testing.assert_allclose(found[0], np.exp(x - top).sum(1, keepdims=True), rtol=1e-5)
