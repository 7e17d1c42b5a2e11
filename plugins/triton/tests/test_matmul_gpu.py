"""Products in kernels on a real GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mgb import config
from mgb.ir import Graph, Spec
from mgb.ir.dtypes import as_dtype
from mgb.ops.activations import gelu
from mgb.ops.images.contract import matmul
from mgb.ops.primitives import maximum
from mgb.passes.lower import lower
from mgb.tensor.tracing import graph_of
from mgb_conformance.judge import judge, problem
from mgb_triton import Triton, products

BACKEND = Triton()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(BACKEND.probe() is not None, reason=str(BACKEND.probe())),
]


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(config.CACHE_DIR.name, str(tmp_path))
    monkeypatch.setenv(products.USE.name, "always")


def layer(x: Any, w: Any, b: Any, r: Any) -> Any:
    return gelu(matmul(maximum(x, 0) * 2, w, transpose_b=True) + b) + r


def made(sizes: tuple[int, int, int], dtype: str) -> tuple[Graph, list[np.ndarray]]:
    m, k, n = sizes
    random = np.random.default_rng(0)
    arrays = [random.normal(size=s).astype(as_dtype(dtype)) for s in ((m, k), (n, k), (n,), (m, n))]
    return graph_of(layer, *(Spec(a.shape, a.dtype) for a in arrays)), arrays


def run(graph: Graph, arrays: list[np.ndarray]) -> np.ndarray:
    import cupy

    (output,) = graph.outputs
    out = cupy.full(output.spec.shape, 77, output.spec.dtype)
    BACKEND.compile(lower(graph, BACKEND.traits)).run(*map(cupy.asarray, arrays), out=(out,))
    found: np.ndarray = out.get()
    return found


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("sizes", [(1, 7, 5), (128, 512, 256), (1000, 777, 333), (2048, 2048, 2048)])
def test_fused_layer_matches_numpy(sizes: tuple[int, int, int], dtype: str) -> None:
    graph, arrays = made(sizes, dtype)
    (want,) = judge(graph, arrays)
    assert problem(run(graph, arrays), want) is None


def test_float32_with_tf32_tensor_cores_is_within_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands lose 13 of their 24 bits."""
    monkeypatch.setenv(products.PRECISION.name, "tf32")
    random = np.random.default_rng(0)
    x, w = (random.normal(size=(512, 512)).astype(np.float32) for _ in range(2))
    graph = graph_of(lambda x, w: maximum(matmul(x, w), 0), *[Spec((512, 512), x.dtype)] * 2)
    wide = [a.astype(np.float64) for a in (x, w)]
    far = np.abs(run(graph, [x, w]) - np.maximum(wide[0] @ wide[1], 0))
    assert far.max() > 0 and (far <= 2.0**-9 * (np.abs(wide[0]) @ np.abs(wide[1]))).all()
