"""The seam: exported files, damaged entries, two processes at once, many shapes, many threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import pytest

pytest.importorskip("torch_mlir", reason="MLIR is not installed: pip install torch-mlir==20261001")
pytest.importorskip("mgb_mlir", reason="the plugin is not installed: pip install ./plugins/mlir")

from mgb.executor import kernels
from mgb.jit import trace
from mgb_native.launch import PLANS, PROGRAMS
from mlir_helpers import BACKEND, traced

RNG = np.random.default_rng(11)

#: What a process must not have imported.
HEAVY = 'sorted({"torch_mlir", "llvmlite", "numba"} & set(sys.modules))'


def model(x: Any, w: Any) -> Any:
    return F.softmax(F.tanh(x) * w + 1.0, 1), F.sum(x * x, 1)


def truth(x: Any, w: Any) -> tuple[Any, Any]:
    x = x.astype(np.float64)
    e = np.exp(np.tanh(x) * w + 1.0)
    return e / e.sum(1, keepdims=True), (x * x).sum(1)


def process(script: str, folder: Path, **variables: str) -> subprocess.Popen[str]:
    """A process that runs `script` in `folder`, with a cache of its own there."""
    environment = os.environ | {"MGB_CACHE_DIR": str(folder / "cache"), "MGB_CACHE": "1"} | variables
    command = [sys.executable, "-c", "import sys\n" + textwrap.dedent(script)]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env=environment, **pipes)


def answer(started: subprocess.Popen[str]) -> Any:
    """The JSON that it printed last."""
    out, errors = started.communicate(timeout=150)
    assert started.returncode == 0, errors
    return json.loads(out.splitlines()[-1])


def test_exported_file_needs_neither_mlir_nor_llvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_JIT_BACKEND", "MLIR")
    x, w = RNG.standard_normal((2, 30, 70)).astype(np.float32)
    trace(model).export(tmp_path / "model.mgb", "f32[30,70]", "f32[1,70]")
    np.savez(tmp_path / "arrays.npz", x=x, w=w[:1])
    script = f"""
        import json
        import numpy as np
        import mgb
        from mgb import jit
        from mgb.executor import kernels
        arrays = np.load("arrays.npz")
        found = jit.load_compiled("model.mgb")(mgb.tensor(arrays["x"]), mgb.tensor(arrays["w"]))
        np.savez("found.npz", *(t.numpy() for t in found))
        print(json.dumps([kernels.stats().compiles, {HEAVY}]))
    """
    assert answer(process(script, tmp_path, MGB_JIT_BACKEND="MLIR")) == [0, []]
    found = np.load(tmp_path / "found.npz")
    for name, wanted in zip(found.files, truth(x, w[:1]), strict=True):
        np.testing.assert_allclose(found[name], wanted, rtol=2e-5, atol=1e-6)


#: Compiles one kernel, or finds it on disk, and says which, and what it gives.
KERNEL = f"""
import json
import numpy as np
import mgb.functional as F
from mgb.executor import kernels
from mgb.ir import Spec
from mgb.backends.plugins import load_backend
from mgb.tensor.tracing import graph_of
x = np.linspace(-3, 3, 30 * 50, dtype=np.float32).reshape(30, 50)
graph = graph_of(lambda x: F.softmax(x, 1), Spec(x.shape, x.dtype))
kernel, out = kernels.kernel_for(graph, load_backend("mlir")), np.empty_like(x)
kernel.run(x, out=(out,))
stats = kernels.stats()
print(json.dumps([stats.compiles, stats.disk_hits, {HEAVY}, out.tobytes().hex()]))
"""


def entries(folder: Path) -> list[Path]:
    """The files of the kernels that were kept."""
    return [p for p in (folder / "cache").rglob("*") if p.is_file() and not p.name.startswith(".")]


@pytest.mark.parametrize("damage", ["emptied", "cut short", "a byte turned", "two entries exchanged"])
def test_corrupt_cache_entry_is_recompiled(damage: str, tmp_path: Path) -> None:
    """Whatever an entry holds, no process crashes; the kernel is compiled again, and kept again."""
    compiles, hits, _, wanted = answer(process(KERNEL, tmp_path))
    assert (compiles, hits) == (1, 0)
    (entry,) = entries(tmp_path)
    whole = entry.read_bytes()
    for place in (20, len(whole) // 3, len(whole) - 7) if damage == "a byte turned" else (len(whole) // 2,):
        other = KERNEL.replace("F.softmax(x, 1)", "F.exp(x) * 2.0")
        if damage == "two entries exchanged":
            answer(process(other, tmp_path))
            (second,) = [p for p in entries(tmp_path) if p != entry]
            entry.write_bytes(second.read_bytes())
            second.write_bytes(whole)
        else:
            turned = bytes([whole[place] ^ 0x40])
            changed = {"emptied": b"", "cut short": whole[:place]}
            entry.write_bytes(changed.get(damage, whole[:place] + turned + whole[place + 1 :]))
        assert answer(process(KERNEL, tmp_path))[::3] == [1, wanted]
    assert answer(process(KERNEL, tmp_path)) == [0, 1, [], wanted]


def test_truncated_object_file_is_rejected() -> None:
    """Past the checksum of the cache as well: whatever `load` is given, it raises or loads."""
    x = RNG.standard_normal((5, 9)).astype(np.float32)
    graph = traced(lambda x: F.softmax(x, 1), [x])
    blob = BACKEND.save(BACKEND.compile(graph))
    assert blob is not None
    for length in (0, 1, 7, 8, 20, 100, len(blob) // 2):
        with pytest.raises(Exception, match=r"damaged|object|ELF|symbol|kernel"):
            BACKEND.load(graph, blob[:length])


def test_concurrent_processes_compile_a_kernel_once(tmp_path: Path) -> None:
    started = [process(KERNEL, tmp_path) for _ in range(2)]
    answers = [answer(p) for p in started]
    assert sorted(a[:2] for a in answers) == [[0, 1], [1, 0]], "the second one waits for the first"
    assert answers[0][3] == answers[1][3]
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.name.endswith((".lock", ".tmp"))]


def test_memory_is_bounded_over_calls_with_changing_shapes() -> None:
    """Plans and programs go, kernels stay; each call is right."""
    x = RNG.standard_normal((40, 1200)).astype(np.float32)
    kernel = BACKEND.compile(traced(lambda x: x * 2.0 + F.sum(x, 1, keepdims=True), [x]))
    before = kernels.stats().compiles
    sizes = [None, None]
    tracemalloc.start()
    try:
        for half in (0, 1):
            for n in range(5000):
                a = x[: 2 + n // 1100, : 2 + n % 1100 + half * 97]
                out = np.empty(a.shape, np.float32)
                kernel.run(a, out=(out,))
                if n % 500 == 0:
                    np.testing.assert_allclose(out, a * 2 + a.sum(1, keepdims=True), rtol=1e-4, atol=1e-4)
            sizes[half] = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kernels.stats().compiles == before
    assert len(kernel.state.plans) <= PLANS and len(kernel.run.__self__.owner.programs) <= PROGRAMS
    assert sizes[1] < 1.5 * sizes[0] + (1 << 20), sizes


def shapes_in_threads(seconds: float, threads: int = 8) -> int:
    """Calls of one traced function from many threads with changing shapes; each is judged."""
    import time

    function = trace(model, symbolic=True, symbolic_shape=False)
    end = time.monotonic() + seconds

    def work(seed: int) -> int:
        generator, calls = np.random.default_rng(seed), 0
        while time.monotonic() < end or calls < 5:
            x = generator.standard_normal(generator.integers(2, 60, 2)).astype(np.float32)
            w = x[:1] * 0.5
            found = function(mgb.tensor(x), mgb.tensor(w))
            for one, wanted in zip(found, truth(x, w), strict=True):
                np.testing.assert_allclose(one.numpy(), wanted, rtol=1e-4, atol=1e-5)
            calls += 1
        return calls

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(work, range(threads)))


@pytest.mark.parametrize("seconds", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_eight_threads_with_changing_shapes(seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_JIT_BACKEND", "MLIR")
    assert shapes_in_threads(seconds) >= 40
