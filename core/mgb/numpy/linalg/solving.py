"""Equations, inverses and determinants."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from ml_dtypes import finfo

from ...errors import ShapeError
from ...functional import math, tensor
from ...functional.complex_numbers import is_complex
from ...ir import dtypes
from ...ops.declare import normalize_axis
from ...ops.layout import cut_along, reshape, transpose
from ...ops.linalg import linear_systems as ops
from ...ops.primitives import cast, lt, where
from ...tensor import Tensor
from ...tensor.apply import tensors
from .decompositions import svd, svdvals


class SlogdetResult(NamedTuple):
    """The result of `slogdet`.

    Examples
    --------
    >>> sign, logabsdet = mgb.linalg.slogdet(mgb.tensor([[0.0, 2.0], [3.0, 0.0]]))
    >>> (sign * F.exp(logabsdet)).item()
    -6.0
    """

    sign: Tensor
    logabsdet: Tensor


class LstsqResult(NamedTuple):
    """The result of `lstsq`.

    Examples
    --------
    >>> mgb.linalg.lstsq(mgb.tensor([[1.0], [1.0]]), mgb.tensor([1.0, 3.0])).x
    Tensor([2.], device=xpux:0)
    """

    x: Tensor
    residuals: Tensor
    rank: Tensor
    s: Tensor


def _columns(b: Tensor) -> Tensor:
    """Return a vector as one column."""
    return reshape(b, shape=(*b.shape, 1)) if b.ndim == 1 else b


def _like(x: Tensor, b: Tensor) -> Tensor:
    """Return the columns `x` as a vector, where `b` was one."""
    return reshape(x, shape=x.shape[:-1]) if b.ndim == 1 else x


def solve(a: Any, b: Any) -> Tensor:
    """Return the `x` with ``a @ x == b``.

    Parameters
    ----------
    a : Tensor of shape (..., n, n)
    b : Tensor of shape (n,) or (..., n, k)
        Only one axis makes it a vector, as in NumPy 2.

    Returns
    -------
    Tensor of shape (..., n) or (..., n, k)

    Raises
    ------
    LinAlgError
        A matrix is singular; where CuPy computes, the result is NaN instead.
    ShapeError
        The shapes do not fit.

    Examples
    --------
    >>> mgb.linalg.solve(mgb.tensor([[2.0, 0.0], [0.0, 4.0]]), mgb.tensor([2.0, 8.0]))
    Tensor([1., 2.], device=xpux:0)
    """
    a, b = tensors("solve", (a, b))
    return _like(ops.solve_(a, _columns(b)), b)


def solve_triangular(
    A: Any, B: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """Return the `X` with ``A @ X == B``, where `A` is a triangle; torch's arguments.

    Parameters
    ----------
    A : Tensor of shape (..., n, n)
        What lies beyond the triangle is not read.
    B : Tensor of shape (..., n, k), or (..., k, n) if not `left`
    upper : bool
        Which triangle: above the diagonal, or below.
    left : bool
        False: the `X` with ``X @ A == B``.
    unitriangular : bool
        The diagonal counts as 1 and is not read.

    Raises
    ------
    LinAlgError
        There is a 0 on the diagonal.

    Examples
    --------
    >>> A, B = mgb.tensor([[2.0, 1.0], [0.0, 4.0]]), mgb.tensor([[4.0], [8.0]])
    >>> mgb.linalg.solve_triangular(A, B, upper=True)
    Tensor([[1.],
            [2.]], device=xpux:0)
    """
    A, B = tensors("solve_triangular", (A, B))
    if left:
        return ops.solve_triangular_(A, B, lower=not upper, unit_diagonal=bool(unitriangular))
    turned = ops.solve_triangular_(
        ops.swapped(A), ops.swapped(B), lower=bool(upper), unit_diagonal=bool(unitriangular)
    )
    return ops.swapped(turned)


def inv(a: Any) -> Tensor:
    """Return the inverses of square matrices; `LinAlgError` where there is none.

    Examples
    --------
    >>> mgb.linalg.inv(mgb.tensor([[1.0, 2.0], [4.0, 3.0]]))
    Tensor([[-0.6,  0.4],
            [ 0.8, -0.2]], device=xpux:0)
    """
    return ops.inv_(*tensors("inv", (a,)))


def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Tensor:
    """Return the pseudo-inverses of Moore and Penrose.

    Parameters
    ----------
    a : Tensor of shape (..., m, n)
    rcond, rtol : float or Tensor of shape (...), optional
        Singular values up to this times the greatest count as 0; by default the larger of `m` and `n` times
        the precision of the dtype, as in the array API. NumPy's own default, 1e-15, is one for float64 alone.
    hermitian : bool
        NumPy's hint that `a` is symmetric; the result is the same.

    Returns
    -------
    Tensor of shape (..., n, m)

    Examples
    --------
    >>> mgb.linalg.pinv(mgb.tensor([[1.0, 2.0], [4.0, 3.0]]))
    Tensor([[-0.59999996,  0.39999998],
            [ 0.79999995, -0.19999999]], device=xpux:0)
    """
    least = rcond if rtol is None else rtol
    if not isinstance(least, Tensor):
        return ops.pinv_(*tensors("pinv", (a,)), rcond=None if least is None else float(least))
    u, s, vh = svd(a, full_matrices=False)
    counts = lt(_share_of_greatest(s, least), s)
    inverse = reshape(where(counts, 1 / where(counts, s, 1), 0), shape=(*s.shape[:-1], 1, s.shape[-1]))
    return ops.product(ops.adjoint(vh) * inverse, ops.adjoint(u))


def det(a: Any) -> Tensor:
    """Return the determinants of square matrices; singular ones have right gradients too.

    Examples
    --------
    >>> mgb.linalg.det(mgb.tensor([[1.0, 2.0], [4.0, 3.0]]))
    Tensor(-5., device=xpux:0)
    """
    return ops.det_(*tensors("det", (a,)))


def slogdet(a: Any) -> SlogdetResult:
    """Return the sign of the determinant, and the logarithm of its magnitude: minus infinity where it is 0.

    Examples
    --------
    >>> sign, size = mgb.linalg.slogdet(mgb.tensor([[0.0, 1.0], [1.0, 0.0]]))
    >>> sign.item(), size.item()
    (-1.0, 0.0)
    """
    both = ops.slogdet_(*tensors("slogdet", (a,)))
    last = both.ndim - 1
    sign, magnitude = (reshape(cut_along(both, last, i, i + 1), shape=both.shape[:-1]) for i in (0, 1))
    return SlogdetResult(sign, magnitude.real if is_complex(magnitude) else magnitude)


def lstsq(a: Any, b: Any, rcond: float | None = None) -> LstsqResult:
    """Return the shortest `x` that makes the squares of ``a @ x - b`` least.

    Parameters
    ----------
    a : Tensor of shape (..., m, n)
    b : Tensor of shape (m,) or (..., m, k)
    rcond : float, optional
        Singular values up to this times the greatest count as 0; by default the larger of `m` and `n` times
        the precision of the dtype.

    Returns
    -------
    x, residuals, rank, s : Tensor
        The solution, of shape (..., n) or (..., n, k); the sums of squares that are left, one for each
        column where `m` is greater than `n`, else none: their shape does not depend on the rank, as NumPy's
        does; the rank; the singular values.

    Examples
    --------
    >>> mgb.linalg.lstsq(mgb.tensor([[1.0], [1.0]]), mgb.tensor([1.0, 3.0]))[0].tolist()
    [2.0]
    """
    a, b = tensors("lstsq", (a, b))
    goal = _columns(b)
    x = ops.lstsq_(a, goal, rcond=None if rcond is None else float(rcond))
    height, width = a.shape[-2:]
    if height > width:
        left = ops.product(a, x) - goal
        residuals = math.sum(left * left, -2)
    else:
        residuals = tensor.zeros((*x.shape[:-2], 0), x.dtype, x.device)
    s = svdvals(a)
    return LstsqResult(_like(x, b), residuals, rank_of(s, max(height, width), rcond), s)


def _share_of_greatest(s: Tensor, share: Any) -> Tensor:
    """Return `share`, one number or one for each row of singular values, of the greatest in the row."""
    if isinstance(share, Tensor):
        share = reshape(share, shape=(*share.shape, 1)).astype(s.dtype)
    part: Tensor = cut_along(s, s.ndim - 1, 0, min(s.shape[-1], 1)) * share
    return part


def rank_of(s: Tensor, longer: int, share: Any) -> Tensor:
    """Count the singular values that are greater than `share` of the greatest.

    Without it, those that rounding does not explain, of matrices whose longer side is `longer`.
    """
    least = _share_of_greatest(s, longer if share is None else share)
    if share is None:
        least = least * float(finfo(s.dtype).eps)  # type: ignore[no-untyped-call]
    return math.sum(cast(lt(least, s), dtype=dtypes.int32), -1).astype("int32")


def tensorsolve(a: Any, b: Any, axes: Sequence[int] | None = None) -> Tensor:
    """Return the `x` with ``tensordot(a, x, x.ndim) == b``.

    Parameters
    ----------
    a : Tensor
        Its first axes are those of `b`, and the others multiply to the size of `b`.
    b : Tensor
    axes : sequence of int, optional
        Axes of `a` to be put last first.

    Examples
    --------
    >>> mgb.linalg.tensorsolve(2 * F.eye(4).reshape(2, 2, 2, 2), F.ones((2, 2)))
    Tensor([[0.5, 0.5],
            [0.5, 0.5]], device=xpux:0)
    """
    a, b = tensors("tensorsolve", (a, b))
    if axes is not None:
        gone = [normalize_axis("tensorsolve", axis, a.ndim)[0] for axis in axes]
        a = transpose(a, axes=(*(i for i in range(a.ndim) if i not in gone), *gone))
    shape = a.shape[b.ndim :]
    if prod(shape) != b.size or a.size != b.size * b.size:
        raise ShapeError(
            f"tensorsolve: a of shape {a.shape} must be a square matrix for b of shape {b.shape}"
        )
    matrix = reshape(a, shape=(b.size, b.size))
    return reshape(solve(matrix, reshape(b, shape=(b.size,))), shape=shape)


def tensorinv(a: Any, ind: int = 2) -> Tensor:
    """Return the inverse for ``tensordot(inverse, b, ind)``; the first `ind` axes of `a` are a matrix's rows.

    Examples
    --------
    >>> mgb.linalg.tensorinv(2 * F.eye(6).reshape(2, 3, 6)).shape
    (6, 2, 3)
    """
    (a,) = tensors("tensorinv", (a,))
    if ind < 1:
        raise ShapeError(f"tensorinv: ind must be at least 1, got {ind}")
    above, beside = a.shape[:ind], a.shape[ind:]
    if prod(above) != prod(beside):
        raise ShapeError(
            f"tensorinv: the first {ind} axes of {a.shape} must have as many elements as the others"
        )
    return reshape(inv(reshape(a, shape=(prod(above), prod(beside)))), shape=(*beside, *above))
