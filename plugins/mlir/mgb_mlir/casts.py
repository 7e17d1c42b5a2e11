"""Conversions between dtypes, and between values and what lies in memory."""

from __future__ import annotations

from .body import BITS, Body, element, is_float, is_signed


def convert(body: Body, x: str, source: str, target: str) -> str:
    """`x` of dtype `source` in dtype `target`; what is rounded to 16 bits is held in 32 again."""
    if target in ("float16", "bfloat16"):
        if not is_float(source) and BITS[source] >= 32:
            x, source = _float_of_integer(body, x, source), f"float{BITS[source]}"
        single = _to_odd(body, x) if source == "float64" else convert(body, x, source, "float32")
        return widen(body, narrow(body, single, target), target)
    source = "float32" if source in ("float16", "bfloat16") else source
    if source == target:
        return x
    if target == "bool":
        zero = body.constant(0, source)
        return body.op(
            "arith.cmpf une," if is_float(source) else "arith.cmpi ne,", (x, zero), body.type(source)
        )
    return body.change(_conversion(source, target), x, element(source), element(target))


def _conversion(source: str, target: str) -> str:
    wider = BITS[target] > BITS[source]
    if is_float(source) and is_float(target):
        return "arith.extf" if wider else "arith.truncf"
    if is_float(source):
        return "arith.fptosi" if is_signed(target) else "arith.fptoui"
    sign = "s" if is_signed(source) else "u"
    if is_float(target):
        return f"arith.{sign}itofp"
    return f"arith.ext{sign}i" if wider else "arith.trunci"


def widen(body: Body, bits: str, dtype: str) -> str:
    """The float32 that 16 bits stand for; exact."""
    if dtype == "float16":
        return body.change("arith.extf", body.change("arith.bitcast", bits, "i16", "f16"), "f16", "f32")
    word = body.change("arith.extui", bits, "i16", "i32")
    word = body.op("arith.shli", (word, body.literal("16", "i32")), body.lanes.of("i32"))
    return body.change("arith.bitcast", word, "i32", "f32")


def narrow(body: Body, x: str, dtype: str) -> str:
    """The 16 bits nearest to a float32; a tie goes to the even one, NaN stays NaN."""
    if dtype == "float16":
        return body.change("arith.bitcast", body.change("arith.truncf", x, "f32", "f16"), "f16", "i16")
    word, number = body.lanes.of("i32"), body.literal
    bits = body.change("arith.bitcast", x, "f32", "i32")
    high = body.op("arith.shrui", (bits, number("16", "i32")), word)
    odd = body.op("arith.andi", (high, number("1", "i32")), word)
    half = body.op("arith.addi", (odd, number("32767", "i32")), word)
    rounded = body.op("arith.addi", (bits, half), word)
    rounded = body.op("arith.shrui", (rounded, number("16", "i32")), word)
    quiet = body.op("arith.ori", (high, number("64", "i32")), word)
    nearest = body.select(body.is_nan(x, "float32"), quiet, rounded, word)
    return body.change("arith.trunci", nearest, "i32", "i16")


def _to_odd(body: Body, x: str) -> str:
    """A float64 as float32, rounded to odd: a second rounding, to 16 bits, then gives the result of a single
    one.

    S. Boldo and G. Melquiond, "When double rounding is odd", 2005.
    """
    double, word, boolean = body.type("float64"), body.lanes.of("i32"), body.type("bool")
    one = body.literal("1", "i32")
    near = body.change("arith.truncf", x, "f64", "f32")
    back = body.change("arith.extf", near, "f32", "f64")
    bits = body.change("arith.bitcast", near, "f32", "i32")
    inexact = body.op("arith.cmpf one,", (back, x), double)
    last = body.op("arith.andi", (bits, one), word)
    even = body.op("arith.cmpi eq,", (last, body.literal("0", "i32")), word)
    sizes = [body.op("math.absf", (v,), double) for v in (back, x)]
    above = body.op("arith.cmpf ogt,", sizes, double)
    down, up = (body.op(f"arith.{name}", (bits, one), word) for name in ("subi", "addi"))
    odd = body.select(above, down, up, word)
    moved = body.op("arith.andi", (inexact, even), boolean)
    return body.change("arith.bitcast", body.select(moved, odd, bits, word), "i32", "f32")


def _float_of_integer(body: Body, x: str, source: str) -> str:
    """An integer of 32 or 64 bits as the float of that size, rounded to odd."""
    bits, digits = BITS[source], 24 if BITS[source] == 32 else 53
    word, unit = body.type(source), 1 << bits - digits
    zero, places, mask, odd = (body.literal(str(n), f"i{bits}") for n in (0, digits, unit - 1, unit))
    low = body.op("arith.andi", (x, mask), word)
    lost = body.select(body.op("arith.cmpi eq,", (low, zero), word), zero, odd, word)
    kept = body.op("arith.ori", (body.op("arith.subi", (x, low), word), lost), word)
    size = x
    if is_signed(source):
        below = body.op("arith.cmpi slt,", (x, zero), word)
        size = body.select(below, body.op("arith.subi", (zero, x), word), x, word)
    high = body.op("arith.shrui", (size, places), word)
    x = body.select(body.op("arith.cmpi eq,", (high, zero), word), x, kept, word)
    return convert(body, x, source, f"float{bits}")


def to_memory(body: Body, x: str, dtype: str) -> str:
    """A value as it lies in memory."""
    if dtype == "bool":
        return body.change("arith.extui", x, "i1", "i8")
    return narrow(body, x, dtype) if dtype in ("float16", "bfloat16") else x


def from_memory(body: Body, x: str, dtype: str) -> str:
    """A value of what lies in memory."""
    if dtype == "bool":
        return body.op("arith.cmpi ne,", (x, body.literal("0", "i8")), body.lanes.of("i8"))
    return widen(body, x, dtype) if dtype in ("float16", "bfloat16") else x
