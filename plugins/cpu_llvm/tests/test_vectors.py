"""Vectors of every machine's width agree with NumPy; compilers for other processors take the text."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import mgb.functional as F
import numpy as np
import pytest
from mgb.ir import Graph, Spec
from mgb.passes.lower import lower
from mgb.tensor.tracing import graph_of
from mgb_cpu_llvm import CpuLlvm
from mgb_cpu_llvm.builder import Kernel
from mgb_native.frame import Frame
from mgb_native.target import VECTORS, instructions

RNG = np.random.default_rng(3)
#: Lengths that leave a rest behind vectors of every width, and some shorter than one.
WIDE, SHORT, CUBE = (RNG.standard_normal(s).astype("float32") for s in ((37, 1000), (300, 5), (4, 19, 21)))
#: In few of the vectors of each row one number is not a usual one.
RARE = WIDE.copy()
RARE[:, [70, 507, 999]] = 0.0, 1e7, -1.0
RARE[::3, 333] = [1e30, -np.inf, np.inf, np.nan, 1e-42, -1e-42, -0.0, 4000, 3e38, 1, 2, 3, 4]


def _softmax(x: Any, axis: int) -> Any:
    e = np.exp(x.astype("float64") - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _float64(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arrays: function(*(a.astype("float64") for a in arrays))


#: A function of Tensors, arrays, and the truth.
CASES: dict[str, tuple[Callable[..., Any], list[Any], Callable[..., Any]]] = {
    "broadcast": (
        lambda a, b: F.maximum(a * b + 1.0, 0.5),
        [WIDE, WIDE[:1]],
        _float64(lambda a, b: np.maximum(a * b + 1, 0.5)),
    ),
    "exp": (F.exp, [WIDE], _float64(np.exp)),
    "tanh of doubles": (F.tanh, [WIDE.astype("float64")], np.tanh),
    "softmax of rows": (lambda x: F.softmax(x, 1), [WIDE], lambda x: _softmax(x, 1)),
    "softmax of short rows": (lambda x: F.softmax(x, 1), [SHORT], lambda x: _softmax(x, 1)),
    "softmax of columns": (lambda x: F.softmax(x, 0), [WIDE], lambda x: _softmax(x, 0)),
    "sum of a middle axis": (lambda x: F.sum(x, 1, keepdims=True), [CUBE], _float64(lambda x: x.sum(1))),
    "largest of all": (lambda x: F.max(x, (0, 1), keepdims=True), [WIDE], np.max),
    "transposed": (lambda a, b: a * 2.0 + b, [SHORT, SHORT.T.copy().T], lambda a, b: a * 2 + b),
    "halves": (lambda x: x * x + x, [WIDE.astype("float16")], lambda x: x * x + x),
    "bytes": (
        lambda x: F.sum(x // 3, 1, keepdims=True),
        [RNG.integers(0, 120, (6, 70)).astype("uint8")],
        lambda x: (x // 3).sum(1),
    ),
    "remainder": (lambda a, b: a % b, [WIDE, WIDE[::-1].copy()], np.fmod),
    "words": (
        lambda a, b: (a << 3) ^ (b // 7),
        [RNG.integers(-900, 900, (3, 50)).astype("int64"), RNG.integers(-900, 900, (3, 50)).astype("int64")],
        lambda a, b: (a << 3) ^ (b // 7),
    ),
    "sines, few of large numbers": (F.sin, [RARE], _float64(np.sin)),
    "logarithms, few of unusual numbers": (F.log, [abs(RARE) + 0.0], _float64(np.log)),
    "powers, few of unusual numbers": (F.pow, [abs(RARE), WIDE], _float64(np.power)),
    "angles, few of unusual sizes": (F.atan2, [RARE, WIDE * 1e-3], _float64(np.arctan2)),
    "choice": (lambda a: F.where(a > 0.25, a, -a), [WIDE], lambda a: np.where(a > 0.25, a, -a)),
}
CLOSE = {"float16": 2e-3, "float32": 2e-5, "float64": 1e-13}


class Narrow(CpuLlvm):
    """With vectors of so many bytes."""

    def __init__(self, vector: int) -> None:
        self.vector = vector

    def print(self, frame: Frame) -> str:
        return Kernel(frame, self.vector).text()


def graph(name: str) -> Graph:
    function, arrays, _ = CASES[name]
    return lower(graph_of(function, *(Spec(a.shape, a.dtype) for a in arrays)), CpuLlvm.traits)


@pytest.mark.parametrize("vector", [16, 32, 64])
@pytest.mark.parametrize("name", CASES)
def test_kernels_match_numpy_at_every_vector_width(name: str, vector: int) -> None:
    made, (_, arrays, truth) = graph(name), CASES[name]
    (result,) = made.outputs
    found = np.full(result.spec.shape, 77, result.spec.dtype)
    Narrow(vector).compile(made).run(*arrays, out=(found,))
    with np.errstate(all="ignore"):
        wanted, digits = truth(*arrays), CLOSE.get(found.dtype.name, 0)
    np.testing.assert_allclose(
        found.astype("float64"), np.reshape(wanted, found.shape).astype("float64"), rtol=digits, atol=digits
    )


def _object(text: str, triple: str, processor: str, features: str = "") -> tuple[bytes, str]:
    """The object file and the assembly that LLVM makes for a processor."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple).create_target_machine(
        cpu=processor, features=features, opt=2, reloc="pic", codemodel="default"
    )
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = triple, str(target.target_data)
    module.verify()
    return target.emit_object(module), target.emit_assembly(module)


#: A processor, the bytes of its vectors, and how its widest registers are written.
PROCESSORS = {
    "neon": ("aarch64-unknown-linux-gnu", "neoverse-n1", 16, r"\bv\d+\.[248][sdh]"),
    "avx": ("x86_64-unknown-linux-gnu", "ivybridge", 16, r"%xmm\d"),
    "avx2": ("x86_64-unknown-linux-gnu", "haswell", 32, r"%ymm\d"),
    "avx512": ("x86_64-unknown-linux-gnu", "skylake-avx512", 64, r"%zmm\d"),
}


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("name", CASES)
def test_code_for_other_processors_calls_only_known_functions(name: str, processor: str) -> None:
    """No function is called but those that the native library has, and the remainder of C's."""
    triple, model, vector, register = PROCESSORS[processor]
    # LLVM keeps to half of the width on some processors, unless it is told that the vectors are wanted.
    features = "-prefer-256-bit" if vector == 64 else ""
    _, assembly = _object(Kernel(Frame(graph(name)), vector).text(), triple, model, features)
    if name not in ("bytes", "words"):
        assert re.search(register, assembly)
    called = set(re.findall(r"^[ \t]+(?:bl|callq?)[ \t]+(\w+)", assembly, re.M))
    assert {c for c in called if not c.startswith("mgb_")} <= {"fmod", "fmodf"}


def test_vector_width_is_that_of_the_machine() -> None:
    widest = max((size for name, size in VECTORS.items() if name in instructions()), default=16)
    if platform.machine() != "x86_64":
        assert widest == 16
    text = CpuLlvm().compile(graph("broadcast")).source
    assert f"<{widest // 4} x float>" in text


def test_loaded_kernel_prints_its_text_lazily(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, (_, arrays, truth) = CpuLlvm(), CASES["broadcast"]
    made = graph("broadcast")
    kernel = backend.compile(made)
    with monkeypatch.context() as patch:
        patch.setattr(CpuLlvm, "print", lambda *_: pytest.fail("it is printed"))
        loaded = backend.load(made, backend.save(kernel))
        found = np.empty(made.outputs[0].spec.shape, made.outputs[0].spec.dtype)
        loaded.run(*arrays, out=(found,))
    np.testing.assert_allclose(found, truth(*arrays), rtol=1e-6)
    assert loaded.text == kernel.text


def test_numba_is_not_imported() -> None:
    """Numba, whose import takes longer than a kernel, is not needed."""
    import os
    import subprocess
    import sys

    program = (
        "import sys, mgb, mgb.functional as F\n"
        "f = mgb.jit.trace(lambda x: F.exp(x) + 1, backend='cpu_llvm')\n"
        "x = mgb.tensor([1.0, 2.0])\n"
        "f(x); f(x)\n"
        "assert 'llvmlite' in sys.modules and 'numba' not in sys.modules\n"
    )
    environment = {**os.environ, "MGB_CACHE": "0"}  # it is compiled, not loaded
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
