"""NumPy's ufuncs that are a few ops of ours; others are found by the eager rule of an op."""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi
from typing import Any

import numpy as np

from ..errors import ConversionError
from ..functional import math
from ..functional.tensor import full, squeeze
from ..ir import dtypes
from ..loops import note, while_loop
from ..ops import elementwise as e
from ..ops.bodies.division import fmod, mod, quotient
from ..ops.bodies.transcendental import sin
from ..ops.declare import broadcast_shapes
from ..ops.layout import broadcast_to
from ..ops.operators import power, product
from ..ops.primitives import bitcast, cast, eq, maximum, minimum, where
from ..tensor import Tensor
from ..tensor.apply import tensors
from .linalg import vecdot

__all__ = [
    "bitwise_count", "deg2rad", "degrees", "fabs", "float_power", "fmax", "fmin", "frexp", "gcd", "heaviside",
    "lcm", "ldexp", "logaddexp2", "matvec", "modf", "rad2deg", "radians", "spacing", "vecdot", "vecmat",
]  # fmt: skip


def _floats(name: str, *xs: Any) -> list[Tensor]:
    """Return the operands, integers as float32."""
    found = tensors(name, xs)
    return [x if x.dtype in dtypes.INEXACT else cast(x, dtype=dtypes.float32) for x in found]


def radians(x: Any) -> Tensor:
    """Convert degrees to radians."""
    (x,) = _floats("radians", x)
    scaled: Tensor = x * (pi / 180)
    return scaled


def degrees(x: Any) -> Tensor:
    """Convert radians to degrees."""
    (x,) = _floats("degrees", x)
    scaled: Tensor = x * (180 / pi)
    return scaled


deg2rad, rad2deg = radians, degrees


def _unless_nan(function: Callable[..., Tensor]) -> Callable[[Any, Any], Tensor]:
    def chosen(a: Any, b: Any) -> Tensor:
        a, b = tensors(function.__name__, (a, b))
        found = function(a, b)
        if found.dtype not in dtypes.FLOATS:
            return found
        return where(e.isnan(a), b, where(e.isnan(b), a, found))

    return chosen


fmax, fmin = _unless_nan(maximum), _unless_nan(minimum)


def heaviside(x: Any, at_zero: Any) -> Tensor:
    """Return 0 below 0, 1 above, `at_zero` at 0."""
    x, at_zero = _floats("heaviside", x, at_zero)
    step = where(eq(x, 0), at_zero, cast(x > 0, dtype=x.dtype))
    return where(e.isnan(x), np.nan, step)


def logaddexp2(a: Any, b: Any) -> Tensor:
    """Return ``log2(2**a + 2**b)`` without overflow."""
    a, b = _floats("logaddexp2", a, b)
    return e.logaddexp(a * log(2), b * log(2)) / log(2)


def float_power(a: Any, b: Any) -> Tensor:
    """Return ``a ** b`` in at least float64."""
    a, b = tensors("float_power", (a, b))
    wide = dtypes.complex128 if {a.dtype, b.dtype} & {*dtypes.COMPLEX} else dtypes.float64
    return power(cast(a, dtype=wide), cast(b, dtype=wide))


def fabs(x: Any) -> Tensor:
    """Return the magnitude, as a float."""
    return e.abs(*_floats("fabs", x))


def modf(x: Any) -> tuple[Tensor, Tensor]:
    """Return the fractional and the integral part, both with the sign of `x`."""
    (x,) = _floats("modf", x)
    rest = where(e.isinf(x), 0, fmod(x, 1))
    return e.copysign(rest, x), e.trunc(x)


def ldexp(x: Any, exponent: Any) -> Tensor:
    """Return ``x * 2**exponent``, in two steps, since the power alone may overflow."""
    (x,), (n,) = _floats("ldexp", x), tensors("ldexp", (exponent,))
    half = quotient(n, 2)
    for part in (half, n - half):
        x = x * e.exp2(cast(part, dtype=x.dtype))
    scaled: Tensor = x
    return scaled


def frexp(x: Any) -> tuple[Tensor, Tensor]:
    """Return a number of magnitude in [0.5, 1) and the power of 2 it is multiplied by, as int32."""
    (x,) = _floats("frexp", x)
    row = dtypes.ROWS[x.dtype]
    fraction, width = row.digits, row.exponent
    bias, lift = 2 ** (width - 1) - 2, fraction + 2
    is_small = e.abs(x) < 2.0 ** (1 - bias)  # subnormal, unless it is lifted
    lifted = where(is_small, x * 2.0**lift, x)
    bits = cast(bitcast(lifted, dtype=dtypes.BY_NAME[f"int{x.dtype.itemsize * 8}"]), dtype=dtypes.int64)
    exponent = cast((bits >> fraction) & (2**width - 1), dtype=dtypes.int32) - bias
    exponent = where(is_small, exponent - lift, exponent)
    exponent = where(eq(x, 0) | ~e.isfinite(x), 0, exponent)
    return ldexp(x, -exponent), exponent


def spacing(x: Any) -> Tensor:
    """Return the distance to the next number away from 0."""
    (x,) = _floats("spacing", x)
    far = e.copysign(full(x.shape, np.inf, x.dtype, x.device), x)
    step: Tensor = e.nextafter(x, far) - x
    return step


def _integers(name: str, *xs: Any) -> list[Tensor]:
    found = tensors(name, xs)
    if wrong := [x.dtype for x in found if x.dtype not in dtypes.INTEGERS]:
        raise ConversionError(f"{name}: needs integers, got {wrong[0]}: use astype('int64')")
    meeting = dtypes.common([x.dtype for x in found])
    return [cast(x, dtype=meeting) for x in found]


def bitwise_count(x: Any) -> Tensor:
    """Count the 1 bits of the magnitude, as uint8: added up in pairs, fours, and so on."""
    (x,) = _integers("bitwise_count", x)
    bits = cast(e.abs(x), dtype=dtypes.uint64)
    if x.dtype in dtypes.SIGNED:  # the magnitude of the least number is that number again
        bits = bits & ((1 << (8 * x.dtype.itemsize)) - 1)
    for width, mask in ((1, 0x5555555555555555), (2, 0x3333333333333333), (4, 0x0F0F0F0F0F0F0F0F)):
        low = Tensor(np.uint64(mask), dtypes.uint64, x.device)
        bits = (bits & low) + ((bits >> width) & low)
    total = bits & 255
    for byte in range(1, 8):
        total = total + ((bits >> (8 * byte)) & 255)
    return cast(total, dtype=dtypes.uint8)


def gcd(a: Any, b: Any) -> Tensor:
    """Return the greatest common divisor, by Euclid's algorithm: a loop until all elements are done."""
    a, b = _integers("gcd", a, b)
    shape = broadcast_shapes("gcd", a.shape, b.shape)
    init = [broadcast_to(e.abs(x), shape=shape) for x in (a, b)]

    def step(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        done = eq(b, 0)
        return where(done, a, b), where(done, b, mod(a, where(done, 1, b)))

    specs = [x.spec for x in init]
    test, outside = note("gcd", lambda _a, b: (math.any(e.ne(b, 0)),), specs)
    body, others = note("gcd", step, specs)
    return e.abs(while_loop(test, body, [outside, others], init)[0])  # the least number has no magnitude


def lcm(a: Any, b: Any) -> Tensor:
    """Return the least common multiple; 0 of 0."""
    a, b = _integers("lcm", a, b)
    divisor = gcd(a, b)
    return e.abs(quotient(a, where(eq(divisor, 0), 1, divisor)) * b)


def matvec(a: Any, x: Any) -> Tensor:
    """Multiply stacks of matrices by stacks of vectors."""
    a, x = tensors("matvec", (a, x))
    return squeeze(product(a, x[..., None]), -1)


def vecmat(x: Any, a: Any) -> Tensor:
    """Return the conjugates of stacks of vectors times stacks of matrices."""
    x, a = tensors("vecmat", (x, a))
    return squeeze(product(x.conj()[..., None, :], a), -2)


def sinc(x: Any) -> Tensor:
    """Return ``sin(pi * x) / (pi * x)``; by its series around 0, so that all derivatives are right there."""
    (x,) = _floats("sinc", x)
    angle = x * pi
    near = e.abs(angle) < 1e-2
    square = angle * angle
    series = 1 - square / 6 * (1 - square / 20 * (1 - square / 42))
    far = where(near, 1, angle)
    return where(near, series, sin(far) / far)
