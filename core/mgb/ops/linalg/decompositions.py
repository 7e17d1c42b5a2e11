"""Matrices as products of others: orthogonal and triangular ones, singular values, eigenvalues.

An op has one result, and a library computes all factors at once: they are *packed*, rows under rows, and
slices take them apart. The gradients of vectors divide by differences of singular values or eigenvalues: they
are infinite or NaN where two are equal, unless nothing depends on the vectors. Of complex matrices the
vectors may be turned by any angle: a result that depends on it has no gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import NoGradientError
from ...ir import Spec, dtypes
from ...tensor import Tensor
from ..elementwise import conj
from ..images.attention import below
from ..images.contract import matmul
from ..layout import concat, cut_along, reshape
from ..primitives import complex, eq, real, where
from ..reduce import reduce_sum
from .linear_systems import (
    adjoint,
    check_matrix,
    check_square,
    declare_library,
    held,
    on_diagonal,
    product,
    solve_,
    solve_triangular_,
    swapped,
)

Shape = tuple[int, ...]


def rows(x: Tensor, start: int, stop: int) -> Tensor:
    """Return some rows of the matrices in `x`."""
    return cut_along(x, x.ndim - 2, start, stop)


def columns(x: Tensor, start: int, stop: int) -> Tensor:
    """Return some columns of the matrices in `x`."""
    return cut_along(x, x.ndim - 1, start, stop)


def _packed(*parts: Any) -> Any:
    """Stack matrices of the same number of rows into one, filled up with 0 to one width."""
    width, height = max(p.shape[-1] for p in parts), sum(p.shape[-2] for p in parts)
    shape = (*parts[0].shape[:-2], height, width)
    out, top = np.zeros_like(parts[0], dtype=np.result_type(*(p.dtype for p in parts)), shape=shape), 0
    for part in parts:
        out[..., top : top + part.shape[-2], : part.shape[-1]] = part
        top += part.shape[-2]
    return out


def _over(x: Tensor, gap: Tensor) -> Tensor:
    """Return ``x / gap``, and 0 where both are 0, where there is nothing to divide."""
    nothing = eq(x, 0) & eq(gap, 0)
    return where(nothing, 0, x) / where(nothing, 1, gap)


def _beside_diagonal(x: Tensor) -> Tensor:
    """Return `x` with 0 on the diagonal."""
    return where(on_diagonal(x), 0, x)


def _skew(x: Tensor) -> Tensor:
    return x - adjoint(x)


# Q R


def _qr_infer(a: Spec, complete: bool) -> Spec:
    check_matrix("qr", a)
    height, width = a.shape[-2:]
    return Spec((*a.shape[:-2], height + width, height if complete else min(height, width)), a.dtype)


def _qr(a: Any, complete: bool) -> Any:
    q, r = np.linalg.qr(a, mode="complete" if complete else "reduced")
    return _packed(q, r.swapaxes(-1, -2))


def _qr_grad(g: Tensor, y: Tensor, a: Tensor, complete: bool) -> tuple[Tensor]:
    """Return the gradient of Seeger et al., "Auto-differentiating linear algebra" (2017).

    Of a matrix wider than high the square on the left has the same `q`, and the rest is ``q @ r`` of its own.
    """
    height, width = a.shape[-2:]
    if complete and height > width:
        raise NoGradientError(
            f"qr: the gradient of mode='complete' requires rows <= columns, got {height} x {width}"
        )
    y = held(y)
    q, r = rows(y, 0, height), swapped(rows(y, height, height + width))
    dq, dr = rows(g, 0, height), swapped(rows(g, height, height + width))
    if width > height:
        rest = columns(dr, height, width)
        dq = dq + matmul(columns(held(a), height, width), adjoint(rest))
        square = _square_qr_grad(q, columns(r, 0, height), dq, columns(dr, 0, height))
        return (concat(square, matmul(q, rest), axis=a.ndim - 1),)
    return (_square_qr_grad(q, r, dq, dr),)


def _square_qr_grad(q: Tensor, r: Tensor, dq: Tensor, dr: Tensor) -> Tensor:
    inner = matmul(r, adjoint(dr)) - matmul(adjoint(dq), q)
    below_it = where(below(inner, -1), inner, 0)  # on both sides, and what is real of the diagonal
    mirrored = below_it + adjoint(below_it) + where(on_diagonal(inner), inner + held(inner), 0) * 0.5
    found = solve_triangular_(r, adjoint(dq + matmul(q, mirrored)), lower=False, unit_diagonal=False)
    return adjoint(found)


qr_ = declare_library(
    "qr",
    _qr_infer,
    _qr,
    _qr_grad,
    meaning="`q` over the transpose of `r`, as many columns as `q` has.",
)


# singular values


def _svd_infer(a: Spec, full: bool) -> Spec:
    check_matrix("svd", a)
    height, width = a.shape[-2:]
    count = max(height, width) if full else min(height, width)
    return Spec((*a.shape[:-2], height + 1 + width, count), a.dtype)


def _svd(a: Any, full: bool) -> Any:
    u, s, vh = np.linalg.svd(a, full_matrices=full)
    return _packed(u, s[..., None, :], vh.swapaxes(-1, -2))


def svd_parts(y: Tensor, shape: Shape) -> tuple[Tensor, Tensor, Tensor]:
    """Unpack `svd_`: `u`, the values as one row, the conjugate of `v`, each with a column for each value."""
    height, width = shape[-2:]
    y = columns(y, 0, min(height, width))
    top = height + 1
    return rows(y, 0, height), rows(y, height, top), rows(y, top, top + width)


def _svd_grad(g: Tensor, y: Tensor, a: Tensor, full: bool) -> tuple[Tensor]:
    """Return the gradient of Townsend, "Differentiating the singular value decomposition" (2016).

    Vectors beyond the number of values are any base of what is left: gradients of these count as 0.
    """
    height, width = a.shape[-2:]
    (u, s, v), (du, ds, dv) = svd_parts(held(y), a.shape), svd_parts(g, a.shape)
    v, dv, column = held(v), held(dv), swapped(s)
    gap = (s - column) * (s + column)
    left, right = matmul(adjoint(u), du), matmul(adjoint(v), dv)
    turned, back = _skew(left), _skew(right)
    inner = _over(_beside_diagonal(turned), gap) * s + column * _over(_beside_diagonal(back), gap)
    along = ds if a.dtype not in dtypes.COMPLEX else complex(real(ds), real(ds) * 0)
    inner = inner + where(on_diagonal(inner), along, 0)
    if a.dtype in dtypes.COMPLEX:
        inner = inner + _over(where(on_diagonal(turned), turned, 0), s * 2)
    out = product(u, inner, adjoint(v))
    if height > width:
        out = out + matmul(_over(du - matmul(u, left), s), adjoint(v))
    if width > height:
        out = out + matmul(u, adjoint(_over(dv - matmul(v, right), s)))
    return (out,)


svd_ = declare_library(
    "svd",
    _svd_infer,
    _svd,
    _svd_grad,
    meaning="`u` over the singular values over the conjugate of `v`; in full, both are square.",
)


def _svdvals_infer(a: Spec) -> Spec:
    check_matrix("svdvals", a)
    return Spec((*a.shape[:-2], min(a.shape[-2:])), dtypes.real_of(a.dtype))


def _row(x: Tensor) -> Tensor:
    return x.reshape((*x.shape[:-1], 1, x.shape[-1]))


def _svdvals_grad(g: Tensor, _y: Spec, a: Tensor) -> tuple[Tensor]:
    u, _, v = svd_parts(svd_(held(a), full=False), a.shape)
    return (matmul(u * _row(g), v, transpose_b=True),)


svdvals_ = declare_library(
    "svdvals",
    _svdvals_infer,
    lambda a: np.linalg.svd(a, compute_uv=False),
    _svdvals_grad,
    meaning="The singular values, the greatest first.",
)


# eigenvalues of symmetric matrices


def _eigh_infer(a: Spec, upper: bool) -> Spec:
    check_square("eigh", a)
    return Spec((*a.shape[:-2], a.shape[-1] + 1, a.shape[-1]), a.dtype)


def _eigh(a: Any, upper: bool) -> Any:
    values, vectors = np.linalg.eigh(a, "U" if upper else "L")
    return _packed(values[..., None, :], vectors)


def eigen_parts(y: Tensor) -> tuple[Tensor, Tensor]:
    """Unpack `eigh_`: the eigenvalues as one row, and the vectors."""
    return rows(y, 0, 1), rows(y, 1, y.shape[-1] + 1)


def _eigh_grad(g: Tensor, y: Tensor, _a: Spec, upper: bool) -> tuple[Tensor]:
    """Return the gradient of Giles (2008), section 3.1; of a symmetric matrix, symmetric."""
    (values, vectors), (dvalues, dvectors) = eigen_parts(held(y)), eigen_parts(g)
    turned = _beside_diagonal(_skew(matmul(adjoint(vectors), dvectors)) * 0.5)
    dvalues = complex(real(dvalues), real(dvalues) * 0) if y.dtype in dtypes.COMPLEX else dvalues
    inner = _over(turned, values - swapped(values))
    inner = inner + where(on_diagonal(inner), dvalues, 0)
    return (product(vectors, inner, adjoint(vectors)),)


eigh_ = declare_library(
    "eigh",
    _eigh_infer,
    _eigh,
    _eigh_grad,
    meaning="The eigenvalues of symmetric matrices, ascending, over the vectors as columns; of complex "
    "ones, Hermitian.",
)


def _eigvalsh_infer(a: Spec, upper: bool) -> Spec:
    check_square("eigvalsh", a)
    return Spec(a.shape[:-1], dtypes.real_of(a.dtype))


def _eigvalsh_grad(g: Tensor, _y: Spec, a: Tensor, upper: bool) -> tuple[Tensor]:
    _, vectors = eigen_parts(eigh_(held(a), upper=upper))
    return (matmul(vectors * _row(g), adjoint(vectors)),)


eigvalsh_ = declare_library(
    "eigvalsh",
    _eigvalsh_infer,
    lambda a, upper: np.linalg.eigvalsh(a, "U" if upper else "L"),
    _eigvalsh_grad,
    meaning="The eigenvalues of symmetric matrices, or Hermitian ones, ascending.",
)


# eigenvalues of any matrices


def _eig_infer(a: Spec) -> Spec:
    check_square("eig", a)
    return Spec((*a.shape[:-2], a.shape[-1] + 1, a.shape[-1]), dtypes.complex_of(a.dtype))


def _complex(x: Any) -> Any:
    """Convert to complex: NumPy gives real numbers where all eigenvalues happen to be real."""
    return x.astype(dtypes.complex_of(x.dtype), copy=False)


def _eig(a: Any) -> Any:
    values, vectors = np.linalg.eig(a)
    return _packed(_complex(values)[..., None, :], _complex(vectors))


def _eig_grad(g: Tensor, y: Tensor, _a: Spec) -> tuple[Tensor]:
    """Return the gradient of Giles (2008), section 3.1, for unit vectors: Boeddeker et al. (2017), eq. 4.77.

    Vectors may be turned by any angle: a result that depends on it has no gradient.
    """
    (values, vectors), (dvalues, dvectors) = eigen_parts(y), eigen_parts(g)
    turned = matmul(vectors, dvectors, transpose_a=True)
    along = reduce_sum(where(on_diagonal(turned), real(turned), 0), axis=(turned.ndim - 2,))
    turned = turned - matmul(vectors, conj(vectors), transpose_a=True) * along
    inner = _over(_beside_diagonal(turned), values - swapped(values))
    inner = where(on_diagonal(turned), dvalues, inner)
    found = solve_(swapped(vectors), matmul(inner, vectors, transpose_b=True))
    return (found if _a.dtype in dtypes.COMPLEX else real(found),)


eig_ = declare_library(
    "eig",
    _eig_infer,
    _eig,
    _eig_grad,
    meaning="The eigenvalues over the vectors as columns, complex ones always.",
)


def _eigvals_infer(a: Spec) -> Spec:
    check_square("eigvals", a)
    return Spec(a.shape[:-1], dtypes.complex_of(a.dtype))


def _eigvals_body(a: Tensor) -> Tensor:
    return reshape(eigen_parts(eig_(a))[0], shape=a.shape[:-1])


eigvals_ = declare_library(
    "eigvals",
    _eigvals_infer,
    lambda a: _complex(np.linalg.eigvals(a)),
    None,
    meaning="The eigenvalues, complex ones always. Under a tape they are those of `eig`.",
    body=_eigvals_body,
)
