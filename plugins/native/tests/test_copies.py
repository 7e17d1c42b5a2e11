"""The functions that kernels call to move memory, compared with NumPy's copies."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import pytest
from mgb_native import portable
from mgb_native.native import native

RNG = np.random.default_rng(5)
SIZES = {np.uint8: 8, np.uint16: 16, np.uint32: 32, np.uint64: 64}


@pytest.fixture(params=["served", "python"], autouse=True)
def copies(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions of the launcher in use, and of the one in Python."""
    monkeypatch.setitem(COPIES, "by_name", (native() if request.param == "served" else portable).copies)


COPIES: dict[str, Any] = {}


def call(name: str, *words: int) -> None:
    ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(words))(COPIES["by_name"][name])(*words)


def numbers(dtype: Any, *shape: int) -> Any:
    return RNG.integers(1, 250, shape).astype(dtype)


COUNTS = [0, 1, 3, 4, 5, 31, 64, 65, 129, 257, 1000]
APART = [-7, -4, -3, -2, -1, 2, 3, 4, 5, 9]


def apart(dtype: Any, count: int, by: int) -> tuple[Any, Any]:
    """Memory that is just as long as `count` elements so far apart need, and these elements."""
    base = numbers(dtype, abs(by) * (count - 1) + 1 if count else 0)
    return base, base[::by][:count]


def at_end_of_memory(dtype: Any, size: int) -> Any:
    """An array before an address that is not the process's; what reads or writes there ends it."""
    area = mmap.mmap(-1, 2 * mmap.PAGESIZE * (-(-size * dtype().itemsize // mmap.PAGESIZE) + 1))
    whole = np.frombuffer(area, np.uint8)
    end = len(whole) - mmap.PAGESIZE
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(whole.ctypes.data + end), mmap.PAGESIZE, 0)
    return whole[end - size * dtype().itemsize : end].view(dtype)


@pytest.mark.parametrize("dtype", SIZES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("count", COUNTS)
def test_gather_copies_strided_elements(dtype: Any, count: int) -> None:
    """Elements apart, against the direction of memory, and one again and again."""
    for x in (*(apart(dtype, count, by)[1] for by in APART), np.broadcast_to(numbers(dtype, 1), (count,))):
        buffer = np.zeros(count + 1, dtype)
        start = x.__array_interface__["data"][0]
        call(f"mgb_gather_{SIZES[dtype]}", buffer.ctypes.data, start, x.strides[0], count)
        np.testing.assert_array_equal(buffer[:count], x)
        assert buffer[count] == 0


@pytest.mark.parametrize("dtype", SIZES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("count", COUNTS)
def test_scatter_writes_only_strided_elements(dtype: Any, count: int) -> None:
    """To places apart, and against the direction of memory; nothing between them is touched."""
    for by in APART:
        base, target = apart(dtype, count, by)
        wanted, source = base.copy(), numbers(dtype, count)
        wanted[::by][:count] = source
        start = target.__array_interface__["data"][0]
        call(f"mgb_scatter_{SIZES[dtype]}", start, target.strides[0], source.ctypes.data, count)
        np.testing.assert_array_equal(base, wanted)


@pytest.mark.parametrize("dtype", SIZES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("by", [-2, -1, 1, 2, 3, 4])
def test_strided_copies_stay_within_memory(dtype: Any, by: int) -> None:
    for count in (64, 300):
        x = at_end_of_memory(dtype, abs(by) * (count - 1) + 1)[::by]
        start, buffer = x.__array_interface__["data"][0], numbers(dtype, count)
        call(f"mgb_scatter_{SIZES[dtype]}", start, x.strides[0], buffer.ctypes.data, count)
        back = np.zeros(count, dtype)
        call(f"mgb_gather_{SIZES[dtype]}", back.ctypes.data, start, x.strides[0], count)
        np.testing.assert_array_equal(back, buffer)


def test_gather_of_elements_between_bytes_of_others() -> None:
    """Elements whose distance is no multiple of their size, as fields of records are."""
    x = np.zeros(700, np.dtype([("byte", np.uint8), ("word", np.uint32)]))
    x["word"] = numbers(np.uint32, 700)
    buffer, start = np.zeros(700, np.uint32), x["word"].__array_interface__["data"][0]
    call("mgb_gather_32", buffer.ctypes.data, start, 5, 700)
    np.testing.assert_array_equal(buffer, x["word"])


@pytest.mark.parametrize("dtype", SIZES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("rows", [1, 3, 4, 7, 16, 32, 39, 64])
@pytest.mark.parametrize("count", [1, 6, 16, 40, 131])
def test_tile_transposes_columns_into_padded_rows(dtype: Any, rows: int, count: int) -> None:
    """Rows side by side, every other one, and columns from the last to the first."""
    whole = np.asfortranarray(numbers(dtype, 2 * rows, count))
    for x in (np.asfortranarray(whole[:rows]), whole[::2], whole[3 : 3 + rows, ::-1], whole[::-2]):
        pitch = count + 3
        buffer = np.zeros((len(x), pitch), dtype)
        across, step = x.strides
        start = x.__array_interface__["data"][0]
        call(f"mgb_tile_{SIZES[dtype]}", buffer.ctypes.data, start, step, count, across, len(x), pitch)
        np.testing.assert_array_equal(buffer[:, :count], x)
        assert not buffer[:, count:].any()


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 127, 128, 1000, 4096])
@pytest.mark.parametrize("start", [0, 1, 2, 60, 64])
def test_flush_copies_between_any_alignments(size: int, start: int) -> None:
    """From any address to any other; nothing around the target is touched."""
    source, target = numbers(np.uint8, size + 7), np.zeros(size + 256, np.uint8)
    call("mgb_flush", target.ctypes.data + start, source.ctypes.data + 3, size)
    np.testing.assert_array_equal(target[start : start + size], source[3 : 3 + size])
    assert not target[:start].any() and not target[start + size :].any()


def test_prefetch_of_invalid_addresses_is_harmless() -> None:
    call("mgb_ask", 8, 1000)
    call("mgb_ask", 0, 0)
