"""Linear equations and what they are solved with: inverses, determinants, Cholesky's factor, least squares.

Matrices stand in the last two axes, the axes before them are stacks and broadcast. NumPy and SciPy compute,
by LAPACK, or CuPy where the arrays are its own. The gradients are those of Giles, "Collected matrix
derivative results for forward and reverse mode algorithmic differentiation" (2008), unless a rule names
another source.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from ...errors import LinAlgError, ShapeError
from ...ir import Kind, Node, Op, Spec, dtypes
from ...ir.sizes import broadcast
from ...runtime import forking
from ...tensor import Tensor
from ...tensor.libraries import Rule
from ..declare import ANALYTIC, declare
from ..elementwise import conj
from ..images.attention import below
from ..images.contract import matmul
from ..layout import cut_along, reshape, transpose
from ..primitives import complex, imag, real, where


def swapped(x: Tensor) -> Tensor:
    """Return the matrices in the last two axes transposed."""
    return transpose(x, axes=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def held(x: Tensor) -> Tensor:
    """Undo the conjugation of complex values that a gradient rule is given."""
    return conj(x) if x.dtype in dtypes.COMPLEX else x


def adjoint(x: Tensor) -> Tensor:
    """Return the matrices transposed, and the conjugates of complex ones."""
    return held(swapped(x))


def product(*factors: Tensor) -> Tensor:
    """Return the product of matrices, from left to right."""
    out = factors[0]
    for factor in factors[1:]:
        out = matmul(out, factor)
    return out


def on_diagonal(x: Tensor) -> Tensor:
    """Return a mask of the main diagonal of the matrices in `x`."""
    return below(x, 0) & ~below(x, -1)


# what an op that a library computes is made of


def check_matrix(name: str, a: Spec) -> None:
    """Raise a `ShapeError` where `a` has no two axes."""
    if a.ndim < 2:
        raise ShapeError(f"{name}: needs matrices in the last two axes, got shape {a.shape}")


def check_square(name: str, a: Spec) -> None:
    """Raise a `ShapeError` where `a` holds no square matrices."""
    check_matrix(name, a)
    if a.shape[-1] != a.shape[-2]:
        raise ShapeError(f"{name}: needs square matrices in the last two axes, got shape {a.shape}")


def by_library(name: str, infer: Callable[..., Spec], rule: Callable[..., Any]) -> Rule:
    """Wrap `rule`, whose LAPACK has its own locks, as the eager rule of an op; errors name the op."""
    undivided = forking.short_call(rule)

    @wraps(rule)
    def named(*arrays: Any, **params: Any) -> Any:
        try:
            return undivided(*arrays, **params)
        except np.linalg.LinAlgError as error:
            shapes = " and ".join(str(a.shape) for a in arrays)
            raise LinAlgError(f"{name} of {shapes}: {error}") from None

    return Rule(name, named, infer)


def cubic(node: Node) -> int:
    """Estimate operations on a stack of matrices: the size times the length of the shorter axis."""
    spec = node.inputs[0].spec
    return 2 * spec.size * min(spec.shape[-2:])


def declare_library(
    name: str,
    infer: Callable[..., Spec],
    rule: Callable[..., Any],
    grad: Callable[..., Any] | None,
    *,
    meaning: str,
    body: Callable[..., Tensor] | None = None,
) -> Callable[..., Tensor]:
    """Return an op on matrices, also complex ones, that NumPy, SciPy or another library computes."""
    eager = by_library(name, infer, rule)
    op = Op(name, Kind.OPAQUE, infer, eager, grad, body, ANALYTIC.promote, cost=cubic, meaning=meaning)
    return declare(op)


def _each(function: Callable[..., Any], out: Any, *stacks: Any) -> Any:
    """Apply `function` to each matrix in `stacks`, whose leading axes broadcast, and write to `out`."""
    batch = out.shape[:-2]
    spread = [np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in stacks]
    for place in np.ndindex(batch):
        out[place] = function(*(x[place] for x in spread))
    return out


# equations


def _batch(name: str, a: Spec, b: Spec) -> tuple[int, ...]:
    """Return the stacks of both, where the rows of `b` belong to those of `a`."""
    check_matrix(name, a)
    check_matrix(name, b)
    if a.shape[-2] != b.shape[-2]:
        raise ShapeError(f"{name}: {a.shape} and {b.shape} have different numbers of rows")
    batch = broadcast((a.shape[:-2], b.shape[:-2]))
    if batch is None:
        raise ShapeError(f"{name}: the leading axes of {a.shape} and {b.shape} do not broadcast")
    return batch


def _solve_infer(a: Spec, b: Spec) -> Spec:
    check_square("solve", a)
    return Spec((*_batch("solve", a, b), *b.shape[-2:]), b.dtype)


def _solve_grad(g: Tensor, y: Tensor, a: Tensor, _b: Spec) -> tuple[Tensor, Tensor]:
    db = solve_(swapped(a), g)
    return -matmul(db, y, transpose_b=True), db


solve_ = declare_library(
    "solve",
    _solve_infer,
    np.linalg.solve,
    _solve_grad,
    meaning="The `x` with ``a @ x == b``, of square matrices `a` and columns `b`.",
)


def _triangular_infer(a: Spec, b: Spec, lower: bool, unit_diagonal: bool) -> Spec:
    check_square("solve_triangular", a)
    return Spec((*_batch("solve_triangular", a, b), *b.shape[-2:]), b.dtype)


def _triangular(a: Any, b: Any, lower: bool, unit_diagonal: bool) -> Any:
    """Solve by LAPACK's triangular solver on the host; elsewhere by the general one, which takes stacks."""
    if isinstance(a, np.ndarray):
        from scipy.linalg import solve_triangular

        def one(a: Any, b: Any) -> Any:
            return solve_triangular(a, b, lower=lower, unit_diagonal=unit_diagonal, check_finite=False)

        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return _each(one, np.empty((*batch, *b.shape[-2:]), b.dtype), a, b)
    if unit_diagonal:
        one = np.triu(np.tril(np.ones_like(a)))
        return np.linalg.solve((np.tril(a, -1) if lower else np.triu(a, 1)) + one, b)
    return np.linalg.solve(np.tril(a) if lower else np.triu(a), b)


def _triangular_grad(
    g: Tensor, y: Tensor, a: Tensor, _b: Spec, lower: bool, unit_diagonal: bool
) -> tuple[Tensor, Tensor]:
    db = solve_triangular_(swapped(a), g, lower=not lower, unit_diagonal=unit_diagonal)
    da = -matmul(db, y, transpose_b=True)
    skipped = int(unit_diagonal)
    return (where(below(da, -skipped), da, 0) if lower else where(below(da, skipped - 1), 0, da)), db


solve_triangular_ = declare_library(
    "solve_triangular",
    _triangular_infer,
    _triangular,
    _triangular_grad,
    meaning="As `solve`; of `a` one triangle counts.",
)


def _lstsq_infer(a: Spec, b: Spec, rcond: float | None) -> Spec:
    return Spec((*_batch("lstsq", a, b), a.shape[-1], b.shape[-1]), b.dtype)


def _lstsq(a: Any, b: Any, rcond: float | None) -> Any:
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out = np.zeros_like(b, shape=(*batch, a.shape[-1], b.shape[-1]))
    return _each(lambda a, b: np.linalg.lstsq(a, b, rcond=rcond)[0], out, a, b) if out.size else out


def _lstsq_grad(g: Tensor, y: Tensor, a: Tensor, b: Tensor, rcond: float | None) -> tuple[Tensor, Tensor]:
    """Return the gradient of Golub and Pereyra (1973), with each inverse solved."""
    y, a, b = held(y), held(a), held(b)
    turned = adjoint(a)
    db = lstsq_(turned, g, rcond=rcond)
    left = b - matmul(a, y)
    da = matmul(left, adjoint(lstsq_(a, db, rcond=rcond))) - matmul(db, adjoint(y))
    rest = g - matmul(turned, db)
    return da + matmul(lstsq_(turned, y, rcond=rcond), adjoint(rest)), db


lstsq_ = declare_library(
    "lstsq",
    _lstsq_infer,
    _lstsq,
    _lstsq_grad,
    meaning="The shortest `x` that makes the squares of ``a @ x - b`` least.",
)


# inverses


def _square_infer(name: str) -> Callable[..., Spec]:
    def infer(a: Spec, **_params: Any) -> Spec:
        check_square(name, a)
        return Spec(a.shape, a.dtype)

    return infer


def _inv_grad(g: Tensor, y: Tensor, _a: Spec) -> tuple[Tensor]:
    transposed = swapped(y)
    return (-product(transposed, g, transposed),)


inv_ = declare_library(
    "inv",
    _square_infer("inv"),
    np.linalg.inv,
    _inv_grad,
    meaning="The inverses of square matrices.",
)


def _pinv_infer(a: Spec, rcond: float | None) -> Spec:
    check_matrix("pinv", a)
    return Spec((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)


def _pinv(a: Any, rcond: float | None) -> Any:
    least = max(a.shape[-2:]) * float(np.finfo(a.dtype).eps) if rcond is None else rcond
    return np.linalg.pinv(a, least) if a.size else np.zeros_like(a.swapaxes(-1, -2))


def _pinv_grad(g: Tensor, y: Tensor, a: Tensor, rcond: float | None) -> tuple[Tensor]:
    """Return the gradient of Golub and Pereyra (1973), equation 4.12, transposed."""
    y, a = held(y), held(a)
    inverse, gradient = adjoint(y), adjoint(g)
    right = gradient - product(a, y, gradient)
    left = gradient - product(gradient, y, a)
    return (product(right, y, inverse) + product(inverse, y, left) - product(inverse, g, inverse),)


pinv_ = declare_library(
    "pinv",
    _pinv_infer,
    _pinv,
    _pinv_grad,
    meaning="The pseudo-inverses; singular values up to `rcond` times the greatest count as 0.",
)


# Cholesky


def _cholesky_grad(g: Tensor, y: Tensor, _a: Spec) -> tuple[Tensor]:
    """Return the gradient of Murray (2016): of a symmetric matrix, symmetric."""
    upper = swapped(y)  # the adjoint of the factor
    inner = matmul(upper, g)
    diagonal = where(on_diagonal(inner), inner + held(inner), 0) * 0.25  # of which only what is real counts
    inner = where(below(inner, -1), inner, 0) + diagonal
    half = solve_triangular_(upper, inner, lower=False, unit_diagonal=False)
    whole = solve_triangular_(upper, adjoint(half), lower=False, unit_diagonal=False)
    return ((whole + adjoint(whole)) * 0.5,)


cholesky_ = declare_library(
    "cholesky",
    _square_infer("cholesky"),
    np.linalg.cholesky,
    _cholesky_grad,
    meaning="The lower triangle `L` with ``L @ L.T == a``, of complex numbers with the adjoint of `L`; of "
    "`a` the lower triangle is read.",
)


# determinants


def as_matrix(x: Tensor) -> Tensor:
    """Return one number for each matrix as a matrix of one element."""
    return reshape(x, shape=(*x.shape, 1, 1))


def _det_infer(a: Spec) -> Spec:
    check_square("det", a)
    return Spec(a.shape[:-2], a.dtype)


def _det_grad(g: Tensor, _y: Spec, a: Tensor) -> tuple[Tensor]:
    return (as_matrix(g) * cofactor_(a),)


det_ = declare_library(
    "det",
    _det_infer,
    np.linalg.det,
    _det_grad,
    meaning="The determinants of square matrices.",
)


def _cofactor(a: Any) -> Any:
    """Compute cofactors by products of singular values without one: no division, right for any rank."""
    u, s, vh = np.linalg.svd(a)
    one = np.ones_like(s[..., :1])
    before = np.cumprod(np.concatenate((one, s[..., :-1]), -1), -1)
    after = np.cumprod(np.concatenate((one, s[..., :0:-1]), -1), -1)[..., ::-1]
    others = before * after * np.linalg.det(u)[..., None] * np.linalg.det(vh)[..., None]
    return np.conj(np.matmul(u * np.conj(others)[..., None, :], vh))


def _cofactor_body(a: Tensor) -> Tensor:
    return as_matrix(det_(a)) * swapped(inv_(a))


cofactor_ = declare(
    Op("cofactor", Kind.OPAQUE, _square_infer("cofactor"),
       by_library("cofactor", _square_infer("cofactor"), _cofactor), None, _cofactor_body,
       promote=ANALYTIC.promote, cost=cubic, meaning="The gradient of the determinant; its own gradient is "
                                                     "that of regular matrices.")
)  # fmt: skip


def _slogdet_infer(a: Spec) -> Spec:
    check_square("slogdet", a)
    return Spec((*a.shape[:-2], 2), a.dtype)


def _slogdet(a: Any) -> Any:
    sign, magnitude = np.linalg.slogdet(a)
    return np.stack((sign, magnitude), -1)


def _slogdet_grad(g: Tensor, y: Tensor, a: Tensor) -> tuple[Tensor]:
    """Return the sign of a complex determinant turns with the imaginary part of its logarithm."""
    turn, magnitude = (
        reshape(cut_along(g, g.ndim - 1, i, i + 1), shape=(*g.shape[:-1], 1, 1)) for i in (0, 1)
    )
    if a.dtype in dtypes.COMPLEX:
        sign = reshape(cut_along(y, y.ndim - 1, 0, 1), shape=(*g.shape[:-1], 1, 1))
        magnitude = complex(real(magnitude), imag(turn * sign))
    return (magnitude * swapped(inv_(a)),)


slogdet_ = declare_library(
    "slogdet",
    _slogdet_infer,
    _slogdet,
    _slogdet_grad,
    meaning="The sign of the determinant and the logarithm of its magnitude, side by side.",
)
