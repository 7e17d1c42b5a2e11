"""Arrays that lie across each other: Triton turns tiles, which are long enough both ways, against NumPy."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest
from mgb.ops.primitives import iota, maximum
from mgb.ops.reduce import reduce_max
from mgb_conformance.cases import of
from mgb_conformance.judge import judge, problem
from mgb_cuda.testing.programs import log_sum, normalise, rows_of, softmax
from mgb_cuda.testing.variants import limited, view
from mgb_triton.testing.interpreter import missing
from triton_geometries import Tiles
from triton_helpers import BENCH

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

#: The layouts of `layout` in which too little lies across.
FLAT = {0, 2, 5}


def layout(seed: int) -> list[np.ndarray]:
    """Three arrays of a shape that lie in memory anyhow, a row and a column."""
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(17, 50, 3).tolist())
    return [view(random, s) for s in (*[shape] * 3, (1, 1, shape[2]), (shape[0], 1, 1))]


class TestRows(Tiles):
    """Rows of transposed arrays whose results are row-major: Triton turns tiles, which are long both ways."""

    @pytest.mark.parametrize("function", [softmax, log_sum, normalise], ids=lambda f: f.__name__)
    @pytest.mark.parametrize(
        ("shape", "multiprocessors", "holds"),
        [
            ((500, 100), 4, lambda v: v.stays and v.tall == 16),
            ((18, 1000), 4, lambda v: v.stays and v.tall == 8),
            ((257, 1100), 1, lambda v: v.online and v.tall == v.long == 32),
            ((33, 2001), 4, lambda v: v.split and v.online and v.tall == v.long == 32),
        ],
        ids=["whole", "whole but few", "long", "shared"],
    )
    def test_transposed_row_reductions_match_numpy(
        self, shape: tuple[int, int], multiprocessors: int, holds: Any, function: Any
    ) -> None:
        x = rows_of("outliers", shape).T.copy().T
        assert x.strides == (4, 4 * shape[0])
        y = np.ones_like(x, order="C")
        program = of(lambda x, y: function(x * y, (1,)), x, y)
        (found,), variant = self.run(lambda x, y: function(x * y, (1,)), BENCH.device(multiprocessors), x, y)
        assert holds(variant) and variant.folded == (False, True), variant
        assert problem(found, judge(program, [x, y])[0]) is None

    @pytest.mark.parametrize("dtype", ["float16", "uint8", "float64", "int64"])
    def test_transposed_rows_of_other_dtypes(self, dtype: str) -> None:
        x = (np.arange(90 * 70).reshape(70, 90) % 11).astype(dtype).T
        function = lambda x: x - reduce_max(x, axis=(1,))  # noqa: E731
        (found,), variant = self.run(function, BENCH.device(4), x)
        assert variant.tall == 16
        np.testing.assert_array_equal(found, x - x.max(1, keepdims=True))

    def test_contiguous_rows_use_no_transposing_tiles(self) -> None:
        x = np.random.default_rng(0).normal(size=(20, 1000)).astype(np.float32)
        for y in (x, x[::-1], x[:, :1], x[:1], np.asfortranarray(x[:5])[:, ::-1][:1]):
            _, variant = self.run(lambda x, y: softmax(x * y), BENCH.device(4), x, y)
            assert variant.tall == 1, y.strides


class TestSquares(Tiles):
    """Arrays without reductions of which some are transposed."""

    @pytest.mark.parametrize(
        ("shape", "dtype"),
        [
            ((64, 128), "float32"),
            ((100, 33), "float16"),
            ((1, 70, 90), "uint8"),
            ((37, 1001), "int64"),
            ((5000, 16), "bool"),
        ],
        ids=str,
    )
    def test_transposed_input_uses_square_tiles(self, shape: tuple[int, ...], dtype: str) -> None:
        x = (np.arange(np.prod(shape)) % 7).astype(dtype).reshape(shape[::-1]).T
        y = (np.arange(np.prod(shape)) % 5).astype(dtype).reshape(shape)
        (found,), variant = self.run(lambda x, y: maximum(x, y), BENCH.device(4), x, y)
        assert variant.folded == (False, True) and min(variant.tall, variant.long) >= 16
        np.testing.assert_array_equal(found, np.maximum(x, y))

    @pytest.mark.parametrize("seed", range(8))
    def test_elementwise_kernels_of_random_layouts(self, seed: int) -> None:
        x, y, z, row, column = arrays = layout(seed)
        found, variant = self.run(
            lambda x, y, z, r, c: [x * y + r, (z - c) * x + r], BENCH.device(4), *arrays
        )
        assert all(variant.folded) is (seed in FLAT)
        np.testing.assert_array_equal(found[0], x * y + row)
        np.testing.assert_array_equal(found[1], (z - column) * x + row)

    def test_iota_and_constants_with_a_transposed_input(self) -> None:
        """An iota is where its element is; a constant is an operand that is row-major."""
        shape, word = (90, 70), np.dtype(np.float32)
        table = np.arange(90 * 70, dtype=word).reshape(shape)
        (found,), variant = self.run(
            lambda x: x + table * iota(shape=shape, dtype=word), BENCH.device(4), np.ones((70, 90), word).T
        )
        assert variant.folded == (False, True)
        np.testing.assert_array_equal(found, table * table + 1)

    def test_offsets_beyond_32_bits(self) -> None:
        """Columns further apart than 32 bits count; nothing but they themselves has memory behind it."""
        apart = (1 << 31) // 15
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        memory = np.frombuffer(mmap.mmap(-1, 16 * apart + 64, flags=flags), np.uint8)
        x = np.lib.stride_tricks.as_strided(memory, (40, 17), (1, apart), writeable=True)
        x[...] = np.arange(40 * 17).reshape(40, 17) % 251
        (found,), variant = self.run(lambda x: x + x, BENCH.device(4), x)
        assert variant.wide and variant.folded == (False, True)
        np.testing.assert_array_equal(found, x + x)

    @pytest.mark.parametrize("shape", [(0, 40), (40, 0)])
    def test_empty_arrays_launch_nothing(self, shape: tuple[int, int]) -> None:
        x = np.ones((40, 40), np.float32)
        graph = BENCH.traced(lambda x: x * 2, x)
        kernel = BENCH.here(BENCH.device(4)).compile(graph)
        kernel.run(np.zeros(shape, np.float32, order="F"), out=(np.zeros(shape, np.float32),))
        assert list(kernel.state.unit().plans.values()) == [None]

    def test_block_of_few_threads_uses_a_smaller_tile(self) -> None:
        x = np.arange(90 * 70, dtype=np.float32).reshape(90, 70).T
        (found,), variant = self.run(lambda x: x * 2, limited(BENCH.device(4), 64), x)
        assert variant.threads <= 64 and not all(variant.folded)
        np.testing.assert_array_equal(found, x * 2)

    def test_joined_updates_of_plain_and_transposed_arrays(self) -> None:
        made = [np.random.default_rng(k).normal(size=(40 + k, 50)).astype(np.float32) for k in range(6)]
        turned = [np.asfortranarray(x) for x in made]
        graph = BENCH.traced(lambda p, g: p - g * 0.5, made[0], made[0])
        backend = BENCH.here(BENCH.device(4))
        joined = backend.join([backend.compile(graph) for _ in made])
        out = [np.zeros_like(x) for x in made]
        for second in (turned, made):
            joined.run(*(a for pair in zip(made, second, strict=True) for a in pair), out=out)
            for x, y in zip(made, out, strict=True):
                np.testing.assert_array_equal(y, x - x * np.float32(0.5))
