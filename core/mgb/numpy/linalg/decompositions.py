"""Matrices as products of others."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from ...apply import tensors
from ...ops import decompositions as ops
from ...ops.layout import reshape
from ...ops.linear_systems import cholesky_, swapped
from ...tensor import Tensor


class QRResult(NamedTuple):
    """What `qr` gives."""

    Q: Tensor
    R: Tensor


class SVDResult(NamedTuple):
    """What `svd` gives."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class EighResult(NamedTuple):
    """What `eigh` gives."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EigResult(NamedTuple):
    """What `eig` gives."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def _without_row(x: Tensor) -> Tensor:
    """Numbers that are packed as one row."""
    return reshape(x, shape=(*x.shape[:-2], x.shape[-1]))


def cholesky(a: Any, /, *, upper: bool = False) -> Tensor:
    """The triangle `L` with ``L @ L.T == a``, of positive definite matrices.

    The gradient is that of a symmetric matrix, and symmetric.

    Parameters
    ----------
    a : Tensor of shape (..., n, n)
        Symmetric: only one triangle is read.
    upper : bool
        Read the upper triangle, and give the upper one.

    Raises
    ------
    LinAlgError
        A matrix is not positive definite.
    """
    (a,) = tensors("cholesky", (a,))
    return swapped(cholesky_(swapped(a))) if upper else cholesky_(a)


def qr(a: Any, mode: Literal["reduced", "complete", "r"] = "reduced") -> Any:
    """``a == Q @ R``, of orthogonal columns and an upper triangle.

    Parameters
    ----------
    a : Tensor of shape (..., m, n)
    mode : str
        ``"reduced"``: `Q` has min(m, n) columns. ``"complete"``: it has m, without a gradient where m > n.
        ``"r"``: `R` alone.

    Returns
    -------
    QRResult of `Q` and `R`, or the Tensor `R`
    """
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"qr: mode is 'reduced', 'complete' or 'r', not {mode!r}")
    (a,) = tensors("qr", (a,))
    packed = ops.qr_(a, complete=mode == "complete")
    height = a.shape[-2]
    r = swapped(ops.rows(packed, height, packed.shape[-2]))
    return r if mode == "r" else QRResult(ops.rows(packed, 0, height), r)


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """``a == U @ diag(S) @ Vh``: singular values, the greatest first, and orthogonal vectors.

    Parameters
    ----------
    a : Tensor of shape (..., m, n)
    full_matrices : bool
        `U` and `Vh` are square; gradients of vectors beyond the first min(m, n), which are any base, count
        as 0.
    compute_uv : bool
        False: the values alone.
    hermitian : bool
        NumPy's hint that `a` is symmetric; the general algorithm serves it.

    Returns
    -------
    SVDResult of `U`, `S` and `Vh`, or the Tensor `S`
    """
    if not compute_uv:
        return svdvals(a)
    (a,) = tensors("svd", (a,))
    height, width = a.shape[-2:]
    packed = ops.svd_(a, full=bool(full_matrices))
    count, top = min(height, width), height + 1
    u, v = ops.rows(packed, 0, height), ops.rows(packed, top, top + width)
    if full_matrices:
        u, v = ops.columns(u, 0, height), ops.columns(v, 0, width)
    s = ops.columns(ops.rows(packed, height, top), 0, count)
    return SVDResult(u, _without_row(s), swapped(v))


def svdvals(x: Any, /) -> Tensor:
    """The singular values of matrices, the greatest first."""
    return ops.svdvals_(*tensors("svdvals", (x,)))


def _is_upper(name: str, UPLO: str) -> bool:
    if UPLO.upper() not in ("L", "U"):
        raise ValueError(f"{name}: UPLO is 'L' or 'U', not {UPLO!r}")
    return UPLO.upper() == "U"


def eigh(a: Any, UPLO: str = "L") -> EighResult:
    """The eigenvalues of symmetric matrices, ascending, and the vectors as columns.

    The gradient is that of a symmetric matrix, and symmetric.

    Parameters
    ----------
    a : Tensor of shape (..., n, n)
    UPLO : str
        Which triangle is read: ``"L"``, the lower one, or ``"U"``.
    """
    values, vectors = ops.eigen_parts(ops.eigh_(*tensors("eigh", (a,)), upper=_is_upper("eigh", UPLO)))
    return EighResult(_without_row(values), vectors)


def eigvalsh(a: Any, UPLO: str = "L") -> Tensor:
    """The eigenvalues of symmetric matrices, ascending; see `eigh`."""
    return ops.eigvalsh_(*tensors("eigvalsh", (a,)), upper=_is_upper("eigvalsh", UPLO))


def eig(a: Any) -> EigResult:
    """The eigenvalues of square matrices, in no order, and the vectors as columns, of length 1.

    Raises
    ------
    LinAlgError
        Some eigenvalues are complex: ask for those of ``a.numpy()``.
    """
    values, vectors = ops.eigen_parts(ops.eig_(*tensors("eig", (a,))))
    return EigResult(_without_row(values), vectors)


def eigvals(a: Any) -> Tensor:
    """The eigenvalues of square matrices, in no order; see `eig`."""
    return ops.eigvals_(*tensors("eigvals", (a,)))
