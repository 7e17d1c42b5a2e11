"""Element-wise functions under MegEngine's names.

Operands are Tensors, scalars, lists or arrays; they broadcast and are promoted. Integers become float32 where
the function is one of real numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..apply import apply
from ..ops import elementwise as e
from ..ops import hyperbolic as h
from ..ops import integers as i
from ..ops import operators
from ..ops import primitives as p
from ..ops import transcendental as t
from ..ops.declare import op_of
from ..tensor import Tensor

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "elementwise"}

__all__ = [
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil",
    "clip", "copysign", "cos", "cosh", "div", "equal", "erf", "erfc", "erfcinv", "erfinv", "exp",
    "exp2", "expm1", "floor", "floor_div", "greater", "greater_equal", "hypot", "isfinite", "isinf",
    "isnan", "left_shift", "less", "less_equal", "log", "log1p", "log2", "log10", "logaddexp",
    "logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "mod", "mul",
    "neg", "not_equal", "pow", "right_shift", "round", "rsqrt", "sign", "sin", "sinh", "sqrt",
    "square", "sub", "tan", "tanh",
]  # fmt: skip

Unary = Callable[[Any], Tensor]
Binary = Callable[[Any, Any], Tensor]


def _unary(name: str, word: Callable[..., Tensor], meaning: str) -> Unary:
    op = op_of(word)

    def function(x: Any) -> Tensor:
        return apply(op, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = meaning
    return function


def _binary(name: str, word: Callable[..., Tensor], meaning: str) -> Binary:
    op = op_of(word)

    def function(x: Any, y: Any) -> Tensor:
        return apply(op, x, y)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = meaning
    return function


# fmt: off
add       = _binary("add", p.add, "``x + y``.")
sub       = _binary("sub", p.sub, "``x - y``.")
mul       = _binary("mul", p.mul, "``x * y``.")
div       = _binary("div", p.div, "``x / y``, always a float.")
floor_div = _binary("floor_div", p.floor_div, "``x // y``: the quotient rounded down.")
maximum   = _binary("maximum", p.maximum, "The greater one; NaN if either is. A tie gives `x` the gradient.")
minimum   = _binary("minimum", p.minimum, "The lesser one; NaN if either is. A tie gives `x` the gradient.")
logaddexp = _binary("logaddexp", e.logaddexp, "``log(exp(x) + exp(y))`` without overflow.")
hypot     = _binary("hypot", e.hypot, "``sqrt(x**2 + y**2)`` without overflow.")
copysign  = _binary("copysign", e.copysign, "The magnitude of `x` with the sign of `y`.")

neg     = _unary("neg", p.neg, "``-x``.")
abs     = _unary("abs", e.abs, "The magnitude.")
sign    = _unary("sign", e.sign, "-1, 0 or 1.")
square  = _unary("square", e.square, "``x * x``.")
sqrt    = _unary("sqrt", p.sqrt, "The square root; NaN below 0.")
rsqrt   = _unary("rsqrt", e.rsqrt, "``1 / sqrt(x)``.")
cbrt    = _unary("cbrt", e.cbrt, "The cube root, of negative numbers too.")
exp     = _unary("exp", t.exp, "``e ** x``.")
exp2    = _unary("exp2", e.exp2, "``2 ** x``.")
expm1   = _unary("expm1", e.expm1, "``exp(x) - 1``, accurate near 0.")
log     = _unary("log", t.log, "The natural logarithm.")
log2    = _unary("log2", e.log2, "The logarithm to base 2.")
log10   = _unary("log10", e.log10, "The logarithm to base 10.")
log1p   = _unary("log1p", e.log1p, "``log(1 + x)``, accurate near 0.")
erf     = _unary("erf", t.erf, "The error function.")
erfc    = _unary("erfc", h.erfc, "``1 - erf(x)``, accurate for large `x`.")
erfinv  = _unary("erfinv", h.erfinv, "The inverse of `erf`.")
erfcinv = _unary("erfcinv", h.erfcinv, "The inverse of `erfc`.")

sin   = _unary("sin", t.sin, "The sine.")
cos   = _unary("cos", t.cos, "The cosine.")
tan   = _unary("tan", h.tan, "The tangent.")
asin  = _unary("asin", h.asin, "The inverse of `sin`, in [-pi/2, pi/2].")
acos  = _unary("acos", h.acos, "The inverse of `cos`, in [0, pi].")
atan  = _unary("atan", h.atan, "The inverse of `tan`, in [-pi/2, pi/2].")
sinh  = _unary("sinh", h.sinh, "The hyperbolic sine.")
cosh  = _unary("cosh", h.cosh, "The hyperbolic cosine.")
tanh  = _unary("tanh", t.tanh, "The hyperbolic tangent.")
asinh = _unary("asinh", h.asinh, "The inverse of `sinh`.")
acosh = _unary("acosh", h.acosh, "The inverse of `cosh`; NaN below 1.")
atanh = _unary("atanh", h.atanh, "The inverse of `tanh`.")

isfinite    = _unary("isfinite", e.isfinite, "Is it neither NaN nor an infinity?")
logical_not = _unary("logical_not", p.logical_not, "The opposite truth value.")
logical_and = _binary("logical_and", p.logical_and, "Are both true?")
logical_or  = _binary("logical_or", p.logical_or, "Is one of them true?")
logical_xor = _binary("logical_xor", e.logical_xor, "Is exactly one of them true?")

equal         = _binary("equal", p.eq, "``x == y``.")
not_equal     = _binary("not_equal", e.ne, "``x != y``.")
less          = _binary("less", p.lt, "``x < y``.")
less_equal    = _binary("less_equal", p.le, "``x <= y``.")
greater       = _binary("greater", e.gt, "``x > y``.")
greater_equal = _binary("greater_equal", e.ge, "``x >= y``.")

left_shift  = _binary("left_shift", i.left_shift, "``x << y``; 0 for a count of the width or more.")
right_shift = _binary("right_shift", i.right_shift, "``x >> y``; signed integers keep their sign.")

_floor = _unary("floor", p.floor, "")
_ceil  = _unary("ceil", e.ceil, "")
_round = _unary("round", e.round_away, "")
# fmt: on


def atan2(y: Any, x: Any) -> Tensor:
    """The angle of the point ``(x, y)``: `y` is the height."""
    return t.atan2(y, x)


def isnan(inp: Any) -> Tensor:
    """Is it NaN?"""
    return e.isnan(inp)


def isinf(inp: Any) -> Tensor:
    """Is it an infinity?"""
    return e.isinf(inp)


def _whole(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dtype.kind in "biu"


def floor(x: Any) -> Tensor:
    """The next whole number below; integers stay as they are."""
    return +x if _whole(x) else _floor(x)


def ceil(x: Any) -> Tensor:
    """The next whole number above; integers stay as they are."""
    return +x if _whole(x) else _ceil(x)


def round(x: Any) -> Tensor:
    """The nearest whole number; halfway cases go away from 0. Integers stay as they are."""
    return +x if _whole(x) else _round(x)


def pow(x: Any, y: Any) -> Tensor:
    """``x ** y``; of integers an integer, which wraps."""
    return operators.power(x, y)


def mod(x: Any, y: Any) -> Tensor:
    """``x % y``: for floats with the sign of `x`, for integers with that of `y`."""
    return operators.remainder(x, y)


def clip(x: Any, lower: Any = None, upper: Any = None) -> Tensor:
    """`x` within [`lower`, `upper`]; a bound that is None does not bind, NaN stays NaN.

    Raises
    ------
    AssertionError
        Both bounds are None.
    """
    assert lower is not None or upper is not None, "clip: give lower, upper, or both"
    if lower is None:
        return minimum(x, upper)
    return maximum(x, lower) if upper is None else e.clip(x, lower, upper)
