"""Division that rounds down, and its remainder: exact, as NumPy has them, without a branch."""

from __future__ import annotations

import operator
from typing import Any

from mgb.ir import Node
from mgb_native.folds import held
from mgb_native.remainder import Doubles, remainder

from .toolchain import hl

Expr = Any


def integer_floor_div(a: Expr, b: Expr) -> Expr:
    """Rounds down; ``x // 0`` is 0, ``least // -1`` wraps."""
    return _divided(a, b)[0]


def integer_mod(a: Expr, b: Expr) -> Expr:
    """The sign of the divisor; ``x % 0`` is 0."""
    return _divided(a, b)[1]


def _divided(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Halide's own remainder is never negative. It is given no divisor that may trap."""
    type_ = a.type()
    zero, one = hl.cast(type_, hl.u8(0)), hl.cast(type_, hl.u8(1))
    nothing, minus = b == zero, None
    if type_.is_int():
        minus = b == hl.cast(type_, hl.i8(-1))
        safe = hl.select(nothing | minus, one, b)
    else:
        safe = hl.select(nothing, one, b)
    quotient, rest = a / safe, a % safe
    if minus is not None:
        unsigned = hl.UInt(type_.bits())
        up = (safe < zero) & (rest != zero)
        taken = hl.select(up, hl.cast(unsigned, one), hl.cast(unsigned, zero))
        bits = hl.reinterpret(unsigned, quotient) - taken
        negated = hl.cast(unsigned, zero) - hl.reinterpret(unsigned, a)
        quotient = hl.reinterpret(type_, hl.select(minus, negated, bits))
        rest = hl.select(minus, zero, hl.select(up, rest + safe, rest))
    return hl.select(nothing, zero, quotient), hl.select(nothing, zero, rest)


def float_mod(a: Expr, b: Expr) -> Expr:
    """NumPy's remainder: it has the sign of the divisor, also when it is 0."""
    rest = _remainder(a, b)
    zero = hl.cast(a.type(), hl.f32(0))
    rest = hl.select((rest != zero) & ((rest < zero) != (b < zero)), rest + b, rest)
    return hl.select(rest == zero, _copysign(zero, b), rest)


def float_floor_div(a: Expr, b: Expr) -> Expr:
    """NumPy's floor division: by the exact remainder, right where ``floor(a / b)`` is not."""
    type_ = a.type()
    zero, one, half = (hl.cast(type_, hl.f32(v)) for v in (0, 1, 0.5))
    rest = _remainder(a, b)
    whole = (a - rest) / b
    whole = hl.select((rest != zero) & ((rest < zero) != (b < zero)), whole - one, whole)
    low = hl.floor(whole)
    low = hl.select(whole - low > half, low + one, low)
    ratio = a / b
    low = hl.select(whole == zero, _copysign(zero, ratio), low)
    return hl.select(b == zero, ratio, low)


def _copysign(size: Expr, sign: Expr) -> Expr:
    bits = hl.UInt(size.type().bits())
    mask = hl.cast(bits, hl.u8(1)) << hl.cast(bits, hl.u8(size.type().bits() - 1))
    joined = hl.reinterpret(bits, size) & ~mask | hl.reinterpret(bits, sign) & mask
    return hl.reinterpret(size.type(), joined)


def _remainder(a: Expr, b: Expr) -> Expr:
    """C's ``fmod``: what is left of `a`, with its sign.

    Of float32 it is spelt out, in vectors. For that of float64 Halide has no word. It has one for ``atan2``,
    for which no kernel asks: `machine` binds it to ``fmod``. LLVM is not told, and would compute the
    ``atan2`` of two constants: where a word is `bound`, `a` is `hidden`.
    """
    type_ = a.type()
    if type_.bits() == 64:
        return hl.atan2(a, b)
    words = Doubles(
        hl.f64,
        *(operator.neg, operator.add, operator.sub, operator.truediv),
        lambda a, b, c: a * b + c,
        lambda a, b, c, d: hl.select(a < b, c, d),
        fused=False,
    )
    sizes = [hl.abs(hl.cast(hl.Float(64), x)) for x in (a, b)]
    return _copysign(hl.cast(type_, remainder(*sizes, words)), a)


def bound(node: Node) -> bool:
    """Whether the word for `node` calls a function of the C library by the name of another."""
    return node.op.name in ("mod", "floor_div") and held(node) == "float64"


def hidden(x: Expr, zero: Expr) -> Expr:
    """The same float64, of which no compiler knows anything; `zero` is an int32 that is 0 in every call."""
    nothing = hl.cast(hl.UInt(64), hl.reinterpret(hl.UInt(32), zero))
    return hl.reinterpret(x.type(), hl.reinterpret(hl.UInt(64), x) ^ nothing)
