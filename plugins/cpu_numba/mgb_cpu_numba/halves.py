"""float16 and bfloat16 in LLVM: held as float32, rounded to nearest even where they are stored or cast."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

HALF = ir.HalfType()
FLOAT = ir.FloatType()
DOUBLE = ir.DoubleType()
I16 = ir.IntType(16)
I32 = ir.IntType(32)


def widen(builder: Any, bits: Any, dtype: str) -> Any:
    """The float32 that 16 bits stand for; exact."""
    if dtype == "float16":
        return builder.fpext(builder.bitcast(bits, HALF), FLOAT)
    return builder.bitcast(builder.shl(builder.zext(bits, I32), I32(16)), FLOAT)


def narrow(builder: Any, value: Any, dtype: str) -> Any:
    """The 16 bits nearest to a float32; a tie goes to the even one, NaN stays NaN."""
    if dtype == "float16":
        return builder.bitcast(builder.fptrunc(value, HALF), I16)
    bits = builder.bitcast(value, I32)
    odd = builder.and_(builder.lshr(bits, I32(16)), I32(1))
    rounded = builder.lshr(builder.add(bits, builder.add(odd, I32(0x7FFF))), I32(16))
    quiet = builder.or_(builder.lshr(bits, I32(16)), I32(0x40))
    return builder.trunc(builder.select(builder.fcmp_unordered("uno", value, value), quiet, rounded), I16)


def to_odd(builder: Any, value: Any) -> Any:
    """A float64 as float32, rounded to odd: a second rounding, to 16 bits, then gives the result of a single
    one.

    S. Boldo and G. Melquiond, "When double rounding is odd", 2005.
    """
    near = builder.fptrunc(value, FLOAT)
    back = builder.fpext(near, DOUBLE)
    bits = builder.bitcast(near, I32)
    inexact = builder.fcmp_ordered("one", back, value)
    even = builder.icmp_unsigned("==", builder.and_(bits, I32(1)), I32(0))
    above = builder.fcmp_ordered("ogt", _magnitude(builder, back), _magnitude(builder, value))
    odd = builder.select(above, builder.sub(bits, I32(1)), builder.add(bits, I32(1)))
    return builder.bitcast(builder.select(builder.and_(inexact, even), odd, bits), FLOAT)


def _magnitude(builder: Any, value: Any) -> Any:
    return builder.call(builder.module.declare_intrinsic("llvm.fabs", [DOUBLE]), [value])


def float_of_integer(builder: Any, value: Any, signed: bool) -> Any:
    """An integer of 32 or 64 bits as the float of that size, rounded to odd."""
    word, digits, size = (value.type, 24, FLOAT) if value.type.width == 32 else (value.type, 53, DOUBLE)
    cut = value.type.width - digits
    low = builder.and_(value, word((1 << cut) - 1))
    lost = builder.zext(builder.icmp_unsigned("!=", low, word(0)), word)
    kept = builder.or_(builder.sub(value, low), builder.shl(lost, word(cut)))
    below = builder.icmp_signed("<", value, word(0))
    magnitude = builder.select(below, builder.neg(value), value) if signed else value
    short = builder.icmp_unsigned("==", builder.lshr(magnitude, word(digits)), word(0))
    return (builder.sitofp if signed else builder.uitofp)(builder.select(short, value, kept), size)
