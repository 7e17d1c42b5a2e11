"""How a kernel walks through memory: pieces, runs, chunks and tiles, all cut so short that a few thousand
elements have many of each.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from cpu_numba_helpers import BACKEND, SENTINEL, VIEWS, call, run, traced, view
from mgb.ops.bodies.transcendental import exp
from mgb.ops.primitives import maximum
from mgb.ops.reduce import reduce_max, reduce_sum
from mgb_native import plan
from mgb_native.frame import Frame

RNG = np.random.default_rng(5)


def whole(*shape: int, dtype: Any = np.float32) -> Any:
    """Small whole numbers, whose sums are exact in any order."""
    return RNG.integers(-8, 9, shape).astype(dtype)


@pytest.fixture(params=[(8, 24), (64, 64), (100, 1000)], ids=str)
def short(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces and chunks of few elements."""
    piece, chunk = request.param
    monkeypatch.setattr(plan, "PIECE", piece)
    monkeypatch.setattr(plan, "GATHERED", piece)
    monkeypatch.setattr(plan, "STREAMED", piece)
    monkeypatch.setattr(plan, "CHUNK", chunk)
    monkeypatch.setattr(plan, "SHORT", 0)


@pytest.fixture(params=[False, True], ids=["cached", "streamed"])
def stored(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to store."""
    if request.param:
        monkeypatch.setattr(plan, "STREAM", 0)


BROADCASTS = [
    ((40, 103), (1, 103)),
    ((40, 103), (40, 1)),
    ((4, 5, 7, 9), (1, 5, 1, 1)),
    ((4, 5, 28, 28), (1, 5, 1, 1)),
    ((4, 5, 6, 100), (1, 1, 6, 100)),
    ((3, 4, 50, 30), (3, 1, 50, 1)),
    ((2, 3, 4, 5, 60), (1, 3, 1, 5, 1)),
]


@pytest.mark.usefixtures("short", "stored")
@pytest.mark.parametrize(("shape", "small"), BROADCASTS, ids=str)
def test_broadcast_operands_in_every_layout(shape: tuple[int, ...], small: tuple[int, ...]) -> None:
    bias = whole(*small)
    graph = traced(lambda x, b: (maximum(x + b, 0.0), x * b), [whole(*shape), bias])
    kernel = BACKEND.compile(graph)
    for layout in VIEWS:
        x = view(whole(*shape), layout)
        got = call(kernel, graph, [x, bias])
        np.testing.assert_array_equal(got[0], np.maximum(x + bias, 0))
        np.testing.assert_array_equal(got[1], x * bias)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("axis", [(0, 2, 3), (1, 3), (0, 3), (3,), (0, 1, 2)], ids=str)
def test_softmax_passes_reuse_cached_values(axis: tuple[int, ...]) -> None:
    """Passes run to and fro, and the later ones find what the earlier ones kept."""
    shape = (3, 4, 10, 33)

    def function(x: Any) -> Any:
        e = exp(x - reduce_max(x, axis=axis))
        return e / reduce_sum(e, axis=axis)

    graph = traced(function, [whole(*shape)])
    kernel = BACKEND.compile(graph)
    for layout in VIEWS:
        x = view(whole(*shape), layout)
        true = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
        (got,) = call(kernel, graph, [x])
        np.testing.assert_allclose(got, true / true.sum(axis, keepdims=True), rtol=1e-5)


def test_piece_stride_follows_the_memory_layout() -> None:
    """A line is read in one go, unless its elements lie apart."""
    arrays = [np.ones((8, 4096), np.float32), np.ones((1, 4096), np.float32)]
    frame = Frame(traced(lambda x, b: x + b, arrays))
    x = next(o for o in frame.operands if o.name == "x0")
    (first, *_) = frame.strides_at(x, "folded")
    shapes = [a.shape for a in (*arrays, arrays[0])]
    for array, step in [(arrays[0], plan.PIECE * 4), (np.asfortranarray(arrays[0]), 4)]:
        planner = plan.Planner(frame, shapes, [a.strides for a in (array, arrays[1], arrays[0])])
        planner.piece, planner.pieces = plan.PIECE, 2
        planner.plan()
        assert planner.words[first] == step


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64"])
def test_tiled_reduction_of_transposed_rows(dtype: str) -> None:
    graph = traced(lambda x, y: reduce_sum(x * y, axis=(1,)), [whole(5, 9, dtype=dtype)] * 2)
    kernel = BACKEND.compile(graph)
    for rows, length in itertools.product((2, 15, 16, 17, 70), (300, 301, 1000)):
        x, y = (whole(rows, length, dtype=dtype) for _ in range(2))
        true = (x.astype(np.float64) * y).sum(1, keepdims=True).astype(dtype if dtype != "int8" else "i8")
        for left, right in itertools.product(VIEWS, VIEWS):
            got = np.full((rows, 1), SENTINEL, dtype)
            kernel.run(view(x, left), view(y, right), out=(got,))
            np.testing.assert_array_equal(got, true.astype(dtype))


def test_partial_tiles_at_the_end_of_an_axis() -> None:
    for shape, order in [((6, 90, 70), (0, 2, 1)), ((3, 2, 90, 21), (1, 0, 3, 2)), ((70, 30, 5), (1, 2, 0))]:
        x = whole(*shape).transpose(order)
        axis = (x.ndim - 1,)
        top, moved = run(lambda x, a=axis: (reduce_max(x, axis=a), x - reduce_max(x, axis=a)), x)
        np.testing.assert_array_equal(top, x.max(-1, keepdims=True))
        np.testing.assert_array_equal(moved, x - x.max(-1, keepdims=True))


def test_tiles_are_shared_among_threads() -> None:
    x = np.asfortranarray(whole(1500, 700))
    y = whole(1500, 1)
    total, moved = run(lambda x, y: (reduce_sum(x, axis=(1,)), x * y - reduce_sum(x, axis=(1,))), x, y)
    np.testing.assert_array_equal(total, x.sum(1, keepdims=True))
    np.testing.assert_array_equal(moved, x * y - x.sum(1, keepdims=True))


def test_only_transposed_rows_are_tiled() -> None:
    x = np.ones((64, 640), np.float32)
    frame = Frame(traced(lambda x: reduce_sum(x * 2.0, axis=(1,)), [x]))
    shapes = [x.shape, (64, 1)]
    tiled = {layout: plan.Planner(frame, shapes, [view(x, layout).strides, (4, 4)]).tiled for layout in VIEWS}
    assert tiled == {"plain": (), "transposed": (0,), "reversed": (), "strided": ()}


@pytest.mark.parametrize("ahead", [64, 1 << 12, 1 << 20])
@pytest.mark.parametrize("stream", [0, 1 << 40], ids=["streamed", "cached"])
def test_prefetch_of_short_rows_changes_no_result(
    monkeypatch: pytest.MonkeyPatch, ahead: int, stream: int
) -> None:
    """Asking changes no result, and may reach beyond the end of an array."""
    for name, value in [("DISTANT", 0), ("AHEAD", ahead), ("STREAM", stream)]:
        monkeypatch.setattr(plan, name, value)

    def function(x: Any, b: Any) -> Any:
        total = reduce_sum(x * b, axis=(2,))
        return total, x - total

    small = [whole(2, 3, 4), whole(1, 3, 4)]
    kernel = BACKEND.compile(traced(function, small))
    for shape in [(2, 3, 4), (5, 7, 2), (3, 50, 65), (1, 90, 512)]:
        x, b = whole(*shape), whole(1, *shape[1:])
        true = (x * b).sum(2, keepdims=True)
        for layout in VIEWS:
            out = np.empty_like(true), np.empty_like(x)
            kernel.run(view(x, layout), b, out=out)
            np.testing.assert_array_equal(out[0], true)
            np.testing.assert_array_equal(out[1], x - true)


LENGTHS = (2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 255, 511, 512, 513)


@pytest.mark.parametrize("dtype", ["int16", "float16", "float32", "float64"])
@pytest.mark.parametrize("stream", [0, 1 << 40], ids=["streamed", "cached"])
def test_short_row_path_matches_the_general_path(
    monkeypatch: pytest.MonkeyPatch, dtype: str, stream: int
) -> None:
    monkeypatch.setattr(plan, "STREAM", stream)

    def function(x: Any, y: Any) -> Any:
        kept = maximum(x, y) * (x + 2) * (y + 3) + x
        top = reduce_max(kept, axis=(2,))
        return top, maximum(kept, y) * x, reduce_sum(maximum(kept, top) * 2, axis=(2,))

    graph = traced(function, [whole(2, 3, 4).astype(dtype)] * 2)
    short, walked = BACKEND.compile(graph), BACKEND.compile(graph)
    for n in LENGTHS:
        x, y = (whole(3, 5, n).astype(dtype) for _ in range(2))
        graph = traced(function, [x, y])
        found = call(short, graph, [x, y])
        with monkeypatch.context() as patch:
            patch.setattr(plan, "SHORT", 0)
            for a, b in zip(found, call(walked, graph, [x, y]), strict=True):
                np.testing.assert_array_equal(a, b)
        wide = [v.astype(np.float64) for v in (x, y)]
        kept = np.maximum(*wide) * (wide[0] + 2) * (wide[1] + 3) + wide[0]
        if dtype.startswith("float"):
            np.testing.assert_array_equal(found[0], kept.max(2, keepdims=True).astype(dtype))
            np.testing.assert_array_equal(found[1], (np.maximum(kept, wide[1]) * wide[0]).astype(dtype))


def test_only_large_arrays_of_short_rows_are_prefetched() -> None:
    frame = Frame(traced(lambda x: reduce_sum(x * 2.0, axis=(1,)), [np.ones((9, 9), np.float32)]))

    def ahead(rows: int, length: int, layout: str = "plain") -> int:
        shapes = [(rows, length), (rows, 1)]
        strides = view(np.ones((2, length), np.float32), layout).strides
        return plan.Planner(frame, shapes, [strides, (4, 4)]).ahead()

    assert ahead(1 << 16, 64) == plan.AHEAD // 256
    assert ahead(100, 64) == ahead(1 << 10, 4096) == ahead(1 << 16, 64, "strided") == 0


def normalised(x: Any, b: Any) -> Any:
    """Three passes over a row, each of which reads it."""
    rest = x * b - reduce_max(x, axis=(2,))
    return rest, rest * reduce_sum(rest, axis=(2,))


@pytest.mark.parametrize("piece", [16, 64, 1 << 9])
@pytest.mark.parametrize("stream", [0, 1 << 40], ids=["streamed", "cached"])
def test_next_row_prefetch_changes_no_result(
    monkeypatch: pytest.MonkeyPatch, piece: int, stream: int
) -> None:
    """Asking changes no result, and may reach beyond the end of an array."""
    for name, value in [("DISTANT", 0), ("SHORT", 0), ("STREAMED", piece), ("STREAM", stream)]:
        monkeypatch.setattr(plan, name, value)
    kernel = BACKEND.compile(traced(normalised, [whole(2, 3, 4), whole(1, 3, 4)]))
    for shape in [(2, 3, 4), (5, 7, 200), (3, 2, 1025), (2, 9, 513)]:
        x, b = whole(*shape), whole(1, *shape[1:])
        rest = x * b - x.max(2, keepdims=True)
        for layout in VIEWS:
            out = np.empty_like(x), np.empty_like(x)
            kernel.run(view(x, layout), b, out=out)
            np.testing.assert_array_equal(out[0], rest)
            np.testing.assert_array_equal(out[1], rest * rest.sum(2, keepdims=True))


def test_only_rows_that_fit_in_cache_prefetch_the_next() -> None:
    frame = Frame(traced(normalised, [np.ones((2, 9, 9), np.float32), np.ones((1, 9, 9), np.float32)]))
    assert [[o.name for o in frame.asked(k)] for k in range(3)] == [
        [],
        [],
        ["x0"],
    ]  # the maximum needs x0 alone

    def asks(rows: int, length: int, layout: str = "plain") -> bool:
        shapes = [(8, rows, length), (1, rows, length), (8, rows, length), (8, rows, length)]
        strides = [view(np.ones(shape, np.float32), layout).strides for shape in shapes[:2]]
        strides += [np.empty(shape, np.float32).strides for shape in shapes[2:]]
        return plan.Planner(frame, shapes, strides).asks_for_next()

    assert asks(1 << 7, 1 << 12) and asks(1 << 9, 1 << 10)
    assert not asks(1 << 9, 1 << 8)  # the short way of asking
    assert not asks(1 << 2, 1 << 10) and not asks(4, 1 << 17)
    assert not asks(1 << 7, 1 << 12, "strided")
