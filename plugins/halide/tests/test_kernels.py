"""Possible faults of this backend that the conformance suite does not test."""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import subprocess
import sys
from fractions import Fraction
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("halide", reason="Halide is not installed: pip install halide")
pytest.importorskip("mgb_halide", reason="the plugin is not installed: pip install ./plugins/halide")

from mgb.backends import num_threads
from mgb.ops.bodies.division import floor_div, mod
from mgb.ops.bodies.transcendental import exp
from mgb.ops.declare import OPS
from mgb.ops.primitives import maximum, sqrt
from mgb.ops.reduce import reduce_max, reduce_sum
from mgb.passes import lower
from mgb.tensor.apply import apply
from mgb_conformance.cases import of, pairs_of_any_bits, samples
from mgb_conformance.drive import Driver
from mgb_conformance.judge import judge, problem
from mgb_halide import HalideBackend
from mgb_halide.bridge import LIBRARY, bridge
from mgb_halide.fused import MarkLost, contract
from mgb_halide.toolchain import host

BACKEND = HalideBackend()


def checked(graph: Any, arrays: list[np.ndarray], over: dict[int, int] | None = None) -> None:
    got = Driver(BACKEND).run(graph, arrays, over)
    assert [problem(g, w) for g, w in zip(got, judge(graph, arrays), strict=True)] == [None] * len(got)


def at_the_end(array: np.ndarray) -> np.ndarray:
    """A copy whose last byte is the last of its page; the next page must not be touched."""
    pages = -(-array.nbytes // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    guard = ctypes.c_void_p(start + pages * mmap.PAGESIZE)
    assert ctypes.CDLL(None).mprotect(guard, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    offset = pages * mmap.PAGESIZE - array.nbytes
    copy = np.frombuffer(memory, array.dtype, array.size, offset).reshape(array.shape)
    copy[...] = array
    return copy


def softmax(x: Any, axis: int) -> Any:
    e = exp(x - reduce_max(x, axis=(axis,)))
    return e / reduce_sum(e, axis=(axis,))


GROUPS = {
    "flat": lambda x: x * 2 + 1,
    "two": lambda x: (x * 2 + 1, x - 1),
    "sum of rows": lambda x: reduce_sum(x, axis=(1,)),
    "sum of columns": lambda x: reduce_sum(x, axis=(0,)),
    "rows": lambda x: softmax(x, 1),
    "columns": lambda x: softmax(x, 0),
}


@pytest.mark.parametrize("shape", [(1, 3), (3, 17), (5, 100), (33, 1000), (3, 20_000), (300, 5)])
@pytest.mark.parametrize("group", GROUPS)
def test_no_read_or_write_past_the_end_of_arrays(group: str, shape: tuple[int, int]) -> None:
    x = at_the_end(samples("float32", shape))
    graph = of(GROUPS[group], x)
    kernel = BACKEND.compile(lower(graph, BACKEND.traits))
    out = tuple(at_the_end(np.empty(o.spec.shape, o.spec.dtype)) for o in graph.outputs)
    kernel.run(x, out=out)
    assert [problem(g, w) for g, w in zip(out, judge(graph, [x]), strict=True)] == [None] * len(out)


@pytest.mark.parametrize("size", [1, 13, 16, 5000])
def test_adam_update_of_several_arrays_in_place(size: int) -> None:
    """Each output replaces an input that other outputs are computed from."""

    def adam(p: Any, g: Any, m: Any, v: Any) -> Any:
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        return m, p - 0.1 * m / (sqrt(v) + 1e-8), v

    arrays = [np.abs(samples("float32", (size,), seed)) for seed in range(4)]
    graph = of(adam, *arrays)
    assert not {(2, 0), (0, 1), (3, 2)} & set(BACKEND.compile(lower(graph, BACKEND.traits)).state.hazards)
    checked(graph, arrays, over={0: 2, 1: 0, 2: 3})


def test_momentum_update_in_place_copies_no_input() -> None:
    """All of a turn is computed before any of it is written; no input is copied."""

    def momentum(p: Any, g: Any, v: Any) -> Any:
        v = 0.9 * v + g + 0.01 * p
        return v, p - 0.1 * v

    for shape in [(5,), (64,), (1000,), (40, 70)]:
        arrays = [samples("float32", shape, seed) for seed in range(3)]
        graph = of(momentum, *arrays)
        assert not len(BACKEND.compile(lower(graph, BACKEND.traits)).state.hazards)
        checked(graph, arrays, over={0: 2, 1: 0})
        checked(graph, arrays, over={0: 0, 1: 2})


def test_outputs_may_overwrite_either_input() -> None:
    x, y = samples("float32", (100,), 1), samples("float32", (100,), 2)
    checked(of(lambda x, y: (y * 2 + x, x * 3 - y), x, y), [x, y], over={0: 0, 1: 1})
    checked(of(lambda x, y: (y * 2 + x, x * 3 - y), x, y), [x, y], over={0: 1, 1: 0})


@pytest.mark.parametrize("size", [5, 16, 35])
def test_signbit_of_bfloat16(size: int) -> None:
    """Halide's simplifier once took it for known."""
    x = samples("float32", (size,)).astype(ml_dtypes.bfloat16)
    (got,) = Driver(BACKEND).run(of(lambda x: apply(OPS["signbit"], x), x), [x])
    assert np.array_equal(got, np.signbit(x.astype(np.float32)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_mod_of_floats_of_very_different_magnitude(dtype: str) -> None:
    info = np.finfo(dtype)
    many = np.array(
        [info.max, 1e30, 1e10, 7.5, 1.0, info.tiny, info.smallest_subnormal * 7, 0.0, -3.5], dtype
    )
    few = np.array([3.0, -np.pi, 0.1, 1e-20, info.smallest_subnormal * 3, 1e30, -0.7], dtype)
    x, y = (np.ascontiguousarray(a.ravel()) for a in np.meshgrid(many, few))
    (got,) = Driver(BACKEND).run(of(lambda x, y: mod(x, y), x, y), [x, y])
    assert np.array_equal(got, np.mod(x, y))


def test_mod_and_floor_div_of_any_float_bits() -> None:
    """A million of them, and each special number by each other; the sign of 0 is the divisor's."""
    a, b = pairs_of_any_bits("float32", 1 << 20)
    got = Driver(BACKEND).run(of(lambda a, b: (mod(a, b), floor_div(a, b)), a, b), [a, b])
    with np.errstate(all="ignore"):
        wanted = np.mod(a, b), np.floor_divide(a, b)
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
        there = ~np.isnan(other)
        np.testing.assert_array_equal(np.signbit(one[there]), np.signbit(other[there]))


@pytest.mark.parametrize("schedule", ["", "auto=Mullapudi2016"])
@pytest.mark.parametrize("word", ["mod", "floor_div"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_mod_and_floor_div_of_compile_time_constants(
    dtype: str, word: str, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LLVM computed the function by whose name kernels call ``fmod``."""
    monkeypatch.setenv("MGB_HALIDE_SCHEDULE", schedule)

    def group(x: Any) -> Any:
        zero = apply(OPS["iota"], shape=(1,), dtype=np.dtype(dtype))
        return tuple(apply(OPS[word], zero + number, 4.0) + x for number in numbers)

    numbers = (7.0, 3.0, -7.0, -3.0)
    x = np.zeros(1, dtype)  # so that the one element of the iota is known
    got = Driver(BACKEND).run(of(group, x), [x])
    numpy = {"mod": np.mod, "floor_div": np.floor_divide}[word]
    assert [float(y[0]) for y in got] == [numpy(number, 4.0) for number in numbers]


def test_row_reductions_next_to_elementwise_outputs() -> None:
    x = samples("float32", (70, 300))
    checked(of(lambda x: (softmax(x, 1), reduce_max(x, axis=(1,)), reduce_sum(x, axis=(1,))), x), [x])
    checked(of(lambda x: (softmax(x, 0), reduce_max(x, axis=(0,)), reduce_sum(x, axis=(0,))), x), [x])


def test_one_softmax_kernel_serves_short_and_long_rows() -> None:
    driver = Driver(BACKEND)
    for shape in ((5, 100), (2, 100_000), (1000, 7), (3, 16_384), (3, 16_385)):
        x = samples("float32", shape)
        graph = of(lambda x: softmax(x, 1), x)
        got = driver.run(graph, [x])
        assert problem(got[0], judge(graph, [x])[0]) is None
    assert len(driver._kernels) == 1


def test_parallel_loop_without_memory_for_threads_runs_on_one() -> None:
    """As `run_range` of the launcher, when it gets no memory."""
    asked = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    def run_range(kernel: int, plan: int, count: int, threads: int) -> int:
        asked.append(count)
        return 1

    x = samples("float32", (1 << 20,))
    library = import_module(LIBRARY)
    bridge()
    try:
        library.bind(ctypes.cast(run_range, ctypes.c_void_p).value, lambda: 2)
        checked(of(lambda x: maximum(exp(x * 0.01), 1.0), x), [x])
    finally:
        bridge.cache_clear()  # the next one binds the launcher again
        bridge()
    assert asked


def test_forked_child_has_its_own_threads() -> None:
    x = samples("float32", (1 << 20,))
    graph = of(lambda x: maximum(exp(x * 0.01), 1.0), x)
    kernel = BACKEND.compile(lower(graph, BACKEND.traits))
    here, there = np.empty_like(x), np.empty_like(x)
    kernel.run(x, out=(here,))
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        kernel.run(x, out=(there,))
        os.write(writer, bytes([np.array_equal(here, there), num_threads() >= 1]))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 2) == b"\1\1"


LOADS = """
import sys, pathlib, pickle
import numpy as np
from mgb_halide import HalideBackend
from mgb_halide.bridge import LIBRARY, bridge
from mgb_halide.toolchain import host
from mgb.ops.reduce import reduce_sum
from mgb.passes import lower
from mgb_conformance.cases import of
x = np.ones((4, 50), np.float32)
backend = HalideBackend()
graph = lower(of(lambda x: reduce_sum(x * 2, axis=(1,)), x), backend.traits)
file = pathlib.Path(sys.argv[1])
if file.exists():
    kernel = backend.load(graph, file.read_bytes())
else:
    kernel = backend.compile(graph)
    file.write_bytes(backend.save(kernel))
out = np.empty((4, 1), np.float32)
kernel.run(x, out=(out,))
assert (out == 100).all()
print("halide" in sys.modules, "llvmlite" in sys.modules)
"""


def test_saved_kernel_runs_without_halide(tmp_path: Any) -> None:
    command = [sys.executable, "-c", LOADS, str(tmp_path / "kernel")]
    runs = [subprocess.run(command, capture_output=True, text=True) for _ in range(2)]
    assert [r.stdout.split() for r in runs] == [["True", "False"], ["False", "False"]], runs[-1].stderr


@pytest.mark.skipif("-fma" not in host(), reason="this processor has no fused multiply-add")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_only_explicit_fma_is_fused(dtype: str) -> None:
    """(1 + e)(1 - e) - 1 is -e*e when it is fused, and 0 when the product is rounded first."""
    e = np.finfo(dtype).eps
    one, other = np.full(100, 1 + e, dtype), np.full(100, 1 - e, dtype)
    minus = np.full(100, -1, dtype)
    arrays = [one, other, minus]
    graph = of(lambda a, b, c: (apply(OPS["fma"], a, b, c), a * b + c), *arrays)
    fused, apart = Driver(BACKEND).run(graph, arrays)
    assert (fused == -(e * e)).all() and (apart == 0).all()


@pytest.mark.skipif("-fma" not in host(), reason="this processor has no fused multiply-add")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fma_with_negated_operands_rounds_once(dtype: str) -> None:
    """LLVM makes ``a * b + (-c)`` a difference; of the rounded product itself the rest is exact."""
    fma = OPS["fma"]
    a, b = (np.random.default_rng(k).standard_normal(100).astype(dtype) for k in (1, 2))
    for step in (1, 2):  # with gaps as well, where each element is computed alone
        x, y = np.repeat(a, step)[::step], np.repeat(b, step)[::step]
        product = x * y
        graph = of(lambda a, b, c: (apply(fma, a, b, -c), apply(fma, -a, b, c)), x, y, product)
        rest, other = Driver(BACKEND).run(graph, [x, y, product])
        exact = [
            Fraction(float(p)) * Fraction(float(q)) - Fraction(float(r)) for p, q, r in zip(x, y, product)
        ]
        assert [Fraction(float(v)) for v in rest] == exact
        assert [-Fraction(float(v)) for v in other] == exact


@pytest.mark.skipif("-fma" not in host(), reason="this processor has no fused multiply-add")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["exp", "erf", "tanh", "log", "sin", "gelu", "gelu_tanh", "softplus"])
def test_all_fma_marks_are_found(name: str, dtype: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mgb.halide")
    BACKEND.compile(lower(of(lambda x: apply(OPS[name], x), np.ones(100, dtype)), BACKEND.traits))
    assert "stay apart" not in caplog.text


LOST = """
define void @kernel(float %a, float %b, i32 %zero, ptr %to) {{
  %product = fmul float %a, %b
  %bits = bitcast float %product to i32
  %mark = shl i32 %bits, %zero
  %back = {back}
  %sum = fadd float %back, %a
  store float {stored}, ptr %to
  ret void
}}
"""


@pytest.mark.parametrize(
    ("back", "stored", "reason"),
    [
        ("bitcast i32 %mark to float", "%sum", None),
        ("sitofp i32 %mark to float", "%sum", "1 of 1 marks are on no product"),
        ("bitcast i32 %mark to float", "%back", "1 of 1 products are read by other than sums"),
    ],
)
def test_lost_fma_mark_raises(back: str, stored: str, reason: str | None) -> None:
    text = LOST.format(back=back, stored=stored)
    if reason:
        with pytest.raises(MarkLost, match=reason):
            contract(text)
    else:
        assert "%sum = call float @llvm.fma.f32(float %a, float %b, float %a)" in contract(text)


def test_kernel_with_lost_fma_marks_is_correct_and_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(text: str) -> str:
        raise MarkLost("it was asked for")

    monkeypatch.setattr("mgb_halide.fused.contract", lost)
    caplog.set_level(logging.INFO, "mgb.halide")
    checked(of(lambda x: exp(x), np.ones(100, np.float32)), [samples("float32", (100,))])
    assert caplog.text.count("stay apart, which is slower: it was asked for") == 1


@pytest.mark.parametrize("length", [3, 40, 20000])
def test_reduction_of_a_broadcast_row(length: int) -> None:
    """Only an input that is not read has rows; then the output has none either."""
    x, row = samples("float32", (3, length)), samples("float32", (1, length))
    checked(of(lambda _, row: reduce_max(row * 2, axis=(1,)), x, row), [x, row])
    checked(of(lambda _, row: softmax(row, 1), x, row), [x, row])
    checked(of(lambda _, row: (softmax(row, 1), row + 1, reduce_sum(row, axis=(1,))), x, row), [x, row])


@pytest.mark.parametrize("shape", [(1, 40), (40, 1), (3, 17), (33, 50), (5, 19, 21)])
def test_strided_and_transposed_inputs_are_correct(shape: tuple[int, ...]) -> None:
    wide = samples("float32", tuple(2 * n for n in shape))
    for x in (wide[tuple(slice(None, None, 2) for _ in shape)], samples("float32", shape[::-1]).T):
        checked(of(lambda x: (exp(x), x < 0), x), [x])


BOTH_FORMS = """
import sys
import numpy as np
from mgb import tensor
from mgb.jit import trace

@trace(without_host=True, backend="halide")
def f(x):
    return (x * 2).sum(axis=0)

for rows in (4, 4, 1000, 1000, 4, 1000):
    assert (f(tensor(np.ones((rows, 30), np.float32))).numpy() == 2 * rows).all()
print("halide" in sys.modules)
"""


def test_both_kernel_forms_are_cached_on_disk(tmp_path: Any) -> None:
    """The one for short rows and the one for all; the second process compiles neither."""
    here = {**os.environ, "MGB_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", BOTH_FORMS]
    runs = [subprocess.run(command, capture_output=True, text=True, env=here) for _ in range(2)]
    assert [r.stdout for r in runs] == ["True\n", "False\n"], runs[-1].stderr
