"""The array API standard's functions of elements: most are functions of `mgb.functional` by another name."""

from __future__ import annotations

from typing import Any

from ..functional.complex_numbers import conj, imag, real
from ..functional.elemwise import (
    abs,
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    binary,
    ceil,
    copysign,
    cos,
    cosh,
    equal,
    exp,
    expm1,
    floor,
    greater,
    greater_equal,
    hypot,
    is_whole,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    not_equal,
    pow,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
    unary,
)
from ..functional.elemwise import div as divide
from ..functional.elemwise import floor_div as floor_divide
from ..functional.elemwise import left_shift as bitwise_left_shift
from ..functional.elemwise import mul as multiply
from ..functional.elemwise import neg as negative
from ..functional.elemwise import right_shift as bitwise_right_shift
from ..functional.elemwise import sub as subtract
from ..ops import elementwise as e
from ..ops import primitives
from ..ops.bodies import division
from ..tensor import Tensor
from .compositions import as_tensor as _as_tensor
from .compositions import clip as _clip
from .compositions import round_even as _round

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "elementwise"}

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "ceil",
    "clip",
    "conj",
    "copysign",
    "cos",
    "cosh",
    "divide",
    "equal",
    "exp",
    "expm1",
    "floor",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "nextafter",
    "not_equal",
    "positive",
    "pow",
    "real",
    "reciprocal",
    "remainder",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "trunc",
]  # fmt: skip

# fmt: off
bitwise_and    = binary("bitwise_and", primitives.bit_and, "The bits that are set in both.")
bitwise_or     = binary("bitwise_or", primitives.bit_or, "The bits that are set in one of them.")
bitwise_xor    = binary("bitwise_xor", primitives.bit_xor, "The bits that are set in one of them alone.")
bitwise_invert = unary("bitwise_invert", e.bit_not, "The other bits; of bools, the opposite.")
nextafter      = binary("nextafter", e.nextafter, "The number next to `x` on the way to `y`.")
reciprocal     = unary("reciprocal", e.reciprocal, "``1 / x``.", "1 / ")
remainder      = binary("remainder", division.mod, "``x - y * floor(x / y)``, with the sign of `y`.")
signbit        = unary("signbit", e.signbit, "Is it negative, or -0.0?")

_trunc = unary("trunc", e.trunc, "")
# fmt: on


def positive(x: Any, /) -> Tensor:
    """Return `x`.

    Examples
    --------
    >>> mgb.numpy.positive(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([-1.,  0.,  2.], device=xpux:0)
    """
    return +x  # type: ignore[no-any-return]


def clip(x: Any, /, min: Any = None, max: Any = None) -> Tensor:
    """Return `x` within [`min`, `max`], in its dtype; a bound that is None does not bind, NaN stays NaN.

    Examples
    --------
    >>> mgb.numpy.clip(mgb.tensor([-1.0, 0.5, 2.0]), 0, 1)
    Tensor([0. , 0.5, 1. ], device=xpux:0)
    """
    out = _clip(x, min=min, max=max)
    return out if out.dtype == x.dtype else out.astype(x.dtype)


def round(x: Any, /) -> Tensor:
    """Return the nearest whole number; halfway cases go to the even one. Integers stay as they are.

    Of complex numbers both parts are rounded.

    Examples
    --------
    >>> mgb.numpy.round(mgb.tensor([0.5, 1.5, -1.7]))
    Tensor([ 0.,  2., -2.], device=xpux:0)
    """
    return _round(_as_tensor(x))


def trunc(x: Any, /) -> Tensor:
    """Return the next whole number towards 0; integers stay as they are.

    Examples
    --------
    >>> mgb.numpy.trunc(mgb.tensor([0.5, 1.5, -1.7]))
    Tensor([ 0.,  1., -1.], device=xpux:0)
    """
    return +x if is_whole(x) else _trunc(x)
