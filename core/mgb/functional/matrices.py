"""Parts of matrices: triangles and diagonals."""

from __future__ import annotations

import numpy as np

from .. import dtypes
from ..apply import literal
from ..errors import ShapeError
from ..ops.attention import below
from ..ops.creation import zeros
from ..ops.index import index_get, index_set
from ..ops.primitives import where
from ..tensor import Tensor

__all__ = ["diag", "tril", "triu"]


def tril(inp: Tensor, diagonal: int = 0) -> Tensor:
    """0 above a diagonal of the matrices in the last two axes; positive diagonals are above the main one."""
    return where(below(inp, diagonal), inp, literal(0, inp.dtype, inp.device))


def triu(inp: Tensor, diagonal: int = 0) -> Tensor:
    """0 below a diagonal of the matrices in the last two axes; positive diagonals are above the main one."""
    return where(below(inp, diagonal - 1), literal(0, inp.dtype, inp.device), inp)


def diag(inp: Tensor, k: int = 0) -> Tensor:
    """The `k`-th diagonal of a matrix, or the matrix whose `k`-th diagonal is a vector."""
    if inp.ndim == 1:
        size = inp.size + abs(k)
        places = literal(np.arange(inp.size), dtypes.int32, inp.device)
        rows, columns = places + max(-k, 0), places + max(k, 0)
        return index_set(zeros((size, size), inp.dtype, inp.device), inp, rows, columns, axes=(0, 1), place=0)
    if inp.ndim != 2:
        raise ShapeError(f"diag: a vector or a matrix is wanted, got shape {inp.shape}")
    length = max(0, min(inp.shape[0] + min(k, 0), inp.shape[1] - max(k, 0)))
    places = literal(np.arange(length), dtypes.int32, inp.device)
    return index_get(inp, places + max(-k, 0), places + max(k, 0), axes=(0, 1), place=0)
