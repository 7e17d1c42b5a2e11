"""The array API standard's functions that fold elements, and running ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ShapeError
from ..functional import math
from ..functional.math import all, any, max, mean, min
from ..functional.tensor import concat, full
from ..ops.methods import Axis, prod, sum
from ..tensor import Tensor
from . import compositions as c
from .compositions import diff

__all__ = [
    "all", "any", "cumulative_prod", "cumulative_sum", "diff", "max", "mean", "min", "prod", "std", "sum",
    "var",
]  # fmt: skip

_var, _std = c.spread(math.var, root=False), c.spread(math.std, root=True)


def var(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the squared distances from the mean, added up and divided by their number less `correction`.

    Examples
    --------
    >>> mgb.numpy.var(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor(1.5555557, device=xpux:0)
    """
    return _var(x, axis, ddof=correction, keepdims=keepdims)


def std(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the square root of `var`.

    Examples
    --------
    >>> mgb.numpy.std(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor(1.2472192, device=xpux:0)
    """
    return _std(x, axis, ddof=correction, keepdims=keepdims)


def _cumulative(name: str, running: Callable[..., Tensor], first: int, meaning: str) -> Callable[..., Tensor]:
    def folded(
        x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
    ) -> Tensor:
        if axis is None and x.ndim != 1:
            raise ShapeError(
                f"{name}: axis is required for an array of shape {x.shape}, which is not a vector"
            )
        place = 0 if axis is None else axis
        out = running(x, place, dtype)
        if not include_initial:
            return out
        shape = list(out.shape)
        shape[place] = 1
        return concat([full(shape, first, out.dtype, out.device), out], place)

    folded.__name__ = folded.__qualname__ = name
    folded.__doc__ = (
        f"The {meaning}s of all elements up to each along `axis`; `include_initial` puts {first} first."
        f"\n\nExamples\n--------\n>>> x = np.array([2.0, 3.0, 4.0])"
        f"\n>>> np.allclose(mgb.numpy.{name}(mgb.tensor(x)).numpy(), np.{running.__name__}(x))\nTrue"
    )
    return folded


cumulative_sum = _cumulative("cumulative_sum", c.cumsum, 0, "sum")
cumulative_prod = _cumulative("cumulative_prod", c.cumprod, 1, "product")
