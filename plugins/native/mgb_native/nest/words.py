"""The lowering table: each op of a kernel as operations of a `Builder`.

They are written for scalars and for vectors alike. None traps and none branches. Integers have no sign; the
operation has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from mgb.codegen import (
    DOT,
    LOOK_UP,
    combine,
    guard,
    identity,
    long_division,
    narrowing,
    reductions,
    scalar,
    scans,
    scatters,
    stateful,
    widening,
)
from mgb.ir import CONST, Graph, Node, dtypes

from ..folds import HELD, held
from ..target import fuses
from .body import BITS, Body, element, is_float, is_signed, stored
from .branches import UNLIKELY

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
        return body.op("fneg", (x,), body.type(dtype))
    return body.op("sub", (body.constant(0, dtype), x), body.type(dtype))


def _fma(body: Body, node: Node, a: str, b: str, c: str) -> str:
    dtype = held(node)
    if is_float(dtype):
        return body.op("fma", (a, b, c), body.type(dtype))
    return body.op("add", (body.op("mul", (a, b), body.type(dtype)), c), body.type(dtype))


def _comparison(relation: str) -> Word:
    return lambda body, node, a, b: body.compare(relation, a, b, held(node.inputs[0]))


def _extreme(relation: str) -> Word:
    """Return the greater or the smaller of two; NaN when either is."""

    def emit(body: Body, node: Node, a: str, b: str) -> str:
        dtype = held(node)
        first = body.compare(relation, a, b, dtype)
        if is_float(dtype):
            first = body.op("or", (first, body.is_nan(a, dtype)), body.type("bool"))
        return body.select(first, a, b, body.type(dtype))

    return emit


def _logical_not(body: Body, node: Node, x: str) -> str:
    return body.op("xor", (x, body.constant(True, "bool")), body.type("bool"))


def _where(body: Body, node: Node, condition: str, a: str, b: str) -> str:
    return body.select(condition, a, b, body.type(held(node)))


def _by_sign(signed: str, unsigned: str) -> Word:
    """Return an instruction on integers; the guard of the op sees to its operands."""

    def emit(body: Body, node: Node, *operands: str) -> str:
        dtype = held(node)
        return body.op(signed if is_signed(dtype) else unsigned, operands, body.type(dtype))

    return emit


def _guarded(instruction: Word) -> Word:
    def emit(body: Body, node: Node, *operands: str) -> str:
        return _computed(body, guard(node.op, node.spec.dtype), *operands, given={node.op.name: instruction})

    return emit


def _mulhi(body: Body, node: Node, a: str, b: str) -> str:
    dtype = held(node)
    wide, bits = f"i{2 * BITS[dtype]}", BITS[dtype]
    xs = [body.change("sext" if is_signed(dtype) else "zext", x, element(dtype), wide) for x in (a, b)]
    product = body.op("mul", xs, body.lanes.of(wide))
    high = body.op("lshr", (product, body.number(bits, wide)), body.lanes.of(wide))
    return body.change("trunc", high, wide, element(dtype))


# division


def _remainder(body: Body, a: str, b: str, dtype: str) -> str:
    """Return C's ``fmod``; it would be a call for each lane, so that of float32 is expanded inline."""
    if dtype != "float32" or not body.lanes.count:
        return body.op("frem", (a, b), body.type(dtype))
    sizes = [body.op("fabs", (body.change("fpext", x, "f32", "f64"),), body.type("float64")) for x in (a, b)]
    rest = body.change("fptrunc", _computed(body, long_division(fuses()), *sizes), "f64", "f32")
    return body.op("copysign", (rest, a), body.type(dtype))


def _fmod(body: Body, node: Node, a: str, b: str) -> str:
    return _remainder(body, a, b, held(node))


# conversions


def convert(body: Body, x: str, source: str, target: str) -> str:
    """Return `x` of dtype `source` in dtype `target`; narrow floats are rounded and held in float32."""
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
    """Return the float32 that the bits of a narrow float stand for; exact."""
    if dtype == "float16":
        return body.change("fpext", body.change("bitcast", bits, "i16", "f16"), "f16", "f32")
    return _computed(body, widening(dtypes.BY_NAME[dtype]), bits)


def narrow(body: Body, x: str, dtype: str) -> str:
    """Return the bits of the narrow float nearest to a float32; a tie goes to the even one, NaN stays NaN."""
    if dtype == "float16":
        return body.change("bitcast", body.change("fptrunc", x, "f32", "f16"), "f16", "i16")
    return _computed(body, narrowing(dtypes.BY_NAME[dtype]), x)


def _computed(body: Body, graph: Graph, *xs: str, given: Mapping[str, Word] | None = None) -> str:
    """Return the one output of a graph, by the words that are given and by ours."""
    (found,) = computed(body, graph, xs, given)
    return found


def computed(
    body: Body, graph: Graph, xs: Sequence[str], given: Mapping[str, Word] | None = None
) -> list[str]:
    """Return the outputs of a graph, by the words that are given and by ours."""

    def rule(node: Node, *operands: str) -> str:
        if node.op is CONST:
            return body.constant(scalar(node).item(), held(node))
        return words[node.op.name](body, node, *operands)

    words = {**SPELLINGS, **(given or {})}
    return list(graph.fold(rule, xs))


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


def _cast(body: Body, node: Node, x: str) -> str:
    return convert(body, x, node.inputs[0].spec.dtype.name, node.spec.dtype.name)


def _bitcast(body: Body, node: Node, x: str) -> str:
    source, target = node.inputs[0].spec.dtype.name, node.spec.dtype.name
    bits = body.change("bitcast", to_memory(body, x, source), stored(source), stored(target))
    return from_memory(body, bits, target)


# fmt: off
WORDS: dict[str, Word] = {
    "add": _by_kind("fadd", "add"), "sub": _by_kind("fsub", "sub"),
    "mul": _by_kind("fmul", "mul"), "div": _by_kind("fdiv", ""),
    "neg": _neg, "fma": _fma, "quotient": _guarded(_by_sign("sdiv", "udiv")),
    "fmod_float": _fmod, "fmod_double": _fmod,
    "maximum": _extreme("gt"), "minimum": _extreme("lt"),
    "lt": _comparison("lt"), "le": _comparison("le"), "eq": _comparison("eq"),
    "logical_and": _by_kind("", "and"), "logical_or": _by_kind("", "or"),
    "logical_not": _logical_not, "where": _where, UNLIKELY: _where,
    "floor": _by_kind("floor", ""), "round": _by_kind("roundeven", ""), "sqrt": _by_kind("sqrt", ""),
    "bit_and": _by_kind("", "and"), "bit_or": _by_kind("", "or"), "bit_xor": _by_kind("", "xor"),
    "shl": _guarded(_by_sign("shl", "shl")), "shr": _guarded(_by_sign("ashr", "lshr")),
    "mulhi": _mulhi, "bitcast": _bitcast,
}
# fmt: on

#: How two elements of a reduction are folded in any order: for floats, signed and unsigned integers, bools.
_STEPS = {
    "add": ("fadd", "add", "add", "or"),
    "mul": ("fmul", "mul", "mul", "and"),
    "maximum": ("maximum", "smax", "umax", "or"),
    "minimum": ("minimum", "smin", "umin", "and"),
}

#: What LLVM may do with the steps of floats.
_FLAGS = {"fadd": "reassoc", "fmul": "reassoc", "maximum": "nsz", "minimum": "nsz"}

REDUCTIONS, SCATTERS = reductions(_STEPS), scatters(_STEPS)
SCANS = (*scans(_STEPS), *stateful())
VOCABULARY = frozenset((*WORDS, *REDUCTIONS, *SCANS, *SCATTERS, "extent", LOOK_UP, DOT))

#: All that a body may hold: beside the words, what every backend prints. A fold of one element is that.
SPELLINGS: dict[str, Word] = {
    **WORDS, "cast": _cast, **dict.fromkeys((*REDUCTIONS, *SCANS), lambda body, node, x, *_: x)
}  # fmt: skip


def step_of(fold: Node) -> str:
    """Return the operation that folds two elements."""
    dtype = fold.spec.dtype.name
    kind = 0 if is_float(dtype) else 3 if dtype == "bool" else 1 if is_signed(dtype) else 2
    return _STEPS[combine(fold)][kind]


def waits(fold: Node) -> bool:
    """Return whether a step of a reduction takes several instructions, each waiting for the one before."""
    return step_of(fold) in ("maximum", "minimum")


def fold_step(body: Body, fold: Node, a: str, b: str, dtype: str) -> str:
    """Fold two elements, held in `dtype`, of the reduction `fold`; NaN stays."""
    step = step_of(fold)
    return body.op(step, (a, b), body.type(dtype), _FLAGS.get(step, ""))


def across(body: Body, fold: Node, vector: str) -> str:
    """Return the lanes of `vector` folded into one number."""
    step = step_of(fold)
    return body.builder.across(step, vector, body.type(held(fold)), _FLAGS.get(step, ""))


def nothing(body: Body, fold: Node, dtype: str) -> str:
    """Emit the value of an empty reduction."""
    return body.constant(np.float64(identity(fold)) if is_float(dtype) else identity(fold), dtype)
