"""Threads, and kernels that outlive their process."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_numba_helpers import BACKEND, call, traced
from mgb.ops.bodies.transcendental import exp
from mgb.ops.reduce import reduce_max, reduce_sum


def softmax(x: Any) -> Any:
    e = exp(x - reduce_max(x, axis=(1,)))
    return e / reduce_sum(e, axis=(1,))


def total(x: Any) -> Any:
    return reduce_sum(x * x, axis=(0, 1)), reduce_sum(x * x, axis=(0, 1)) * x


@pytest.mark.parametrize("function", [softmax, total, lambda x: reduce_sum(x, axis=(0,))])
@pytest.mark.parametrize("shape", [(500, 700), (2, 200_000), (200_000, 2)], ids=str)
def test_results_do_not_depend_on_the_number_of_threads(
    function: Any, shape: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    graph = traced(function, [x])
    kernel = BACKEND.compile(graph)
    results = []
    for threads in ("1", "2", "3", "7"):
        monkeypatch.setenv("MGB_NUM_THREADS", threads)
        results.append(call(kernel, graph, [x]))
    for other in results[1:]:
        for g, w in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(g, w)
    wide = x.astype(np.float64)
    if function is total:
        np.testing.assert_allclose(results[0][0][0, 0], (wide * wide).sum(), rtol=1e-6)


def test_many_python_threads_call_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_NUM_THREADS", "3")
    rng = np.random.default_rng(1)
    large = [rng.standard_normal((700, 400)).astype(np.float32) for _ in range(4)]
    small = [rng.standard_normal((8, 40)).astype(np.float32) for _ in range(4)]
    graph = traced(softmax, large[:1])
    kernel = BACKEND.compile(graph)

    def work(i: int) -> None:
        for x in (large[i % 4], small[i % 4]):
            out = np.empty_like(x)
            kernel.run(x, out=(out,))
            np.testing.assert_allclose(out.sum(1), 1, rtol=1e-5)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(200)))


def test_second_process_loads_saved_code_without_numba(tmp_path: Path) -> None:
    x = np.random.default_rng(2).standard_normal((50, 90)).astype(np.float32)
    graph = traced(softmax, [x])
    kernel = BACKEND.compile(graph)
    blob = BACKEND.save(kernel)
    assert blob is not None
    (tmp_path / "kernel").write_bytes(blob)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", call(kernel, graph, [x])[0])
    program = f"""
        import sys
        from pathlib import Path
        import numpy as np
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from cpu_numba_helpers import BACKEND, call, traced
        from mgb.ops.reduce import reduce_max, reduce_sum
        from mgb.ops.bodies.transcendental import exp

        def softmax(x):
            e = exp(x - reduce_max(x, axis=(1,)))
            return e / reduce_sum(e, axis=(1,))

        x, y = np.load("x.npy"), np.load("y.npy")
        graph = traced(softmax, [x])
        kernels = [BACKEND.load(graph, Path("kernel").read_bytes()) for _ in range(2)]
        for kernel in kernels:
            np.testing.assert_array_equal(call(kernel, graph, [x])[0], y)
            out = np.empty((30, 90), np.float32)
            kernel.run(x[:30], out=(out,))
            np.testing.assert_array_equal(out, y[:30])
        assert BACKEND.save(kernels[0]) == Path("kernel").read_bytes()
        assert "numba" not in sys.modules
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_loading_a_corrupt_blob_raises() -> None:
    x = np.zeros((2, 3), np.float32)
    graph = traced(softmax, [x])
    with pytest.raises(Exception, match=r".+"):
        BACKEND.load(graph, b"kernel\nnot an object file")


def test_version_names_the_toolchain_and_the_processor() -> None:
    version = BACKEND.version()
    assert "numba" in version and "llvmlite" in version
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            assert line.partition(":")[2].strip() in version


def test_probe_rejects_an_unsupported_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BACKEND.probe() is None
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    reason = BACKEND.probe()
    assert reason is not None and "riscv64" in reason and "export MGB_JIT_BACKEND=EAGER" in reason
