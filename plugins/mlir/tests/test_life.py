"""Threads, memory layouts, kernels that replace their inputs, and kernels that outlive their process."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Any

import mgb.functional as F
import numpy as np
import pytest

pytest.importorskip("torch_mlir", reason="MLIR is not installed: pip install torch-mlir==20261001")
pytest.importorskip("mgb_mlir", reason="the plugin is not installed: pip install ./plugins/mlir")

from mgb_mlir import toolchain
from mgb_native import plan
from mlir_helpers import BACKEND, call, traced

RNG = np.random.default_rng(3)


def softmax(x: Any) -> Any:
    return F.softmax(x, 1)


def column_sums(x: Any) -> Any:
    return F.sum(x, 0, keepdims=True)


def total(x: Any) -> Any:
    return F.sum(x * x, (0, 1), keepdims=True), F.sum(x * x, (0, 1), keepdims=True) * x


def product(a: Any, b: Any) -> Any:
    return a * b + 1.0


def views(array: Any) -> dict[str, Any]:
    """The same values in memory layouts of every kind."""
    return {
        "plain": array,
        "transposed": np.asfortranarray(array),
        "reversed": np.ascontiguousarray(array[..., ::-1])[..., ::-1],
        "every other": np.repeat(array, 2, axis=-1)[..., ::2],
        "broadcast": np.broadcast_to(array[:, :1], array.shape),
    }


@pytest.mark.parametrize("function", [softmax, column_sums, total, lambda x: product(x, x)])
@pytest.mark.parametrize(
    "shape", [(1, 1), (3, 7), (70, 301), (500, 700), (2, 200_000), (200_000, 2)], ids=str
)
def test_results_match_numpy_for_every_layout_and_thread_count(
    function: Any, shape: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One kernel for every layout; the results are NumPy's, and the same bits for any number of threads."""
    base = RNG.standard_normal(shape).astype(np.float32)
    graph = traced(function, [base])
    kernel = BACKEND.compile(graph)
    for name, x in views(base).items():
        wide = x.astype(np.float64)
        e = np.exp(wide - wide.max(1, keepdims=True))
        truth: Any = {
            softmax: (e / e.sum(1, keepdims=True),),
            column_sums: (wide.sum(0, keepdims=True),),
            total: ((wide**2).sum(keepdims=True), (wide**2).sum(keepdims=True) * wide),
        }.get(function, (wide * wide + 1,))
        results = []
        for threads in ("1", "2", "7"):
            monkeypatch.setenv("MGB_NUM_THREADS", threads)
            results.append(call(kernel, graph, [x]))
        for other in results:
            for found, same, wanted in zip(other, results[0], truth, strict=True):
                np.testing.assert_array_equal(found, same)
                scale = max(1.0, np.abs(wanted).max())
                np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6 * scale, err_msg=name)


def test_streaming_stores_at_any_alignment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any alignment, and such that the rows do not end with a cache line."""
    monkeypatch.setattr(plan, "STREAM", 0)
    for n in (1, 15, 16, 17, 1000, 100_003):
        a, b = RNG.standard_normal((2, n)).astype(np.float32)
        graph = traced(product, [a, b])
        kernel = BACKEND.compile(graph)
        for start in (0, 1, 3):
            out = np.zeros(n + 8, np.float32)
            kernel.run(a, b, out=(out[start : start + n],))
            np.testing.assert_allclose(out[start : start + n], a * b + 1, rtol=1e-6, atol=1e-6)
            assert not out[:start].any() and not out[start + n :].any()


def test_output_may_overwrite_an_input() -> None:
    for function in (lambda x: product(x, x), softmax, lambda x: x - F.max(x, 0, keepdims=True)):
        x = RNG.standard_normal((40, 33)).astype(np.float32)
        graph = traced(function, [x])
        kernel = BACKEND.compile(graph)
        (wanted,) = call(kernel, graph, [x])
        kernel.run(x, out=(x,))
        np.testing.assert_array_equal(x, wanted)


def test_many_operands_of_every_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some outputs replace their inputs."""
    monkeypatch.setattr(plan, "STREAM", 0)
    base = RNG.standard_normal((40, 5, 203)).astype(np.float32)
    arrays = [view for a in base[:8] for view in views(a).values()]
    scale = np.float32([0.25])

    def step(scale: Any, *xs: Any) -> Any:
        return [x * (scale + 1.0) + y for x, y in pairwise(xs)]

    graph = traced(step, [scale, *arrays])
    kernel = BACKEND.compile(graph)
    wanted = [x * np.float32(1.25) + y for x, y in pairwise(arrays)]
    for found, truth in zip(call(kernel, graph, [scale, *arrays]), wanted, strict=True):
        np.testing.assert_allclose(found, truth, rtol=1e-6, atol=1e-6)
    arrays = [np.ascontiguousarray(a) for a in arrays]
    kernel.run(scale, *arrays, out=tuple(arrays[:-1]))
    for found, truth in zip(arrays, wanted, strict=False):
        np.testing.assert_allclose(found, truth, rtol=1e-6, atol=1e-6)


def test_scalars_constants_and_broadcast_columns() -> None:
    """Scalars, constants of many elements, and columns beside each other, each computed where it varies."""
    table = RNG.standard_normal((1, 33)).astype(np.float32)
    x, column, one = (RNG.standard_normal(s).astype(np.float32) for s in ((40, 33), (40, 1), (1, 1)))

    def function(x: Any, column: Any, one: Any) -> Any:
        return x * F.exp(one * one) + F.exp(column) * table + F.exp(table * 2.0)

    graph = traced(function, [x, column, one])
    (found,) = call(BACKEND.compile(graph), graph, [x, column, one])
    wide, c, o, t = (a.astype(np.float64) for a in (x, column, one, table))
    np.testing.assert_allclose(
        found, wide * np.exp(o * o) + np.exp(c) * t + np.exp(t * 2), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
def test_integer_division_never_traps(dtype: str) -> None:
    info = np.iinfo(dtype)
    a = np.array([0, 1, info.max, info.min, 7, info.min, 5] * 5, dtype)
    b = np.array([0, 0, info.min, -1 if info.min else info.max, 2, 1, 3] * 5, dtype)
    graph = traced(lambda a, b: (a // b, a % b), [a, b])
    with np.errstate(all="ignore"):
        wanted = a // b, a % b
    for found, truth in zip(call(BACKEND.compile(graph), graph, [a, b]), wanted, strict=True):
        np.testing.assert_array_equal(found, truth)


def test_second_process_needs_neither_mlir_nor_llvm(tmp_path: Path) -> None:
    x = RNG.standard_normal((50, 90)).astype(np.float32)
    graph = traced(softmax, [x])
    kernel = BACKEND.compile(graph)
    blob = BACKEND.save(kernel)
    assert blob is not None
    (tmp_path / "kernel").write_bytes(blob)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", call(kernel, graph, [x])[0])
    program = """
        import sys
        from pathlib import Path
        import numpy as np
        import mgb.functional as F
        from mgb.ir import Spec
        from mgb.passes.lower import lower
        from mgb.tensor.tracing import graph_of
        from mgb_mlir import Mlir

        backend, x, y = Mlir(), np.load("x.npy"), np.load("y.npy")
        graph = lower(graph_of(lambda x: F.softmax(x, 1), Spec(x.shape, x.dtype)), backend.traits)
        kernel = backend.load(graph, Path("kernel").read_bytes())
        out = np.empty_like(x)
        kernel.run(x, out=(out,))
        np.testing.assert_array_equal(out, y)
        assert "vector.load" in kernel.text
        heavy = {"torch_mlir", "llvmlite", "numba"} & set(sys.modules)
        assert not heavy, heavy
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_version_names_the_wheel() -> None:
    assert toolchain.WHEEL in BACKEND.version()


def test_probe_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BACKEND.probe() is None
    monkeypatch.setattr(toolchain, "find_spec", lambda name: None)
    reason = BACKEND.probe()
    assert reason is not None and f"pip install torch-mlir=={toolchain.TESTED}" in reason
