"""The launcher in Python, which serves where the one in C was not built, and a library that does not fit."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mgb_native import portable
from mgb_native.native import VERSION, native

#: Hides the library from the process.
MISSING = """
import sys
sys.modules["mgb_native._launcher"] = None
"""

#: As if it had been built before its sources changed.
STALE = """
import sys, types
old = types.ModuleType("mgb_native._launcher")
old.__file__, old.VERSION = "/there/_launcher.abi3.so", 0
sys.modules["mgb_native._launcher"] = old
"""

#: Calls with and without threads, in place, by strides that are gathered and tiled, and in a loop.
WORK = """
import numpy as np
import mgb, mgb.functional as F
from mgb.jit import trace
from mgb_native import portable
from mgb_native.native import native

assert native() is portable
rng = np.random.default_rng(3)

@trace(backend=BACKEND)
def softmax(x, y):
    z = x * 2.0 + y
    e = F.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)

for shape in ((3, 5), (300, 40), (700, 900)):
    for order in "CF":
        x, y = (np.asarray(rng.standard_normal(shape), np.float32, order=order) for _ in range(2))
        z = x.astype(np.float64) * 2 + y
        e = np.exp(z - z.max(1, keepdims=True))
        for _ in range(2):
            found = softmax(mgb.tensor(x), mgb.tensor(y)).numpy()
        np.testing.assert_allclose(found, e / e.sum(1, keepdims=True), rtol=2e-4, atol=1e-7)

@trace(backend=BACKEND)
def added(x, y):
    return x + y

for dtype in (np.uint8, np.int16, np.float32, np.float64):
    x, y = (rng.integers(0, 9, (700, 500)).astype(dtype) for _ in range(2))
    found = added(mgb.tensor(x).transpose(1, 0), mgb.tensor(y).transpose(1, 0)).numpy()
    np.testing.assert_array_equal(found, (x + y).T)
print(softmax.backend)
"""


#: A column of a matrix that all rows of a kernel share, and one that two passes read.
SHARED_COLUMN = """
import numpy as np
import mgb, mgb.functional as F
from mgb.jit import trace
from mgb_native import portable

copied = []
portable_copy = portable._copy
portable._copy = lambda bits, shape, *places: (copied.append(shape), portable_copy(bits, shape, *places))
rng = np.random.default_rng(3)
x, w, wide = (rng.standard_normal(s).astype(np.float32) for s in ((300, 512), (512, 4), (300, 1024)))

@trace
def weighted(x, w):
    return (x * w[:, 1]).sum(1)

@trace
def softmax(x):
    return F.softmax(x[:, ::2], axis=1)

half = wide[:, ::2].astype(np.float64)
e = np.exp(half - half.max(1, keepdims=True))
e /= e.sum(1, keepdims=True)
for traced, arrays, truth in ((weighted, (x, w), x @ w[:, 1]), (softmax, (wide,), e)):
    for _ in range(2):
        copied.clear()
        found = traced(*map(mgb.tensor, arrays)).numpy()
        np.testing.assert_allclose(found, truth, rtol=1e-4, atol=1e-4)
    print(copied.count((512,)))
"""


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def llvm(setting: str) -> tuple[str, str]:
    """Return the problem and the note of the default backend in another process."""
    code = """
import json
from mgb.backends.plugins import status
(line,) = (b for b in status() if b.name == "cpu_llvm")
print(json.dumps([line.problem, line.note]))
"""
    problem, note = json.loads(python(setting + code))
    return problem, note


@pytest.mark.parametrize("backend", ["CPU_LLVM", "CPU_NUMBA", "MLIR", "HALIDE"])
@pytest.mark.parametrize("threads", ["1", "3"])
def test_every_backend_runs_without_the_library(backend: str, threads: str, tmp_path: Path) -> None:
    from mgb import plugins

    problem = next(line.problem for line in plugins.status() if line.name == backend.lower())
    if problem:
        pytest.skip(problem)
    code = MISSING + f"BACKEND = {backend!r}" + WORK
    printed = python(code, MGB_NUM_THREADS=threads, MGB_CACHE_DIR=str(tmp_path))
    assert printed.split() == [backend.lower()]


def test_what_rows_share_is_laid_out_once(tmp_path: Path) -> None:
    printed = python(MISSING + SHARED_COLUMN, MGB_NUM_THREADS="1", MGB_CACHE_DIR=str(tmp_path))
    assert printed.split() == ["1", "300"]  # for all rows; once a row for all passes


def test_missing_library_is_a_note_with_its_remedy() -> None:
    problem, note = llvm(MISSING)
    assert not problem
    assert "without the launcher in C" in note and "pip install" in note


def test_header_has_the_version_that_python_wants() -> None:
    header = (Path(__file__).parent.parent / "mgb_native" / "launcher.h").read_text()
    assert f"#define VERSION {VERSION}\n" in header


def test_library_of_other_sources_is_refused_with_its_remedy() -> None:
    problem, note = llvm(STALE)
    assert "is of version 0, not" in problem and "/there/_launcher.abi3.so" in problem
    assert "pip install" in problem and not note
    code = "from mgb_native.native import native\ntry: native()\nexcept ImportError as error: print(error)"
    assert python(STALE + code).strip() == problem


def call(address: int, *words: int) -> None:
    ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(words))(address)(*words)


def both() -> list[Any]:
    """Return the launcher in Python, and the one that serves here."""
    return [portable, native()]


@pytest.mark.parametrize("launcher", both(), ids=["python", "served"])
def test_both_launchers_have_the_same_functions(launcher: Any) -> None:
    names = {n for n in dir(portable) if not n.startswith("_") and n in dir(native())}
    assert {"function", "launch", "repeat", "grow", "workers", "copies", "copy_rows"} <= names
    assert set(launcher.copies) == set(portable.copies)


@pytest.mark.parametrize("launcher", both(), ids=["python", "served"])
def test_rows_are_copied_along_three_axes(launcher: Any) -> None:
    source = np.random.default_rng(1).integers(0, 99, (4, 5, 6, 7)).astype(np.int32)
    target, view = np.zeros((6, 5, 4, 8), np.int32), source[::2, :, ::-1]
    into = target[::3, :, :2, :7].transpose(2, 1, 0, 3)
    from_ = view[:, :, ::3]
    lengths, to, by = into.shape[:3], into.strides[:3], from_.strides[:3]
    plan = np.array([*lengths, 7 * 4, *to, *by], np.int64)
    operands = np.array([from_.__array_interface__["data"][0], into.__array_interface__["data"][0]], np.int64)
    call(launcher.copy_rows, operands.ctypes.data, plan.ctypes.data)
    wanted = np.zeros_like(target)
    wanted[::3, :, :2, :7] = from_.transpose(2, 1, 0, 3)
    np.testing.assert_array_equal(target, wanted)
