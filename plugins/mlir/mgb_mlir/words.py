"""The lowering table: each op of a kernel as operations of the dialects ``arith``, ``math`` and ``vector``.

They are written for scalars and for vectors alike. None traps and none branches. Integers have no sign in
these dialects; the operation has it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from mgb.ir import Node
from mgb_native.folds import FOLDS, held, identity
from mgb_native.remainder import Doubles, fuses, remainder

from .body import BITS, Body, element, is_float, is_signed, stored
from .casts import convert, from_memory, to_memory

#: ``word(body, node, *operands) -> value``
Word = Callable[..., str]


# arithmetic


def _by_kind(floats: str, integers: str) -> Word:
    def emit(body: Body, node: Node, *operands: str) -> str:
        dtype = held(node)
        return body.op(floats if is_float(dtype) else integers, operands, body.type(dtype))

    return emit


def _neg(body: Body, node: Node, x: str) -> str:
    dtype = held(node)
    if is_float(dtype):
        return body.op("arith.negf", (x,), body.type(dtype))
    return body.op("arith.subi", (body.constant(0, dtype), x), body.type(dtype))


def _fma(body: Body, node: Node, a: str, b: str, c: str) -> str:
    dtype = held(node)
    if is_float(dtype):
        return body.op("math.fma", (a, b, c), body.type(dtype))
    return body.op("arith.addi", (body.op("arith.muli", (a, b), body.type(dtype)), c), body.type(dtype))


def _comparison(relation: str) -> Word:
    return lambda body, node, a, b: body.compare(relation, a, b, held(node.inputs[0]))


def _extreme(relation: str) -> Word:
    """The greater or the smaller of two; NaN when either is."""

    def emit(body: Body, node: Node, a: str, b: str) -> str:
        dtype = held(node)
        first = body.compare(relation, a, b, dtype)
        if is_float(dtype):
            first = body.op("arith.ori", (first, body.is_nan(a, dtype)), body.type("bool"))
        return body.select(first, a, b, body.type(dtype))

    return emit


def _logical_not(body: Body, node: Node, x: str) -> str:
    return body.op("arith.xori", (x, body.constant(True, "bool")), body.type("bool"))


def _where(body: Body, node: Node, condition: str, a: str, b: str) -> str:
    return body.select(condition, a, b, body.type(held(node)))


def _shift(name: Callable[[str], str]) -> Word:
    """The count is taken modulo the width."""

    def emit(body: Body, node: Node, x: str, count: str) -> str:
        dtype = held(node)
        most = body.constant(BITS[dtype] - 1, dtype)
        count = body.op("arith.andi", (count, most), body.type(dtype))
        return body.op(name(dtype), (x, count), body.type(dtype))

    return emit


def _mulhi(body: Body, node: Node, a: str, b: str) -> str:
    dtype = held(node)
    sign = "s" if is_signed(dtype) else "u"
    if BITS[dtype] < 64:
        wide = f"i{2 * BITS[dtype]}"
        xs = [body.change(f"arith.ext{sign}i", x, element(dtype), wide) for x in (a, b)]
        product = body.op("arith.muli", xs, body.lanes.of(wide))
        high = body.op("arith.shrui", (product, body.literal(str(BITS[dtype]), wide)), body.lanes.of(wide))
        return body.change("arith.trunci", high, wide, element(dtype))
    name = body.builder.name("v")
    body.builder.line(f"{name}:2 = arith.mul{sign}i_extended {a}, {b} : {body.type(dtype)}")
    return f"{name}#1"


# division


def _remainder(body: Body, a: str, b: str, dtype: str) -> str:
    """C's ``fmod``. It would be a call for each lane: of float32 it is spelt out."""
    if dtype != "float32" or not body.lanes.count:
        return body.op("arith.remf", (a, b), body.type(dtype))
    double = body.type("float64")

    def word(name: str) -> Callable[..., str]:
        return lambda *operands: body.op(name, operands, double)

    words = Doubles(
        lambda value: body.constant(value, "float64"),
        *map(word, ("arith.negf", "arith.addf", "arith.subf", "arith.divf", "math.fma")),
        lambda a, b, c, d: body.select(body.compare("lt", a, b, "float64"), c, d, double),
        fuses(),
    )
    sizes = [word("math.absf")(body.change("arith.extf", x, "f32", "f64")) for x in (a, b)]
    rest = body.change("arith.truncf", remainder(*sizes, words), "f64", "f32")
    return body.op("math.copysign", (rest, a), body.type(dtype))


def _fmod(body: Body, node: Node, a: str, b: str) -> str:
    return _remainder(body, a, b, held(node))


def _quotient(body: Body, node: Node, a: str, b: str) -> str:
    """Towards 0; ``x / 0`` is 0 and ``least / -1`` wraps. The divisor of the instruction cannot trap."""
    dtype = held(node)
    type_, zero, one = body.type(dtype), body.constant(0, dtype), body.constant(1, dtype)
    is_zero = body.compare("eq", b, zero, dtype)
    if not is_signed(dtype):
        divisor = body.select(is_zero, one, b, type_)
        return body.select(is_zero, zero, body.op("arith.divui", (a, divisor), type_), type_)
    is_minus = body.compare("eq", b, body.constant(-1, dtype), dtype)
    risky = body.op("arith.ori", (is_zero, is_minus), body.type("bool"))
    quotient = body.op("arith.divsi", (a, body.select(risky, one, b, type_)), type_)
    quotient = body.select(is_minus, body.op("arith.subi", (zero, a), type_), quotient, type_)
    return body.select(is_zero, zero, quotient, type_)


# conversions


def _cast(body: Body, node: Node, x: str) -> str:
    return convert(body, x, node.inputs[0].spec.dtype.name, node.spec.dtype.name)


def _bitcast(body: Body, node: Node, x: str) -> str:
    source, target = node.inputs[0].spec.dtype.name, node.spec.dtype.name
    bits = body.change("arith.bitcast", to_memory(body, x, source), stored(source), stored(target))
    return from_memory(body, bits, target)


# fmt: off
WORDS: dict[str, Word] = {
    "add": _by_kind("arith.addf", "arith.addi"), "sub": _by_kind("arith.subf", "arith.subi"),
    "mul": _by_kind("arith.mulf", "arith.muli"), "div": _by_kind("arith.divf", ""),
    "neg": _neg, "fma": _fma, "quotient": _quotient,
    "fmod_float": _fmod, "fmod_double": _fmod,
    "maximum": _extreme("gt"), "minimum": _extreme("lt"),
    "lt": _comparison("lt"), "le": _comparison("le"), "eq": _comparison("eq"),
    "logical_and": _by_kind("", "arith.andi"), "logical_or": _by_kind("", "arith.ori"),
    "logical_not": _logical_not, "where": _where,
    "floor": _by_kind("math.floor", ""), "round": _by_kind("math.roundeven", ""),
    "sqrt": _by_kind("math.sqrt", ""),
    "bit_and": _by_kind("", "arith.andi"), "bit_or": _by_kind("", "arith.ori"),
    "bit_xor": _by_kind("", "arith.xori"),
    "shl": _shift(lambda dtype: "arith.shli"),
    "shr": _shift(lambda dtype: "arith.shrsi" if is_signed(dtype) else "arith.shrui"),
    "mulhi": _mulhi, "bitcast": _bitcast,
}
# fmt: on

VOCABULARY = frozenset(WORDS) | frozenset(FOLDS) | {"extent"}

#: All that a body may hold: beside the words, what every backend prints. A fold of nothing is its operand.
SPELLINGS: dict[str, Word] = {**WORDS, "cast": _cast, **dict.fromkeys(FOLDS, lambda body, node, x: x)}

#: How two elements of a reduction are folded in any order: for floats, signed and unsigned integers, bools.
_STEPS = {
    "reduce_sum": ("addf", "addi", "addi", "ori"),
    "reduce_prod": ("mulf", "muli", "muli", "andi"),
    "reduce_max": ("maximumf", "maxsi", "maxui", "ori"),
    "reduce_min": ("minimumf", "minsi", "minui", "andi"),
}
_REDUCTIONS = {"addf": "add", "addi": "add", "mulf": "mul", "muli": "mul", "ori": "or", "andi": "and"}


def _step(fold: Node) -> str:
    dtype = fold.spec.dtype.name
    kind = 0 if is_float(dtype) else 3 if dtype == "bool" else 1 if is_signed(dtype) else 2
    return _STEPS[fold.op.name][kind]


def fold_step(body: Body, fold: Node, a: str, b: str, dtype: str) -> str:
    """Fold two elements, held in `dtype`, of the reduction `fold`; NaN stays."""
    step = _step(fold)
    flags = {"addf": " fastmath<reassoc>", "mulf": " fastmath<reassoc>"}
    flag = flags.get(step, " fastmath<nsz>" if step.endswith("imumf") else "")
    name = body.builder.name("v")
    body.builder.line(f"{name} = arith.{step} {a}, {b}{flag} : {body.type(dtype)}")
    return name


def across(body: Body, fold: Node, vector: str) -> str:
    """The lanes of `vector` folded into one number."""
    dtype, step = held(fold), _step(fold)
    kind = _REDUCTIONS.get(step, step)
    flag = " fastmath<reassoc>" if is_float(dtype) and kind in ("add", "mul") else ""
    types = f"{body.type(dtype)} into {element(dtype)}"
    return body.builder.op(f"vector.reduction <{kind}>, {vector}{flag} : {types}", "v")


def nothing(body: Body, fold: Node, dtype: str) -> str:
    """What a reduction of nothing is."""
    return body.constant(np.float64(identity(fold)) if is_float(dtype) else identity(fold), dtype)
