"""Memory accesses of kernels with transposed inputs: the addresses that their text computes."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from mgb import config
from mgb.ops.primitives import maximum
from mgb.ops.reduce import extent, reduce_max
from mgb_conformance.cases import samples
from mgb_cuda import Properties, order
from mgb_cuda.order import sectors
from mgb_cuda.testing import host
from mgb_cuda.testing.programs import log_sum, softmax, total
from mgb_cuda.variant import Kind, Variant
from nvrtc_helpers import OnHost, traced

pytestmark = pytest.mark.skipif(host.missing() is not None, reason=str(host.missing()))

#: Stands for pointers and arrays in shared memory: notes each access.
SEEN = """
struct Access {
    unsigned long long at;
    unsigned block, thread, array, order, size, unused;
};
extern "C" {
__attribute__((visibility("default"))) Access accesses[1 << 20];
__attribute__((visibility("default"))) unsigned counted = 0;
}
static unsigned seen_block[1024][64], seen_order[1024][64];
static void note(unsigned array, const void *at, unsigned size) {
    const unsigned thread = threadIdx.x;
    if (seen_block[thread][array] != blockIdx.x + 1) seen_order[thread][array] = 0;
    seen_block[thread][array] = blockIdx.x + 1;
    const unsigned order = seen_order[thread][array]++;
    if (counted < (1 << 20))
        accesses[counted++] = {(unsigned long long)at, blockIdx.x, thread, array, order, size, 0};
}
template <class T> struct Place {
    T *at;
    unsigned array;
};
template <class T, int K> struct Seen {
    T *at;
    T &operator[](long long i) const {
        note(K, at + i, sizeof(T));
        return at[i];
    }
    Place<T> operator+(long long i) const { return {at + i, K}; }
};
template <class T, int N> Vec<T, N> load(Place<const T> place) {
    note(place.array, place.at, sizeof(T) * N);
    return *(const Vec<T, N> *)place.at;
}
template <class T, int N> void store(Place<T> place, Vec<T, N> value) {
    note(place.array, place.at, sizeof(T) * N);
    *(Vec<T, N> *)place.at = value;
}
typedef int I;
"""

#: Each side is a multiple of a square's, and a row is long enough for all that a warp loads at once.
SHAPE = (128, 512)

#: The number of the first array in shared memory.
SHARED = 32

ACCESS = np.dtype(
    [("at", "u8"), *((n, "u4") for n in ("block", "thread", "array", "order", "size", "unused"))]
)


class Counting(host.HostDevice):
    """Notes each access to the arrays of a call, in their order, and to those in shared memory."""

    def compile(self, source: str) -> bytes:
        head, _, text = source.partition("typedef int I;\n")
        number = iter(range(SHARED))
        text = re.sub(
            r"^    (const )?(\w+) \*(\w+);",
            lambda m: f"    Seen<{m[1] or ''}{m[2]}, {next(number)}> {m[3]};",
            text,
            flags=re.MULTILINE,
        )
        shared = iter(range(SHARED, 2 * SHARED))
        text = re.sub(
            r"(__shared__ __align__\(16\) (\w+)) turned_(\w+)(\[\d+\]);",
            lambda m: (
                f"{m[1]} raw_{m[3]}{m[4]}; const Seen<{m[2]}, {next(shared)}> turned_{m[3]} = {{raw_{m[3]}}};"
            ),
            text,
        )
        text = re.sub(
            r"(\w+) \*there = \(\w+ \*\)turning;",
            lambda m: f"const Seen<{m[1]}, {SHARED}> there = {{({m[1]} *)turning}};",
            text,
        )
        return super().compile(head + SEEN + text)

    def load(self, image: bytes, names: Any) -> tuple[Any, ...]:
        self.library = host._library(image)
        ctypes.c_uint.in_dll(self.library, "counted").value = 0
        return super().load(image, names)

    def accesses(self) -> np.ndarray:
        """Return the recorded accesses, in order."""
        count = ctypes.c_uint.in_dll(self.library, "counted").value
        whole = (ctypes.c_char * (count * ACCESS.itemsize)).in_dll(self.library, "accesses")
        return np.frombuffer(whole, ACCESS).copy()


def by_warp(notes: np.ndarray, threads: int = 32) -> Iterator[np.ndarray]:
    """The accesses that threads side by side make together."""
    keys = np.stack([notes["block"], notes["thread"] // threads, notes["order"]], axis=1)
    _, group = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(group, kind="stable")
    cuts = np.flatnonzero(np.diff(group[order])) + 1
    yield from np.split(notes[order], cuts)


def touched(notes: np.ndarray) -> int:
    """The sectors that all warps ask for, with each warp's access on its own."""
    total = 0
    for warp in by_warp(notes):
        first, last = warp["at"] // 32, (warp["at"] + warp["size"] - 1) // 32
        total += len(
            set().union(*(range(a, b + 1) for a, b in zip(first.tolist(), last.tolist(), strict=True)))
        )
    return total


def way_of_banks(warp: np.ndarray) -> int:
    """How many words of one bank are asked for at once: 1 is without conflict."""
    size = warp["size"][0]
    words = np.unique(np.concatenate([warp["at"] // 4 + k for k in range(max(1, size // 4))]))
    return int(np.bincount((words % 32).astype(int)).max())


def placed(array: np.ndarray, order: str) -> np.ndarray:
    """A copy that begins at a multiple of 128 bytes."""
    raw = np.empty(array.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 128
    copy = np.ndarray(array.shape, array.dtype, raw[start : start + array.nbytes].data, order=order)
    copy[...] = array
    return copy


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is on disk would not be compiled, and note nothing."""
    monkeypatch.setenv(config.CACHE.name, "0")


class TestMemory:
    """The addresses that the text itself computes, for each warp."""

    def counted(self, dtype: str, multiprocessors: int) -> tuple[np.ndarray, Variant, np.ndarray]:
        device = Counting(properties=Properties("one", (9, 0), multiprocessors))
        x = placed(samples(dtype, SHAPE), "F")
        y = placed(samples(dtype, SHAPE, 1), "C")
        graph = traced(maximum, x, y)
        kernel, out = OnHost(device).compile(graph), placed(y, "C")
        kernel.run(x, y, out=(out,))
        np.testing.assert_array_equal(out, np.maximum(x, y))
        (plan,) = kernel.state.unit().plans.values()
        return device.accesses(), plan.choice.variant, x

    @pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
    def test_whole_sectors_are_loaded_and_stored(self, dtype: str) -> None:
        notes, variant, x = self.counted(dtype, 1)
        assert variant.kind is Kind.TILES and variant.turned == (0,)
        for array in range(3):
            mine = notes[notes["array"] == array]
            assert mine["size"].sum() >= x.nbytes
            assert touched(mine) == x.nbytes // 32, "each sector is asked for once"

    @pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
    def test_without_tiles_each_element_loads_a_sector(self, dtype: str) -> None:
        """Without squares there are more accesses; the model of the rule counts the same ones as the text."""
        notes, variant, x = self.counted(dtype, 1 << 20)
        assert variant.kind is Kind.FLAT
        mine = notes[notes["array"] == 0]
        assert touched(mine) == x.size == sectors(x.shape[0], x.itemsize) * x.size // 32
        assert x.size == 32 // x.itemsize * (x.nbytes // 32)

    @pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
    def test_shared_memory_has_no_bank_conflicts(self, dtype: str) -> None:
        notes, _, x = self.counted(dtype, 1)
        together = 32 if x.itemsize <= 4 else 16
        mine = notes[notes["array"] >= SHARED]
        stored = mine["order"] < variant_stores(notes)
        for part in (mine[stored], mine[~stored]):
            assert len(part) and max(map(way_of_banks, by_warp(part, together))) == 1


def statistics(x: Any) -> list[Any]:
    mean = total(x, (1,)) / extent(x, axis=(1,))
    return [mean, total((x - mean) * (x - mean), (1,))]


class TestReductions:
    """Which way threads walk over rows: that of memory, whichever axis is folded."""

    def counted(
        self, function: Any, *arrays: np.ndarray, multiprocessors: int = 1
    ) -> tuple[list[int], Variant, tuple[Any, ...]]:
        """For each array how many sectors are asked for, the variant, and the outputs."""
        device = Counting(properties=Properties("one", (9, 0), multiprocessors))
        graph = traced(function, *arrays)
        kernel = OnHost(device).compile(graph)
        out = tuple(placed(np.zeros(o.spec.shape, o.spec.dtype), "C") for o in graph.outputs)
        kernel.run(*arrays, out=out)
        (plan,) = kernel.state.unit().plans.values()
        notes = self.notes = device.accesses()
        found = [touched(notes[notes["array"] == k]) for k in range(len(arrays) + len(out))]
        return found, plan.choice.variant, out

    @pytest.fixture
    def by_axes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The innermost axis is the innermost loop, however memory lies."""
        monkeypatch.setattr(order, "_orders", lambda frame, strides: [tuple(range(len(strides[0])))])

    @pytest.mark.parametrize("axis", [(0,), (1,), (0, 1)], ids=["first", "last", "both"])
    @pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
    def test_each_sector_is_loaded_once(self, dtype: str, axis: tuple[int, ...]) -> None:
        x = placed(samples(dtype, SHAPE), "F")
        (asked, _), variant, (out,) = self.counted(lambda x: reduce_max(x, axis=axis), x)
        np.testing.assert_array_equal(out, x.max(axis, keepdims=True))
        assert variant.kind is (Kind.COLUMNS if axis == (1,) else Kind.ROWS) and variant.lanes > 1
        assert asked == x.nbytes // 32

    @pytest.mark.parametrize("axis", [(0,), (1,)], ids=["first", "last"])
    @pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
    def test_axis_order_loads_a_sector_per_element(
        self, dtype: str, axis: tuple[int, ...], by_axes: None
    ) -> None:
        """The order saves accesses; the rule counts the same ones as the text. Few rows are not turned."""
        x = placed(samples(dtype, SHAPE), "F")
        (asked, _), variant, (out,) = self.counted(lambda x: reduce_max(x, axis=axis), x, multiprocessors=64)
        np.testing.assert_array_equal(out, x.max(axis, keepdims=True))
        assert variant.kind is (Kind.ROWS if axis == (1,) else Kind.COLUMNS)
        assert asked == x.size

    @pytest.mark.parametrize("function", [log_sum, statistics], ids=lambda f: f.__name__)
    def test_two_reductions_load_each_sector_once(self, function: Any) -> None:
        x = placed(samples("float32", SHAPE), "F")
        found, variant, _ = self.counted(function, x)
        assert variant.kind is Kind.COLUMNS
        assert found[0] == x.nbytes // 32

    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
    def test_transposed_rows_are_turned_in_shared_memory(self, dtype: str) -> None:
        """A warp asks for whole sectors of each, and those that hand over and take wait for no bank."""
        x, y = (placed(samples(dtype, SHAPE, k), order) for k, order in enumerate("FC"))
        (*asked, stored), variant, _ = self.counted(lambda x, y: softmax(x) + y, x, y)
        assert variant.kind is Kind.ROWS and variant.stays and variant.turned == (0,)
        assert [*asked, stored] == [x.nbytes // 32] * 3

    def test_row_transposition_has_no_bank_conflicts(self) -> None:
        x = placed(samples("float32", SHAPE), "F")
        self.counted(softmax, x)
        mine = self.notes[self.notes["array"] == SHARED]
        assert len(mine) == 2 * x.size and max(map(way_of_banks, by_warp(mine))) == 1


def variant_stores(notes: np.ndarray) -> int:
    """How often each thread stores into shared memory: as often as it loads of the input."""
    return int(notes[notes["array"] == 0]["order"].max()) + 1
