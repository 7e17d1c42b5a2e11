"""Object files in memory: what runs is what LLVM wrote, and what is damaged is refused without a crash."""

from __future__ import annotations

import ctypes
import gc
import platform
import random
import struct
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from cpu_numba_helpers import BACKEND, call, traced
from mgb.functional import softmax
from mgb_native.code import Code, load
from mgb_native.native import emit
from mgb_native.objects import Loaded, ObjectError

MODULE = """
@table = internal constant [4 x i64] [i64 2, i64 3, i64 5, i64 7]
@counter = global i64 40
@scratch = internal global [5000 x i64] zeroinitializer
declare double @cos(double)
declare ptr @memset(ptr, i32, i64)
define i64 @prime(i64 %k) {
  %at = getelementptr [4 x i64], ptr @table, i64 0, i64 %k
  %value = load i64, ptr %at
  ret i64 %value
}
define i64 @count() {
  %old = load i64, ptr @counter
  %new = add i64 %old, 1
  store i64 %new, ptr @counter
  ret i64 %new
}
define double @cosine(double %x) {
  %y = call double @cos(double %x)
  ret double %y
}
define i64 @fill(i32 %byte) {
  call ptr @memset(ptr @scratch, i32 %byte, i64 40000)
  %at = getelementptr [5000 x i64], ptr @scratch, i64 0, i64 4999
  %value = load i64, ptr %at
  ret i64 %value
}
"""


CALLS_NOTHING = """
declare void @mgb_no_such_function()
define void @f() {
  call void @mgb_no_such_function()
  ret void
}
"""


@pytest.fixture(scope="module")
def image() -> bytes:
    return emit(MODULE)


def test_loaded_code_uses_constants_globals_and_library_calls(image: bytes) -> None:
    loaded = Loaded(image)
    prime = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded["prime"])
    count = ctypes.CFUNCTYPE(ctypes.c_int64)(loaded["count"])
    cosine = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(loaded["cosine"])
    fill = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int32)(loaded["fill"])
    assert [prime(k) for k in range(4)] == [2, 3, 5, 7]
    assert [count(), count()] == [41, 42]
    assert cosine(1.5) == np.cos(1.5)
    assert fill(1) == 0x0101010101010101


def test_each_load_has_its_own_memory(image: bytes) -> None:
    a, b = Loaded(image), Loaded(image)
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(a["count"])() == 41
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(b["count"])() == 41


def test_memory_is_unmapped_unless_stay_is_called(image: bytes) -> None:
    """A mapping ends with its object; that of `stay` does not."""

    def mapped(address: int) -> bool:
        with open("/proc/self/maps") as maps:
            spans = ([int(n, 16) for n in line.split()[0].split("-")] for line in maps)
            return any(begin <= address < end for begin, end in spans)

    loaded, kept = Loaded(image), Loaded(image)
    addresses = loaded["count"], kept["count"]
    kept.stay()
    assert mapped(addresses[0]) and mapped(addresses[1])
    del loaded, kept
    gc.collect()
    assert mapped(addresses[1])


def test_code_is_not_writable_and_data_not_executable(image: bytes) -> None:
    loaded = Loaded(image)
    with open("/proc/self/maps") as maps:
        lines = [line.split()[:2] for line in maps]
    for symbol, wanted in (("prime", "r-x"), ("counter", "rw-")):
        rights = [
            r
            for span, r in lines
            if int(span.split("-")[0], 16) <= loaded[symbol] < int(span.split("-")[1], 16)
        ]
        assert [r[:3] for r in rights] == [wanted]


def test_missing_symbol_is_named_in_the_error(image: bytes) -> None:
    with pytest.raises(ObjectError, match="does not define nothing"):
        Loaded(image)["nothing"]
    with pytest.raises(ObjectError, match="mgb_no_such_function is not in this process"):
        Loaded(emit(CALLS_NOTHING))


@pytest.mark.parametrize("damage", [b"", b"\x7fELF", b"text" * 100])
def test_invalid_object_file_is_rejected(damage: bytes) -> None:
    with pytest.raises(ObjectError):
        Loaded(damage)


def test_object_file_for_another_machine_is_rejected(image: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    other = "aarch64" if platform.machine() == "x86_64" else "x86_64"
    monkeypatch.setattr(platform, "machine", lambda: other)
    with pytest.raises(ObjectError, match="this machine"):
        Loaded(image)


def kernel_of_softmax() -> Any:
    x = np.ones((3, 5), np.float32)
    graph = traced(lambda x: softmax(x, 1), [x])
    return BACKEND.compile(graph), graph


def attempt(image: bytes) -> bool:
    try:
        Loaded(image)
    except ObjectError:
        return False
    return True


def test_truncated_files_are_rejected(image: bytes) -> None:
    """Section headers stand at the end, so that no part of a file is one."""
    assert not any(attempt(image[:size]) for size in range(0, len(image), 7))


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bytes_never_crash_the_loader(image: bytes, seed: int) -> None:
    random_ = random.Random(seed)
    for whole in (image, kernel_of_softmax()[0].state.code.image):
        outcomes = set()
        for _ in range(150):
            damaged = bytearray(whole)
            for _ in range(random_.choice((1, 1, 4, 30))):
                damaged[random_.randrange(len(damaged))] = random_.randrange(256)
            outcomes.add(attempt(bytes(damaged)))
        assert False in outcomes


def test_corrupt_header_fields_never_crash_the_loader(image: bytes) -> None:
    """Each 8-byte word of the file header and the section headers, at its extremes."""
    (start,) = struct.unpack_from("<Q", image, 40)
    for at in (*range(16, 64, 8), *range(start, len(image) - 7, 8)):
        for value in (0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1):
            attempt(image[:at] + struct.pack("<Q", value) + image[at + 8 :])


def test_relocation_past_its_section_end_is_rejected(image: bytes) -> None:
    """One of eight bytes in the last four of a section was written past its end once."""
    image = bytearray(image)
    (begin,) = struct.unpack_from("<Q", image, 40)
    rows = [
        struct.unpack_from("<IIQQQQIIQQ", image, begin + k * 64) for k in range((len(image) - begin) // 64)
    ]
    row = next(r for r in rows if r[1] == 4 and rows[r[7]][2] & 6)  # of the code
    struct.pack_into("<Q", image, row[4], rows[row[7]][5] - 4)
    with pytest.raises(ObjectError, match="a relocation is at byte"):
        Loaded(bytes(image))


def test_kernel_code_round_trips_and_truncated_blobs_are_rejected() -> None:
    image = emit("define i64 @kernel(i64 %a, i64 %b, i64 %c) {\n  ret i64 0\n}")
    owner = Loaded(image)
    blob = Code(owner["kernel"], "kernel", image, owner).dump()
    again = load(blob)
    assert (again.symbol, again.image) == ("kernel", image)
    for size in (0, 3, 40, len(blob) - 1):
        with pytest.raises(ObjectError, match="damaged"):
            load(blob[:size])


def test_kernel_does_not_depend_on_the_compiler_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where the optimizer does not see that no loop raises, as in kernels of a thousand ops."""
    made = llvm.create_pipeline_tuning_options
    monkeypatch.setattr(llvm, "create_pipeline_tuning_options", lambda speed_level=0: made(0))
    kernel, graph = kernel_of_softmax()
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    assert isinstance(kernel.state.code.owner, Loaded)
    (out,) = call(kernel, graph, [x])
    wide = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(out, wide / wide.sum(1, keepdims=True), rtol=1e-6)
