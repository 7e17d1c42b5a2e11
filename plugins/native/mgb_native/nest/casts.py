"""Conversions between dtypes, and between values and what lies in memory."""

from __future__ import annotations

from ..folds import HELD
from .body import BITS, Body, element, is_float, is_signed


def convert(body: Body, x: str, source: str, target: str) -> str:
    """`x` of dtype `source` in dtype `target`; what is rounded to 16 bits is held in 32 again."""
    if target in HELD:
        return widen(body, narrow(body, convert(body, x, source, "float32"), target), target)
    source = HELD.get(source, source)
    if source == target:
        return x
    if target == "bool":
        return body.is_not_zero(x, body.type(source))
    return body.change(_conversion(source, target), x, element(source), element(target))


def _conversion(source: str, target: str) -> str:
    wider = BITS[target] > BITS[source]
    if is_float(source) and is_float(target):
        return "fpext" if wider else "fptrunc"
    if is_float(source):
        return "fptosi" if is_signed(target) else "fptoui"
    if is_float(target):
        return "sitofp" if is_signed(source) else "uitofp"
    return ("sext" if is_signed(source) else "zext") if wider else "trunc"


def widen(body: Body, bits: str, dtype: str) -> str:
    """Return the float32 that 16 bits stand for; exact."""
    if dtype == "float16":
        return body.change("fpext", body.change("bitcast", bits, "i16", "f16"), "f16", "f32")
    word = body.change("zext", bits, "i16", "i32")
    word = body.op("shl", (word, body.number(16, "i32")), body.lanes.of("i32"))
    return body.change("bitcast", word, "i32", "f32")


def narrow(body: Body, x: str, dtype: str) -> str:
    """Return the 16 bits nearest to a float32; a tie goes to the even one, NaN stays NaN."""
    if dtype == "float16":
        return body.change("bitcast", body.change("fptrunc", x, "f32", "f16"), "f16", "i16")
    word, number = body.lanes.of("i32"), body.number
    bits = body.change("bitcast", x, "f32", "i32")
    high = body.op("lshr", (bits, number(16, "i32")), word)
    odd = body.op("and", (high, number(1, "i32")), word)
    half = body.op("add", (odd, number(32767, "i32")), word)
    rounded = body.op("lshr", (body.op("add", (bits, half), word), number(16, "i32")), word)
    quiet = body.op("or", (high, number(64, "i32")), word)
    nearest = body.select(body.is_nan(x, "float32"), quiet, rounded, word)
    return body.change("trunc", nearest, "i32", "i16")


def to_memory(body: Body, x: str, dtype: str) -> str:
    """Return a value as it lies in memory."""
    if dtype == "bool":
        return body.change("zext", x, "i1", "i8")
    return narrow(body, x, dtype) if dtype in HELD else x


def from_memory(body: Body, x: str, dtype: str) -> str:
    """Return a value of what lies in memory."""
    if dtype == "bool":
        return body.is_not_zero(x, body.lanes.of("i8"))
    return widen(body, x, dtype) if dtype in HELD else x
