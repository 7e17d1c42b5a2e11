"""Products of a matrix and a vector in kernels: each matrix is read in the order in which it is stored."""

from __future__ import annotations

import numpy as np
import pytest
from fusing import TRAITS, f32
from graphs import arrays_for, run
from mgb.fusion.vectors import vector_products
from mgb.ops import layout
from mgb.ops.images.contract import MATMUL, matmul
from mgb.tensor import Tensor
from mgb.tensor.tracing import graph_of


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_matrix_times_vector_reads_what_is_stored(
    batch: tuple[int, ...], left: bool, turns: bool, flag: bool
) -> None:
    """The matrix is on the left or right, transposed by a view, by the product, by both or not at all."""
    rows, columns = (70, 80) if turns == flag else (80, 70)
    length = 80 if left else 70

    def body(matrix: Tensor, vector: Tensor) -> Tensor:
        last = len(batch)
        turned = layout.transpose(matrix, axes=(*range(last), last + 1, last)) if turns else matrix
        if left:
            return matmul(turned, vector, transpose_a=flag)
        return matmul(vector, turned, transpose_b=flag)

    vector = f32(*batch, length, 1) if left else f32(*batch, 1, length)
    graph = graph_of(body, f32(*batch, rows, columns), vector)
    found = vector_products(graph, TRAITS)
    assert not found.has(MATMUL)
    assert not any(n.op is layout.TRANSPOSE and n.spec.shape[-1] > 1 < n.spec.shape[-2] for n in found.nodes)
    arrays = arrays_for(graph)
    matrix, other = (a.astype(np.float64) for a in arrays)
    matrix = matrix.swapaxes(-1, -2) if turns != flag else matrix
    want = matrix @ other if left else other @ matrix
    (got,) = run(found, arrays)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
