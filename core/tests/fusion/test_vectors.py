"""Products of a matrix and a vector in kernels: each matrix is read in the order in which it is stored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fusing import TRAITS, f32
from graphs import arrays_for, run
from mgb.fusion.vectors import vector_products
from mgb.ir import Kind
from mgb.ops import layout
from mgb.ops.images.contract import MATMUL, matmul
from mgb.ops.reduce import reduce_sum
from mgb.tensor import Tensor
from mgb.tensor.tracing import graph_of


@pytest.mark.parametrize("flags", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("shape", [(4, 640, 200), (200, 640, 7), (640, 7, 40), (3, 40, 5, 60)], ids=str)
def test_thin_products_are_loops_of_kernels(shape: tuple[int, ...], flags: tuple[bool, bool]) -> None:
    """Few rows, few columns, few terms, a batch."""
    *batch, rows, inner, columns = shape
    left = (inner, rows) if flags[0] else (rows, inner)
    right = (columns, inner) if flags[1] else (inner, columns)

    def body(a: Tensor, b: Tensor) -> Tensor:
        return matmul(a, b, transpose_a=flags[0], transpose_b=flags[1]) * 2

    graph = graph_of(body, f32(*batch, *left), f32(*batch, *right))
    traits = replace(TRAITS, kinds=TRAITS.kinds | {Kind.GATHER}, vocabulary=TRAITS.vocabulary | {"dot"})
    found = vector_products(graph, traits)
    assert not found.has(MATMUL)
    arrays = arrays_for(graph)
    a, b = (x.swapaxes(-1, -2) if flag else x for x, flag in zip(arrays, flags, strict=True))
    (got,) = run(found, arrays)
    np.testing.assert_allclose(got, 2 * (a.astype(np.float64) @ b), rtol=1e-4, atol=1e-4)


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


@pytest.mark.parametrize(
    ("shape", "then", "taken"),
    [
        ((900, 8, 64), None, True),
        ((900, 8, 16), None, False),
        ((900, 16, 128), None, False),
        ((900, 8, 16), "computed", True),
        ((900, 8, 6), "computed", False),
        ((900, 16, 64), "computed", True),
        ((900, 16, 32), "computed", False),
        ((900, 32, 64), "computed", False),
        ((3000, 8, 3), "folded", True),
        ((900, 16, 200), "folded", True),
        ((900, 32, 48), "folded", True),
        ((900, 32, 64), "folded", False),
        ((900, 33, 48), "folded", False),
        ((400, 4, 4, 4), None, True),
        ((4, 400, 8, 4), None, False),
        ((4, 400, 32, 40), None, True),
        ((4, 400, 32, 4), "folded", True),
    ],
)
def test_which_products_kernels_take(shape: tuple[int, ...], then: str | None, taken: bool) -> None:
    """Those that only leave, those of whose elements more is computed, and whose rows are folded."""
    *batch, rows, inner, columns = shape

    def body(a: Tensor, b: Tensor) -> Tensor:
        found = matmul(a, b)
        found = found if then is None else found * 2.0
        return reduce_sum(found, axis=(len(batch) + 1,)) if then == "folded" else found

    graph = graph_of(body, f32(*batch, rows, inner), f32(*batch, inner, columns))
    traits = replace(TRAITS, kinds=TRAITS.kinds | {Kind.GATHER}, vocabulary=TRAITS.vocabulary | {"dot"})
    assert vector_products(graph, traits).has(MATMUL) == (not taken)
