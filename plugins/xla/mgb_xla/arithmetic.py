"""The element-wise words in `jax.lax`, with NumPy's meaning where XLA's is another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from mgb.codegen import OPS, guard
from mgb.ir import CONST, Node

from .remainder import WIDE, remainder
from .shapes import Value, alike, is_float, like
from .target import processor

Word = Callable[..., Value]

#: Instructions of processors that compute in float16.
FLOAT16 = "avx512_fp16"


def plain(function: Callable[..., Value]) -> Word:
    """Return a word that is one function of `lax`."""

    def word(_node: Node, *xs: Value) -> Value:
        return function(*alike(*xs))

    return word


def _div(a: Value, b: Value) -> Value:
    """Divide so that XLA does not multiply by the inverse of a constant, a broadcast value or a root.

    That is one rounding too many. So where the dividend is NaN, which XLA cannot rule out, it is the divisor.
    """
    a, b = alike(a, b)
    return lax.div(a, lax.select(lax.ne(a, a), a, b) if is_float(a) else b)


def _fma(a: Value, b: Value, c: Value) -> Value:
    return lax.add(lax.mul(a, b), c)


def _floor_div(a: Value, b: Value) -> Value:
    if is_float(a):
        return _float_floor_div(a, b)
    quotient = _quotient(a, b)
    down = _other_sign(lax.sub(a, lax.mul(quotient, b)), b)
    down = lax.bitwise_and(down, lax.ne(b, like(b, 0)))
    return lax.select(down, lax.sub(quotient, like(quotient, 1)), quotient)


def _mod(a: Value, b: Value) -> Value:
    if is_float(a):
        return _float_mod(a, b)
    return lax.select(lax.eq(b, like(b, 0)), like(a, 0), lax.sub(a, lax.mul(_floor_div(a, b), b)))


def _float_mod(a: Value, b: Value) -> Value:
    rest, divisor = remainder(a, b), lax.convert_element_type(b, WIDE)
    rest = lax.select(_other_sign(rest, divisor), lax.add(rest, divisor), rest)
    moved = lax.convert_element_type(rest, a.dtype)
    return lax.select(lax.eq(moved, like(a, 0)), _copysign(like(a, 0), b), moved)


def _float_floor_div(a: Value, b: Value) -> Value:
    """Divide as NumPy: from the exact remainder, so that ``1 // 0.1`` is 9.

    A float32 less its remainder is rounded twice, which is as good as once: a remainder with digits that
    float64 has no place for is too small to reach the half of a digit of float32.
    """
    rest, dividend, divisor = remainder(a, b), *(lax.convert_element_type(x, WIDE) for x in (a, b))
    quotient = _div(lax.convert_element_type(lax.sub(dividend, rest), a.dtype), b)
    quotient = lax.select(_other_sign(rest, divisor), lax.sub(quotient, like(a, 1)), quotient)
    whole = lax.floor(quotient)
    whole = lax.select(lax.gt(lax.sub(quotient, whole), like(a, 0.5)), lax.add(whole, like(a, 1)), whole)
    ratio = _div(a, b)
    whole = lax.select(lax.eq(quotient, like(a, 0)), _copysign(like(a, 0), ratio), whole)
    return lax.select(lax.eq(b, like(b, 0)), ratio, whole)


def _guarded(name: str, instruction: Callable[..., Value]) -> Callable[..., Value]:
    """Return a word by its instruction, which the guard of the op gives operands that are defined."""

    def function(*xs: Value) -> Value:
        def rule(node: Node, *operands: Value) -> Value:
            if node.op is CONST:
                return node.params["value"]
            return words[node.op.name](node, *operands)

        words = {**WORDS, name: plain(instruction)}
        (found,) = guard(OPS[name], xs[0].dtype).fold(rule, xs)
        return found

    return function


def _signed(x: Value) -> bool:
    return bool(x.dtype.kind == "i")


def _other_sign(rest: Value, b: Value) -> Value:
    """Return whether there is a remainder, and its sign is not that of the divisor."""
    zero = like(b, 0)
    return lax.bitwise_and(lax.ne(rest, zero), lax.bitwise_xor(lax.lt(rest, zero), lax.lt(b, zero)))


def _copysign(x: Value, sign: Value) -> Value:
    bits = np.dtype(f"u{x.dtype.itemsize}")
    top = np.asarray(1 << (8 * x.dtype.itemsize - 1), bits)
    signs = lax.bitwise_and(lax.bitcast_convert_type(sign, bits), lax.full(sign.shape, top, bits))
    magnitude = lax.bitwise_and(lax.bitcast_convert_type(x, bits), lax.full(x.shape, ~top, bits))
    return lax.bitcast_convert_type(lax.bitwise_or(magnitude, signs), x.dtype)


def _flushed(x: Value) -> Value:
    """Return `x`, with 0 where it is subnormal: its bits are not digits where it reads as 0."""
    tiny = lax.lt(lax.abs(x), like(x, np.finfo(x.dtype).smallest_normal))
    return lax.select(tiny, _copysign(like(x, 0), x), x)


def _of_flushed(function: Callable[..., Value]) -> Callable[..., Value]:
    """Make `function` as XLA computes it from the bits of its first operand."""
    return lambda x, *rest: function(_flushed(x), *rest)


def _asin(x: Value) -> Value:
    """Compute asin; XLA's begins with a half of `x`, which may be subnormal where `x` is not."""
    small = lax.lt(lax.abs(x), like(x, np.finfo(x.dtype).eps ** 0.5 / 2))
    return lax.select(small, x, lax.asin(x))


def _shr(x: Value, count: Value) -> Value:
    return (lax.shift_right_arithmetic if _signed(x) else lax.shift_right_logical)(x, count)


_quotient = _guarded("quotient", lax.div)


def _cast(node: Node, x: Value) -> Value:
    """Change the dtype.

    LLVM may compute what is cast to float16 in float16 itself, and then round a product and a sum once. It
    does not where the number has a second reader.
    """
    wanted = node.spec.dtype
    if wanted == np.float64 and x.dtype.name in ("int64", "uint64"):
        return _double_of_halves(x)
    if wanted == np.float16 and x.dtype == np.float32 and FLOAT16 in processor():
        x = lax.select(lax.ne(x, x), like(x, np.nan), x)
    return lax.convert_element_type(x, wanted)


def _double_of_halves(x: Value) -> Value:
    """Return an integer of 64 bits as a float64.

    XLA takes a cast to that and one to float32 for one rounding.
    """
    high = lax.convert_element_type(_shr(x, like(x, 32)), np.float64)
    low = lax.convert_element_type(lax.bitwise_and(x, like(x, 0xFFFFFFFF)), np.float64)
    return lax.add(lax.mul(high, like(high, 2.0**32)), low)


def _bitcast(node: Node, x: Value) -> Value:
    return lax.bitcast_convert_type(x, node.spec.dtype)


def _round(x: Value) -> Value:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


def _sign(x: Value) -> Value:
    """Return the sign, 0 of -0, as NumPy."""
    zero = like(x, 0)
    return lax.select(lax.eq(x, zero), zero, lax.sign(x))


def _by_kind(floats: Callable[..., Any], integers: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *xs: (floats if is_float(xs[0]) else integers)(*xs)


def _abs_integer(x: Value) -> Value:
    return lax.abs(x) if _signed(x) else x


# fmt: off
WORDS: dict[str, Word] = {
    "add": plain(lax.add), "sub": plain(lax.sub), "mul": plain(lax.mul), "neg": plain(lax.neg),
    "div": plain(_div), "fma": plain(_fma),
    "floor_div": plain(_floor_div), "mod": plain(_mod), "quotient": plain(_quotient),
    "fmod_double": plain(lax.rem),
    "maximum": plain(lax.max), "minimum": plain(lax.min),
    "lt": plain(lax.lt), "le": plain(lax.le), "eq": plain(lax.eq),
    "logical_and": plain(lax.bitwise_and), "logical_or": plain(lax.bitwise_or),
    "logical_not": plain(lax.bitwise_not),
    "where": plain(lax.select),
    "floor": plain(lax.floor), "round": plain(_round), "sqrt": plain(lax.sqrt),
    "bit_and": plain(lax.bitwise_and), "bit_or": plain(lax.bitwise_or), "bit_xor": plain(lax.bitwise_xor),
    "shl": plain(_guarded("shl", lax.shift_left)), "shr": plain(_guarded("shr", _shr)),
    "cast": _cast, "bitcast": _bitcast,
    "abs": plain(_by_kind(lax.abs, _abs_integer)), "ceil": plain(lax.ceil),
    "exp": plain(lax.exp), "log": plain(lax.log), "sin": plain(lax.sin), "cos": plain(lax.cos),
    "pow": plain(_of_flushed(lax.pow)), "cbrt": plain(_of_flushed(lax.cbrt)),
    "tan": plain(lax.tan), "asin": plain(_asin), "acos": plain(lax.acos), "atan": plain(lax.atan),
    "asinh": plain(lax.asinh), "acosh": plain(lax.acosh),
    "sign": plain(_by_kind(_of_flushed(_sign), lax.sign)),
}
# fmt: on
