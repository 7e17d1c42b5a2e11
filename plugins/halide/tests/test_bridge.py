"""The bridge in C: parallel loops, lack of memory, and what is said where it was not built."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mgb_halide", reason="the plugin is not installed: pip install ./plugins/halide")

from mgb_halide import bridge as module
from mgb_halide.bridge import VERSION, bridge

built = pytest.mark.skipif(module.problem is not None, reason=str(module.problem))

#: Hides the library from the process, and as if it had been built before its source changed.
MISSING = 'sys.modules["mgb_halide._call"] = None'
STALE = """
old = sys.modules["mgb_halide._call"] = types.ModuleType("mgb_halide._call")
old.__file__, old.VERSION = "/there/_call.abi3.so", 0
"""

PROBE = """
import importlib.util, sys, types
{}
sys.modules["halide"] = types.ModuleType("halide")
sys.modules["halide"].__spec__ = importlib.util.spec_from_loader("halide", None)
from mgb_halide import HalideBackend
print(HalideBackend().probe())
"""

_WORDS = (ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_PIPELINE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_BODY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
_LOOP = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, _BODY, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p
)


def call(pipeline: int, large: bool) -> None:
    """Call a pipeline without arguments as a launch does."""
    plan = np.array([pipeline, 0, large, 0], np.int64)
    ctypes.PYFUNCTYPE(*_WORDS)(bridge().call)(None, plan.ctypes.data, None)


def loop(body: object, first: int, size: int) -> int:
    """Return the status of a parallel loop in a pipeline that has work for several threads."""
    status: list[int] = []

    def pipeline(_: object) -> int:
        made = _LOOP(bridge().symbols["halide_do_par_for"])
        status.append(made(None, _BODY(body), first, size, None))
        return 0

    kept = _PIPELINE(pipeline)
    call(ctypes.cast(kept, ctypes.c_void_p).value or 0, True)
    return status[0]


@built
@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("size", [0, 1, 2, 47, 1000])
def test_parallel_loop_calls_each_number_once(
    threads: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MGB_NUM_THREADS", threads)
    seen: list[int] = []
    assert loop(lambda _, number, __: seen.append(number) or 0, 5, size) == 0
    assert sorted(seen) == list(range(5, 5 + size))


@built
@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("size", [1, 200])
def test_parallel_loop_reports_a_number_that_failed(
    threads: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MGB_NUM_THREADS", threads)
    assert loop(lambda _, number, __: -1 if number == 0 else 0, 0, size) == -1


@built
def test_loop_within_a_loop_is_serial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_NUM_THREADS", "3")
    seen: list[int] = []
    made = _LOOP(bridge().symbols["halide_do_par_for"])

    def body(_: object, number: int, __: object) -> int:
        inner: list[int] = []
        status = int(made(None, _BODY(lambda _, k, __: inner.append(k) or 0), 10 * number, 10, None))
        seen.extend(inner if inner == sorted(inner) else [])
        return status

    assert loop(body, 0, 20) == 0
    assert sorted(seen) == list(range(200))


@built
@pytest.mark.parametrize("large", [False, True])
def test_lack_of_memory_in_a_pipeline_is_a_memory_error(large: bool) -> None:
    with pytest.raises(MemoryError):
        call(bridge().symbols["halide_error_out_of_memory"], large)
    call(bridge().nothing, large)


@built
def test_memory_is_aligned_and_can_be_written_past_its_end() -> None:
    get = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(
        bridge().symbols["halide_malloc"]
    )
    give = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(bridge().symbols["halide_free"])
    for size in (0, 1, 127, 128, 5000):
        memory = get(None, size)
        assert memory and memory % 128 == 0
        ctypes.memset(memory, 1, size + 64)
        give(None, memory)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the backend says that it runs on Linux")
@pytest.mark.parametrize(("setting", "said"), [(MISSING, "was not built"), (STALE, "is of version 0, not")])
def test_probe_names_the_remedy_of_a_bridge_that_cannot_be_used(setting: str, said: str) -> None:
    run = subprocess.run([sys.executable, "-c", PROBE.format(setting)], capture_output=True, text=True)
    assert said in run.stdout and "pip install" in run.stdout and "plugins/halide" in run.stdout, run.stderr


def test_source_has_the_version_that_python_wants() -> None:
    source = (Path(__file__).parent.parent / "mgb_halide" / "call.c").read_text()
    assert re.findall(r"^#define VERSION (\d+)$", source, re.MULTILINE) == [str(VERSION)]
