"""NumPy's functions of polynomials, whose coefficients begin with the highest; the arguments are NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..functional import math, matrices, rearrange, tensor
from ..ir import dtypes
from ..ops.primitives import cast
from ..tensor import Tensor
from ..tensor.apply import tensors
from . import compositions as c
from . import linalg
from .arranging import trim_zeros, vander
from .sequences import convolve

__all__ = [
    "poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub", "polyval",
    "roots",
]  # fmt: skip


def _floats(name: str, *xs: Any) -> list[Tensor]:
    found = tensors(name, xs)
    return [x if x.dtype in dtypes.INEXACT else cast(x, dtype=dtypes.float32) for x in found]


def polyval(p: Any, x: Any) -> Tensor:
    """Return the value at `x`, by Horner's rule."""
    p, x = tensors("polyval", (p, x))
    out = tensor.zeros_like(x)
    for i in range(int(p.shape[0])):
        out = out * x + p[i]
    return out


def _joined(a1: Any, a2: Any, sign: int) -> Tensor:
    one, other = (c.at_least(1)(x) for x in tensors("polyadd", (a1, a2)))
    length = max(int(one.shape[0]), int(other.shape[0]))
    one, other = (rearrange.pad(x, ((length - int(x.shape[0]), 0),)) for x in (one, other))
    total: Tensor = one + other if sign > 0 else one - other
    return total


def polyadd(a1: Any, a2: Any) -> Tensor:
    """Return the sum."""
    return _joined(a1, a2, 1)


def polysub(a1: Any, a2: Any) -> Tensor:
    """Return the difference."""
    return _joined(a1, a2, -1)


def polymul(a1: Any, a2: Any) -> Tensor:
    """Return the product."""
    return convolve(*(c.at_least(1)(x) for x in tensors("polymul", (a1, a2))))


def polydiv(u: Any, v: Any) -> tuple[Tensor, Tensor]:
    """Return quotient and remainder. Leading zeros of the remainder are removed, which reads it."""
    rest, divisor = (c.at_least(1)(x) for x in _floats("polydiv", u, v))
    degree, steps = int(divisor.shape[0]) - 1, int(rest.shape[0]) - int(divisor.shape[0]) + 1
    found: list[Tensor] = []
    rest = +rest
    for i in range(steps):
        share = rest[i] / divisor[0]
        found.append(share)
        rest[i : i + degree + 1] = rest[i : i + degree + 1] - share * divisor
    quotient = tensor.stack(found) if found else tensor.zeros_like(rest[:1])
    values = rest.numpy()
    start = 0  # NumPy takes off what is 0 up to a small tolerance
    while start < values.size - 1 and np.allclose(values[start], 0, rtol=1e-14):
        start += 1
    return quotient, rest[start:]


def polyder(p: Any, m: int = 1) -> Tensor:
    """Return the derivative, `m` times over."""
    (out,) = tensors("polyder", (p,))
    for _ in range(m):
        out = out[:-1] * np.arange(int(out.shape[0]) - 1, 0, -1)
    return out


def polyint(p: Any, m: int = 1, k: Any = None) -> Tensor:
    """Return the integral, `m` times over, with the constants `k`."""
    (out,) = _floats("polyint", p)
    constants = np.zeros(m) if k is None else np.broadcast_to(np.asarray(k), (m,))
    for constant in constants:
        powers = np.arange(int(out.shape[0]), 0, -1)
        out = tensor.concat([out / powers, tensor.full((1,), float(constant), out.dtype, out.device)])
    return out


def polyfit(x: Any, y: Any, deg: int, rcond: float | None = None, *, w: Any = None) -> Tensor:
    """Return the polynomial of degree `deg` that is nearest to the points by least squares."""
    x, y = _floats("polyfit", x, y)
    if x.ndim != 1 or y.ndim not in (1, 2) or x.shape[0] != y.shape[0] or not x.size:
        raise ShapeError(
            f"polyfit: x must be a vector and y have as many rows, got shapes {x.shape} and {y.shape}"
        )
    powers, values = vander(x, deg + 1), y
    if w is not None:
        powers = powers * w[:, None]
        values = values * (w if y.ndim == 1 else w[:, None])
    scale = (math.sum(powers * powers, 0)) ** 0.5
    found = linalg.lstsq(powers / scale, values, rcond)[0]
    return (found.T / scale).T


def poly(seq_of_zeros: Any) -> Tensor:
    """Return the polynomial with these roots, or the characteristic one of a matrix."""
    (roots,) = _floats("poly", seq_of_zeros)
    if roots.ndim == 2:
        roots = linalg.eigvals(roots)
    out = tensor.ones((1,), roots.dtype, roots.device)
    for i in range(int(roots.shape[0])):
        zero = tensor.zeros_like(out[:1])
        out = tensor.concat([out, zero]) - roots[i] * tensor.concat([zero, out])
    return out


def roots(p: Any) -> Tensor:
    """Return where it is 0: the eigenvalues of the companion matrix, complex. Zeros at the ends are read."""
    (p,) = _floats("roots", p)
    whole = trim_zeros(p, "f")
    inner = trim_zeros(whole, "b")
    degree = int(inner.shape[0]) - 1
    nothing = tensor.zeros((int(whole.shape[0]) - int(inner.shape[0]),), "complex64", p.device)
    if degree < 1:
        return nothing
    first = tensor.reshape(-inner[1:] / inner[0], (1, degree))
    below = tensor.zeros((degree - 1, degree), p.dtype, p.device)
    below = below + matrices.diag(tensor.ones(degree, p.dtype, p.device))[: degree - 1]
    found = linalg.eigvals(tensor.concat([first, below], 0))
    return tensor.concat([found, nothing.astype(found.dtype)])
