"""Kernels on a real GPU, with CuPy's arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from mgb.backends.plugins import import_backend
from mgb.ir import Graph
from mgb.ops.declare import OPS
from mgb_conformance.cases import DTYPES, PARAMS, elementwise, of, operands, samples
from mgb_conformance.cases import call as op_call
from mgb_conformance.judge import judge, problem

from .programs import check, normalise, softmax, total
from .suite import Suite


class OnGpu(Suite):
    """The shapes of rows, dtypes and joined calls of the other tests.

    Attributes
    ----------
    tables : mapping
        As for `variants.Geometries`.
    """

    def run(self, graph: Graph, *arrays: Any) -> list[Any]:
        """Return the outputs of a graph that is lowered, computed by the GPU."""
        import cupy

        out = tuple(cupy.full(o.spec.shape, 77, o.spec.dtype) for o in graph.outputs)
        self.bench.on_gpus.compile(graph).run(*map(cupy.asarray, arrays), out=out)
        return [o.get() for o in out]

    @pytest.mark.parametrize("function", [total, softmax, normalise], ids=lambda f: f.__name__)
    def test_row_functions_of_every_geometry(self, geometry: str, function: Any) -> None:
        geometries = self.tables["geometry"]
        assert isinstance(geometries, Mapping)
        shape, axis, _, _ = geometries[geometry]
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32) * 3
        (found,) = self.run(self.bench.traced(lambda x: function(x, axis), x), x)
        check(function, x, axis, found)

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_every_elementwise_op(self, dtype: str) -> None:
        see_that_there_is(dtype)
        for d, name in elementwise():
            if d != dtype or name in PARAMS:
                continue
            arrays = [samples(o.name, (4099,), seed=i) for i, o in enumerate(operands(OPS[name], dtype))]
            function = op_call(OPS[name])
            found = self.run(self.bench.traced(function, *arrays), *arrays)
            for got, want in zip(found, judge(of(function, *arrays), arrays), strict=True):
                assert problem(got, want) is None, name

    def test_joined_updates_share_a_launch(self) -> None:
        import cupy

        random = np.random.default_rng(0)
        made = [random.normal(size=int(n)).astype(np.float32) for n in random.integers(2, 5000, 300)]
        places = [cupy.asarray(a) for a in made]
        backend = self.bench.on_gpus
        kernel = backend.compile(self.bench.traced(lambda p, g: p - g * 0.25, made[0], made[0]))
        joined = backend.join([kernel] * len(made))
        if joined is None:
            pytest.skip("kernels share no launch where there are several GPUs")
        joined.run(*(a for p in places for a in (p, p)), out=places)
        for a, p in zip(made, places, strict=True):
            np.testing.assert_allclose(p.get(), a * 0.75, rtol=1e-6)

    def test_backend_is_found_by_its_name(self) -> None:
        assert import_backend(self.bench.name.upper()).probe() is None


def see_that_there_is(dtype: str) -> None:
    """Skip a test of a dtype that this CuPy has not."""
    import cupy

    if dtype == "bfloat16" and int(cupy.__version__.partition(".")[0]) < 14:
        pytest.skip(f"CuPy {cupy.__version__} has no bfloat16: pip install 'cupy-cuda13x>=14'")
