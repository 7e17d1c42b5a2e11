"""Products of matrices, and their parts: triangles and diagonals."""

from __future__ import annotations

import numpy as np

from ..errors import ShapeError
from ..ir import dtypes
from ..ops.creation import zeros
from ..ops.images.attention import below
from ..ops.images.contract import matmul as matmul_op
from ..ops.index import index_get, index_set
from ..ops.layout import transpose
from ..ops.operators import product
from ..ops.primitives import where
from ..tensor import Tensor
from ..tensor.apply import literal, tensors
from .options import COMPUTE_MODES, choice

__all__ = ["diag", "dot", "matmul", "tril", "triu"]


def matmul(
    inp1: Tensor,
    inp2: Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    compute_mode: str = "default",
) -> Tensor:
    """Multiply matrices; leading axes are batches and broadcast, vectors are rows or columns as in NumPy.

    Parameters
    ----------
    inp1, inp2 : Tensor
    transpose_a, transpose_b : bool
        Swap the last two axes of that operand first.
    compute_mode : str
        ``"default"`` or ``"float32"``: 16-bit floats are summed in float32 by either.

    Raises
    ------
    ShapeError
        The inner lengths differ; the message names both shapes.
    ValueError
        `mode` is not one of the known modes.

    Examples
    --------
    >>> F.matmul(mgb.tensor([1.0, -2.0]), mgb.tensor([3.0, 0.5]))
    Tensor(2., device=xpux:0)
    """
    if compute_mode != "default":
        choice("matmul, compute_mode", compute_mode, COMPUTE_MODES)
    inp1, inp2 = tensors("matmul", (inp1, inp2))
    if inp1.ndim >= 2 and inp2.ndim >= 2:
        return matmul_op(inp1, inp2, transpose_a=transpose_a, transpose_b=transpose_b)
    return product(_swapped(inp1) if transpose_a else inp1, _swapped(inp2) if transpose_b else inp2)


def _swapped(x: Tensor) -> Tensor:
    axes = (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2) if x.ndim >= 2 else (0,)
    return transpose(x, axes=axes)


def dot(inp1: Tensor, inp2: Tensor) -> Tensor:
    """Return the inner product of two vectors.

    Raises
    ------
    ShapeError
        An operand is not a vector, or the lengths differ.

    Examples
    --------
    >>> F.dot(mgb.tensor([1.0, -2.0]), mgb.tensor([3.0, 0.5]))
    Tensor(2., device=xpux:0)
    """
    if inp1.ndim > 1 or inp2.ndim > 1:
        raise ShapeError(f"dot: takes vectors, got shapes {inp1.shape} and {inp2.shape}; see matmul")
    return product(inp1, inp2) if inp1.ndim and inp2.ndim else inp1 * inp2


def tril(inp: Tensor, diagonal: int = 0) -> Tensor:
    """Zero the elements above a diagonal of the matrices in the last two axes; positive ones are further up.

    Examples
    --------
    >>> F.tril(mgb.tensor([[1.0, 2.0], [4.0, 3.0]]))
    Tensor([[1., 0.],
            [4., 3.]], device=xpux:0)
    """
    return where(below(inp, diagonal), inp, literal(0, inp.dtype, inp.device))


def triu(inp: Tensor, diagonal: int = 0) -> Tensor:
    """Zero the elements below a diagonal of the matrices in the last two axes; positive ones are further up.

    Examples
    --------
    >>> F.triu(mgb.tensor([[1.0, 2.0], [4.0, 3.0]]))
    Tensor([[1., 2.],
            [0., 3.]], device=xpux:0)
    """
    return where(below(inp, diagonal - 1), literal(0, inp.dtype, inp.device), inp)


def diag(inp: Tensor, k: int = 0) -> Tensor:
    """Return the `k`-th diagonal of a matrix, or the matrix whose `k`-th diagonal is a vector.

    Examples
    --------
    >>> F.diag(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([[-1.,  0.,  0.],
            [ 0.,  0.,  0.],
            [ 0.,  0.,  2.]], device=xpux:0)
    """
    if inp.ndim == 1:
        size = inp.size + abs(k)
        places = literal(np.arange(inp.size), dtypes.int32, inp.device)
        rows, columns = places + max(-k, 0), places + max(k, 0)
        return index_set(zeros((size, size), inp.dtype, inp.device), inp, rows, columns, axes=(0, 1), place=0)
    if inp.ndim != 2:
        raise ShapeError(f"diag: needs a vector or a matrix, got shape {inp.shape}")
    length = max(0, min(inp.shape[0] + min(k, 0), inp.shape[1] - max(k, 0)))
    places = literal(np.arange(length), dtypes.int32, inp.device)
    return index_get(inp, places + max(-k, 0), places + max(k, 0), axes=(0, 1), place=0)
