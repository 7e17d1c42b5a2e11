"""The functions that kernels call to move memory, compared with NumPy's copies."""

from __future__ import annotations

import ctypes
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


@pytest.mark.parametrize("dtype", SIZES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 31, 1000])
def test_gather_copies_strided_elements(dtype: Any, count: int) -> None:
    """Elements apart, against the direction of memory, and one again and again."""
    base = numbers(dtype, count + 1, 5)
    for x in (base[:count, 2], base[::-1][:count, 2], np.broadcast_to(base[:1, 0], (count,))):
        buffer = np.zeros(count + 1, dtype)
        start = x.__array_interface__["data"][0]
        call(f"mgb_gather_{SIZES[dtype]}", buffer.ctypes.data, start, x.strides[0], count)
        np.testing.assert_array_equal(buffer[:count], x)
        assert buffer[count] == 0


@pytest.mark.parametrize("dtype", SIZES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 31, 1000])
def test_scatter_writes_only_strided_elements(dtype: Any, count: int) -> None:
    """To places apart, and against the direction of memory; nothing between them is touched."""
    for backwards in (False, True):
        base, source = np.zeros((count + 1, 5), dtype), numbers(dtype, count)
        target = base[count:0:-1, 2] if backwards else base[:count, 2]
        wanted = base.copy()
        (wanted[count:0:-1] if backwards else wanted[:count])[:, 2] = source
        start = target.__array_interface__["data"][0]
        call(f"mgb_scatter_{SIZES[dtype]}", start, target.strides[0], source.ctypes.data, count)
        np.testing.assert_array_equal(base, wanted)


@pytest.mark.parametrize("dtype", SIZES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("rows", [1, 3, 4, 7, 16])
@pytest.mark.parametrize("count", [1, 6, 40])
def test_tile_transposes_columns_into_padded_rows(dtype: Any, rows: int, count: int) -> None:
    x = np.asfortranarray(numbers(dtype, rows, count))
    pitch = count + 3
    buffer = np.zeros((rows, pitch), dtype)
    across, step = x.strides
    call(f"mgb_tile_{SIZES[dtype]}", buffer.ctypes.data, x.ctypes.data, step, count, across, rows, pitch)
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
