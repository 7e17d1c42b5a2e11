"""Workloads that are not one loop: index maps, scans, segments, folds, thin products and trigonometry."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from mgb_bench.arrays import Arrays, aligned_like
from mgb_bench.case import TOLERANCES, Case, Size, Stateful, Tolerance, Traffic
from mgb_bench.peers import Loop, Peer
from mgb_bench.ways import patterns

FLOAT = np.dtype(np.float32)

#: Sums over thousands of numbers, and what is computed from them.
LONG = {**TOLERANCES, "float32": Tolerance(2e-4, 2e-4), "int32": Tolerance(0, 0), "int64": Tolerance(0, 0)}


def _calling(name: str, library: str) -> Stateful:
    """Return the pattern `name` in the words of a library, which is imported when needed."""

    def build(peer: Peer, arrays: Arrays) -> Callable[[], Any]:
        function, words = getattr(patterns, name), patterns.WORDS[library]()
        return peer.prepare(lambda *values: function(words, *values), arrays)

    return Stateful(build)


def _loop(name: str) -> Stateful:
    """Return Numba's loop, which fills arrays like those that the pattern gives."""

    def build(peer: Peer, arrays: Arrays) -> Callable[[], Any]:
        function = getattr(importlib.import_module("mgb_bench.ways.pattern_loops"), name)
        value = getattr(patterns, name)(patterns.numpy_words(), *arrays)
        found = value if isinstance(value, tuple) else (value,)
        ready = [aligned_like(v.shape, FLOAT if v.dtype.kind == "f" else v.dtype) for v in found]
        return peer.prepare(Loop(function, lambda *_: ready), arrays)

    return Stateful(build)


def _truth(name: str) -> Callable[..., Any]:
    return lambda *arrays: getattr(patterns, name)(patterns.numpy_words(), *arrays)


def _normal(*shapes: Callable[..., tuple[int, ...]]) -> Callable[[Any, Any], Arrays]:
    """Make arrays of these functions of a size; none means that of the size itself."""
    found = shapes or ((lambda *size: size),)
    return lambda size, generator: tuple(
        generator.standard_normal(shape(*size), np.float32) for shape in found
    )


def _same(*size: int) -> tuple[int, ...]:
    return size


def _pixels(size: Any, generator: np.random.Generator) -> Arrays:
    return (generator.integers(0, 256, size, np.uint8),)


def _rotated(size: Any, generator: np.random.Generator) -> Arrays:
    angle = generator.uniform(0, 6, (size[1], size[2] // 2))
    x = generator.standard_normal(size, np.float32)
    return x, np.cos(angle).astype(FLOAT), np.sin(angle).astype(FLOAT)


def _prices(size: Any, generator: np.random.Generator) -> Arrays:
    return (generator.uniform(1, 2, size).astype(FLOAT),)


def _coloured(size: Any, generator: np.random.Generator) -> Arrays:
    return generator.standard_normal(256, np.float32), generator.integers(0, 256, size, np.uint8)


def _bags(size: Any, generator: np.random.Generator) -> Arrays:
    words, length, rows, width = size
    table = generator.standard_normal((rows, width), np.float32)
    return table, generator.integers(0, rows, (words, length)).astype(np.int32)


def _sorted(size: Any, generator: np.random.Generator) -> Arrays:
    ids = np.sort(generator.integers(0, 4096, size)).astype(np.int32)
    return generator.standard_normal(size, np.float32), ids


def _pairs(size: Any, generator: np.random.Generator) -> Arrays:
    points, pairs = size
    places = generator.integers(0, points, (pairs, 2)).astype(np.int32)
    return generator.standard_normal((points, 3), np.float32), places


def _classified(size: Any, generator: np.random.Generator) -> Arrays:
    x = generator.standard_normal(size, np.float32)
    weights = generator.standard_normal(size[1], np.float32)
    return x, (generator.random(size[0]) > 0.5).astype(FLOAT), weights


def _angles(size: Any, generator: np.random.Generator) -> Arrays:
    return tuple(generator.uniform(-1.5, 1.5, size).astype(FLOAT) for _ in range(4))


def _row(n: int, m: int) -> tuple[int, ...]:
    return (m,)


def _column(n: int, m: int) -> tuple[int, ...]:
    return (n,)


def _traffic(name: str, make: Any) -> Callable[[Any], Traffic]:
    """Return what is read and written once; of small inputs the cache keeps what is read again."""

    def traffic(size: Any) -> Traffic:
        arrays = make(size, np.random.default_rng(0))
        value = getattr(patterns, name)(patterns.numpy_words(), *arrays)
        results = value if isinstance(value, tuple) else (value,)
        writes = sum(r.size * min(r.itemsize, 4) for r in results)
        return Traffic(sum(a.nbytes for a in arrays), writes, (len(arrays), len(results)))

    return traffic


#: The name, the function in `patterns`, how the inputs are made, the size that is timed, and one for tests.
_TABLE: list[tuple[str, str, Any, Any, Any]] = [
    ("image bytes to planes", "planes", _pixels, (4, 512, 512, 3), (1, 16, 24, 3)),
    ("rotary embedding, pairs", "rotary", _rotated, (32, 512, 64), (2, 8, 16)),
    ("product of (re, im) pairs", "complex_product", _normal(_same, _same), (1 << 20, 2), (96, 2)),
    ("a + b.T", "plus_transpose", _normal(_same, lambda n, m: (m, n)), (2048, 2048), (40, 72)),
    ("mean of mirrored neighbours", "mirrored_mean", _normal(), (64, 256, 256), (2, 20, 24)),
    ("channel shuffle and split", "shuffled", _normal(_same, _same), (8, 58, 56, 56), (2, 6, 8, 8)),
    ("patches as rows", "patches", _normal(), (8, 3, 384, 384), (1, 3, 32, 48)),
    ("exp of cumulative sums", "paths", _normal(), (2000, 1000), (12, 80)),
    ("box filter by cumulative sums", "box_filter", _normal(), (2048, 2048), (12, 80)),
    ("drawdown by cumulative maxima", "drawdown", _prices, (1024, 4096), (12, 80)),
    ("look-up by pixel", "coloured", _coloured, (1 << 22,), (4096,)),
    ("embedding bag", "embedding_bag", _bags, (4096, 16, 30000, 64), (40, 5, 100, 16)),
    ("means by sorted ids", "segment_means", _sorted, (1 << 20,), (1 << 14,)),
    ("forces of pairs", "pair_forces", _pairs, (2000, 200_000), (50, 400)),
    ("class and its probability", "confident", _normal(), (8192, 256), (40, 30)),
    ("log-sum-exp of columns", "column_logsumexp", _normal(), (2048, 2048), (60, 70)),
    ("standardized columns", "standardized", _normal(), (2048, 2048), (60, 70)),
    ("gradient of logistic regression", "logistic_gradient", _classified, (100_000, 50), (300, 20)),
    ("gemver", "gemver", _normal(_same, _column, _row, _row, _column), (2000, 2000), (60, 60)),
    ("products of 8 x 8", "small_products", _normal(_same, _same), (20_000, 8, 8), (30, 8, 8)),
    ("great circle", "great_circle", _angles, (1 << 20,), (1000,)),
]


def _case(name: str, function: str, make: Any, size: Any) -> Case:
    ways = {library: _calling(function, library) for library in patterns.WORDS} | {"numba": _loop(function)}
    traffic = _traffic(function, make)
    return Case(
        name, "patterns", (size,), make, _truth(function), ways, traffic, tolerances=LONG, quick=(size,)
    )


CASES = [_case(*row[:4]) for row in _TABLE]

_SMALL = {name: size for name, *_, size in _TABLE}


def small(case: Case) -> Size:
    """Return a size for tests."""
    found: Size = _SMALL[case.name]
    return found


def test_patterns(race: Any, case: Case, size: Size) -> None:
    race(case, size)
