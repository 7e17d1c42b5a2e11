"""How innermost loops walk: several vectors at a time, the rest by masked ones, the next row asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch_mlir", reason="MLIR is not installed: pip install torch-mlir==20261001")
pytest.importorskip("mgb_mlir", reason="the plugin is not installed: pip install ./plugins/mlir")

from mgb.ops.bodies.transcendental import exp
from mgb.ops.primitives import maximum
from mgb.ops.reduce import reduce_max, reduce_sum
from mgb_mlir import levels
from mgb_native import plan
from mlir_helpers import BACKEND, call, traced

RNG = np.random.default_rng(17)


def whole(*shape: int) -> Any:
    """Small whole numbers, whose sums are exact in any order."""
    return RNG.integers(-8, 9, shape).astype(np.float32)


def normalised(x: Any, b: Any) -> Any:
    """Three passes over a row, each of which reads it."""
    rest = x * b - reduce_max(x, axis=(2,))
    return rest, rest * reduce_sum(rest, axis=(2,))


VIEWS = {
    "plain": lambda x: x,
    "transposed": np.asfortranarray,
    "reversed": lambda x: np.ascontiguousarray(x[..., ::-1])[..., ::-1],
}


@pytest.mark.parametrize("piece", [16, 1 << 9])
@pytest.mark.parametrize("stream", [0, 1 << 40], ids=["streamed", "cached"])
def test_next_row_prefetch_changes_no_result(
    monkeypatch: pytest.MonkeyPatch, piece: int, stream: int
) -> None:
    """It may reach beyond the end of an array."""
    for name, value in [("DISTANT", 0), ("SHORT", 0), ("STREAMED", piece), ("STREAM", stream)]:
        monkeypatch.setattr(plan, name, value)
    kernel = BACKEND.compile(traced(normalised, [whole(2, 3, 4), whole(1, 3, 4)]))
    assert kernel.source.count("@mgb_ask(") == 4  # declared; short rows of both; units of the last pass
    for shape in [(2, 3, 4), (5, 7, 200), (2, 9, 513)]:
        x, b = whole(*shape), whole(1, *shape[1:])
        graph = traced(normalised, [x, b])
        rest = x * b - x.max(2, keepdims=True)
        for layout in VIEWS.values():
            found = call(kernel, graph, [layout(x), b])
            np.testing.assert_array_equal(found[0], rest)
            np.testing.assert_array_equal(found[1], rest * rest.sum(2, keepdims=True))


LENGTHS = (2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 255, 511, 512, 513)


@pytest.mark.parametrize("dtype", ["int16", "float16", "float32", "float64"])
@pytest.mark.parametrize("stream", [0, 1 << 40], ids=["streamed", "cached"])
def test_short_row_path_matches_the_general_path(
    monkeypatch: pytest.MonkeyPatch, dtype: str, stream: int
) -> None:
    monkeypatch.setattr(plan, "STREAM", stream)

    def function(x: Any, y: Any) -> Any:
        kept = maximum(x, y) * (x + 2) * (y + 3) + x
        top = reduce_max(kept, axis=(2,))
        return top, maximum(kept, y) * x, reduce_sum(maximum(kept, top) * 2, axis=(2,))

    graph = traced(function, [whole(2, 3, 4).astype(dtype)] * 2)
    short, walked = BACKEND.compile(graph), BACKEND.compile(graph)
    for n in LENGTHS:
        x, y = (whole(3, 5, n).astype(dtype) for _ in range(2))
        graph = traced(function, [x, y])
        found = call(short, graph, [x, y])
        with monkeypatch.context() as patch:
            patch.setattr(plan, "SHORT", 0)
            for a, b in zip(found, call(walked, graph, [x, y]), strict=True):
                np.testing.assert_array_equal(a, b)
        wide = [v.astype(np.float64) for v in (x, y)]
        kept = np.maximum(*wide) * (wide[0] + 2) * (wide[1] + 3) + wide[0]
        if dtype.startswith("float"):
            np.testing.assert_array_equal(found[0], kept.max(2, keepdims=True).astype(dtype))
            np.testing.assert_array_equal(found[1], (np.maximum(kept, wide[1]) * wide[0]).astype(dtype))


def many(*xs: Any) -> Any:
    return [x * y * 0.5 + x for x, y in zip(xs[::2], xs[1::2], strict=True)]


@pytest.mark.parametrize(("function", "inputs", "vectors"), [(exp, 1, 4), (many, 20, 1)])
def test_loop_iteration_processes_the_expected_number_of_vectors(
    function: Any, inputs: int, vectors: int
) -> None:
    """One alone leaves the processor idle, but where there are many inputs. The rest goes one by one."""
    lanes = levels.vector_bytes() // 4
    source = BACKEND.compile(traced(function, [whole(100)] * inputs)).source
    lines = [line.split() for line in source.splitlines() if " vector." in line and "memref" in line]
    kinds = {(line[2] if "=" in line else line[0], line[-1]) for line in lines}
    wanted = {
        "vector.load": vectors,
        "vector.store": vectors,
        "vector.maskedload": 1,
        "vector.maskedstore": 1,
    }
    assert kinds == {(name, f"vector<{count * lanes}xf32>") for name, count in wanted.items()}


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 128, 129, 200])
def test_remainder_loop_of_any_length_stays_in_bounds(n: int) -> None:
    """Nothing behind the end is written."""
    x, memory = whole(n) * np.float32(0.5), np.full(n + 64, 77, np.float32)
    BACKEND.compile(traced(exp, [x])).run(x, out=(memory[:n],))
    np.testing.assert_allclose(memory[:n], np.exp(x.astype(float)), 3e-7)
    assert (memory[n:] == 77).all()
