"""Products of vectors and matrices, and their parts."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from ...errors import ShapeError
from ...functional import math
from ...functional.complex_numbers import conj
from ...ops.creation import eye
from ...ops.declare import normalize_axis
from ...ops.layout import broadcast_to, concat, cut_along, reshape
from ...ops.linalg.linear_systems import check_square
from ...ops.methods import matrix_transpose as matrix_transpose
from ...ops.operators import product
from ...tensor import Tensor
from ...tensor.apply import tensors
from .. import compositions as c
from .solving import inv


def matmul(x1: Any, x2: Any, /) -> Tensor:
    """Return the product of matrices, as ``x1 @ x2``.

    Examples
    --------
    >>> mgb.numpy.matmul(mgb.tensor([1.0, -2.0]), mgb.tensor([3.0, 0.5]))
    Tensor(2., device=xpux:0)
    """
    return product(*tensors("matmul", (x1, x2)))


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """Return the inner products of the vectors along `axis`, with the conjugates of those in `x1`.

    Raises
    ------
    ShapeError
        The vectors of one are longer than those of the other; one of length 1 is not broadcast.

    Examples
    --------
    >>> mgb.numpy.vecdot(mgb.tensor([1.0, -2.0]), mgb.tensor([3.0, 0.5]))
    Tensor(2., device=xpux:0)
    """
    x1, x2 = tensors("vecdot", (x1, x2))
    ndim = max(x1.ndim, x2.ndim)
    along = normalize_axis("vecdot", axis, ndim)[0] - ndim  # counted from the end, where shapes are aligned
    lengths = [x.shape[along] if -along <= x.ndim else 1 for x in (x1, x2)]
    if lengths[0] != lengths[1]:
        raise ShapeError(f"vecdot: vectors of {lengths[0]} and {lengths[1]} elements along axis {axis}")
    terms = conj(x1) * x2
    return math.sum(terms, axis).astype(terms.dtype)


def outer(x1: Any, x2: Any, /) -> Tensor:
    """Return each element of a vector times each of another.

    Examples
    --------
    >>> mgb.linalg.outer(mgb.tensor([1.0, -2.0]), mgb.tensor([3.0, 0.5]))
    Tensor([[ 3. ,  0.5],
            [-6. , -1. ]], device=xpux:0)
    """
    x1, x2 = tensors("outer", (x1, x2))
    if x1.ndim != 1 or x2.ndim != 1:
        raise ShapeError(f"outer: needs vectors, got shapes {x1.shape} and {x2.shape}")
    return c.outer(x1, x2)


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Tensor:
    """Return the sum of products over `axes`: so many last of `x1` and first of `x2`, or the axes of each.

    Examples
    --------
    >>> mgb.numpy.tensordot(F.ones((2, 3, 4)), F.ones((3, 4)), axes=2)
    Tensor([12., 12.], device=xpux:0)
    """
    return c.tensordot(x1, x2, axes)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """Return the vectors of three elements that stand upright on those of `x1` and `x2` along `axis`.

    Examples
    --------
    >>> mgb.linalg.cross(mgb.tensor([1.0, 0.0, 0.0]), mgb.tensor([0.0, 1.0, 0.0]))
    Tensor([0., 0., 1.], device=xpux:0)
    """
    x1, x2 = tensors("cross", (x1, x2))
    ndim = max(x1.ndim, x2.ndim)
    (place,) = normalize_axis("cross", axis, ndim)
    along = [place - ndim + x.ndim for x in (x1, x2)]
    if any(a < 0 or x.shape[a] != 3 for a, x in zip(along, (x1, x2))):
        raise ShapeError(
            f"cross: vectors have three elements, got {x1.shape} and {x2.shape} along axis {axis}"
        )

    def turned(x: Tensor, axis: int, start: int) -> Tensor:
        order = (start, (start + 1) % 3, (start + 2) % 3)
        return concat(*(cut_along(x, axis, i, i + 1) for i in order), axis=axis)

    (a1, a2), (b1, b2) = ((turned(x, a, 1), turned(x, a, 2)) for x, a in zip((x1, x2), along))
    return a1 * b2 - a2 * b1


def diagonal(x: Any, /, *, offset: int = 0) -> Tensor:
    """Return the diagonals of the matrices in the last two axes.

    Examples
    --------
    >>> mgb.linalg.diagonal(mgb.tensor([[1.0, 2.0], [4.0, 3.0]]))
    Tensor([1., 3.], device=xpux:0)
    """
    (x,) = tensors("diagonal", (x,))
    return c.diagonal(x, offset, -2, -1)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """Return the sums of the diagonals of the matrices in the last two axes.

    Examples
    --------
    >>> mgb.linalg.trace(mgb.tensor([[1.0, 2.0], [4.0, 3.0]]))
    Tensor(4., device=xpux:0)
    """
    (x,) = tensors("trace", (x,))
    return c.trace(x if dtype is None else x.astype(dtype), offset, -2, -1)


def matrix_power(a: Any, n: int) -> Tensor:
    """Return `a` times itself, `n` factors in all, by squaring; negative powers are those of the inverse.

    Examples
    --------
    >>> mgb.linalg.matrix_power(mgb.tensor([[1.0, 1.0], [0.0, 1.0]]), 3)
    Tensor([[1., 3.],
            [0., 1.]], device=xpux:0)
    """
    (a,) = tensors("matrix_power", (a,))
    check_square("matrix_power", a.spec)
    n = operator.index(n)
    if n == 0:
        return broadcast_to(eye(a.shape[-1], dtype=a.dtype, device=a.device), shape=a.shape)
    power = inv(a) if n < 0 else +a
    n, out = abs(n), None
    while True:
        if n & 1:
            out = power if out is None else product(out, power)
        n >>= 1
        if not n:
            assert out is not None
            return out
        power = product(power, power)


def multi_dot(arrays: Sequence[Any], *, out: None = None) -> Tensor:
    """Return the product of several matrices, in the order that needs the fewest multiplications.

    The first may be a row and the last a column, each a vector.

    Examples
    --------
    >>> mgb.linalg.multi_dot([mgb.tensor([[1.0, 2.0]]), mgb.tensor([[3.0], [4.0]])])
    Tensor([[11.]], device=xpux:0)
    """
    if len(arrays) < 2:
        raise ShapeError(f"multi_dot: needs at least two matrices, got {len(arrays)}")
    factors = list(tensors("multi_dot", arrays))
    first, last = factors[0], factors[-1]
    if first.ndim == 1:
        factors[0] = reshape(first, shape=(1, first.size))
    if last.ndim == 1:
        factors[-1] = reshape(last, shape=(last.size, 1))
    if any(x.ndim != 2 for x in factors):
        raise ShapeError(f"multi_dot: needs matrices, got shapes {', '.join(str(x.shape) for x in factors)}")
    lengths = [*(x.shape[0] for x in factors), factors[-1].shape[1]]
    made = _in_order(factors, _cuts(lengths), 0, len(factors) - 1)
    wanted = (*first.shape[:-1], *(last.shape[1:] if last.ndim > 1 else ()))
    return reshape(made, shape=wanted)


def _cuts(lengths: Sequence[int]) -> dict[tuple[int, int], int]:
    """Return where each product of several is divided.

    Cormen et al., "Introduction to algorithms", section 15.2.
    """
    count = len(lengths) - 1
    cost: dict[tuple[int, int], int] = {(i, i): 0 for i in range(count)}
    cuts: dict[tuple[int, int], int] = {}
    for width in range(1, count):
        for i in range(count - width):
            j = i + width
            found = [
                (cost[i, k] + cost[k + 1, j] + lengths[i] * lengths[k + 1] * lengths[j + 1], k)
                for k in range(i, j)
            ]
            cost[i, j], cuts[i, j] = min(found, key=lambda one: one[0])
    return cuts


def _in_order(factors: Sequence[Tensor], cuts: dict[tuple[int, int], int], i: int, j: int) -> Tensor:
    if i == j:
        return factors[i]
    k = cuts[i, j]
    return product(_in_order(factors, cuts, i, k), _in_order(factors, cuts, k + 1, j))
