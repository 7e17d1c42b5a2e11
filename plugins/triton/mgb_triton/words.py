"""How this backend spells each op in Triton, and the Triton type of each dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from mgb.codegen import (
    Spelling,
    combine,
    guarded,
    identity,
    narrowing,
    reductions,
    scalar,
    statements,
    widening,
)
from mgb.ir import Graph, Node, dtypes

NARROW = frozenset(d.name for d in dtypes.HALVES)

#: The narrow floats that Triton rounds to as we do; of others kernels load and store the bits.
ROUNDED = frozenset({"float16", "bfloat16"})
_STORED = {d: dtypes.ROWS[d].word if d.name in NARROW - ROUNDED else d for d in dtypes.DTYPES}

#: The types of values.
TYPES = {d.name: "int1" if d == dtypes.bool_ else stored.name for d, stored in _STORED.items()}


def _pointer(dtype: np.dtype[np.generic]) -> str:
    """Return the type of an element in memory."""
    if dtype == dtypes.bool_:
        return "i1"
    return dtypes.short(dtype) if dtype.kind in "iuV" else f"fp{8 * dtype.itemsize}"


#: The types of pointers to them, in a signature.
POINTERS = {d.name: f"*{_pointer(stored)}" for d, stored in _STORED.items()}

#: Those of numbers, by the C types in which they are packed.
NUMBERS = {"int": "i32", "int64_t": "i64", "uint32_t": "u32"}


def t_type(node: Node) -> str:
    """Return the Triton type of the value of `node`."""
    return f"tl.{TYPES[node.spec.dtype.name]}"


def _is_float(node: Node) -> bool:
    return node.spec.dtype.kind == "f"


def _by_kind(floats: str, integers: str) -> Callable[..., str]:
    return lambda node, *xs: (floats if _is_float(node) else integers).format(*xs)


def _by_size(single: str, double: str) -> Callable[..., str]:
    return lambda node, *xs: (double if node.spec.dtype.itemsize == 8 else single).format(*xs)


def _mulhi(node: Node, a: str, b: str) -> str:
    dtype = node.spec.dtype
    if dtype.itemsize == 8:
        return f"{'mulhi_signed' if dtype.kind == 'i' else 'tl.umulhi'}({a}, {b})"
    wide = "tl.int64" if dtype.kind == "i" else "tl.uint64"
    return f"(({a}.to({wide}) * {b}.to({wide})) >> {8 * dtype.itemsize}).to({t_type(node)})"


def _bitcast(node: Node, x: str) -> str:
    return f"({x} != 0)" if node.spec.dtype.kind == "b" else f"{x}.to({t_type(node)}, bitcast=True)"


def cast(node: Node, x: str) -> str:
    """Return a change of dtype, rounded once."""
    source, target = node.inputs[0].spec.dtype, node.spec.dtype
    if source == target:
        return x
    if source.name in NARROW:
        x = f"{x}.to(tl.float32)" if source.name in ROUNDED else f"from_{dtypes.short(source)}({x})"
        source = dtypes.float32
    if target.name in ROUNDED:
        return f"{x}.to(tl.float32).to({t_type(node)})"
    if target.name in NARROW:
        return f"to_{dtypes.short(target)}({x}.to(tl.float32))"
    if target.kind == "b":
        return f"({x} != 0)"
    if source.kind == "f" and target.kind in "iu" and target.itemsize < 4:
        x = f"{x}.to(tl.int32)"
    return f"{x}.to({t_type(node)})"


def literal(node: Node) -> str:
    """Return a constant of one element."""
    value = scalar(node)
    if node.spec.dtype.kind != "f":
        return f"tl.full((), {int(value)}, {t_type(node)})"
    number = float(value)
    if number != number:
        return f"nan_of({t_type(node)})"
    if number in (float("inf"), float("-inf")):
        return f"infinity_of({'-1.0' if number < 0 else '1.0'}, {t_type(node)})"
    return f"tl.full((), {number!r}, {t_type(node)})"


_NAN = "propagate_nan=tl.PropagateNan.ALL"

# fmt: off
WORDS: dict[str, Spelling] = {
    "add": "({0} + {1})", "sub": "({0} - {1})", "mul": "({0} * {1})", "neg": "(-{0})",
    "div": _by_size("tl.div_rn({0}, {1})", "({0} / {1})"),
    "fma": _by_kind("tl.fma({0}, {1}, {2})", "({0} * {1} + {2})"),
    "quotient": "({0} // {1})",
    "fmod_float": "libdevice.fmod({0}, {1})", "fmod_double": "libdevice.fmod({0}, {1})",
    "maximum": "tl.maximum({0}, {1}, " + _NAN + ")", "minimum": "tl.minimum({0}, {1}, " + _NAN + ")",
    "lt": "({0} < {1})", "le": "({0} <= {1})", "eq": "({0} == {1})",
    "logical_and": "({0} & {1})", "logical_or": "({0} | {1})", "logical_not": "({0} == 0)",
    "where": "tl.where({0}, {1}, {2})",
    "floor": "libdevice.floor({0})", "round": "libdevice.rint({0})",
    "sqrt": _by_size("tl.sqrt_rn({0})", "tl.sqrt({0})"),
    "bit_and": "({0} & {1})", "bit_or": "({0} | {1})", "bit_xor": "({0} ^ {1})",
    "shl": "({0} << {1})", "shr": "({0} >> {1})", "mulhi": _mulhi, "bitcast": _bitcast,
    # Those that CUDA documents to be within 2 ULP in both precisions; not so pow, atan2, erfc.
    **{name: f"libdevice.{name}({{0}})"
       for name in ("exp", "log", "sin", "cos", "tanh", "erf", "expm1", "log1p")},
}

#: The words above that are functions of the prelude as well, ``fold_add`` and so on, for reductions.
FOLDERS = ("add", "mul", "maximum", "minimum")
# fmt: on

REDUCTIONS = reductions(FOLDERS)
VOCABULARY = frozenset((*WORDS, *REDUCTIONS, "extent"))

#: A reduction that folds nothing is its operand.
SPELLINGS: dict[str, Spelling] = guarded({
    **WORDS, **dict.fromkeys(REDUCTIONS, "{0}"), "cast": cast, "const": literal,
    "extent": lambda node: f"length.to({t_type(node)})",
})  # fmt: skip


def fold(node: Node, a: str, b: str) -> str:
    """Return the expression that folds two elements of reduction `node`."""
    spelling = WORDS[combine(node)]
    return spelling.format(a, b) if isinstance(spelling, str) else spelling(node, a, b)


def total(node: Node, x: str) -> str:
    """Return the expression that folds a tile along its rows; narrow integers meet in 32 bits."""
    dtype, function = node.spec.dtype, f"fold_{combine(node)}"
    if dtype.kind == "f" or dtype.itemsize >= 4:
        return f"tl.reduce({x}, 1, {function}, keep_dims=True)"
    wide = "tl.int32" if dtype.kind == "i" else "tl.uint32"
    found = f"tl.reduce({x}.to({wide}), 1, {function}, keep_dims=True)"
    return f"({found} != 0)" if dtype.kind == "b" else f"{found}.to({t_type(node)})"


def nothing(node: Node) -> str:
    """Return the value of an empty reduction, as a Python expression."""
    value = identity(node)
    return f"{'-' * (value < 0)}1e999" if value in (-np.inf, np.inf) else str(int(value))


def conversions(nodes: Iterable[Node]) -> list[str]:
    """Return the functions that `nodes` call for narrow floats that Triton rounds differently."""
    met = {n.spec.dtype for n in nodes}
    lines = []
    for dtype in (d for d in dtypes.HALVES if d in met and d.name not in ROUNDED):
        lines += _function(f"from_{dtypes.short(dtype)}", widening(dtype))
        lines += _function(f"to_{dtypes.short(dtype)}", narrowing(dtype))
    return lines


def _function(name: str, graph: Graph) -> list[str]:
    """Print a graph of one input and one output as a function."""
    names = {graph.inputs[0]: "x"}
    body = statements(graph.nodes, names, SPELLINGS, lambda _node, v, text: f"    {v} = {text}")
    return ["@jit", f"def {name}(x):", *body, f"    return {names[graph.outputs[0]]}", "", ""]
