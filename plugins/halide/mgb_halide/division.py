"""Division towards 0, which nothing traps, and C's ``fmod`` of float64."""

from __future__ import annotations

from typing import Any

from mgb.ir import Node

from .toolchain import hl

Expr = Any


def quotient(a: Expr, b: Expr) -> Expr:
    """``x / 0`` is 0, ``least / -1`` wraps."""
    type_ = a.type()
    zero, one = hl.cast(type_, hl.u8(0)), hl.cast(type_, hl.u8(1))
    nothing = b == zero
    if not type_.is_int():
        return hl.select(nothing, zero, a / hl.select(nothing, one, b))
    minus, unsigned = b == hl.cast(type_, hl.i8(-1)), hl.UInt(type_.bits())
    negated = hl.reinterpret(type_, hl.cast(unsigned, zero) - hl.reinterpret(unsigned, a))
    whole = hl.div_round_to_zero(a, hl.select(nothing | minus, one, b))
    return hl.select(nothing, zero, hl.select(minus, negated, whole))


def fmod_double(a: Expr, b: Expr) -> Expr:
    """C's ``fmod``, for which Halide has no word.

    It has one for ``atan2``, for which no kernel asks: `machine` binds it to ``fmod``. LLVM is not told, and
    would compute the ``atan2`` of two constants: where a word is `bound`, `a` is `hidden`.
    """
    return hl.atan2(a, b)


def bound(node: Node) -> bool:
    """Return whether the word for `node` calls a function of the C library by the name of another."""
    return node.op.name == "fmod_double"


def hidden(x: Expr, zero: Expr) -> Expr:
    """The same float64, of which no compiler knows anything; `zero` is an int32 that is 0 in every call."""
    nothing = hl.cast(hl.UInt(64), hl.reinterpret(hl.UInt(32), zero))
    return hl.reinterpret(x.type(), hl.reinterpret(hl.UInt(64), x) ^ nothing)
