"""Reductions and norms under MegEngine's names; sorting stands in `mgb.ops.sort`."""

from __future__ import annotations

from collections.abc import Callable

from ..ir import dtypes
from ..ops import methods
from ..ops.bodies.floats import widen_halves
from ..ops.declare import normalize_axis
from ..ops.elementwise import abs, ne, squared_magnitude
from ..ops.methods import Axis, average, reduced
from ..ops.primitives import eq, maximum, sqrt, where
from ..ops.reduce import reduce_max, reduce_min, reduce_prod, reduce_sum
from ..ops.scans import cummax, cummin, cumprod_, cumsum, logcumsumexp
from ..ops.sort import argmax_, argmin_, argsort, sort, topk
from ..tensor import Tensor

__all__ = [
    "Reduce", "all", "any", "argmax", "argmin", "argsort", "cummax", "cummin", "cumprod", "cumsum",
    "logcumsumexp", "max", "mean", "min",
    "norm", "normalize", "prod", "sort", "std", "sum", "topk", "var",
]  # fmt: skip


def sum(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the sum over `axis` (None: over all axes); that of integers has 64 bits, as in NumPy.

    Examples
    --------
    >>> F.sum(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor(1., device=xpux:0)
    """
    return methods.sum(inp, axis, keepdims)


def prod(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the product over `axis`; that of integers has 64 bits, as in NumPy.

    Examples
    --------
    >>> F.prod(mgb.tensor([2.0, 3.0]))
    Tensor(6., device=xpux:0)
    """
    return methods.prod(inp, axis, keepdims)


def min(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the least element over `axis`; NaN if there is one. Several of them share the gradient evenly.

    Examples
    --------
    >>> F.min(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor(-1., device=xpux:0)
    """
    return methods.min(inp, axis, keepdims)


def max(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the maximum over `axis`; NaN if there is one. Equal maxima share the gradient evenly.

    Examples
    --------
    >>> F.max(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor(2., device=xpux:0)
    """
    return methods.max(inp, axis, keepdims)


def mean(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the average over `axis`, always a float.

    Examples
    --------
    >>> F.mean(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor(0.33333334, device=xpux:0)
    """
    return methods.mean(inp, axis, keepdims)


@widen_halves
def _variance(x: Tensor, *, axis: tuple[int, ...]) -> Tensor:
    return average(squared_magnitude(x - average(x, axis)), axis)


def _root(x: Tensor, degree: float = 2) -> Tensor:
    """Return the root of numbers that are not negative.

    Its slope at 0 counts as 0, as that of what is inside.
    """
    zero = eq(x, 0)
    inside = where(zero, 1, x)
    return where(zero, x, sqrt(inside) if degree == 2 else inside ** (1.0 / degree))


def _deviation(x: Tensor, axis: tuple[int, ...]) -> Tensor:
    return _root(_variance(x, axis=axis))


def var(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the mean squared distance from the mean, always a float; divided by n, not n - 1.

    Examples
    --------
    >>> F.var(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor(1.5555557, device=xpux:0)
    """
    return reduced("var", _variance, inp, axis, keepdims)


def std(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the square root of `var`.

    Examples
    --------
    >>> F.std(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor(1.2472192, device=xpux:0)
    """
    return reduced("std", _deviation, inp, axis, keepdims)


def any(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return whether any element over `axis` is not 0.

    Examples
    --------
    >>> F.any(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor(True, dtype=bool, device=xpux:0)
    """
    return reduced("any", reduce_max, _truth(inp), axis, keepdims)


def all(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return whether all elements over `axis` are not 0.

    Examples
    --------
    >>> F.all(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor(False, dtype=bool, device=xpux:0)
    """
    return reduced("all", reduce_min, _truth(inp), axis, keepdims)


def _truth(x: Tensor) -> Tensor:
    return x if x.dtype == dtypes.bool_ else ne(x, 0)


def argmax(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return where the greatest element over `axis` stands: the first of them, or the first NaN.

    That is int32, or int64 among more than 2**31 elements.

    Parameters
    ----------
    inp : Tensor
        At least one element along `axis`.
    axis : int, sequence of int or None
        Over several axes the place is counted in row-major order.
    keepdims : bool
        Keep the axes with length 1.

    Raises
    ------
    ShapeError
        The array is empty.

    Examples
    --------
    >>> F.argmax(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor(2, dtype=int32, device=xpux:0)
    """
    return reduced("argmax", argmax_, inp, axis, keepdims)


def argmin(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return where the least element over `axis` stands; see `argmax`.

    Examples
    --------
    >>> F.argmin(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor(0, dtype=int32, device=xpux:0)
    """
    return reduced("argmin", argmin_, inp, axis, keepdims)


def _sum_of_squares(x: Tensor, axis: tuple[int, ...]) -> Tensor:
    return reduce_sum(squared_magnitude(x), axis=axis)


def norm(inp: Tensor, ord: float | None = None, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the p-norm of the elements over `axis`.

    Parameters
    ----------
    inp : Tensor
        The elements.
    ord : float, optional
        p; None is 2. 0 counts what is not 0; inf and -inf are the greatest and the least magnitude.
    axis : int, sequence of int or None
        None is every axis.
    keepdims : bool
        Keep the axes with length 1.

    Examples
    --------
    >>> F.norm(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor(2.236068, device=xpux:0)
    """
    if ord is None or ord == 2:
        return _root(reduced("norm", _sum_of_squares, inp, axis, keepdims))
    if ord == 0:
        return sum(ne(inp, 0).astype("float32"), axis, keepdims)
    if ord in (float("inf"), float("-inf")):
        extreme = reduce_max if ord > 0 else reduce_min
        return reduced("norm", extreme, abs(inp), axis, keepdims)
    if ord == 1:
        return sum(abs(inp), axis, keepdims)
    total = sum(abs(inp) ** ord, axis, keepdims)
    return _root(total, ord) if ord > 0 else total ** (1.0 / ord)


def normalize(inp: Tensor, ord: float | None = None, axis: Axis = None, eps: float = 1e-12) -> Tensor:
    """Return `inp` divided by its `norm` over `axis`, or by `eps` where the norm is less.

    Examples
    --------
    >>> F.normalize(mgb.tensor([[1.0, 2.0], [4.0, 3.0]]), axis=1)
    Tensor([[0.4472136, 0.8944272],
            [0.8      , 0.6      ]], device=xpux:0)
    """
    return inp / maximum(norm(inp, ord, axis, keepdims=axis is not None), eps)


def cumprod(inp: Tensor, axis: int) -> Tensor:
    """Return the products of all elements up to each, along `axis`; factors of 0 have right gradients too.

    Examples
    --------
    >>> F.cumprod(mgb.tensor([[1.0, 2.0], [4.0, 3.0]]), axis=1)
    Tensor([[ 1.,  2.],
            [ 4., 12.]], device=xpux:0)
    """
    return cumprod_(methods.accumulated(inp), axis=normalize_axis("cumprod", axis, inp.ndim)[0])


_MODES: dict[str, Callable[[Tensor, tuple[int, ...]], Tensor]] = {
    "SUM": lambda x, axis: reduce_sum(x, axis=axis),
    "SUM_SQR": _sum_of_squares,
    "PRODUCT": lambda x, axis: reduce_prod(x, axis=axis),
    "MIN": lambda x, axis: reduce_min(x, axis=axis),
    "MAX": lambda x, axis: reduce_max(x, axis=axis),
    "MEAN": average,
}


class Reduce:
    """One of MegEngine's reductions, chosen by name.

    Parameters
    ----------
    mode : str
        ``SUM``, ``SUM_SQR``, ``PRODUCT``, ``MIN``, ``MAX`` or ``MEAN``.
    axis : int, sequence of int or None
    keepdims : bool
        Keep the axes with length 1.

    Raises
    ------
    ValueError
        `mode` is not one of the known modes.

    Examples
    --------
    >>> F.Reduce(mode="MAX", axis=0)(mgb.tensor([1.0, 3.0])).item()
    3.0
    """

    def __init__(self, mode: str = "SUM", axis: Axis = None, keepdims: bool = False) -> None:
        if mode not in _MODES:
            raise ValueError(f"{mode!r} is not a mode of Reduce; choose one of {', '.join(_MODES)}")
        self.mode, self.axis, self.keepdims = mode, axis, keepdims

    def __call__(self, inp: Tensor) -> Tensor:
        """Reduce `inp`."""
        return reduced(f"Reduce({self.mode})", _MODES[self.mode], inp, self.axis, self.keepdims)

    def __repr__(self) -> str:
        return f"Reduce(mode={self.mode!r}, axis={self.axis}, keepdims={self.keepdims})"
