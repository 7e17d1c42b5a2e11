"""float16 and bfloat16 in LLVM: held as float32, rounded to nearest even where they are stored or cast."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

HALF = ir.HalfType()
FLOAT = ir.FloatType()
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
