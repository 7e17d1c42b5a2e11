"""Exported functions run in processes without a compiler, and give the very same bits there."""

from __future__ import annotations

import json
import logging
import os
import struct
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path
from typing import Any

import mgb
import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb import errors, jit
from mgb.jit import trace
from mgb_native import target

rng = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray[Any, Any]:
    return rng.standard_normal(shape).astype(np.float32)


class Net(M.Module):
    """A convolution, batch norm, pooling, dropout and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = M.Conv2d(3, 8, 3, padding=1), M.BatchNorm2d(8)
        self.drop, self.head = M.Dropout(0.5), M.Linear(8 * 16, 10)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return F.softmax(self.head(self.drop(F.flatten(x, 1))), axis=-1)


def network() -> tuple[Any, dict[str, Any]]:
    net = Net()
    net.eval()
    return lambda x: net(x), {"x": array(4, 3, 8, 8)}


def attention() -> tuple[Any, dict[str, Any]]:
    w = [mgb.Parameter(array(32, 32)) for _ in range(3)]
    norm = M.LayerNorm(32)

    def f(x: Any, mask: Any) -> Any:
        q, k, v = (F.matmul(norm(x), p) for p in w)
        scores = F.where(mask, F.matmul(q, k.transpose(0, 2, 1)) / 32**0.5, -1e9)
        return {"out": x + F.matmul(F.softmax(scores, axis=-1), v), "peak": scores.max(axis=-1)}

    return f, {"x": array(2, 16, 32), "mask": rng.random((2, 16, 16)) > 0.2}


def words() -> tuple[Any, dict[str, Any]]:
    """Functions of the C library, halves, integers, and reductions over every axis."""
    half = mgb.tensor(array(40, 50), dtype="float16")

    def f(x: Any, k: Any) -> Any:
        y = F.tanh(x) * F.erf(x) + F.log1p(F.abs(x)) + half.astype("float32")
        return (
            y.sum(axis=0),
            F.std(y, axis=1),
            (k * 3 + 1) % 7,
            F.gelu(y).astype("float16"),
            F.cumsum(x, axis=1),
        )

    return f, {"x": array(40, 50), "k": np.arange(40, dtype=np.int32)}


def large() -> tuple[Any, dict[str, Any]]:
    """Enough for all threads."""
    w = mgb.tensor(array(1, 2000))
    return lambda x: F.exp(x * w).sum(axis=1) + F.sigmoid(x).mean(), {"x": array(1000, 2000)}


FUNCTIONS = {f.__name__: f for f in (network, attention, words, large)}

PROGRAM = """
    import sys

    class Block:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in ("numba", "llvmlite"):
                raise ImportError(f"{name} is blocked")

    sys.meta_path.insert(0, Block())
    import numpy as np
    import mgb

    g = mgb.jit.load_compiled("f.mgb")
    assert g.backend == "cpu_numba" and not g.compiled_again, g.compiled_again
    given = np.load("given.npz")
    for _ in range(3):
        out = g.run(**given)
    np.savez("got.npz", **{name: tensor.numpy() for name, tensor in out.items()})
    assert not {m.partition(".")[0] for m in sys.modules} & {"numba", "llvmlite", "onnx"}
"""


def run(program: str, folder: Path, **variables: str) -> str:
    environment = {**os.environ, "MGB_CACHE": "0", **variables}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", FUNCTIONS)
def test_export_gives_identical_bits_without_a_compiler(name: str, tmp_path: Path) -> None:
    function, given = FUNCTIONS[name]()
    traced = trace(function, backend="cpu_numba", capture_as_const=True)
    wanted = [traced(*(mgb.tensor(a, dtype=a.dtype) for a in given.values())) for _ in range(2)][-1]
    traced.export(tmp_path / "f.mgb")
    g = jit.load_compiled(tmp_path / "f.mgb")
    listed = list(wanted.values()) if isinstance(wanted, dict) else wanted
    by_name = dict(zip([o.name for o in g.outputs], [listed] if isinstance(listed, mgb.Tensor) else listed))
    if isinstance(wanted, dict):
        by_name = wanted
    np.savez(tmp_path / "given.npz", **dict(zip([i.name for i in g.inputs], given.values())))
    run(PROGRAM, tmp_path)
    got = np.load(tmp_path / "got.npz")
    assert set(got) == set(by_name)
    for key, tensor in by_name.items():
        np.testing.assert_array_equal(got[key], tensor.numpy())
        assert got[key].dtype == tensor.dtype


def simple(path: Path) -> np.ndarray[Any, Any]:
    w = mgb.tensor(array(5))
    trace(lambda x: F.exp(x) * w + 1, backend="cpu_numba").export(path, "f32[3,5]")
    return w.numpy()


def change_target(path: Path, **other: Any) -> None:
    """Let a file say that its code needs something else."""
    content = path.read_bytes()
    _, _, _, length, data = struct.unpack_from("<8sIIQQ", content)
    header = json.loads(content[32 : 32 + length])
    header["content"]["target"] = json.dumps({**json.loads(header["content"]["target"]), **other})
    text = json.dumps(header).encode()
    text += b" " * (-(32 + len(text)) % 64)
    head = struct.pack("<8sIIQQ", b"MGBGRAPH", 1, zlib.crc32(text), len(text), data)
    path.write_bytes(head + text + content[32 + length :])


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"instructions": ["avx9000"]}, "the processor lacks avx9000"),
        ({"machine": "riscv64"}, "riscv64"),
        ({"package": "older"}, "older"),
        ({"python": "cpython-399"}, "cpython-399"),
        ({"instructions": None}, "not said as this version says it"),
    ],
)
def test_code_for_another_target_is_recompiled(
    other: Any, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "f.mgb"
    w = simple(path)
    change_target(path, **other)
    with caplog.at_level(logging.INFO, logger="mgb.jit"):
        g = jit.load_compiled(path)
    assert reason in g.compiled_again and reason in caplog.text
    x = array(3, 5)
    np.testing.assert_allclose(g(x).numpy(), np.exp(x.astype(np.float64)) * w + 1, rtol=1e-5)


def test_code_that_cannot_be_loaded_is_recompiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simple(tmp_path / "f.mgb")

    def broken(blob: bytes) -> Any:
        raise OSError("no memory for code")

    monkeypatch.setattr("mgb_native.backend.load", broken)
    monkeypatch.setenv("MGB_CACHE", "0")
    assert "no memory for code" in jit.load_compiled(tmp_path / "f.mgb").compiled_again


def test_missing_compiler_error_names_the_package_to_install(tmp_path: Path) -> None:
    simple(tmp_path / "f.mgb")
    change_target(tmp_path / "f.mgb", instructions=["avx9000"])
    program = """
        import importlib.util
        found = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *rest: None if name == "numba" else found(name, *rest)
        import numpy as np, mgb
        try:
            mgb.jit.load_compiled("f.mgb")
        except mgb.errors.BackendUnavailableError as error:
            print(error)
        print(mgb.jit.load_compiled("f.mgb", backend="eager")(np.zeros((3, 5), np.float32)).shape)
    """
    printed = run(program, tmp_path, MGB_JIT_BACKEND="")
    assert "avx9000" in printed and "pip install numba" in printed and "backend='eager'" in printed
    assert "(3, 5)" in printed


def test_target_with_extra_instructions_is_compatible() -> None:
    needed = json.loads(target.target("1"))
    needed["instructions"] = needed["instructions"][:2]
    assert target.mismatch(json.dumps(needed), "1", "mgb-cpu-numba") is None


def test_requested_backend_recompiles(tmp_path: Path) -> None:
    w = simple(tmp_path / "f.mgb")
    g = jit.load_compiled(tmp_path / "f.mgb", backend="eager")
    assert g.compiled_again == "eager is asked for" and "cpu_numba" not in g.backend
    assert not jit.load_compiled(tmp_path / "f.mgb", backend="cpu_numba,eager").compiled_again
    x = array(3, 5)
    np.testing.assert_allclose(g(x).numpy(), np.exp(x) * w + 1, rtol=1e-6)


def test_corrupt_kernel_fails_its_checksum(tmp_path: Path) -> None:
    path = tmp_path / "f.mgb"
    simple(path)
    content = bytearray(path.read_bytes())
    content[content.index(b"\x7fELF") + 100] ^= 1
    path.write_bytes(content)
    with pytest.raises(errors.FileFormatError, match="do not fit their checksum"):
        jit.load_compiled(path)


def test_new_process_loads_cached_kernels_without_a_compiler(tmp_path: Path) -> None:
    """The ordinary cache holds the code that calls kernels too."""
    program = """
        import sys, numpy as np, mgb, mgb.functional as F
        f = mgb.jit.trace(lambda x: F.exp(x) + x.sum(axis=0), backend="cpu_numba", symbolic=True)
        print(f(mgb.tensor(np.ones((3, 4), np.float32))).numpy().tolist())
        print(sorted({"numba", "llvmlite"} & set(sys.modules)))
    """
    variables = {"MGB_CACHE": "1", "MGB_CACHE_DIR": str(tmp_path / "cache")}
    first, second = (run(program, tmp_path, **variables).splitlines() for _ in range(2))
    assert first[0] == second[0]
    assert first[1] == "['llvmlite', 'numba']" and second[1] == "[]"


def test_forked_processes_and_threads_run_loaded_kernels(tmp_path: Path) -> None:
    simple(tmp_path / "f.mgb")
    program = """
        import os, threading, numpy as np, mgb
        g = mgb.jit.load_compiled("f.mgb")
        x = np.linspace(0, 1, 15, dtype=np.float32).reshape(3, 5)
        wanted = g(x).numpy()
        threads = [threading.Thread(target=lambda: [g(x) for _ in range(200)]) for _ in range(4)]
        for t in threads: t.start()
        pid = os.fork()
        if pid == 0:
            os._exit(0 if np.array_equal(g(x).numpy(), wanted) else 1)
        for t in threads: t.join()
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    assert run(program, tmp_path).strip() == "0"
