"""Matrices as products of others."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from ...functional.complex_numbers import real
from ...ops.layout import reshape
from ...ops.linalg import decompositions as ops
from ...ops.linalg.linear_systems import adjoint, cholesky_, swapped
from ...tensor import Tensor
from ...tensor.apply import tensors


class QRResult(NamedTuple):
    """The result of `qr`.

    Examples
    --------
    >>> q, r = mgb.linalg.qr(mgb.tensor([[3.0, 1.0], [4.0, 2.0]]))
    >>> np.allclose((q @ r).numpy(), [[3, 1], [4, 2]])
    True
    """

    Q: Tensor
    R: Tensor


class SVDResult(NamedTuple):
    """The result of `svd`.

    Examples
    --------
    >>> mgb.linalg.svd(mgb.tensor([[3.0, 0.0], [0.0, -4.0]])).S
    Tensor([4., 3.], device=xpux:0)
    """

    U: Tensor
    S: Tensor
    Vh: Tensor


class EighResult(NamedTuple):
    """The result of `eigh`.

    Examples
    --------
    >>> mgb.linalg.eigh(mgb.tensor([[2.0, 0.0], [0.0, 3.0]])).eigenvalues
    Tensor([2., 3.], device=xpux:0)
    """

    eigenvalues: Tensor
    eigenvectors: Tensor


class EigResult(NamedTuple):
    """The result of `eig`.

    Examples
    --------
    >>> mgb.linalg.eig(mgb.tensor([[2.0, 0.0], [0.0, 3.0]])).eigenvalues.real
    Tensor([2., 3.], device=xpux:0)
    """

    eigenvalues: Tensor
    eigenvectors: Tensor


def _without_row(x: Tensor) -> Tensor:
    """Remove the row axis of numbers that are packed as one row."""
    return reshape(x, shape=(*x.shape[:-2], x.shape[-1]))


def cholesky(a: Any, /, *, upper: bool = False) -> Tensor:
    """Return the triangle `L` with ``L @ L.mT.conj() == a``, of positive definite matrices.

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

    Examples
    --------
    >>> mgb.linalg.cholesky(mgb.tensor([[4.0, 1.0], [1.0, 3.0]]))
    Tensor([[2.       , 0.       ],
            [0.5      , 1.6583124]], device=xpux:0)
    """
    (a,) = tensors("cholesky", (a,))
    return adjoint(cholesky_(adjoint(a))) if upper else cholesky_(a)


def qr(a: Any, mode: Literal["reduced", "complete", "r"] = "reduced") -> Any:
    """Factor ``a == Q @ R``, of orthogonal columns and an upper triangle.

    Parameters
    ----------
    a : Tensor of shape (..., m, n)
    mode : str
        ``"reduced"``: `Q` has min(m, n) columns. ``"complete"``: it has m, without a gradient where m > n.
        ``"r"``: `R` alone.

    Returns
    -------
    QRResult of `Q` and `R`, or the Tensor `R`

    Examples
    --------
    >>> q, r = mgb.linalg.qr(mgb.tensor([[3.0, 0.0], [4.0, 5.0]]))
    >>> q.shape, r.shape
    ((2, 2), (2, 2))
    """
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"qr: mode is 'reduced', 'complete' or 'r', not {mode!r}")
    (a,) = tensors("qr", (a,))
    packed = ops.qr_(a, complete=mode == "complete")
    height = a.shape[-2]
    r = swapped(ops.rows(packed, height, packed.shape[-2]))
    return r if mode == "r" else QRResult(ops.rows(packed, 0, height), r)


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """Factor ``a == U @ diag(S) @ Vh``: singular values, the greatest first, and orthogonal vectors.

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

    Examples
    --------
    >>> u, s, vh = mgb.linalg.svd(mgb.tensor([[0.0, 2.0], [3.0, 0.0]]))
    >>> s
    Tensor([3., 2.], device=xpux:0)
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
    s = real(ops.columns(ops.rows(packed, height, top), 0, count))
    return SVDResult(u, _without_row(s), swapped(v))


def svdvals(x: Any, /) -> Tensor:
    """Return the singular values of matrices, the greatest first.

    Examples
    --------
    >>> mgb.linalg.svdvals(mgb.tensor([[1.0, 2.0], [4.0, 3.0]]))
    Tensor([5.3983455, 0.9262097], device=xpux:0)
    """
    return ops.svdvals_(*tensors("svdvals", (x,)))


def _is_upper(name: str, UPLO: str) -> bool:
    if UPLO.upper() not in ("L", "U"):
        raise ValueError(f"{name}: UPLO is 'L' or 'U', not {UPLO!r}")
    return UPLO.upper() == "U"


def eigh(a: Any, UPLO: str = "L") -> EighResult:
    """Return the eigenvalues of symmetric matrices, ascending, and the vectors as columns.

    The gradient is that of a symmetric matrix, and symmetric.

    Parameters
    ----------
    a : Tensor of shape (..., n, n)
    UPLO : str
        Which triangle is read: ``"L"``, the lower one, or ``"U"``.

    Examples
    --------
    >>> values, vectors = mgb.linalg.eigh(mgb.tensor([[2.0, 1.0], [1.0, 2.0]]))
    >>> values
    Tensor([1., 3.], device=xpux:0)
    """
    values, vectors = ops.eigen_parts(ops.eigh_(*tensors("eigh", (a,)), upper=_is_upper("eigh", UPLO)))
    return EighResult(_without_row(real(values)), vectors)


def eigvalsh(a: Any, UPLO: str = "L") -> Tensor:
    """Return the eigenvalues of symmetric matrices, ascending; see `eigh`.

    Examples
    --------
    >>> mgb.linalg.eigvalsh(mgb.tensor([[1.0, 2.0], [4.0, 3.0]]))
    Tensor([-2.1231055,  6.1231055], device=xpux:0)
    """
    return ops.eigvalsh_(*tensors("eigvalsh", (a,)), upper=_is_upper("eigvalsh", UPLO))


def eig(a: Any) -> EigResult:
    """Return the eigenvalues of square matrices, in no order, and the vectors as columns, of length 1.

    Both are complex, also where all eigenvalues are real. Vectors may be turned by any angle: what depends on
    that has no gradient.

    Examples
    --------
    >>> values, vectors = mgb.linalg.eig(mgb.tensor([[2.0, 0.0], [0.0, 3.0]]))
    >>> sorted(values.real.tolist())
    [2.0, 3.0]
    """
    values, vectors = ops.eigen_parts(ops.eig_(*tensors("eig", (a,))))
    return EigResult(_without_row(values), vectors)


def eigvals(a: Any) -> Tensor:
    """Return the eigenvalues of square matrices, in no order, complex ones always; see `eig`.

    Examples
    --------
    >>> sorted(mgb.linalg.eigvals(mgb.tensor([[1.0, 2.0], [4.0, 3.0]])).real.round(3).tolist())
    [-1.0, 5.0]
    """
    return ops.eigvals_(*tensors("eigvals", (a,)))
