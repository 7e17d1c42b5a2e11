"""On a real GPU: the geometries, dtypes and joined calls of the other tests, with CuPy's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mgb.ops.declare import OPS
from mgb.passes.lower import lower
from mgb.plugins import import_backend
from mgb_conformance.cases import DTYPES, PARAMS, call, elementwise, of, operands, samples
from mgb_conformance.judge import judge, problem
from mgb_nvrtc import Nvrtc
from nvrtc_helpers import traced
from test_variants import GEOMETRIES, normalise, softmax, total, wanted

BACKEND = Nvrtc()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(BACKEND.probe() is not None, reason=str(BACKEND.probe())),
]


def run(graph: Any, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a lowered graph, computed by the GPU."""
    import cupy

    out = tuple(cupy.full(o.spec.shape, 77, o.spec.dtype) for o in graph.outputs)
    BACKEND.compile(graph).run(*map(cupy.asarray, arrays), out=out)
    return [o.get() for o in out]


@pytest.mark.parametrize("function", [total, softmax, normalise], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_rows(name: str, function: Any) -> None:
    shape, axis, _, _ = GEOMETRIES[name]
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32) * 3
    (found,) = run(traced(lambda x: function(x, axis), x), [x])
    scale = np.abs(x).sum(axis=axis, keepdims=True, dtype=np.float64) if function is total else 8.0
    assert np.abs(found - wanted(function, x, axis)).max() <= 2e-6 * np.max(scale)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bfloat16"])  # CuPy has no bfloat16
def test_every_word(dtype: str) -> None:
    for d, name in elementwise():
        if d != dtype or name in PARAMS:
            continue
        arrays = [samples(o.name, (4099,), seed=i) for i, o in enumerate(operands(OPS[name], dtype))]
        graph = of(call(OPS[name]), *arrays)
        for got, want in zip(run(lower(graph, BACKEND.traits), arrays), judge(graph, arrays), strict=True):
            assert problem(got, want) is None, name


def test_it_is_found_by_its_name() -> None:
    assert import_backend("NVRTC").probe() is None
