"""Every op on arrays that are not NumPy's: the same numbers as on NumPy's, and nothing behind CuPy's back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import op_samples as samples
import pytest
from mgb import dtypes
from mgb.ir import CONST, Graph
from mgb.ops.declare import OPS
from mgb.tensor import Tensor
from mgb.tensor.apply import apply

standin = pytest.importorskip(
    "mgb_conformance.standin", reason="mgb-conformance is not installed: pip install ./conformance"
)


@pytest.fixture(autouse=True, scope="module")
def _cupy() -> Iterator[None]:
    standin.install()
    yield
    standin.uninstall()


def run(graph: Graph, arrays: list[Any], device: str) -> Any:
    """The first output of `graph`, op by op, on `device`."""

    def visit(node: Any, *inputs: Tensor) -> Tensor:
        if node.op is CONST:
            return Tensor(node.params["value"], node.spec.dtype, device)
        params = (
            {**node.params, "device": device}
            if "device" in node.params or node.op.name == "iota"
            else node.params
        )
        return apply(node.op, *inputs, **params)

    (out,) = graph.fold(visit, [Tensor(a, a.dtype, device) for a in arrays])
    return out


@pytest.mark.parametrize("name", samples.ALONE)
def test_op_on_gpu_arrays_matches_numpy_in_every_dtype(name: str) -> None:
    for graph, arrays in (case for dtype in dtypes.DTYPES for case in samples.cases(OPS[name], dtype)):
        want = run(graph, arrays, "cpu0:0")
        found = run(graph, arrays, "gpu0:0")
        assert found.device == "gpu0:0" and isinstance(found._data, standin.ndarray), str(graph)
        assert (found.shape, found.dtype) == (want.shape, want.dtype), str(graph)
        assert (found._data.shape, found._data.dtype) == (want.shape, want.dtype), str(graph)
        samples.assert_close(found.numpy(), want.numpy(), str(graph))
