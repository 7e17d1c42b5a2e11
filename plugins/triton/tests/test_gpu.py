"""On a real GPU: the shapes of tiles, dtypes and joined calls of the other tests, with CuPy's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mgb.ops.declare import OPS
from mgb.passes.lower import lower
from mgb.plugins import import_backend
from mgb_conformance.cases import DTYPES, PARAMS, call, elementwise, of, operands, samples
from mgb_conformance.judge import judge, problem
from mgb_triton import Triton, tuning
from test_variants import GEOMETRIES, normalise, softmax, total, wanted
from triton_helpers import traced

BACKEND = Triton()
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


@pytest.mark.parametrize("shape", [(1 << 22,), (4096, 1024), (64, 1 << 17)])
def test_measured_variants(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "_known", {})
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    axis = (len(shape) - 1,)
    (found,) = run(traced(lambda x: normalise(x, axis), x), [x])
    assert np.abs(found - wanted(normalise, x, axis)).max() <= 2e-5


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bfloat16"])  # CuPy has no bfloat16
def test_every_word(dtype: str) -> None:
    for d, name in elementwise():
        if d != dtype or name in PARAMS:
            continue
        arrays = [samples(o.name, (4099,), seed=i) for i, o in enumerate(operands(OPS[name], dtype))]
        graph = of(call(OPS[name]), *arrays)
        for got, want in zip(run(lower(graph, BACKEND.traits), arrays), judge(graph, arrays), strict=True):
            assert problem(got, want) is None, name


def test_updates_that_share_a_launch() -> None:
    import cupy

    random = np.random.default_rng(0)
    made = [random.normal(size=int(n)).astype(np.float32) for n in random.integers(2, 5000, 300)]
    places = [cupy.asarray(a) for a in made]
    kernel = BACKEND.compile(traced(lambda p, g: p - g * 0.25, made[0], made[0]))
    joined = BACKEND.join([kernel] * len(made))
    assert joined is not None
    joined.run(*(a for p in places for a in (p, p)), out=places)
    for a, p in zip(made, places, strict=True):
        np.testing.assert_allclose(p.get(), a * 0.75, rtol=1e-6)


def test_it_is_found_by_its_name() -> None:
    assert import_backend("TRITON").probe() is None
