"""PTX: what it computes, shown on this CPU by the text it is made of; and NVIDIA's assembler takes it."""

from __future__ import annotations

import re
import struct
import subprocess
from itertools import islice
from pathlib import Path
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from mgb import dtypes
from mgb.ir import Graph
from mgb.ops import primitives, reduce
from mgb.ops.bodies.division import floor_div, mod
from mgb.ops.declare import OPS
from mgb_conformance.cases import CASTS, DTYPES, operands
from mgb_conformance.cases import call as case_call

pytest.importorskip("torch_mlir", reason="MLIR is not installed: pip install torch-mlir==20261001")
pytest.importorskip("mgb_mlir", reason="the plugin is not installed: pip install ./plugins/mlir")
pytest.importorskip("llvmlite", reason="what makes PTX is not installed: pip install llvmlite")

pytest.importorskip("mgb_cuda", reason="what launches kernels is not installed: pip install ./plugins/cuda")

from mgb_cuda import Packet
from mgb_cuda.occupancy import WARP
from mgb_mlir import device, passes, ptx
from mgb_mlir.spelling import older
from mgb_native.nest import words
from mlir_cases import CASES, WIDE, case, check
from mlir_helpers import SENTINEL, call, traced
from ptx_assembler import needs_ptxas, ptxas
from ptx_host import HostDevice, HostGrid, OnHost

RNG = np.random.default_rng(5)


def on_host(function: Any, arrays: list[Any], multiprocessors: int, reverse: bool) -> tuple[Any, ...]:
    graph, device = traced(function, arrays), HostDevice(multiprocessors)
    device.reverse = reverse
    return call(OnHost(device).compile(graph), graph, arrays)


# what it computes


@pytest.mark.parametrize("reverse", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize("multiprocessors", [1, 64])
@pytest.mark.parametrize("name", CASES)
def test_ptx_kernels_match_numpy(name: str, multiprocessors: int, reverse: bool) -> None:
    """With few blocks and many, and in any order of the threads."""
    function, arrays, _ = CASES[name]
    check(on_host(function, arrays, multiprocessors, reverse), case(name)[2])


@pytest.mark.parametrize("name", ["exp", "tanh"])
def test_exponentials_are_within_2_ulp(name: str) -> None:
    """Of numbers of every size, as far as they are those of the target: 2**x and 1 / x are exact here."""
    x = np.concatenate(
        [RNG.uniform(-105, 90, 20_000), RNG.normal(size=20_000), np.geomspace(1e-38, 1e4, 4000)]
    )
    x = np.concatenate([x, -x, [0.0, -0.0, np.inf, -np.inf, np.nan]]).astype(np.float32)
    with np.errstate(all="ignore"):
        (found,) = on_host(getattr(F, name), [x], 4, False)
        wanted = getattr(np, name)(x.astype(np.float64))
        near = wanted.astype(np.float32)
    assert np.array_equal(np.isnan(found), np.isnan(near))
    real = np.isfinite(near) & np.isfinite(found)
    np.testing.assert_array_equal(found[~real], near[~real])
    assert np.abs((found[real] - wanted[real]) / np.spacing(np.abs(near[real]))).max() <= 2


def test_one_kernel_for_any_size_and_layout() -> None:
    graph = traced(lambda a, b: F.maximum(a - b, 0.0) / F.sum(a, 1, keepdims=True), [WIDE, WIDE[:1]])
    host = HostDevice()
    kernel = OnHost(host).compile(graph)
    base, row = RNG.uniform(1, 2, (2, 40, 90)).astype(np.float32)
    views = [base[:5, :70], base.T, base[::-1, ::-3], np.broadcast_to(base[:, :1], (40, 33)), base[3:5, 7:9]]
    for a in views:
        b = row[1:2, : a.shape[1]][:, ::-1]
        out = np.full(a.shape, SENTINEL, np.float32)
        kernel.run(a, b, out=(out,))
        wide = a.astype(np.float64)
        wanted = np.maximum(wide - b, 0) / wide.sum(1, keepdims=True)
        np.testing.assert_allclose(out, wanted, rtol=2e-6, atol=1e-7)
    counts = set()
    for n in (4, 40, 400):  # arrays that begin at multiples of 16 bytes
        a, b = RNG.uniform(1, 2, (2, n, 50)).astype(np.float32)
        out = np.full(a.shape, SENTINEL, np.float32)
        kernel.run(a, b[:1], out=(out,))
        np.testing.assert_allclose(out, (a - b[:1]).clip(0) / a.sum(1, keepdims=True), rtol=2e-6, atol=1e-7)
        counts.add(len(host.sources))
    assert len(counts) == 1, "a kernel for each size"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_loads_and_stores_are_vectorized(dtype: str) -> None:
    x = np.zeros((64, 1024), dtype)
    for function in (lambda x: x * x, lambda x: x * F.max(x, 1, keepdims=True)):
        text = ptx.compile(traced(function, [x]), "sm_90").text
        found = re.findall(r"(?:ld|st)\.global\.(\S+)", text)
        assert found and all(way.startswith(("v2", "v4")) for way in found), found


@pytest.mark.parametrize("function", [lambda x: F.sum(x, 1, keepdims=True), lambda x: F.softmax(x, 1)])
def test_few_long_rows_are_split_across_blocks(function: Any) -> None:
    x = RNG.normal(size=(2, 60_000)).astype(np.float32)
    graph = traced(function, [x])
    kernel = OnHost(HostDevice()).compile(graph)
    out = [np.full(o.spec.shape, SENTINEL, np.float32) for o in graph.outputs]
    kernel.run(x, out=out)
    (plan,) = kernel.state.unit().plans.values()
    assert plan.choice.variant.split and plan.choice.chunks > 1
    wide = x.astype(np.float64)
    if out[0].shape == x.shape:
        e = np.exp(wide - wide.max(1, keepdims=True))
        np.testing.assert_allclose(out[0], e / e.sum(1, keepdims=True), rtol=2e-6, atol=1e-9)
    else:
        np.testing.assert_allclose(
            out[0], wide.sum(1, keepdims=True), rtol=0, atol=2e-6 * np.abs(wide).sum(1).max()
        )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_mod_and_floor_div_are_exact(dtype: str) -> None:
    """Of numbers of any bits: subnormal ones, infinities, NaN, quotients of any size."""
    word = np.dtype(f"uint{8 * np.dtype(dtype).itemsize}")
    info = np.finfo(dtype)
    bits = RNG.integers(0, np.iinfo(word).max, (2, 3000), word, endpoint=True)
    bits[:, :300] >>= info.nmant + 1  # subnormal numbers
    a, b = bits.view(dtype)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, info.max, info.tiny, 1.0], dtype)
    a[300:364], b[300:364] = np.repeat(special, 8), np.tile(special, 8)
    with np.errstate(all="ignore"):
        wanted = np.remainder(a, b), np.floor_divide(a, b)
    found = on_host(lambda a, b: (mod(a, b), floor_div(a, b)), [a, b], 4, False)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_constants_keep_their_bit_patterns() -> None:
    """A constant of any pattern, through the spelling of two releases of LLVM."""
    patterns = {
        "f32": "7FC00000 FFC00000 7FC00001 7F800001 FFA00001 80000000 00000001 7F800000 FF800000 3DCCCCCD "
        "3F800000 7F7FFFFF 00800000 34000000 C0490FDB",
        "f64": "7FF8000000000000 FFF8000000000123 7FF0000000000001 0000000000000001 8000000000000000 "
        "3FB999999999999A FFEFFFFFFFFFFFFF 7FF0000000000000",
        "f16": "7E00 7C01 0001 3C00 7C00 2E66 8000 FBFF",
    }
    given = [(t, p) for t, text in patterns.items() for p in text.split()]
    lines = []
    for k, (type_, pattern) in enumerate(given):
        lines.append(f"%c{k} = arith.constant 0x{pattern} : {type_}")
        lines.append(f"%p{k} = llvm.getelementptr %y[{8 * k}] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8")
        lines.append(f"llvm.store volatile %c{k}, %p{k} : {type_}, !llvm.ptr<1>")
    body = "\n".join(lines)
    function = f"gpu.func @kernel(%y: !llvm.ptr<1>) kernel {{ {body}\ngpu.return }}"
    module = passes.run(passes.parse(f"module {{ gpu.module @g {{ {function} }} }}"), passes.TO_NVVM)
    kernel = HostGrid(older(passes.device_text(module, "e-i64:64")))
    found = np.zeros(len(given), np.uint64)
    packet = Packet(struct.pack("<Q", found.ctypes.data))
    kernel.run(packet.table, (1, 1), 1)
    wanted = [p for _, p in given]
    assert [f"{int(n):0{len(p)}X}" for n, p in zip(found, wanted, strict=True)] == wanted


def test_missing_barrier_shows() -> None:
    """The bench itself: did it not show, the tests above would prove little."""

    class Hasty(HostDevice):
        def compile(self, source: str) -> bytes:
            text = super().compile(source).decode()
            without = text.replace("call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)", "", 1)
            assert without != text
            return without.encode()

    x = RNG.standard_normal((3, 4096)).astype(np.float32)
    graph = traced(lambda x: F.softmax(x, 1), [x])
    (out,) = call(OnHost(Hasty(512)).compile(graph), graph, [x])
    e = np.exp(x - x.max(1, keepdims=True))
    with np.errstate(all="ignore"):
        assert not np.allclose(out, e / e.sum(1, keepdims=True), rtol=1e-4)


# PTX


def assemble(graph: Graph, architecture: str, folder: Path, spills: int = 0) -> None:
    """Compile to PTX, and have NVIDIA's assembler take it with at most so many bytes of spilled registers."""
    compiled = ptx.compile(graph, architecture)
    assert f".target {architecture}" in compiled.text and f".entry {compiled.entry}(" in compiled.text
    source = folder / "kernel.ptx"
    source.write_text(compiled.text)
    command = [str(ptxas()), f"-arch={architecture}", "-v", str(source), "-o", str(folder / "kernel.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    spilled = re.findall(r"(\d+) bytes spill", done.stdout + done.stderr)
    assert len(spilled) >= 2 and max(map(int, spilled)) <= spills, done.stderr


@needs_ptxas
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("name", CASES)
def test_ptxas_assembles_kernels_without_spills(name: str, architecture: str, tmp_path: Path) -> None:
    assemble(case(name)[0], architecture, tmp_path)


@needs_ptxas
@pytest.mark.parametrize("architecture", ptx.ARCHITECTURES)
def test_ptxas_assembles_for_every_architecture(architecture: str, tmp_path: Path) -> None:
    assemble(case("row softmax")[0], architecture, tmp_path)


@needs_ptxas
@pytest.mark.parametrize("dtype", DTYPES)
def test_ptxas_assembles_every_op_cast_and_reduction(dtype: str, tmp_path: Path) -> None:
    """All of one dtype that there are, in two kernels, the second of which has use for many registers."""
    ops = [OPS[name] for name in sorted(words.WORDS) if name not in CASTS]
    taken = [(op, given) for op in ops if (given := operands(op, dtype))]
    arrays = [np.zeros((5, 33), d) for _, given in taken for d in given]

    def every_word(*xs: Any) -> list[Any]:
        rest = iter(xs)
        return [case_call(op)(*islice(rest, len(given))) for op, given in taken]

    x = np.zeros((5, 33), dtypes.as_dtype(dtype))
    folds = [reduce.reduce_max, reduce.reduce_min]
    folds += [] if dtype == "bool" else [reduce.reduce_sum, reduce.reduce_prod]

    def every_cast_and_fold(x: Any) -> list[Any]:
        casts = [primitives.cast(x, dtype=dtypes.as_dtype(d)) for d in DTYPES if d != dtype]
        return [*casts, *(fold(x, axis=(1,)) for fold in folds)]

    assert len(taken) > 5
    assemble(traced(every_word, arrays), "sm_80", tmp_path)
    assemble(traced(every_cast_and_fold, [x]), "sm_80", tmp_path)


@needs_ptxas
def test_ptxas_assembles_hundreds_of_parameters(tmp_path: Path) -> None:
    """More bytes than a kernel could be given before; their addresses take all registers of a thread."""
    arrays = [np.zeros((2, 3, 2, 3, 2), np.float32)] * 280
    graph = traced(lambda *xs: [x + 1.0 for x in xs], arrays)
    assert 8 * len(ptx.compile(graph, "sm_80").parameters) > 4096
    assemble(graph, "sm_80", tmp_path, spills=256)  # CUDA 13's assembler needs 160


def test_no_fma_contraction_or_flush_to_zero() -> None:
    """``mul.f32`` without a rounding may be made part of an fma; ``.rn`` forbids it."""
    x = WIDE
    text = ptx.compile(traced(lambda a, b: F.sqrt(a * b + a) / b, [x, x]), "sm_80").text
    for instruction in ("mul.rn.f32", "add.rn.f32", "sqrt.rn.f32", "div.rn.f32"):
        assert instruction in text
    assert "fma" not in text and "ftz" not in text and "approx" not in text


def test_memory_accesses_name_their_space_and_are_64_bits_wide() -> None:
    x = np.zeros((3, 5001))
    text = ptx.compile(traced(lambda x: (x + 1.0, F.sum(x, 1, keepdims=True)), [x]), "sm_80").text
    assert "ld.global.b64" in text and "st.global.b64" in text and "st.shared.b64" in text
    assert not re.search(r"\b(ld|st)\.(b|f|u)\d", text), "memory of no known kind"


def test_unknown_architecture_is_rejected() -> None:
    with pytest.raises(ptx.TargetError, match=r"'sm_35' is unknown; choose one of sm_80, "):
        ptx.compile(case("broadcast")[0], "sm_35")


def test_missing_llvmlite_error_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptx, "find_spec", lambda name: None)
    ptx._machine.cache_clear()
    with pytest.raises(ptx.TargetError, match="python -m pip install llvmlite"):
        ptx.compile(case("broadcast")[0], "sm_90")


def test_undefined_device_function_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(device._INSTRUCTIONS, "rint")
    graph = traced(lambda x: primitives.round(x) + 1.0, [WIDE])
    with pytest.raises(passes.LoweringError, match="no definition of the function 'rint' in ") as caught:
        ptx.compile(graph, "sm_90")
    assert "@__nv_rintf" in Path(str(caught.value).split(" in ")[1]).read_text()


def test_text_rejected_by_llvm_is_saved() -> None:
    with pytest.raises(passes.LoweringError, match=r"LLVM [\d.]+ does not take the text in ") as caught:
        ptx.assembly("define void @kernel() { no such thing }", "sm_90")
    assert "no such thing" in Path(re.split(" in |: ", str(caught.value))[1]).read_text()


def test_ptx_bounds_the_threads_of_a_block() -> None:
    compiled = ptx.compile(case("row softmax")[0], "sm_90")
    threads = compiled.choice.variant.threads
    assert f".maxntid {threads}" in compiled.text and threads % WARP == 0
