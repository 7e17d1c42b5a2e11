"""Special functions that NumPy has beside its ufuncs; the arguments are NumPy's."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from .. import dtypes
from ..apply import tensors
from ..ops.elementwise import abs
from ..ops.primitives import cast, lt, sqrt, where
from ..ops.transcendental import exp
from ..tensor import Tensor

__all__ = ["i0"]

#: Where one series goes over into the other.
_FAR = 8.0


def i0(x: Any) -> Tensor:
    """The modified Bessel function of the first kind and order 0, by two Chebyshev series."""
    (x,) = tensors("i0", (x,))
    dtype = x.dtype if x.dtype in dtypes.FLOATS else dtypes.float32
    a = abs(cast(x, dtype=dtypes.float64))
    near, far = _coefficients()
    is_near = lt(a, _FAR)
    large = where(is_near, _FAR, a)
    scaled = where(is_near, _series(near, where(is_near, a, _FAR) * (2 / _FAR) - 1),
                   _series(far, (2 * _FAR) / large - 1) / sqrt(large))  # fmt: skip
    return cast(exp(a) * scaled, dtype=dtype)


@lru_cache(maxsize=1)
def _coefficients() -> tuple[list[float], list[float]]:
    """Of ``exp(-x) i0(x)`` up to `_FAR`, and of that times the root of x beyond, over its inverse."""
    from scipy.special import i0e

    def far(s: Any) -> Any:
        x = 2 * _FAR / (s + 1)
        return i0e(x) * np.sqrt(x)

    interpolate = np.polynomial.chebyshev.chebinterpolate
    near = interpolate(lambda s: i0e(_FAR / 2 * (s + 1)), 30)
    return near.tolist(), interpolate(far, 24).tolist()


def _series(coefficients: list[float], x: Tensor) -> Tensor:
    """Their sum at `x`, by Clenshaw's recurrence."""
    later: Tensor | float = 0.0
    last: Tensor | float = 0.0
    for c in reversed(coefficients[1:]):
        last, later = c + 2 * x * last - later, last
    total: Tensor = coefficients[0] + x * last - later
    return total
