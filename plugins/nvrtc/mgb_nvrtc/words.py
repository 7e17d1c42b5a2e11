"""How this backend spells each op in CUDA C++, and the C type of each dtype."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from mgb.codegen import (
    C_TYPES,
    Spelling,
    c_literal,
    c_number,
    combine,
    guarded,
    identity,
    narrowing,
    reductions,
    statements,
    widening,
)
from mgb.ir import Graph, Node, dtypes

#: Narrow floats are held as their bits: a kernel meets them in loads, stores and casts alone.
TYPES = C_TYPES | {d.name: C_TYPES[dtypes.ROWS[d].word.name] for d in dtypes.HALVES}

#: The functions by which narrow floats become float32 and back.
WIDEN = {d.name: f"from_{dtypes.short(d)}" for d in dtypes.HALVES}
NARROW = {d.name: f"to_{dtypes.short(d)}" for d in dtypes.HALVES}


def c_type(node: Node) -> str:
    """Return the C type of the value of `node`."""
    return TYPES[node.spec.dtype.name]


def _is_float(node: Node) -> bool:
    return node.spec.dtype.kind == "f"


def _wide(node: Node) -> str:
    """Return the unsigned type in which the integers of `node` are computed: it wraps."""
    return "uint64_t" if node.spec.dtype.itemsize == 8 else "uint32_t"


def _arithmetic(text: str) -> Callable[..., str]:
    """Make operators: on floats as they are, on integers without a sign."""

    def spell(node: Node, *operands: str) -> str:
        if _is_float(node):
            return text.format(*operands)
        wide = _wide(node)
        return f"({c_type(node)})({text.format(*(f'({wide}){x}' for x in operands))})"

    return spell


def _fma(node: Node, a: str, b: str, c: str) -> str:
    if _is_float(node):
        return f"{_named('fma', node)}({a}, {b}, {c})"
    return _arithmetic("{0} * {1} + {2}")(node, a, b, c)


def _named(name: str, node: Node) -> str:
    """Return the function of the C library for the dtype."""
    return name if node.spec.dtype.itemsize == 8 else f"{name}f"


def _library(name: str) -> Callable[..., str]:
    return lambda node, *operands: f"{_named(name, node)}({', '.join(operands)})"


def _template(name: str) -> Callable[..., str]:
    """Return a function of the prelude."""
    return lambda node, *operands: f"{name}<{c_type(node)}>({', '.join(operands)})"


def _bits(text: str) -> Callable[..., str]:
    return lambda node, *operands: f"({c_type(node)})({text.format(*operands)})"


def _shl(node: Node, x: str, count: str) -> str:
    return f"({c_type(node)})(({_wide(node)}){x} << {count})"


def _mulhi(node: Node, a: str, b: str) -> str:
    dtype = node.spec.dtype
    if dtype.itemsize == 8:
        return f"{'__mul64hi' if dtype.kind == 'i' else '__umul64hi'}({a}, {b})"
    wide = "int64_t" if dtype.kind == "i" else "uint64_t"
    return f"({c_type(node)})(({wide}){a} * ({wide}){b} >> {8 * dtype.itemsize})"


def _bitcast(node: Node, x: str) -> str:
    if node.spec.dtype.kind == "b":
        return f"({x} != 0)"
    return f"bits_as<{c_type(node)}>({x})"


def cast(node: Node, x: str) -> str:
    """Return a change of dtype, rounded once."""
    source, target = node.inputs[0].spec.dtype, node.spec.dtype
    if source == target:
        return x
    if source.name in WIDEN:
        x, source = f"{WIDEN[source.name]}({x})", np.dtype(np.float32)
    if target.name in NARROW:
        return f"{NARROW[target.name]}((float){x})"
    if target.kind == "b":
        return f"({x} != 0)"
    if source.kind == "f" and target.kind in "iu" and target.itemsize < 4:
        x = f"(int32_t){x}"
    return f"({c_type(node)}){x}"


# fmt: off
WORDS: dict[str, Spelling] = {
    "add": _arithmetic("{0} + {1}"), "sub": _arithmetic("{0} - {1}"), "mul": _arithmetic("{0} * {1}"),
    "neg": _arithmetic("-{0}"), "div": "{0} / {1}", "fma": _fma,
    "quotient": _bits("{0} / {1}"), "fmod_float": _library("fmod"), "fmod_double": _library("fmod"),
    "maximum": _template("maximum"), "minimum": _template("minimum"),
    "lt": "({0} < {1})", "le": "({0} <= {1})", "eq": "({0} == {1})",
    "logical_and": "({0} && {1})", "logical_or": "({0} || {1})", "logical_not": "(!{0})",
    "where": "({0} ? {1} : {2})",
    "floor": _library("floor"), "round": _library("rint"), "sqrt": _library("sqrt"),
    "bit_and": _bits("{0} & {1}"), "bit_or": _bits("{0} | {1}"), "bit_xor": _bits("{0} ^ {1}"),
    "shl": _shl, "shr": _bits("{0} >> {1}"), "mulhi": _mulhi,
    "bitcast": _bitcast, "round_to_odd": "to_odd({0})",
    # Those that CUDA documents to be within 2 ULP in both precisions; not so pow, atan2, erfc.
    **{name: _library(name) for name in ("exp", "log", "sin", "cos", "tanh", "erf", "expm1", "log1p")},
}
# fmt: on

REDUCTIONS = reductions(WORDS)
VOCABULARY = frozenset((*WORDS, *REDUCTIONS, "extent"))

#: A reduction that folds nothing is its operand.
SPELLINGS: dict[str, Spelling] = guarded({
    **WORDS, **dict.fromkeys(REDUCTIONS, "{0}"), "cast": cast, "const": c_literal,
    "extent": lambda node: f"({c_type(node)})p.length",
})  # fmt: skip


def fold(node: Node, a: str, b: str) -> str:
    """Return the expression that folds two elements of reduction `node`."""
    spelling = WORDS[combine(node)]
    return spelling.format(a, b) if isinstance(spelling, str) else spelling(node, a, b)


def nothing(node: Node) -> str:
    """Return the value of an empty reduction, as an expression."""
    return f"({c_type(node)}){c_number(identity(node), node.spec.dtype)}"


def conversions() -> str:
    """Return the functions of `WIDEN` and `NARROW` that the prelude lacks: it has single instructions."""
    lines = []
    for dtype in dtypes.HALVES:
        if dtype == dtypes.float16:
            continue
        lines += _function(WIDEN[dtype.name], widening(dtype))
        lines += [f"#ifndef {NARROW[dtype.name]}", *_function(NARROW[dtype.name], narrowing(dtype)), "#endif"]
    return "\n".join([*lines, ""])


def _function(name: str, graph: Graph) -> list[str]:
    """Print a graph of one input and one output as a function."""
    (x,), (out,) = graph.inputs, graph.outputs
    names = {x: "x"}
    body = statements(
        graph.nodes, names, SPELLINGS, lambda node, v, text: f"    const {c_type(node)} {v} = {text};"
    )
    head = f"__device__ __forceinline__ {c_type(out)} {name}({c_type(x)} x) {{"
    return [head, *body, f"    return {names[out]};", "}"]
