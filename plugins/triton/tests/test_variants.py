"""Every shape that a tile may have, forced by sizes and by the device, against NumPy."""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mgb.ops.primitives import add, cast, lt, mul, sqrt, where
from mgb.ops.reduce import extent, reduce_max, reduce_min, reduce_prod, reduce_sum
from mgb.ops.transcendental import exp, log
from mgb_conformance.cases import of
from mgb_conformance.judge import judge, problem
from mgb_cuda import Properties, ResourceError
from mgb_triton.testing.interpreter import Interpreter, missing
from mgb_triton.variant import Variant
from triton_helpers import OnInterpreter, call, traced

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def device(multiprocessors: int = 4) -> Interpreter:
    return Interpreter(Properties("interpreter", (9, 0), multiprocessors))


class Limited(Interpreter):
    """A device that has registers for few threads."""

    def __init__(self, most: int, properties: Properties) -> None:
        super().__init__(properties)
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


def run(function: Callable[..., Any], on: Interpreter, *arrays: Any) -> tuple[tuple[Any, ...], Variant]:
    """The outputs, the same when programs run in the other order, and the variant that made them."""
    graph = traced(function, *arrays)
    kernel = OnInterpreter(on).compile(graph)
    found = call(kernel.run, graph, arrays)
    on.reverse = True
    again = call(kernel.run, graph, arrays)
    on.reverse = False
    for a, b in zip(found, again, strict=True):
        assert np.array_equal(a, b, equal_nan=True), "the order in which programs run shows"
    (plan,) = kernel.state.unit().plans.values()
    assert plan is not None
    v: Variant = plan.choice.variant
    for number in (v.tall, v.long, v.lanes, v.warps):
        assert number.bit_count() == 1, f"Triton takes powers of two alone: {v}"
    return found, v


#: name: shape, axis, multiprocessors, what must hold of the variant
GEOMETRIES: dict[str, tuple[Any, ...]] = {
    "many short rows": ((500, 3), (1,), 4, lambda v: v.tall > 16 and v.stays),
    "rows": ((10, 1000), (1,), 4, lambda v: v.stays and v.long == 1024 and v.lanes == 4),
    "odd rows": ((5, 1111), (1,), 4, lambda v: v.stays and v.lanes == 1),
    "one odd row": ((5003,), (0,), 4, lambda v: v.tail and v.lanes == 4),
    "few long rows": ((2, 60_000), (1,), 32, lambda v: v.stays or v.split),
    "rows too long to stay": ((3, 40_000), (1,), 1, lambda v: not v.stays and not v.split),
    "shared rows": ((2, 80_000), (1,), 8, lambda v: v.split),
    "columns": ((33, 64), (0,), 4, lambda v: v.stays and v.tall >= 16),
    "odd columns": ((40, 7), (0,), 4, lambda v: v.lanes == 1),
    "many columns": ((70, 3000), (0,), 4, lambda v: not v.split),
    "long columns": ((2500, 300), (0,), 1, lambda v: not v.stays and not v.split),
    "shared columns": ((20_000, 6), (0,), 4, lambda v: v.split),
    "both ends": ((6, 5, 80), (0, 2), 4, lambda v: v.folded == (True, False, True)),
    "the middle": ((4, 37, 6), (1,), 4, lambda v: v.folded == (False, True, False)),
}


class TestGeometry:
    @pytest.mark.parametrize("function", [total, softmax, normalise], ids=lambda f: f.__name__)
    @pytest.mark.parametrize("name", GEOMETRIES)
    def test_rows(self, name: str, function: Any) -> None:
        shape, axis, multiprocessors, holds = GEOMETRIES[name]
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32) * 3
        (found,), variant = run(lambda x: function(x, axis), device(multiprocessors), x)
        scale = np.abs(x).sum(axis=axis, keepdims=True, dtype=np.float64) if function is total else 8.0
        assert np.abs(found - wanted(function, x, axis)).max() <= 2e-6 * np.max(scale)
        if function is softmax:
            assert holds(variant), variant

    @pytest.mark.parametrize("most", [64, 32])
    @pytest.mark.parametrize("name", ["many short rows", "rows", "one odd row", "shared rows", "columns"])
    def test_blocks_of_few_threads(self, name: str, most: int) -> None:
        """The tiles of a device that has no registers for more threads."""
        shape, axis, multiprocessors, _ = GEOMETRIES[name]
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32) * 3
        limited = Limited(most, Properties("interpreter", (9, 0), multiprocessors))
        (found,), variant = run(lambda x: softmax(x, axis), limited, x)
        assert variant.threads <= most
        assert np.abs(found - wanted(softmax, x, axis)).max() <= 2e-6 * 8

    @pytest.mark.parametrize("multiprocessors", [1, 8])
    @pytest.mark.parametrize(("shape", "axis"), [((2, 20_000), 1), ((3000, 64), 0), ((2, 1000), 1)])
    def test_three_folds(self, shape: tuple[int, int], axis: int, multiprocessors: int) -> None:
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        (added, greatest, least), variant = run(
            lambda x: [f(x, axis=(axis,)) for f in (reduce_sum, reduce_max, reduce_min)],
            device(multiprocessors),
            x,
        )
        assert variant.stays is (shape[axis] == 1000)
        np.testing.assert_array_equal(greatest, x.max(axis, keepdims=True))
        np.testing.assert_array_equal(least, x.min(axis, keepdims=True))
        scale = np.abs(x).sum(axis=axis, keepdims=True, dtype=np.float64)
        assert np.all(np.abs(added - x.sum(axis, keepdims=True, dtype=np.float64)) <= 2e-6 * scale)

    @pytest.mark.parametrize(("shape", "axis"), [((2, 20_000), 1), ((3000, 64), 0)])
    def test_rows_of_three_arrays_that_are_read_twice(self, shape: tuple[int, int], axis: int) -> None:
        def function(x: Any, g: Any, h: Any) -> Any:
            s = reduce_sum(x * g + h, axis=(axis,))
            return x * s + g * h - s

        arrays = np.random.default_rng(0).uniform(-1, 1, (3, *shape)).astype(np.float32)
        (found,), variant = run(function, device(), *arrays)
        assert not variant.stays
        x, g, h = arrays.astype(np.float64)
        s = (x * g + h).sum(axis, keepdims=True)
        scale = np.abs(x * g + h).sum(axis, keepdims=True) + 1
        assert np.all(np.abs(found - (x * s + g * h - s)) <= 4e-6 * scale)

    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8"])
    def test_lanes_of_16_bytes(self, dtype: str) -> None:
        x = np.arange(5000).astype(dtype)
        (found,), variant = run(lambda x: x + x, device(), x)
        assert variant.lanes == 16 // x.itemsize and variant.tail == (5000 % variant.lanes != 0)
        np.testing.assert_array_equal(found, x + x)

    def test_an_array_that_is_not_aligned(self) -> None:
        x = np.arange(1002, dtype=np.float32)
        graph = traced(lambda x: x * 2 + 1, x[:1000])
        kernel = OnInterpreter(device()).compile(graph)
        for start in (1, 0, 2):
            view = x[start : start + 1000]
            np.testing.assert_array_equal(call(kernel.run, graph, [view])[0], view * 2 + 1)
        askew = {plan.choice.variant.askew for plan in kernel.state.unit().plans.values()}
        assert askew == {(), (0,)}

    @pytest.mark.parametrize("apart", [1 << 20, (1 << 31) + 16])
    def test_places_of_64_bits(self, apart: int) -> None:
        """Rows further apart than 32 bits count; nothing but the rows themselves has memory behind it."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        memory = np.frombuffer(mmap.mmap(-1, 4 * (2 * apart + 4), flags=flags), np.float32)
        x = np.lib.stride_tricks.as_strided(memory, (3, 4), (4 * apart, 4), writeable=True)
        x[...] = np.arange(12).reshape(3, 4)
        for function, want in ((lambda x: x * 2, x * 2), (lambda x: total(x, (1,)), x.sum(1, keepdims=True))):
            (found,), variant = run(function, device(), x)
            assert variant.wide is (apart > 1 << 30)
            np.testing.assert_array_equal(found, want)

    def test_any_strides(self) -> None:
        x = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
        views = [x, x[:, ::-1, ::2, 1:4:2][:, :, :, ::-1], x.transpose(3, 1, 0, 2), x[:, :1, :1, ::-1]]
        for view in views:
            other = np.ones(view.shape[-1], np.float32) * 3
            (found,), _ = run(lambda a, b: a * b + 1, device(), view, other)
            np.testing.assert_array_equal(found, view * other + 1)

    def test_120_inputs_that_all_step_differently(self) -> None:
        arrays = [np.full((2, 3 + k, 4 + k, 5 + k), k, np.float32)[:, :3, :4, :5] for k in range(120)]
        (found,), variant = run(lambda *xs: sum(xs[1:], xs[0]), device(), *arrays)
        assert len(variant.classes) == 120
        np.testing.assert_array_equal(found, np.full((2, 3, 4, 5), sum(range(120)), np.float32))

    @pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64", "bool", "float64"])
    def test_folds_of_every_kind(self, dtype: str) -> None:
        x = (np.random.default_rng(1).integers(0, 250, (7, 300)) - 120 * (dtype[0] != "u")).astype(dtype)
        x[0] = 1 if dtype == "bool" else np.iinfo(dtype).max if dtype != "float64" else -np.inf
        x[1] = 0 if dtype == "bool" else np.iinfo(dtype).min if dtype != "float64" else np.inf
        folds: list[Any] = [reduce_max, reduce_min]
        if dtype != "bool":
            folds: list[Any] = [reduce_max, reduce_min]
        if dtype != "bool":
            folds = [reduce_sum, *([] if dtype == "float64" else [reduce_prod]), *folds]
        found, _ = run(lambda x: [f(x, axis=(1,)) for f in folds], device(), x)
        with np.errstate(all="ignore"):
            rules = {reduce_sum: np.sum, reduce_prod: np.prod, reduce_max: np.max, reduce_min: np.min}
            for got, f in zip(found, folds, strict=True):
                want = rules[f](x, axis=1, keepdims=True, **({} if f in folds[-2:] else {"dtype": x.dtype}))
                np.testing.assert_allclose(got, want, rtol=1e-12)


def log_sum(x: Any, axis: tuple[int, ...]) -> Any:
    """With a shift that is not the maximum where that is infinite, as the functional layer has it."""
    top = reduce_max(x, axis=axis)
    shift = where(lt(top - top, 1), top, 0)
    return log(reduce_sum(exp(x - shift), axis=axis)) + shift


def rows_of(kind: str, shape: tuple[int, int]) -> np.ndarray:
    x = np.random.default_rng(3).normal(size=shape).astype(np.float32)
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

    @pytest.mark.parametrize(
        "kind", ["plain", "rising", "falling", "far from 0", "outliers", "all the same", "special"]
    )
    @pytest.mark.parametrize("function", [softmax, log_sum, normalise], ids=lambda f: f.__name__)
    def test_rows(self, function: Any, kind: str) -> None:
        x = rows_of(kind, (6, 40_000))
        (found,), variant = run(lambda x: function(x, (1,)), device(1), x)
        assert variant.online and not variant.stays and not variant.split
        assert problem(found, judge(of(lambda x: function(x, (1,)), x), [x])[0]) is None

    @pytest.mark.parametrize("function", [softmax, normalise], ids=lambda f: f.__name__)
    def test_columns(self, function: Any) -> None:
        x = np.repeat(rows_of("outliers", (3, 2500)).T, 100, axis=1)
        (found,), variant = run(lambda x: function(x, (0,)), device(1), x)
        assert variant.online and not variant.stays
        assert problem(found, judge(of(lambda x: function(x, (0,)), x), [x])[0]) is None

    def test_where_it_does_not_apply(self) -> None:
        """The second pass also has a use of its own for x."""

        def both(x: Any) -> list[Any]:
            top = reduce_max(x, axis=(1,))
            return [reduce_sum(exp(x - top), axis=(1,)), reduce_sum(x * top, axis=(1,))]

        x = rows_of("plain", (6, 40_000))
        found, variant = run(both, device(1), x)
        assert not variant.online
        top = x.max(axis=1, keepdims=True).astype(np.float64)
        np.testing.assert_allclose(found[0], np.exp(x - top).sum(1, keepdims=True), rtol=1e-5)


class TestCasts:
    @pytest.mark.parametrize("target", ["float16", "bfloat16"])
    @pytest.mark.parametrize("source", ["int32", "uint32", "int64", "uint64", "float64"])
    def test_to_16_bits_is_rounded_once(self, source: str, target: str) -> None:
        """Numbers that lie so near the middle of two others that float32 takes them for it."""
        dtype = np.dtype(target)
        bits = 11 if target == "float16" else 8
        powers = range(bits + 1, 16 if target == "float16" else 62 if source[-2:] == "64" else 31)
        found = [[(1 << p) + (1 << (p - bits)) + d for d in (-1, 0, 1)] for p in powers]
        numbers = np.array([0, 1, *(n for three in found for n in three)], np.dtype(source))
        if source[0] != "u":
            numbers = np.concatenate([numbers, -numbers])
        (got,), _ = run(lambda x: cast(x, dtype=dtype), device(), numbers)
        exact = np.array([rounded(int(n), bits) for n in numbers.tolist()])
        np.testing.assert_array_equal(got.astype(np.float64), exact)


def rounded(number: int, bits: int) -> float:
    """To so many digits, ties to even, in whole numbers."""
    size, sign = abs(number), -1 if number < 0 else 1
    away = max(0, size.bit_length() - bits)
    quotient, rest = divmod(size, 1 << away)
    half = 1 << away >> 1
    quotient += away > 0 and (rest > half or (rest == half and quotient & 1))
    return float(sign * (quotient << away))


class TestJoined:
    def test_updates_of_many_parameters_take_few_launches(self) -> None:
        backend = OnInterpreter(device())
        random = np.random.default_rng(0)
        shapes = [(int(n),) for n in random.integers(1, 900, 300)] + [(7, 9), (3, 4)]
        arrays = [[random.normal(size=s).astype(np.float32) for _ in range(3)] for s in shapes]
        rate = np.array(0.25, np.float32)

        def update(p: Any, g: Any, m: Any, rate: Any) -> list[Any]:
            m = add(mul(m, 0.9), g)
            return [p - rate * m, m]

        graph = traced(update, *arrays[0], rate)
        flat, square = backend.compile(graph), backend.compile(traced(update, *arrays[-1], rate))
        launches = self.count(backend.device)
        joined = backend.join([flat] * 300 + [square] * 2)
        assert joined is not None
        inputs = [a for three in arrays for a in (*three, rate)]
        out = [np.full(s, 77, np.float32) for s in shapes for _ in range(2)]
        for factor in (1, 2):  # then the very arrays of the last call, with other values
            for p, *_ in arrays:
                p *= factor
            joined.run(*inputs, out=out)
            for k, (p, g, m) in enumerate(arrays):
                momentum = m * np.float32(0.9) + g
                np.testing.assert_allclose(out[2 * k + 1], momentum, rtol=1e-6, atol=1e-6)
                np.testing.assert_allclose(out[2 * k], p - rate * momentum, rtol=1e-6, atol=1e-5)
        assert len(launches) <= 2 * 4
        for p, *_ in arrays:
            p += 1
        kept = [np.copy(a) for a in inputs]
        places = [a for p, g, m in arrays for a in (p, m)]
        joined.run(*inputs, out=places)  # in place
        for k, (p, _, m) in enumerate(arrays):
            before, g, was, _ = kept[4 * k : 4 * k + 4]
            np.testing.assert_allclose(m, was * np.float32(0.9) + g, rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(p, before - rate * m, rtol=1e-6, atol=1e-5)

    def test_kernels_that_are_not_alike(self) -> None:
        backend = OnInterpreter(device())
        x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.zeros((0, 4), np.float32)
        graphs = [traced(lambda x: x * 2, x), traced(lambda x: total(x, (1,)), x), traced(lambda x: x * 2, y)]
        joined = backend.join([backend.compile(g) for g in graphs])
        assert joined is not None
        out = [np.empty((3, 4), np.float32), np.empty((3, 1), np.float32), np.empty((0, 4), np.float32)]
        joined.run(x, x, y, out=out)
        np.testing.assert_array_equal(out[0], x * 2)
        np.testing.assert_array_equal(out[1], x.sum(1, keepdims=True))

    def test_the_arrays_of_the_last_call_are_not_kept_alive(self) -> None:
        backend = OnInterpreter(device())
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

    def count(self, on: Interpreter) -> list[tuple[int, int]]:
        """The grids of the launches to come."""
        grids: list[tuple[int, int]] = []
        plain = on.launcher

        def launcher(function: Any, grid: tuple[int, int], threads: int) -> Any:
            launch = plain(function, grid, threads)
            return lambda stream, table: (grids.append(grid), launch(stream, table))

        on.launcher = launcher  # type: ignore[method-assign]
        return grids
