"""Matrices as products of others: orthogonal and triangular ones, singular values, eigenvalues.

An op has one result, and a library computes all factors at once: they are *packed*, rows under rows, and
slices take them apart. The gradients of vectors divide by differences of singular values or eigenvalues: they
are infinite or NaN where two are equal, unless nothing depends on the vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import LinAlgError, NoGradientError
from ..ir import Spec
from ..tensor import Tensor
from .attention import below
from .contract import matmul
from .elementwise import ne
from .layout import concat, cut_along
from .linear_systems import (
    check_matrix,
    check_square,
    declare_library,
    on_diagonal,
    product,
    solve_,
    solve_triangular_,
    swapped,
)
from .primitives import logical_not, where
from .reduce import reduce_max, reduce_sum

Shape = tuple[int, ...]


def rows(x: Tensor, start: int, stop: int) -> Tensor:
    """Some rows of the matrices in `x`."""
    return cut_along(x, x.ndim - 2, start, stop)


def columns(x: Tensor, start: int, stop: int) -> Tensor:
    """Some columns of the matrices in `x`."""
    return cut_along(x, x.ndim - 1, start, stop)


def _packed(*parts: Any) -> Any:
    """Matrices of as many rows as they have, one under the other, filled up with 0 to one width."""
    width, height = max(p.shape[-1] for p in parts), sum(p.shape[-2] for p in parts)
    out, top = np.zeros_like(parts[0], shape=(*parts[0].shape[:-2], height, width)), 0
    for part in parts:
        out[..., top : top + part.shape[-2], : part.shape[-1]] = part
        top += part.shape[-2]
    return out


def _divisor(x: Tensor, *gradients: Tensor) -> Tensor:
    """`x`, with 1 on the diagonal, where nothing is divided, and for matrices without such gradients."""
    unused = logical_not(_some(gradients[0]))
    for gradient in gradients[1:]:
        unused = unused & logical_not(_some(gradient))
    return where(on_diagonal(x) | unused, 1, x)


def _some(x: Tensor) -> Tensor:
    """Which of the matrices in `x` are not 0."""
    return reduce_max(ne(x, 0), axis=(x.ndim - 2, x.ndim - 1))


def _skew(x: Tensor) -> Tensor:
    return x - swapped(x)


# Q R


def _qr_infer(a: Spec, complete: bool) -> Spec:
    check_matrix("qr", a)
    height, width = a.shape[-2:]
    return Spec((*a.shape[:-2], height + width, height if complete else min(height, width)), a.dtype)


def _qr(a: Any, complete: bool) -> Any:
    q, r = np.linalg.qr(a, mode="complete" if complete else "reduced")
    return _packed(q, r.swapaxes(-1, -2))


def _qr_grad(g: Tensor, y: Tensor, a: Tensor, complete: bool) -> tuple[Tensor]:
    """Seeger et al., "Auto-differentiating linear algebra" (2017).

    Of a matrix wider than high the square on the left has the same `q`, and the rest is ``q @ r`` of its own.
    """
    height, width = a.shape[-2:]
    if complete and height > width:
        raise NoGradientError("qr: the gradient of mode='complete' is that of matrices not higher than wide")
    q, r = rows(y, 0, height), swapped(rows(y, height, height + width))
    dq, dr = rows(g, 0, height), swapped(rows(g, height, height + width))
    if width > height:
        rest = columns(dr, height, width)
        dq = dq + matmul(columns(a, height, width), rest, transpose_b=True)
        square = _square_qr_grad(q, columns(r, 0, height), dq, columns(dr, 0, height))
        return (concat(square, matmul(q, rest), axis=a.ndim - 1),)
    return (_square_qr_grad(q, r, dq, dr),)


def _square_qr_grad(q: Tensor, r: Tensor, dq: Tensor, dr: Tensor) -> Tensor:
    inner = matmul(r, dr, transpose_b=True) - matmul(dq, q, transpose_a=True)
    mirrored = where(below(inner, 0), inner, swapped(inner))  # the lower triangle on both sides
    found = solve_triangular_(r, swapped(dq + matmul(q, mirrored)), lower=False, unit_diagonal=False)
    return swapped(found)


#: ``qr(a, complete=)``: `q` over the transpose of `r`, as many columns as `q` has.
qr_ = declare_library("qr", _qr_infer, _qr, _qr_grad)


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
    """Of what `svd_` packs: `u`, the values as one row, and `v`, as many columns as there are values."""
    height, width = shape[-2:]
    y = columns(y, 0, min(height, width))
    top = height + 1
    return rows(y, 0, height), rows(y, height, top), rows(y, top, top + width)


def _svd_grad(g: Tensor, y: Tensor, a: Tensor, full: bool) -> tuple[Tensor]:
    """Townsend, "Differentiating the singular value decomposition" (2016).

    Vectors beyond the number of values are any base of what is left: gradients of these count as 0.
    """
    height, width = a.shape[-2:]
    (u, s, v), (du, ds, dv) = svd_parts(y, a.shape), svd_parts(g, a.shape)
    column = swapped(s)
    gap = _divisor((s - column) * (s + column), du, dv)
    left, right = matmul(u, du, transpose_a=True), matmul(v, dv, transpose_a=True)
    inner = _skew(left) / gap * s + column * (_skew(right) / gap)
    inner = inner + where(on_diagonal(inner), ds, 0)
    out = matmul(product(u, inner), v, transpose_b=True)
    if height > width:
        out = out + matmul((du - matmul(u, left)) / where(_some(du), s, 1), v, transpose_b=True)
    if width > height:
        out = out + matmul(u, (dv - matmul(v, right)) / where(_some(dv), s, 1), transpose_b=True)
    return (out,)


#: ``svd(a, full=)``: `u` over the singular values over `v`; in full, both are square.
svd_ = declare_library("svd", _svd_infer, _svd, _svd_grad)


def _svdvals_infer(a: Spec) -> Spec:
    check_matrix("svdvals", a)
    return Spec((*a.shape[:-2], min(a.shape[-2:])), a.dtype)


def _row(x: Tensor) -> Tensor:
    return x.reshape((*x.shape[:-1], 1, x.shape[-1]))


def _svdvals_grad(g: Tensor, _y: Spec, a: Tensor) -> tuple[Tensor]:
    u, _, v = svd_parts(svd_(a, full=False), a.shape)
    return (matmul(u * _row(g), v, transpose_b=True),)


#: ``svdvals(a)``: the singular values, the greatest first.
svdvals_ = declare_library(
    "svdvals", _svdvals_infer, lambda a: np.linalg.svd(a, compute_uv=False), _svdvals_grad
)


# eigenvalues of symmetric matrices


def _eigh_infer(a: Spec, upper: bool) -> Spec:
    check_square("eigh", a)
    return Spec((*a.shape[:-2], a.shape[-1] + 1, a.shape[-1]), a.dtype)


def _eigh(a: Any, upper: bool) -> Any:
    values, vectors = np.linalg.eigh(a, "U" if upper else "L")
    return _packed(values[..., None, :], vectors)


def eigen_parts(y: Tensor) -> tuple[Tensor, Tensor]:
    """Of what `eigh_` packs: the eigenvalues as one row, and the vectors."""
    return rows(y, 0, 1), rows(y, 1, y.shape[-1] + 1)


def _eigh_grad(g: Tensor, y: Tensor, _a: Spec, upper: bool) -> tuple[Tensor]:
    """Giles (2008), section 3.1; of a symmetric matrix, symmetric."""
    (values, vectors), (dvalues, dvectors) = eigen_parts(y), eigen_parts(g)
    turned = _skew(matmul(vectors, dvectors, transpose_a=True)) * 0.5
    inner = turned / _divisor(values - swapped(values), dvectors)
    inner = inner + where(on_diagonal(inner), dvalues, 0)
    return (matmul(product(vectors, inner), vectors, transpose_b=True),)


#: ``eigh(a, upper=)``: the eigenvalues of symmetric matrices, ascending, over the vectors as columns.
eigh_ = declare_library("eigh", _eigh_infer, _eigh, _eigh_grad)


def _eigvalsh_infer(a: Spec, upper: bool) -> Spec:
    check_square("eigvalsh", a)
    return Spec(a.shape[:-1], a.dtype)


def _eigvalsh_grad(g: Tensor, _y: Spec, a: Tensor, upper: bool) -> tuple[Tensor]:
    _, vectors = eigen_parts(eigh_(a, upper=upper))
    return (matmul(vectors * _row(g), vectors, transpose_b=True),)


#: ``eigvalsh(a, upper=)``: the eigenvalues of symmetric matrices, ascending.
eigvalsh_ = declare_library(
    "eigvalsh",
    _eigvalsh_infer,
    lambda a, upper: np.linalg.eigvalsh(a, "U" if upper else "L"),
    _eigvalsh_grad,
)


# eigenvalues of any matrices


def _eig_infer(a: Spec) -> Spec:
    check_square("eig", a)
    return Spec((*a.shape[:-2], a.shape[-1] + 1, a.shape[-1]), a.dtype)


def _real(values: Any) -> Any:
    """Eigenvalues as real numbers; NumPy gives complex ones if one is complex."""
    if values.dtype.kind != "c":
        return values
    if values.size and np.max(abs(np.imag(values))):
        raise LinAlgError("some eigenvalues are complex, which no dtype of mgb is")
    return np.real(values)


def _eig(a: Any) -> Any:
    values, vectors = np.linalg.eig(a)
    return _packed(_real(values)[..., None, :], np.real(vectors) if vectors.dtype.kind == "c" else vectors)


def _eig_grad(g: Tensor, y: Tensor, _a: Spec) -> tuple[Tensor]:
    """Giles (2008), section 3.1, for vectors of length 1: Boeddeker et al. (2017), equation 4.77."""
    (values, vectors), (dvalues, dvectors) = eigen_parts(y), eigen_parts(g)
    turned = matmul(vectors, dvectors, transpose_a=True)
    along = reduce_sum(where(on_diagonal(turned), turned, 0), axis=(turned.ndim - 2,))
    turned = turned - matmul(vectors, vectors, transpose_a=True) * along
    inner = where(on_diagonal(turned), dvalues, turned / _divisor(values - swapped(values), dvectors))
    return (solve_(swapped(vectors), matmul(inner, vectors, transpose_b=True)),)


#: ``eig(a)``: the eigenvalues, which have to be real, over the vectors as columns.
eig_ = declare_library("eig", _eig_infer, _eig, _eig_grad)


def _eigvals_infer(a: Spec) -> Spec:
    check_square("eigvals", a)
    return Spec(a.shape[:-1], a.dtype)


def _eigvals_grad(g: Tensor, _y: Spec, a: Tensor) -> tuple[Tensor]:
    _, vectors = eigen_parts(eig_(a))
    return (solve_(swapped(vectors), swapped(vectors * _row(g))),)


#: ``eigvals(a)``: the eigenvalues, which have to be real.
eigvals_ = declare_library("eigvals", _eigvals_infer, lambda a: _real(np.linalg.eigvals(a)), _eigvals_grad)
