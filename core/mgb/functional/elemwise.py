"""Element-wise functions under MegEngine's names.

Operands are Tensors, scalars, lists or arrays; they broadcast and are promoted. Integers become float32 where
the function is one of real numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir import Op, dtypes
from ..ops import elementwise as e
from ..ops import operators
from ..ops import primitives as p
from ..ops.bodies import division
from ..ops.bodies import hyperbolic as h
from ..ops.bodies import integers as i
from ..ops.bodies import transcendental as t
from ..ops.declare import op_of
from ..tensor import Tensor
from ..tensor.apply import apply, literals, tensors

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "elementwise"}

__all__ = [
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil",
    "clip", "copysign", "cos", "cosh", "div", "equal", "erf", "erfc", "erfcinv", "erfinv", "exp",
    "exp2", "expm1", "floor", "floor_div", "greater", "greater_equal", "hypot", "isfinite", "isinf",
    "isnan", "left_shift", "less", "less_equal", "log", "log1p", "log2", "log10", "logaddexp",
    "logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "mod", "mul",
    "neg", "not_equal", "pow", "right_shift", "round", "rsqrt", "sign", "sin", "sinh", "sqrt",
    "square", "sub", "tan", "tanh", "trunc_div",
]  # fmt: skip

#: What a message of an op begins with.
_OP_NAME = re.compile(r"\A\w+: ")

Unary = Callable[[Any], Tensor]
Binary = Callable[[Any, Any], Tensor]


def unary(name: str, word: Callable[..., Tensor], meaning: str, like: str = "") -> Unary:
    """Return the function of one operand that applies the op `word`; SciPy or NumPy call it `like`."""
    op = op_of(word)

    def function(x: Any) -> Tensor:
        return apply(op, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = meaning + _example(name, op, like, "1")
    return function


def binary(name: str, word: Callable[..., Tensor], meaning: str, like: str = "") -> Binary:
    """Return the function of two operands that applies the op `word`; SciPy or NumPy call it `like`."""
    op = op_of(word)

    def function(x: Any, y: Any) -> Tensor:
        return apply(op, x, y)

    def named(x: Any, y: Any) -> Tensor:
        return _named(name, apply, op, x, y)

    function = function if name == op.name else named
    function.__name__ = function.__qualname__ = name
    function.__doc__ = meaning + _example(name, op, like, "5", "2")
    return function


def _named(name: str, function: Callable[..., Tensor], *args: Any) -> Tensor:
    """Return ``function(*args)``, whose messages begin with the `name` that the user knows."""
    try:
        return function(*args)
    except (TypeError, ValueError) as error:
        if error.args and isinstance(error.args[0], str):
            error.args = (_OP_NAME.sub(f"{name}: ", error.args[0], count=1), *error.args[1:])
        raise


def _example(name: str, op: Op, like: str, *operands: str) -> str:
    """Return NumPy's or SciPy's function of the same numbers, where there is one."""
    if isinstance(op.eager, np.ufunc):
        like = like or f"np.{op.eager.__name__}"
    if not like:
        return ""
    given, plain = (", ".join(f"{kind}({x})" for x in operands) for kind in ("mgb.tensor", "np.array"))
    needed = ">>> from scipy import special\n" if like.startswith("special.") else ""
    same = f"np.allclose({name}({given}).numpy(), {like}({plain}))"
    return f"\n\nExamples\n--------\n{needed}>>> {same}\nTrue"


# fmt: off
add       = binary("add", p.add, "``x + y``.")
sub       = binary("sub", p.sub, "``x - y``.")
mul       = binary("mul", p.mul, "``x * y``.")
floor_div = binary("floor_div", division.floor_div, "``x // y``: the quotient rounded down.")
maximum   = binary("maximum", p.maximum, "The greater one; NaN if either is. A tie gives `x` the gradient.")
minimum   = binary("minimum", p.minimum, "The lesser one; NaN if either is. A tie gives `x` the gradient.")
logaddexp = binary("logaddexp", e.logaddexp, "``log(exp(x) + exp(y))`` without overflow.")
hypot     = binary("hypot", e.hypot, "``sqrt(x**2 + y**2)`` without overflow.")
copysign  = binary("copysign", e.copysign, "The magnitude of `x` with the sign of `y`.")

neg     = unary("neg", p.neg, "``-x``.")
abs     = unary("abs", e.abs, "The magnitude.")
square  = unary("square", e.square, "``x * x``.")
sqrt    = unary("sqrt", p.sqrt, "The square root; NaN below 0.")
rsqrt   = unary("rsqrt", e.rsqrt, "``1 / sqrt(x)``.", "1 / np.sqrt")
cbrt    = unary("cbrt", e.cbrt, "The cube root, of negative numbers too.")
exp     = unary("exp", t.exp, "``e ** x``.")
exp2    = unary("exp2", e.exp2, "``2 ** x``.")
expm1   = unary("expm1", e.expm1, "``exp(x) - 1``, accurate near 0.")
log     = unary("log", t.log, "The natural logarithm.")
log2    = unary("log2", e.log2, "The logarithm to base 2.")
log10   = unary("log10", e.log10, "The logarithm to base 10.")
log1p   = unary("log1p", e.log1p, "``log(1 + x)``, accurate near 0.")
erf     = unary("erf", t.erf, "The error function.", "special.erf")
erfc    = unary("erfc", h.erfc, "``1 - erf(x)``, accurate for large `x`.", "special.erfc")
erfinv  = unary("erfinv", h.erfinv, "The inverse of `erf`.", "special.erfinv")
erfcinv = unary("erfcinv", h.erfcinv, "The inverse of `erfc`.", "special.erfcinv")

sin   = unary("sin", t.sin, "The sine.")
cos   = unary("cos", t.cos, "The cosine.")
tan   = unary("tan", h.tan, "The tangent.")
asin  = unary("asin", h.asin, "The inverse of `sin`, in [-pi/2, pi/2].")
acos  = unary("acos", h.acos, "The inverse of `cos`, in [0, pi].")
atan  = unary("atan", h.atan, "The inverse of `tan`, in [-pi/2, pi/2].")
sinh  = unary("sinh", h.sinh, "The hyperbolic sine.")
cosh  = unary("cosh", h.cosh, "The hyperbolic cosine.")
tanh  = unary("tanh", t.tanh, "The hyperbolic tangent.")
asinh = unary("asinh", h.asinh, "The inverse of `sinh`.")
acosh = unary("acosh", h.acosh, "The inverse of `cosh`; NaN below 1.")
atanh = unary("atanh", h.atanh, "The inverse of `tanh`.")

isfinite    = unary("isfinite", e.isfinite, "Is it neither NaN nor an infinity?")
logical_not = unary("logical_not", p.logical_not, "The opposite truth value.")
logical_and = binary("logical_and", p.logical_and, "Are both true?")
logical_or  = binary("logical_or", p.logical_or, "Is one of them true?")
logical_xor = binary("logical_xor", e.logical_xor, "Is exactly one of them true?")

equal         = binary("equal", p.eq, "``x == y``.")
not_equal     = binary("not_equal", e.ne, "``x != y``.")
less          = binary("less", p.lt, "``x < y``.")
less_equal    = binary("less_equal", p.le, "``x <= y``.")
greater       = binary("greater", e.gt, "``x > y``.")
greater_equal = binary("greater_equal", e.ge, "``x >= y``.")

left_shift  = binary("left_shift", i.left_shift, "``x << y``; 0 for a count of the width or more.",
                     "np.left_shift")
right_shift = binary("right_shift", i.right_shift, "``x >> y``; signed integers keep their sign.",
                     "np.right_shift")

_floor = unary("floor", p.floor, "")
_ceil  = unary("ceil", e.ceil, "")
_round = unary("round", e.round_away, "")
# fmt: on


def atan2(y: Any, x: Any) -> Tensor:
    """Return the angle of the point ``(x, y)``: `y` is the height.

    Examples
    --------
    >>> F.atan2(mgb.tensor([1.0, -2.0]), mgb.tensor([3.0, 0.5]))
    Tensor([ 0.32175058, -1.3258177 ], device=xpux:0)
    """
    return t.atan2(y, x)


def isnan(inp: Any) -> Tensor:
    """Return whether it is NaN.

    Examples
    --------
    >>> F.isnan(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([False, False, False], dtype=bool, device=xpux:0)
    """
    return e.isnan(inp)


def isinf(inp: Any) -> Tensor:
    """Return whether it is an infinity.

    Examples
    --------
    >>> F.isinf(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([False, False, False], dtype=bool, device=xpux:0)
    """
    return e.isinf(inp)


def div(x: Any, y: Any, *, rounding_mode: str | None = None) -> Tensor:
    """Return ``x / y``, always a float; `rounding_mode` makes it `floor_div` or `trunc_div`.

    Raises
    ------
    ValueError
        `rounding_mode` is none of None, ``"floor"`` and ``"trunc"``.

    Examples
    --------
    >>> mgb.functional.div(mgb.tensor([-7.0, 7.0]), 2, rounding_mode="trunc")
    Tensor([-3.,  3.], device=xpux:0)
    """
    if rounding_mode is None:
        return p.div(x, y)
    if rounding_mode not in ("floor", "trunc"):
        raise ValueError(f"div: rounding_mode is None, 'floor' or 'trunc', not {rounding_mode!r}")
    return floor_div(x, y) if rounding_mode == "floor" else trunc_div(x, y)


def trunc_div(x: Any, y: Any) -> Tensor:
    """Return the quotient rounded towards 0: of integers an integer, by 0 it is 0.

    Examples
    --------
    >>> mgb.functional.trunc_div(mgb.tensor([-7, 7]), 2)
    Tensor([-3,  3], dtype=int32, device=xpux:0)
    """
    x, y = literals("trunc_div", (x, y))
    met = dtypes.common([a.dtype if isinstance(a, Tensor) else type(a) for a in (x, y)])
    if met in dtypes.INEXACT:
        return e.trunc(_named("trunc_div", p.div, x, y))
    return _named("trunc_div", division.quotient, x, y)


def sign(x: Any) -> Tensor:
    """Return -1, 0 or 1; of complex numbers ``x / abs(x)``, and 0 of 0.

    Examples
    --------
    >>> mgb.functional.sign(mgb.tensor([-2.5, 0.0, 3.0]))
    Tensor([-1.,  0.,  1.], device=xpux:0)
    """
    return e.direction(*tensors("sign", (x,)))


def is_whole(x: Any) -> bool:
    """Return whether it is a Tensor of integers or bools."""
    return isinstance(x, Tensor) and x.dtype.kind in "biu"


def floor(x: Any) -> Tensor:
    """Return the next whole number below; integers stay as they are.

    Examples
    --------
    >>> F.floor(mgb.tensor([0.5, 1.5, -1.7]))
    Tensor([ 0.,  1., -2.], device=xpux:0)
    """
    return +x if is_whole(x) else _floor(x)


def ceil(x: Any) -> Tensor:
    """Return the next whole number above; integers stay as they are.

    Examples
    --------
    >>> F.ceil(mgb.tensor([0.5, 1.5, -1.7]))
    Tensor([ 1.,  2., -1.], device=xpux:0)
    """
    return +x if is_whole(x) else _ceil(x)


def round(x: Any) -> Tensor:
    """Return the nearest whole number; halfway cases go away from 0. Integers stay as they are.

    Examples
    --------
    >>> F.round(mgb.tensor([0.5, 1.5, -1.7]))
    Tensor([ 1.,  2., -2.], device=xpux:0)
    """
    return +x if is_whole(x) else _round(x)


def pow(x: Any, y: Any) -> Tensor:
    """Return ``x ** y``; of integers an integer, which wraps.

    Examples
    --------
    >>> F.pow(mgb.tensor([5, -7]), mgb.tensor([3, 2]))
    Tensor([125,  49], dtype=int32, device=xpux:0)
    """
    return operators.power(x, y)


def mod(x: Any, y: Any) -> Tensor:
    """Return ``x % y``: for floats with the sign of `x`, for integers with that of `y`.

    Examples
    --------
    >>> F.mod(mgb.tensor([7, -7]), mgb.tensor([2, 2]))
    Tensor([1, 1], dtype=int32, device=xpux:0)
    """
    return _named("mod", operators.remainder, x, y)


def clip(x: Any, lower: Any = None, upper: Any = None) -> Tensor:
    """Return `x` within [`lower`, `upper`]; a bound that is None does not bind, NaN stays NaN.

    Raises
    ------
    ValueError
        Both bounds are None.

    Examples
    --------
    >>> F.clip(mgb.tensor([-1.0, 0.5, 2.0]), 0, 1)
    Tensor([0. , 0.5, 1. ], device=xpux:0)
    """
    if lower is None and upper is None:
        raise ValueError("clip: give lower, upper, or both")
    if lower is None:
        return _named("clip", minimum, x, upper)
    return _named("clip", maximum, x, lower) if upper is None else _named("clip", e.clip, x, lower, upper)
