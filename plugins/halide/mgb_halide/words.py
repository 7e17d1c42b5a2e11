"""How this backend spells each op as an expression of Halide, in strict floating point.

Halide takes for granted that int32 and int64 do not overflow, and its ``max`` loses NaN: sums and products of
integers are made in unsigned numbers, which wrap, and extremes of comparisons. Its own ``exp``, ``log``,
``erf`` and so on are no words of ours: the core's bodies are right at NaN, infinity and denormals, to 2 units
in the last place, in vectors, in float64 too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mgb.codegen import combine, guarded, narrowing, reductions, scalar, widening
from mgb.ir import Graph, Node, dtypes
from mgb_native.folds import HELD, held

from .division import fmod_double
from .toolchain import hl

#: An expression of Halide.
Expr = Any
Word = Callable[..., Expr]

#: The types of arrays in memory. Of narrow floats the bits are loaded; Halide has no bfloat16 on a CPU.
STORED = {"bool": "uint8"} | {d.name: dtypes.ROWS[d].word.name for d in dtypes.HALVES}


def halide_type(dtype: str) -> Any:
    """Return Halide's type of that name."""
    if dtype == "bool":
        return hl.Bool()
    kind = dtype.rstrip("0123456789")
    return {"float": hl.Float, "int": hl.Int, "uint": hl.UInt}[kind](int(dtype[len(kind) :]))


def literal(value: Any, dtype: str) -> Expr:
    """Return a number as a constant of exactly that dtype."""
    type_ = halide_type(dtype)
    if dtype == "bool":
        return hl.cast(type_, hl.u8(int(bool(value))))
    bits = np.array(value).astype(dtype)
    raw = int(bits.view(f"uint{8 * bits.itemsize}"))
    low = hl.cast(hl.UInt(8 * bits.itemsize), hl.u32(raw & 0xFFFFFFFF))
    if bits.itemsize < 8:
        return hl.reinterpret(type_, low)
    return hl.reinterpret(type_, hl.cast(hl.UInt(64), hl.u32(raw >> 32)) << hl.u64(32) | low)


def _const(node: Node) -> Expr:
    value = scalar(node)
    return literal(float(value) if node.spec.dtype.kind in "fV" else value, held(node))


# integers that wrap


def _unsigned(x: Expr) -> Expr:
    return hl.reinterpret(hl.UInt(x.type().bits()), x)


def _wrapping(node: Node, compute: Callable[..., Expr], *operands: Expr) -> Expr:
    dtype = node.spec.dtype
    if dtype.kind in "fVu":
        return compute(*operands)
    return hl.reinterpret(halide_type(dtype.name), compute(*map(_unsigned, operands)))


def _arithmetic(compute: Callable[..., Expr]) -> Word:
    return lambda node, *operands: _wrapping(node, compute, *operands)


def _neg(node: Node, x: Expr) -> Expr:
    if node.spec.dtype.kind in "fV":
        # Not 0 - x, which has the wrong zero.
        bits = x.type().bits()
        sign = literal(np.int64(-1) << (bits - 1), f"uint{bits}") if bits < 64 else literal(1 << 63, "uint64")
        return hl.reinterpret(x.type(), hl.reinterpret(hl.UInt(bits), x) ^ sign)
    return _wrapping(node, lambda a: literal(0, f"uint{8 * node.spec.dtype.itemsize}") - a, x)


def _shl(_node: Node, x: Expr, count: Expr) -> Expr:
    return hl.reinterpret(x.type(), _unsigned(x) << _unsigned(count))


def _quotient(_node: Node, a: Expr, b: Expr) -> Expr:
    return hl.div_round_to_zero(a, b) if a.type().is_int() else a / b


# comparisons, choices, bits


def _extreme(first: Callable[[Expr, Expr], Expr], integers: str) -> Word:
    """Return the greater or the smaller of two; NaN when either is."""

    def spell(node: Node, a: Expr, b: Expr) -> Expr:
        kind = node.spec.dtype.kind
        if kind == "b":
            return a | b if integers == "max" else a & b
        if kind in "iu":
            return getattr(hl, integers)(a, b)
        return hl.select(first(a, b) | (a != a), a, b)

    return spell


def _compare(integers: Callable[[Expr, Expr], Expr]) -> Word:
    def spell(node: Node, a: Expr, b: Expr) -> Expr:
        if node.inputs[0].spec.dtype.kind == "b":
            a, b = hl.cast(hl.UInt(8), a), hl.cast(hl.UInt(8), b)
        return integers(a, b)

    return spell


def _at_most(node: Node, a: Expr, b: Expr) -> Expr:
    """Compare by ``<`` and ``==``: Halide's ``<=`` is the contrary of ``>``, and so holds for NaN."""
    if node.inputs[0].spec.dtype.kind in "fV":
        return (a < b) | (a == b)
    return _compare(lambda x, y: x <= y)(node, a, b)


def _bits(compute: Callable[[Expr, Expr], Expr]) -> Word:
    """Apply it to unsigned numbers: of signed ones, Halide draws wrong conclusions about their signs."""

    def spell(node: Node, a: Expr, b: Expr) -> Expr:
        if node.spec.dtype.kind in "bu":
            return compute(a, b)
        return hl.reinterpret(a.type(), compute(_unsigned(a), _unsigned(b)))

    return spell


def _xor(node: Node, a: Expr, b: Expr) -> Expr:
    return a != b if node.spec.dtype.kind == "b" else _bits(lambda x, y: x ^ y)(node, a, b)


def _where(node: Node, condition: Expr, a: Expr, b: Expr) -> Expr:
    if node.spec.dtype.kind == "b":
        return (condition & a) | (~condition & b)
    return hl.select(condition, a, b)


# dtypes


def _opaque(x: Expr) -> Expr:
    """Return the same number, of which Halide's simplifier concludes nothing; LLVM sees through."""
    type_ = x.type()
    if type_.is_float():
        return hl.reinterpret(type_, _opaque(_unsigned(x)))
    some = hl.cast(type_, hl.u8(0x5A))
    return x ^ some ^ some


def widen(bits: Expr, dtype: str) -> Expr:
    """Return the float32 that the bits of a narrow float stand for; exact."""
    if dtype == "float16":
        return hl.cast(hl.Float(32), hl.reinterpret(hl.Float(16), bits))
    return _opaque(_computed(widening(dtypes.BY_NAME[dtype]), bits))


def narrow(value: Expr, dtype: str) -> Expr:
    """Return the bits of the narrow float nearest to a float32; a tie goes to the even one, NaN stays NaN."""
    if dtype == "float16":
        return hl.reinterpret(hl.UInt(16), hl.cast(hl.Float(16), _opaque(value)))
    return _computed(narrowing(dtypes.BY_NAME[dtype]), value)


def _computed(graph: Graph, x: Expr) -> Expr:
    """Return the one output of a graph of one input."""
    (found,) = graph.fold(lambda node, *operands: SPELLINGS[node.op.name](node, *operands), [x])
    return found


def convert(x: Expr, target: str) -> Expr:
    """Return `x` in the dtype that `target` is held in, rounded once to `target`."""
    type_ = x.type()
    if target in HELD:
        return widen(narrow(hl.cast(hl.Float(32), x), target), target)
    if target == "bool":
        return x if type_.is_bool() else x != hl.cast(type_, hl.u8(0))
    return _changed(x, halide_type(target))


def _changed(x: Expr, type_: Any) -> Expr:
    """Return `x` in another type.

    Between integers and floats the result is opaque. Halide 21 takes two casts to one kind in a row for one,
    whatever the first was made of: of a float that becomes an int32 and then, to wrap, a uint32 it makes a
    uint32 at once. And a constant integer that becomes a float becomes a constant, by which, if it is 0,
    Halide does not divide.
    """
    changed = hl.cast(type_, x)
    return changed if type_.is_float() == x.type().is_float() else _opaque(changed)


def load(x: Expr, dtype: str) -> Expr:
    """Convert an element of an array of `dtype` to the type that kernels compute in."""
    if dtype == "bool":
        return x != hl.u8(0)
    return widen(x, dtype) if dtype in HELD else x


def store(x: Expr, dtype: str) -> Expr:
    """Convert a value to the element that an array of `dtype` stores."""
    if dtype == "bool":
        return hl.cast(hl.UInt(8), x)
    return narrow(x, dtype) if dtype in HELD else x


def _cast(node: Node, x: Expr) -> Expr:
    return convert(x, node.spec.dtype.name)


def _bitcast(node: Node, x: Expr) -> Expr:
    source, target = node.inputs[0].spec.dtype.name, node.spec.dtype.name
    stored = STORED.get(target, target)
    return load(hl.reinterpret(halide_type(stored), store(x, source)), target)


def _plain(compute: Callable[..., Expr]) -> Word:
    return lambda _node, *operands: compute(*operands)


# fmt: off
WORDS: dict[str, Word] = {
    "add": _arithmetic(lambda a, b: a + b), "sub": _arithmetic(lambda a, b: a - b),
    "mul": _arithmetic(lambda a, b: a * b), "fma": _arithmetic(lambda a, b, c: a * b + c),
    "neg": _neg, "div": _plain(lambda a, b: a / b),
    "quotient": _quotient, "fmod_double": _plain(fmod_double),
    "maximum": _extreme(lambda a, b: a > b, "max"), "minimum": _extreme(lambda a, b: a < b, "min"),
    "lt": _compare(lambda a, b: a < b), "le": _at_most,
    "eq": _compare(lambda a, b: a == b),
    "logical_and": _plain(lambda a, b: a & b), "logical_or": _plain(lambda a, b: a | b),
    "logical_not": _plain(lambda a: ~a), "where": _where,
    "floor": _plain(lambda x: hl.floor(x)), "round": _plain(lambda x: hl.round(x)),
    "sqrt": _plain(lambda x: hl.sqrt(x)),
    "bit_and": _bits(lambda a, b: a & b), "bit_or": _bits(lambda a, b: a | b), "bit_xor": _xor,
    "shl": _shl, "shr": _plain(lambda x, count: x >> _unsigned(count)), "bitcast": _bitcast,
}
# fmt: on

REDUCTIONS = reductions(WORDS)
VOCABULARY = frozenset((*WORDS, *REDUCTIONS, "extent"))

#: A reduction that folds nothing is its operand.
SPELLINGS: dict[str, Any] = guarded(
    {**WORDS, **dict.fromkeys(REDUCTIONS, lambda _node, x: x), "cast": _cast, "const": _const}
)


def fold(node: Node, a: Expr, b: Expr) -> Expr:
    """Return two elements of reduction `node` as one."""
    return WORDS[combine(node)](node, a, b)
