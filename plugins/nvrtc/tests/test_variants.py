"""Every way in which threads may share the work, forced by sizes and by the device, against NumPy."""

from __future__ import annotations

import ctypes
import mmap
import weakref
from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from mgb.ir import Spec
from mgb.ops.primitives import lt, sqrt, where
from mgb.ops.reduce import extent, reduce_max, reduce_sum
from mgb.ops.transcendental import exp, log
from mgb.tracing import graph_of
from mgb_conformance.judge import judge, problem
from mgb_cuda import Packing, Properties, ResourceError
from mgb_cuda.testing.host import HostDevice, missing
from mgb_nvrtc.geometry import magic
from mgb_nvrtc.launch import Unit
from mgb_nvrtc.variant import Kind, Variant
from nvrtc_helpers import OnHost, call, traced

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

FEW, MANY = HostDevice(), HostDevice(properties=Properties("many", (9, 0), multiprocessors=512))


class Limited(HostDevice):
    """A device that has registers for few threads."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def check(self, function: Any, threads: int) -> None:
        if threads > self._most:
            raise ResourceError(f"{threads} threads")


def softmax(x: Any, axis: tuple[int, ...]) -> Any:
    e = exp(x - reduce_max(x, axis=axis))
    return e / reduce_sum(e, axis=axis)


def normalise(x: Any, axis: tuple[int, ...]) -> Any:
    centred = x - reduce_sum(x, axis=axis) / extent(x, axis=axis)
    return centred / sqrt(reduce_sum(centred * centred, axis=axis) / extent(x, axis=axis) + 1e-5)


def total(x: Any, axis: tuple[int, ...]) -> Any:
    return reduce_sum(x, axis=axis)


def wanted(function: Any, x: np.ndarray, axis: tuple[int, ...]) -> np.ndarray:
    x = x.astype(np.float64)
    if function is total:
        return x.sum(axis=axis, keepdims=True)
    if function is softmax:
        e = np.exp(x - x.max(axis=axis, keepdims=True))
        return e / e.sum(axis=axis, keepdims=True)
    return (x - x.mean(axis=axis, keepdims=True)) / np.sqrt(x.var(axis=axis, keepdims=True) + 1e-5)


def run(function: Callable[..., Any], x: np.ndarray, device: HostDevice) -> tuple[tuple[Any, ...], Variant]:
    """The outputs, the same when warps run in the other order, and the variant that made them."""
    graph = traced(function, x)
    kernel = OnHost(device).compile(graph)
    found = call(kernel.run, graph, [x])
    device.reverse = True
    again = call(kernel.run, graph, [x])
    device.reverse = False
    for a, b in zip(found, again, strict=True):
        assert np.array_equal(a, b, equal_nan=True), "the order in which warps run shows"
    unit: Unit = kernel.state.unit()
    (plan,) = unit.plans.values()
    assert plan is not None
    return found, plan.choice.variant


#: name: shape, axis, device, what must hold of the variant
GEOMETRIES: dict[str, tuple[Any, ...]] = {
    "thread for a row": ((500, 3), (1,), FEW, lambda v: v.team <= 4 and v.kind is Kind.ROWS),
    "part of a warp": ((60, 40), (1,), FEW, lambda v: 1 < v.team < 32 and v.across > 1),
    "a warp": ((10, 1000), (1,), MANY, lambda v: v.team >= 32),
    "a block": ((3, 4096), (1,), MANY, lambda v: v.team > 32),
    "odd rows": ((5, 1111), (1,), FEW, lambda v: v.lanes == 1),
    "one odd row": ((100_003,), (0,), FEW, lambda v: v.tail and v.lanes == 4),
    "few long rows": ((2, 60_000), (1,), FEW, lambda v: v.split and v.kind is Kind.ROWS),
    "a row too long to stay": ((6, 40_000), (1,), Properties, lambda v: not v.stays and not v.split),
    "columns": ((33, 64), (0,), FEW, lambda v: v.kind is Kind.COLUMNS and v.lanes == 4),
    "odd columns": ((40, 7), (0,), FEW, lambda v: v.kind is Kind.COLUMNS and v.lanes == 1),
    "many columns": ((70, 3000), (0,), FEW, lambda v: v.kind is Kind.COLUMNS and not v.split),
    "long columns": ((20_000, 6), (0,), FEW, lambda v: v.kind is Kind.COLUMNS and v.split),
    "both ends": ((6, 5, 80), (0, 2), FEW, lambda v: v.folded == (True, False, True)),
    "the middle": ((4, 37, 6), (1,), FEW, lambda v: v.folded == (False, True, False)),
}


class TestGeometry:
    @pytest.mark.parametrize("function", [total, softmax, normalise], ids=lambda f: f.__name__)
    @pytest.mark.parametrize("name", GEOMETRIES)
    def test_rows(self, name: str, function: Any) -> None:
        shape, axis, device, holds = GEOMETRIES[name]
        device = HostDevice(properties=Properties("one", (9, 0), 1)) if device is Properties else device
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32) * 3
        (found,), variant = run(lambda x: function(x, axis), x, device)
        scale = np.abs(x).sum(axis=axis, keepdims=True, dtype=np.float64) if function is total else 8.0
        assert np.abs(found - wanted(function, x, axis)).max() <= 2e-6 * np.max(scale)
        if function is not total or "stay" not in name:
            assert holds(variant), variant

    @pytest.mark.parametrize("most", [128, 32])
    @pytest.mark.parametrize("name", ["a block", "one odd row", "few long rows", "columns", "both ends"])
    def test_blocks_of_few_threads(self, name: str, most: int) -> None:
        """The schedules of a device that has no registers for more threads."""
        shape, axis, _, _ = GEOMETRIES[name]
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32) * 3
        (found,), variant = run(lambda x: softmax(x, axis), x, Limited(most))
        assert variant.threads <= most
        assert np.abs(found - wanted(softmax, x, axis)).max() <= 2e-6 * 8

    def test_rows_stay_in_registers_where_they_fit(self) -> None:
        for shape, stays in (((4, 16_384), True), ((4, 65_536), False)):
            x = np.ones(shape, np.float32)
            _, variant = run(lambda x: softmax(x, (1,)), x, MANY)
            assert variant.stays is stays

    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8"])
    def test_loads_of_16_bytes(self, dtype: str) -> None:
        x = np.arange(5000).astype(dtype)
        (found,), variant = run(lambda x: x + x, x, FEW)
        assert variant.lanes == 16 // x.itemsize and variant.tail == (5000 % variant.lanes != 0)
        np.testing.assert_array_equal(found, x + x)

    def test_an_array_that_is_not_aligned(self) -> None:
        x = np.arange(1002, dtype=np.float32)
        graph = traced(lambda x: x * 2 + 1, x[:1000])
        kernel = OnHost(FEW).compile(graph)
        for start in (1, 0, 2):
            view = x[start : start + 1000]
            np.testing.assert_array_equal(call(kernel.run, graph, [view])[0], view * 2 + 1)
        lanes = {plan.choice.variant.lanes for plan in kernel.state.unit().plans.values()}
        assert lanes == {1, 4}

    def test_a_number_that_is_not_aligned_changes_nothing(self) -> None:
        x, rates = np.arange(1000, dtype=np.float32), np.arange(5, dtype=np.float32)
        graph = traced(lambda x, rate: x * rate, x, rates[0])
        kernel = OnHost(FEW).compile(graph)
        for k in range(5):
            np.testing.assert_array_equal(
                call(kernel.run, graph, [x, rates[k : k + 1].reshape(())])[0], x * k
            )
        assert {plan.choice.variant.lanes for plan in kernel.state.unit().plans.values()} == {4}

    def test_elements_between_the_places_of_others(self) -> None:
        """Strides that are no multiple of an element, as fields of records have."""
        records = np.zeros(50, np.dtype([("flag", np.uint8), ("x", "<f4")]))
        records["x"] = np.arange(50)
        graph = traced(lambda x: x + 1, records["x"])
        kernel = OnHost(FEW).compile(graph)
        for _ in range(2):
            np.testing.assert_array_equal(call(kernel.run, graph, [records["x"]])[0], records["x"] + 1)

    @pytest.mark.parametrize("apart", [1 << 20, (1 << 31) + 16])
    def test_places_of_64_bits(self, apart: int) -> None:
        """Rows further apart than 32 bits count; nothing but the rows themselves has memory behind it."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        memory = np.frombuffer(mmap.mmap(-1, 4 * (2 * apart + 4), flags=flags), np.float32)
        x = np.lib.stride_tricks.as_strided(memory, (3, 4), (4 * apart, 4), writeable=True)
        x[...] = np.arange(12).reshape(3, 4)
        for function, want in ((lambda x: x * 2, x * 2), (lambda x: total(x, (1,)), x.sum(1, keepdims=True))):
            (found,), variant = run(function, x, FEW)
            assert variant.wide is (apart > 1 << 30)
            np.testing.assert_array_equal(found, want)


def log_sum(x: Any, axis: tuple[int, ...]) -> Any:
    """With a shift that is not the maximum where that is infinite, as the functional layer has it."""
    top = reduce_max(x, axis=axis)
    shift = where(lt(top - top, 1), top, 0)
    return log(reduce_sum(exp(x - shift), axis=axis)) + shift


def rows_of(kind: str, shape: tuple[int, int]) -> np.ndarray:
    random = np.random.default_rng(3)
    x = random.normal(size=shape).astype(np.float32)
    if kind == "rising":
        return np.sort(x * 10, axis=1)
    if kind == "falling":
        return np.sort(x * 10, axis=1)[:, ::-1].copy()
    if kind == "far from 0":
        return x + np.float32(3000)
    if kind == "outliers":
        x[:, ::97] *= 1e4
        x[:, 0] = 1e6
    if kind == "all the same":
        x[...] = x[:, :1]
    if kind == "special":
        x[0, 5], x[1, 7], x[2, 11], x[3, 13] = np.nan, np.inf, -np.inf, -np.inf
        x[3, 14], x[4] = np.inf, -np.inf
        x[5, 1:] = -np.inf
    return x


class TestOnline:
    """Rows too long for registers, whose second folds are found in the first pass."""

    ONE = HostDevice(properties=Properties("one", (9, 0), multiprocessors=1))

    @pytest.mark.parametrize(
        "kind", ["plain", "rising", "falling", "far from 0", "outliers", "all the same", "special"]
    )
    @pytest.mark.parametrize("function", [softmax, log_sum, normalise], ids=lambda f: f.__name__)
    @pytest.mark.parametrize("axis", [0, 1])
    def test_rows(self, function: Any, kind: str, axis: int) -> None:
        x = rows_of(kind, (6, 40_000))
        if axis == 0:
            x = np.repeat(x[:, :2500].T, 44, axis=1)
        graph = graph_of(lambda x: function(x, (axis,)), Spec(x.shape, x.dtype))
        (found,), variant = run(lambda x: function(x, (axis,)), x, self.ONE)
        assert variant.online and not variant.stays and not variant.split
        assert problem(found, judge(graph, [x])[0]) is None

    def test_where_it_does_not_apply(self) -> None:
        """The second pass also has a use of its own for x."""

        def both(x: Any) -> list[Any]:
            top = reduce_max(x, axis=(1,))
            return [reduce_sum(exp(x - top), axis=(1,)), reduce_sum(x * top, axis=(1,))]

        x = rows_of("plain", (6, 40_000))
        found, variant = run(both, x, self.ONE)
        assert not variant.online
        top = x.max(axis=1, keepdims=True).astype(np.float64)
        np.testing.assert_allclose(found[0], np.exp(x - top).sum(1, keepdims=True), rtol=1e-5)


class TestPlaces:
    @hypothesis.settings(max_examples=300, deadline=None, derandomize=True, database=None)
    @hypothesis.given(st.integers(0, (1 << 31) - 1), st.integers(1, (1 << 31) - 1))
    def test_division_by_multiplication(self, place: int, length: int) -> None:
        for near in {place, place // length * length, max(0, place // length * length - 1)}:
            factor, shift = magic(length)
            assert factor < 1 << 32
            high = near * factor >> 32
            assert high + near < 1 << 32
            assert (high + near) >> shift == near // length

    @pytest.mark.parametrize("numbers", [[], ["n0"], ["n0", "n1", "n2"]])
    def test_a_struct_is_packed_as_c_lays_it_out(self, numbers: list[str]) -> None:
        packing = Packing(2, [("int", n) for n in numbers])
        fields = [("x", ctypes.c_uint64), ("y", ctypes.c_uint64), *((n, ctypes.c_int) for n in numbers)]
        struct = type("Params", (ctypes.Structure,), {"_fields_": fields})
        packed = struct.from_buffer_copy(packing.pack({n: i + 7 for i, n in enumerate(numbers)}))
        assert ctypes.sizeof(struct) == packing.size
        assert [getattr(packed, n) for n in numbers] == [i + 7 for i in range(len(numbers))]


class TestJoined:
    def test_updates_of_many_parameters_take_few_launches(self) -> None:
        backend = OnHost(HostDevice())
        random = np.random.default_rng(0)
        shapes = [(int(n),) for n in random.integers(1, 900, 150)] + [(7, 9), (3, 4)]
        arrays = [[random.normal(size=s).astype(np.float32) for _ in range(3)] for s in shapes]
        rate = np.array(0.25, np.float32)

        def update(p: Any, g: Any, m: Any, rate: Any) -> list[Any]:
            m = m * 0.9 + g
            return [p - rate * m, m]

        graph = traced(update, *arrays[0], rate)
        flat, square = backend.compile(graph), backend.compile(traced(update, *arrays[-1], rate))
        kernels = [flat] * 150 + [square] * 2
        launches = self.count(backend.host)
        joined = backend.join(kernels)
        assert joined is not None
        inputs = [a for three in arrays for a in (*three, rate)]
        for _ in range(2):
            out = [np.full(s, 77, np.float32) for s in shapes for _ in range(2)]
            joined.run(*inputs, out=out)
            for k, (p, g, m) in enumerate(arrays):
                momentum = m * np.float32(0.9) + g
                np.testing.assert_allclose(out[2 * k + 1], momentum, rtol=1e-6, atol=1e-6)
                np.testing.assert_allclose(out[2 * k], p - rate * momentum, rtol=1e-6, atol=1e-6)
        assert len(launches) <= 2 * 5
        for factor in (2, 3):  # the very arrays of the last call, with other values
            for p, *_ in arrays:
                p *= factor
            joined.run(*inputs, out=out)
            for k, (p, g, m) in enumerate(arrays):
                want = p - rate * (m * np.float32(0.9) + g)
                np.testing.assert_allclose(out[2 * k], want, rtol=1e-6, atol=1e-5)

    def test_kernels_that_are_not_alike(self) -> None:
        backend = OnHost(HostDevice())
        x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.zeros((0, 4), np.float32)
        graphs = [traced(lambda x: x * 2, x), traced(lambda x: total(x, (1,)), x), traced(lambda x: x * 2, y)]
        joined = backend.join([backend.compile(g) for g in graphs])
        assert joined is not None
        out = [np.empty((3, 4), np.float32), np.empty((3, 1), np.float32), np.empty((0, 4), np.float32)]
        joined.run(x, x, y, out=out)
        np.testing.assert_array_equal(out[0], x * 2)
        np.testing.assert_array_equal(out[1], x.sum(1, keepdims=True))

    def test_the_arrays_of_the_last_call_are_not_kept_alive(self) -> None:
        backend = OnHost(HostDevice())
        x = np.arange(12, dtype=np.float32).reshape(3, 4)
        kernels = [backend.compile(traced(f, x)) for f in (lambda x: x * 2, lambda x: total(x, (1,)))]
        joined = backend.join([kernels[0], *kernels])
        assert joined is not None
        inputs = [x.copy() for _ in range(3)]
        out = [np.empty(shape, np.float32) for shape in [(3, 4), (3, 4), (3, 1)]]
        joined.run(*inputs, out=out)
        np.testing.assert_array_equal(out[2], x.sum(1, keepdims=True))
        seen = [weakref.ref(a) for a in (*inputs, *out)]
        del inputs, out
        assert [r() for r in seen] == [None] * 6

    def count(self, host: HostDevice) -> list[tuple[int, int]]:
        """The grids of the launches to come."""
        grids: list[tuple[int, int]] = []
        plain = host.launcher

        def launcher(function: Any, grid: tuple[int, int], threads: int) -> Any:
            launch = plain(function, grid, threads)
            return lambda stream, table: (grids.append(grid), launch(stream, table))

        host.launcher = launcher  # type: ignore[method-assign]
        return grids
