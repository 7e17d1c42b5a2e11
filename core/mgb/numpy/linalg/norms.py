"""Norms of vectors and matrices, and what singular values tell: condition and rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...functional import math
from ...ir import dtypes
from ...ops import elementwise as e
from ...ops.declare import normalize_axis
from ...ops.layout import reshape, transpose
from ...ops.primitives import cast, eq, lt, where
from ...tensor import Tensor
from ...tensor.apply import tensors
from .decompositions import svdvals
from .solving import inv, rank_of

Order = float | str | None


def _floats(name: str, x: Any) -> Tensor:
    (x,) = tensors(name, (x,))
    return x if x.dtype in dtypes.INEXACT else cast(x, dtype=dtypes.float32)


def norm(x: Any, ord: Order = None, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return the norm of vectors or matrices, as ``np.linalg.norm``.

    Parameters
    ----------
    x : Tensor
    ord : float or str, optional
        Of vectors p, inf or -inf, or 0, which counts what is not 0. Of matrices ``"fro"``, ``"nuc"``, the
        sum of the singular values, 2 and -2, the greatest and the least of them, 1, -1, inf or -inf.
    axis : int or pair of int, optional
        One axis has vectors, two have matrices. None is all axes; with an `ord` there are at most two.
    keepdims : bool
        Keep the axes with length 1.

    Examples
    --------
    >>> mgb.linalg.norm(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor(2.236068, device=xpux:0)
    """
    x = _floats("norm", x)
    if ord is None:
        return math.norm(x, None, axis, keepdims)
    if axis is None and x.ndim > 2:
        raise ShapeError(
            f"norm: ord={ord!r} needs one axis (vectors) or two (matrices) of shape {x.shape}: give axis"
        )
    chosen = tuple(range(x.ndim)) if axis is None else axis
    if not isinstance(chosen, Sequence) or len(chosen) == 1:
        return _vector_norm(x, ord, chosen, keepdims)
    if len(chosen) != 2:
        raise ShapeError(f"norm: axis must have one or two axes, got {len(chosen)} of shape {x.shape}")
    first, second = (normalize_axis("norm", i, x.ndim)[0] for i in chosen)
    if first == second:
        raise ShapeError(f"norm: axis has {first} twice: give two different axes")
    found = _matrix_norm(x, ord, first, second)
    axes = (first, second)
    return (
        reshape(found, shape=tuple(1 if i in axes else d for i, d in enumerate(x.shape)))
        if keepdims
        else found
    )


def _vector_norm(x: Tensor, ord: Order, axis: Any, keepdims: bool) -> Tensor:
    if isinstance(ord, str):
        raise ValueError(f"norm: ord of vectors must be a number, got {ord!r}")
    return math.norm(x, ord, axis, keepdims).astype(dtypes.real_of(x.dtype))


#: What the matrix norm of an order makes of magnitudes: the axis of the sums, rows or columns, and the fold.
_SUMMED: dict[Any, tuple[int, Callable[..., Tensor]]] = {
    1: (0, math.max),
    -1: (0, math.min),
    np.inf: (1, math.max),
    -np.inf: (1, math.min),
}

#: And of singular values.
_SPECTRAL: dict[Any, Callable[..., Tensor]] = {2: math.max, -2: math.min, "nuc": math.sum}


def _matrix_norm(x: Tensor, ord: Order, rows: int, columns: int) -> Tensor:
    if ord == "fro":
        return math.norm(x, None, (rows, columns))
    x = transpose(x, axes=(*(i for i in range(x.ndim) if i not in (rows, columns)), rows, columns))
    if ord in _SPECTRAL:
        return _SPECTRAL[ord](svdvals(x), -1)
    if ord not in _SUMMED:
        raise ValueError(
            f"norm: ord of matrices must be 'fro', 'nuc', 2, -2, 1, -1, inf or -inf, got {ord!r}"
        )
    side, fold = _SUMMED[ord]
    return fold(math.sum(e.abs(x), x.ndim - 2 + side), -1)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """Return the norm of what stands along `axis`, of one or more axes, as one vector; None is all of them.

    Examples
    --------
    >>> mgb.linalg.vector_norm(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor(2.236068, device=xpux:0)
    """
    return _vector_norm(_floats("vector_norm", x), ord, axis, keepdims)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Order = "fro") -> Tensor:
    """Return the norm of the matrices in the last two axes; see `norm`.

    Examples
    --------
    >>> mgb.linalg.matrix_norm(mgb.tensor([[1.0, 2.0], [4.0, 3.0]]))
    Tensor(5.477226, device=xpux:0)
    """
    return norm(x, "fro" if ord is None else ord, (-2, -1), keepdims)


def cond(x: Any, p: Order = None) -> Tensor:
    """Return the condition number: the norm times that of the inverse.

    Parameters
    ----------
    x : Tensor of shape (..., m, n)
        Square, unless `p` is None, 2 or -2.
    p : float or str, optional
        Of the norm: see `norm`. None is 2.

    Raises
    ------
    LinAlgError
        A matrix is singular, and `p` is not None, 2 or -2, of which the condition is infinite or 0.

    Examples
    --------
    >>> mgb.linalg.cond(mgb.tensor([[1.0, 2.0], [4.0, 3.0]]))
    Tensor(5.828427, device=xpux:0)
    """
    x = _floats("cond", x)
    if p in (None, 2, -2):
        s = svdvals(x)
        out = s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    else:
        out = matrix_norm(x, ord=p) * matrix_norm(inv(x), ord=p)
    known = math.all(eq(x, x), (-2, -1))
    return where(e.isnan(out) & known, np.inf, out)


def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Tensor:
    """Count the singular values that are greater than a bound, as int32.

    Parameters
    ----------
    A : Tensor of shape (..., m, n)
        A vector has rank 1, or 0 if all its elements are 0.
    tol : float or Tensor of shape (...), optional
        The bound.
    hermitian : bool
        NumPy's hint that `A` is symmetric; the result is the same.
    rtol : float or Tensor of shape (...), optional
        The bound as a share of the greatest singular value; by default the larger of `m` and `n` times the
        precision of the dtype.

    Examples
    --------
    >>> mgb.linalg.matrix_rank(mgb.tensor([[1.0, 2.0], [2.0, 4.0]]))
    Tensor(1, dtype=int32, device=xpux:0)
    """
    A = _floats("matrix_rank", A)
    if A.ndim < 2:
        return cast(math.any(A), dtype=dtypes.int32)
    s = svdvals(A)
    if tol is not None:
        (bound,) = tensors("matrix_rank", (tol,))
        above = lt(reshape(bound, shape=(*bound.shape, 1)), s)
        return math.sum(above, -1).astype("int32")
    return rank_of(s, max(A.shape[-2:]), rtol)
