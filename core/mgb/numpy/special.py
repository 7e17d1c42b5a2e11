"""Special functions that NumPy has beside its ufuncs; the arguments are NumPy's."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ..autodiff import Function
from ..ir import dtypes
from ..ops.bodies.transcendental import exp
from ..ops.elementwise import abs
from ..ops.primitives import cast, lt, sqrt, where
from ..tensor import Tensor
from ..tensor.apply import tensors

__all__ = ["i0"]

#: Where one series goes over into the other.
_FAR = 8.0


def i0(x: Any) -> Tensor:
    """Return the modified Bessel function of the first kind and order 0, by two Chebyshev series."""
    (x,) = tensors("i0", (x,))
    dtype = x.dtype if x.dtype in dtypes.FLOATS else dtypes.float32
    return cast(_bessel(0, cast(x, dtype=dtypes.float64)), dtype=dtype)


def _bessel(order: int, x: Tensor) -> Tensor:
    out: Tensor = _Bessel(order)(x)
    return out


class _Bessel(Function):
    """The one of an order: its derivative is the mean of its neighbours, of which -1 is 1."""

    def __init__(self, order: int) -> None:
        self.order = order

    def forward(self, *inputs: Tensor) -> Tensor:
        (self.x,) = inputs
        a = abs(self.x)
        near, far = _coefficients(self.order)
        is_near = lt(a, _FAR)
        large = where(is_near, _FAR, a)
        inner = where(is_near, a, _FAR)
        scaled = where(is_near, _series(near, inner * (2 / _FAR) - 1),
                       _series(far, (2 * _FAR) / large - 1) / sqrt(large))  # fmt: skip
        for _ in range(self.order):
            scaled = scaled * where(is_near, self.x, where(lt(self.x, 0), -1, 1))
        return exp(a) * scaled

    def backward(self, *output_grads: Tensor) -> Tensor:
        (dy,) = output_grads
        out: Tensor = (
            dy
            * 0.5
            * (_bessel(self.order - 1 if self.order else 1, self.x) + _bessel(self.order + 1, self.x))
        )
        return out


@lru_cache(maxsize=8)
def _coefficients(order: int) -> tuple[list[float], list[float]]:
    """Fit ``exp(-x) i(x) / x**order`` up to `_FAR`, and ``exp(-x) i(x) sqrt(x)`` beyond, in ``1 / x``."""
    from scipy.special import i0e, ive

    def scaled(x: Any) -> Any:
        return ive(order, x) if order else i0e(x)

    def far(s: Any) -> Any:
        x = 2 * _FAR / (s + 1)
        return scaled(x) * np.sqrt(x)

    def near(s: Any) -> Any:
        x = _FAR / 2 * (s + 1)
        return scaled(x) / x**order

    interpolate = np.polynomial.chebyshev.chebinterpolate
    return interpolate(near, 30).tolist(), interpolate(far, 24).tolist()


def _series(coefficients: list[float], x: Tensor) -> Tensor:
    """Sum the series at `x`, by Clenshaw's recurrence."""
    later: Tensor | float = 0.0
    last: Tensor | float = 0.0
    for c in reversed(coefficients[1:]):
        last, later = c + 2 * x * last - later, last
    total: Tensor = coefficients[0] + x * last - later
    return total
