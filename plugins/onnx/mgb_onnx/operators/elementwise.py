"""Arithmetic, comparisons, casts and activations."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from mgb import dtypes
from mgb.errors import FileFormatError, UnsupportedError
from mgb.ops import activations, primitives
from mgb.ops import elementwise as words
from mgb.ops.bodies import division, hyperbolic, integers, transcendental
from mgb.ops.declare import arity, op_of
from mgb.ops.primitives import bitcast, cast, where
from mgb.tensor import Tensor

from ..values import Host, Value, dtype_of
from .table import operator

Dtype = np.dtype[Any]

#: Operators that are one op of mgb, on inputs of one dtype.
_SAME: dict[str, Callable[..., Tensor]] = {
    "Abs": words.abs,
    "Acos": hyperbolic.acos,
    "Acosh": hyperbolic.acosh,
    "Add": primitives.add,
    "And": primitives.logical_and,
    "Asin": hyperbolic.asin,
    "Asinh": hyperbolic.asinh,
    "Atan": hyperbolic.atan,
    "Atanh": hyperbolic.atanh,
    "BitwiseAnd": primitives.bit_and,
    "BitwiseNot": words.bit_not,
    "BitwiseOr": primitives.bit_or,
    "BitwiseXor": primitives.bit_xor,
    "Ceil": words.ceil,
    "Cos": transcendental.cos,
    "Cosh": hyperbolic.cosh,
    "Equal": primitives.eq,
    "Erf": transcendental.erf,
    "Exp": transcendental.exp,
    "Floor": primitives.floor,
    "Greater": words.gt,
    "GreaterOrEqual": words.ge,
    "HardSwish": activations.hswish,
    "IsNaN": words.isnan,
    "Less": primitives.lt,
    "LessOrEqual": primitives.le,
    "Log": transcendental.log,
    "Mish": activations.mish,
    "Mul": primitives.mul,
    "Neg": primitives.neg,
    "Not": primitives.logical_not,
    "Or": primitives.logical_or,
    "PRelu": activations.prelu,
    "Relu": activations.relu,
    "Round": primitives.round,
    "Sigmoid": activations.sigmoid,
    "Sign": words.sign,
    "Sin": transcendental.sin,
    "Sinh": hyperbolic.sinh,
    "Softplus": activations.softplus,
    "Softsign": activations.softsign,
    "Sqrt": primitives.sqrt,
    "Sub": primitives.sub,
    "Tan": hyperbolic.tan,
    "Tanh": transcendental.tanh,
    "Xor": words.logical_xor,
}


def _declare(name: str, word: Callable[..., Tensor]) -> None:
    if arity(op_of(word)) == 1:

        def unary(x: Tensor) -> Tensor:
            return word(x)

        operator(name)(unary)
    else:

        def binary(x: Tensor, y: Tensor) -> Tensor:
            return word(x, y)

        operator(name)(binary)


for _name, _word in _SAME.items():
    _declare(_name, _word)


def like(value: Tensor, x: Tensor) -> Tensor:
    """Return `value` in the dtype of `x`."""
    return value if value.dtype == x.dtype else cast(value, dtype=x.dtype)


# arithmetic


@operator("Div")
def div(x: Tensor, y: Tensor) -> Tensor:
    """Divide; integers are divided towards zero."""
    if x.dtype in dtypes.FLOATS:
        return x / y
    if x.dtype in dtypes.UNSIGNED:
        return x // y
    return (x - division.fmod(x, y)) // y


@operator("Mod")
def mod(x: Tensor, y: Tensor, *, fmod: int = 0) -> Tensor:
    return division.fmod(x, y) if fmod else division.mod(x, y)


@operator("Pow")
def power(x: Tensor, y: Tensor) -> Tensor:
    """Raise to a power in the dtype of the base."""
    if x.dtype in dtypes.FLOATS:
        return like(transcendental.pow(x, like(y, x)), x)
    if y.dtype in dtypes.FLOATS:
        wide = (cast(v, dtype=dtypes.float64) for v in (x, y))
        return cast(transcendental.pow(*wide), dtype=x.dtype)
    exponent = cast(y, dtype=dtypes.int64) if y.dtype == dtypes.uint64 else y
    return like(integers.integer_power(x, exponent), x)


@operator("Reciprocal")
def reciprocal(x: Tensor) -> Tensor:
    return 1 / x


@operator("Sum")
def add_all(*xs: Tensor) -> Tensor:
    return reduce(primitives.add, xs)


@operator("Mean")
def mean_of_all(*xs: Tensor) -> Tensor:
    return reduce(primitives.add, xs) / len(xs)


@operator("Max")
def max_of_all(*xs: Tensor) -> Tensor:
    return reduce(primitives.maximum, xs)


@operator("Min")
def min_of_all(*xs: Tensor) -> Tensor:
    return reduce(primitives.minimum, xs)


@operator("Clip")
def clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    out = x if low is None else primitives.maximum(x, low)
    return out if high is None else primitives.minimum(out, high)


@operator("BitShift")
def bit_shift(x: Tensor, y: Tensor, *, direction: str) -> Tensor:
    """Return a count of the width or more, or a negative one, shifts everything out."""
    return (integers.left_shift if direction == "LEFT" else integers.right_shift)(x, y)


# classes and choices


@operator("IsInf")
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    found = words.isinf(x)
    if not detect_negative:
        found = primitives.logical_and(found, primitives.lt(0, x))
    if not detect_positive:
        found = primitives.logical_and(found, primitives.lt(x, 0))
    return found


@operator("Where")
def choose(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return where(condition, x, y)


@operator("Identity")
def identity(x: Value) -> Value:
    return x


# dtypes


@operator("Cast")
def cast_to(x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:
    """Cast; `round_mode` is for floats that mgb does not have."""
    return _cast(x, dtype_of(to, "Cast"), saturate)


@operator("CastLike")
def cast_like(x: Tensor, target: Tensor, *, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return _cast(x, target.dtype, saturate)


def _cast(x: Tensor, dtype: Dtype, saturate: int) -> Tensor:
    """Cast to `dtype`; `saturate` speaks of floats of 8 bits only."""
    if saturate and dtype in dtypes.HALVES and dtype.itemsize == 1:
        most = dtypes.ROWS[dtype].most
        x = primitives.minimum(primitives.maximum(x, -most), most)
    return x if x.dtype == dtype else cast(x, dtype=dtype)


@operator("BitCast")
def bit_cast(x: Tensor, *, to: int) -> Tensor:
    wanted = dtype_of(to, "BitCast")
    if wanted.itemsize != x.dtype.itemsize:
        raise FileFormatError(f"BitCast of {x.dtype} to {wanted}, which has another size")
    if dtypes.bool_ in (wanted, x.dtype):
        return cast(x, dtype=wanted)
    return bitcast(x, dtype=wanted)


# activations


@operator("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return activations.leaky_relu(x, negative_slope=alpha)


@operator("Elu")
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return activations.elu(x, alpha=alpha)


@operator("Celu")
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return activations.celu(x, alpha=alpha)


@operator("Selu")
def selu(
    x: Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> Tensor:
    return gamma * activations.elu(x, alpha=alpha)


@operator("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return primitives.minimum(primitives.maximum(alpha * x + beta, 0), 1)


@operator("ThresholdedRelu")
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return where(primitives.lt(alpha, x), x, 0)


@operator("Shrink")
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    shrunk = where(primitives.lt(lambd, x), x - bias, 0)
    return like(where(primitives.lt(x, -lambd), x + bias, shrunk), x)


@operator("Gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return activations.gelu_tanh(x) if approximate == "tanh" else activations.gelu(x)


@operator("Swish")
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x * activations.sigmoid(alpha * x)


#: The activation functions that recurrent layers know by name: ``(x, alpha, beta)``, and what the two
#: parameters are when they are not given.
ACTIVATIONS: dict[str, tuple[Callable[[Tensor, float, float], Tensor], float, float]] = {
    "relu": (lambda x, a, b: activations.relu(x), 0.0, 0.0),
    "tanh": (lambda x, a, b: transcendental.tanh(x), 0.0, 0.0),
    "sigmoid": (lambda x, a, b: activations.sigmoid(x), 0.0, 0.0),
    "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "leakyrelu": (lambda x, a, b: leaky_relu(x, alpha=a), 0.01, 0.0),
    "thresholdedrelu": (lambda x, a, b: thresholded_relu(x, alpha=a), 1.0, 0.0),
    "scaledtanh": (lambda x, a, b: a * transcendental.tanh(b * x), 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: hard_sigmoid(x, alpha=a, beta=b), 0.2, 0.5),
    "elu": (lambda x, a, b: elu(x, alpha=a), 1.0, 0.0),
    "softsign": (lambda x, a, b: activations.softsign(x), 0.0, 0.0),
    "softplus": (lambda x, a, b: activations.softplus(x), 0.0, 0.0),
}


def activation(name: str, alpha: float | None, beta: float | None) -> Callable[[Tensor], Tensor]:
    """Return the function that a recurrent layer calls `name`.

    Raises
    ------
    UnsupportedError
        There is none.
    """
    if name.lower() not in ACTIVATIONS:
        raise UnsupportedError(f"the activation {name!r} is not supported")
    function, first, second = ACTIVATIONS[name.lower()]
    return lambda x: function(x, first if alpha is None else alpha, second if beta is None else beta)


def ints(values: Any) -> tuple[int, ...]:
    """Return an attribute of integers, or an input that holds them, as Python integers."""
    return tuple(int(v) for v in np.ravel(values))


def number(value: Host | float) -> Any:
    """Return the one element of an array, as a Python number."""
    return np.asarray(value).reshape(()).item()
