"""Products of a matrix and a vector, or of two vectors, are loops of kernels: no library does them better.

Each element of the matrix is read once, so memory is what they wait for; in a kernel they take what computes
the matrix, and what comes after, into the same pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..backends import Scope, Traits
from ..ir import Graph, Kind, Node
from ..ir.dtypes import HALVES
from ..ir.sizes import about, same_shape
from ..ops.declare import op_of
from ..ops.dot import dot
from ..ops.images.contract import MATMUL
from ..ops.layout import RESHAPE, TRANSPOSE, concat, reshape, slice_, transpose
from ..ops.primitives import mul
from ..ops.reduce import reduce_sum
from ..passes.broadcasts import delay_broadcasts
from ..passes.merge import merge
from ..passes.reshapes import delay_reshapes
from ..passes.rewrite import COMPUTING, inputs_of, node_of, read_once, reshaped, rewrite
from ..tensor import Tensor
from .legality import DEFAULT, FusionConfig, accepts, bare
from .terms import DOT, few_terms
from .views import viewed

#: Elements of a matrix from which a kernel reads it as fast as a library; bytes of one that is stored anyway
#: from which a library is faster, for it reads the vector once for several rows.
LEAST, MOST = 1 << 12, 1 << 26


CONCAT = op_of(concat)

#: With how many vectors a matrix is multiplied in one pass; from how many elements of it, and terms.
LINES, LARGE, LONG = 8, 1 << 16, 1 << 6

#: The most terms of products that a kernel computes as fast as a library: in a batch; also a single one whose
#: rows are folded, if they are no longer than `TURNED`; where more is computed of its elements.
THIN, FUSED = 32, 16

#: Columns from which it does, of more than `LINES` terms from `LONG` on; elements of smaller matrices in a
#: batch; folded rows that are turned; columns for each term of a product that is only stored.
WIDE, SMALL, TURNED, ALONE = 8, 64, 48, 6

#: The dtypes of these.
TYPES = frozenset({np.dtype("float32"), np.dtype("float64")})


def vector_products(graph: Graph, traits: Traits, config: FusionConfig = DEFAULT) -> Graph:
    """Spell products in which no element of the larger operand is read twice as sums of products.

    Parameters
    ----------
    graph : Graph
        Simplified.
    traits : Traits
        Of the backend that is to compile the groups.
    config : FusionConfig
        What the user allows.

    Returns
    -------
    Graph
    """
    takes = {Kind.ELEMENTWISE, Kind.REDUCE} <= traits.kinds and traits.scope is Scope.DOMAIN
    if not takes or not graph.has(MATMUL):
        return graph

    def rule(node: Node, *values: Tensor) -> Tensor | None:
        if node.op is not MATMUL or node.spec.dtype in HALVES:  # whose products are rounded as libraries do
            return None
        found = _as_thin(graph, node, *values)
        found = _as_fold(node, *values) if found is None else found
        if found is None or any(accepts(traits, node, config) is not None for node in _computed(found)):
            return None
        return reshaped(found, node.spec.shape)

    expanded = rewrite(graph, rule)
    if expanded.has(RESHAPE):
        expanded = merge(_with_axes_split(delay_broadcasts(delay_reshapes(expanded)), traits.short_rows))
    return few_terms(expanded)


def _with_axes_split(graph: Graph, longest: int) -> Graph:
    """Give products the axes into which a reshape splits theirs, if a short one of these is folded next."""
    single = read_once(graph)

    def rule(node: Node, *values: Tensor) -> Tensor | None:
        if node.op is not RESHAPE or node.inputs[0].op is not DOT or node.inputs[0] not in single:
            return None
        if not any(_is_short(fold, longest) for fold in _folds(graph, node)):
            return None
        return viewed(node, values[0])

    return rewrite(graph, rule) if graph.has(DOT) else graph


def _folds(graph: Graph, node: Node) -> Iterator[Node]:
    """Yield the reductions of what is computed of a value, as large as it."""
    seen, waiting = {node}, [node]
    while waiting:
        for reader in graph.readers[waiting.pop()]:
            if reader.op.kind is Kind.REDUCE:
                yield reader
            elif reader.op.kind is Kind.ELEMENTWISE and reader not in seen:
                if same_shape(reader.spec.shape, node.spec.shape):
                    seen.add(reader)
                    waiting.append(reader)


def _is_short(fold: Node, longest: int) -> bool:
    shape, axis = fold.inputs[0].spec.shape, fold.params["axis"]
    return tuple(axis) == (len(shape) - 1,) and type(shape[-1]) is int and shape[-1] <= longest


def _as_thin(graph: Graph, node: Node, a: Tensor, b: Tensor) -> Tensor | None:
    """Return a product that has few rows, columns or terms, if it has."""
    a, left = _as_it_lies(a, bool(node.params.get("transpose_a")))
    b, right = _as_it_lies(b, bool(node.params.get("transpose_b")))
    *batch, rows, columns = node.spec.shape
    inner = a.shape[-2 if left else -1]
    if not batch and _are_few(rows, inner, b):
        found = (_folded(b, x, b.shape[right - 2], not right) for x in _lines(a, left, rows, not right))
        return concat(*(_row(x, columns) for x in found), axis=0)
    if not batch and _are_few(columns, inner, a):
        found = (_folded(a, x, a.shape[-1 - left], left) for x in _lines(b, not right, columns, left))
        return concat(*(_column(x, rows) for x in found), axis=1)
    return _dot(node, a, b, left, right) if inner != 1 and _is_thin(graph, node, inner) else None


def _as_fold(node: Node, a: Tensor, b: Tensor) -> Tensor | None:
    """Return the elements of the product of `a` and `b` without one.

    Each matrix is gone through as it lies.
    """
    a, left = _as_it_lies(a, bool(node.params.get("transpose_a")))
    b, right = _as_it_lies(b, bool(node.params.get("transpose_b")))
    *batch, rows, columns = node.spec.shape
    inner = a.shape[-2 if left else -1]
    matrix = a if columns == 1 else b
    if inner == 1 and about(node.spec.size) >= LEAST:
        return mul(_column(a, rows), _row(b, columns))
    is_read_once = same_shape(bare(matrix.shape[:-2]), bare(tuple(batch)))
    if 1 not in (rows, columns) or not is_read_once or about(matrix.size) < LEAST:
        return None
    if node_of(matrix).op.kind is not Kind.ELEMENTWISE and about(node_of(matrix).spec.nbytes) >= MOST:
        return None
    if columns == 1:
        return _folded(a, b, inner, left)
    return _folded(b, a, inner, not right)


def _computed(value: Tensor) -> list[Node]:
    """Return what computes `value`, or the lines that it is put together of."""
    lines = inputs_of(value, CONCAT) or (value,)
    return [node_of((inputs_of(line, RESHAPE) or (line,))[0]) for line in lines]


def _are_few(lines: Any, inner: Any, matrix: Tensor) -> bool:
    """Return whether one pass over `matrix` takes no longer for so many vectors than for one, nearly."""
    few = type(lines) is int and 1 < lines <= LINES and matrix.dtype in TYPES
    return bool(few and about(matrix.size) >= LARGE and about(inner) >= LONG)


def _lines(x: Tensor, across: bool, count: int, as_columns: bool) -> list[Tensor]:
    """Return the rows of a matrix, or of its transpose, side by side if loops go along them."""
    length = x.shape[0 if across else 1]
    if across and as_columns:
        return [slice_(x, window=((0, length, 1), (k, k + 1, 1))) for k in range(count)]
    turned = transpose(x, axes=(1, 0)) if across else x
    flat = reshape(turned, shape=(count * length,))  # which copies what is across
    return [slice_(flat, window=((k * length, (k + 1) * length, 1),)) for k in range(count)]


def _is_thin(graph: Graph, node: Node, inner: Any) -> bool:
    """Return whether a product has so few terms that a kernel keeps them in registers and cache."""
    *batch, rows, columns = node.spec.shape
    few = type(inner) is int and inner <= THIN and about(node.spec.size) >= LEAST
    if not few or 1 in (rows, columns) or node.spec.dtype not in TYPES:
        return False
    wide: int = about(columns)
    is_folded = any(fold.inputs[0].spec.ndim - 1 in fold.params["axis"] for fold in _folds(graph, node))
    if batch:
        return is_folded or wide >= WIDE or wide * about(rows) <= SMALL
    if is_folded:
        return inner <= FUSED or wide <= TURNED
    if any(reader.op.kind in COMPUTING or reader.op is RESHAPE for reader in graph.readers[node]):
        return inner <= FUSED and wide >= (WIDE if inner <= LINES else LONG)
    return bool(inner <= LINES and wide >= ALONE * inner)


def _dot(node: Node, a: Tensor, b: Tensor, left: bool, right: bool) -> Tensor:
    """Return a product over the axes of its result."""
    own = [tuple(range(-x.ndim, -2)) for x in (a, b)]
    rows, columns = ((None, -2) if left else (-2, None)), ((-1, None) if right else (None, -1))
    return dot(a, b, along=((*own[0], *rows), (*own[1], *columns)))


def _as_it_lies(x: Tensor, transposed: bool) -> tuple[Tensor, bool]:
    """Return what `x` is the transpose of, if it is one, and whether the product takes that transposed."""
    source = inputs_of(x, TRANSPOSE)
    if source is None or node_of(x).params["axes"] != (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2):
        return x, transposed
    return source[0], not transposed


def _folded(matrix: Tensor, vector: Tensor, inner: Any, along_columns: bool) -> Tensor:
    products = mul(matrix, _column(vector, inner) if along_columns else _row(vector, inner))
    return reduce_sum(products, axis=(products.ndim - (2 if along_columns else 1),))


def _row(x: Tensor, length: Any) -> Tensor:
    return reshaped(x, (*x.shape[:-2], 1, length))


def _column(x: Tensor, length: Any) -> Tensor:
    return reshaped(x, (*x.shape[:-2], length, 1))
