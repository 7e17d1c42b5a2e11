"""How this backend spells each op, in Python that Numba compiles.

Where Python has no operator, or Numba's would leave the dtype (its ``int8 + int8`` is an int64, its
``math.floor`` an integer), the word is a function of `intrinsics`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from mgb.codegen import Spelling
from mgb.ir import Node

#: The dtypes whose values a kernel holds as another one between load and store.
HELD = {"float16": "float32", "bfloat16": "float32"}


def held(node: Node) -> str:
    """The name of the dtype that a kernel computes the value of `node` in."""
    return HELD.get(node.spec.dtype.name, node.spec.dtype.name)


def _operator(symbol: str, function: str) -> Callable[..., str]:
    """An operator on floats, a function on integers, whose arithmetic must stay in their width."""

    def spell(node: Node, *operands: str) -> str:
        if node.spec.dtype.kind in "fV":
            return f" {symbol} ".join(operands) if len(operands) > 1 else f"{symbol}{operands[0]}"
        return f"{function}({', '.join(operands)})"

    return spell


def _by_kind(floats: str, integers: str) -> Callable[..., str]:
    def spell(node: Node, *operands: str) -> str:
        function = floats if node.spec.dtype.kind in "fV" else integers
        return f"{function}({', '.join(operands)})"

    return spell


def _function(name: str) -> Callable[..., str]:
    def spell(_node: Node, *operands: str) -> str:
        return f"{name}({', '.join(operands)})"

    return spell


def _cast(node: Node, x: str) -> str:
    return f"cast_{node.spec.dtype.name}({x})"


def _bitcast(node: Node, x: str) -> str:
    return f"bitcast_{node.inputs[0].spec.dtype.name}_{node.spec.dtype.name}({x})"


# fmt: off
WORDS: dict[str, Spelling] = {
    "add": _operator("+", "add"), "sub": _operator("-", "sub"), "mul": _operator("*", "mul"),
    "neg": _operator("-", "neg"), "div": "{0} / {1}", "fma": _function("fma"),
    "floor_div": _by_kind("floor_div", "integer_floor_div"), "mod": _by_kind("mod", "integer_mod"),
    "maximum": _function("maximum"), "minimum": _function("minimum"),
    "lt": "{0} < {1}", "le": "{0} <= {1}", "eq": "{0} == {1}",
    "logical_and": _function("bit_and"), "logical_or": _function("bit_or"),
    "logical_not": _function("logical_not"),
    "where": _function("where"),
    "floor": _function("floor"), "round": _function("rint"), "sqrt": _function("sqrt"),
    "bit_and": _function("bit_and"), "bit_or": _function("bit_or"), "bit_xor": _function("bit_xor"),
    "shl": _function("shl"), "shr": _function("shr"), "mulhi": _function("mulhi"),
    "bitcast": _bitcast,
}

#: The reductions: how two elements are folded, in the words above.
FOLDS = {"reduce_sum": "add", "reduce_prod": "mul", "reduce_max": "maximum", "reduce_min": "minimum"}
# fmt: on

VOCABULARY = frozenset(WORDS) | frozenset(FOLDS) | {"extent"}

#: The functions that fold a row into one number, in any order.
FOLDERS = {
    "reduce_sum": "sum_up", "reduce_prod": "multiply_up", "reduce_max": "greatest", "reduce_min": "least",
}  # fmt: skip

#: A reduction that folds nothing is its operand.
SPELLINGS: dict[str, Spelling] = {**WORDS, **dict.fromkeys(FOLDS, "{0}"), "cast": _cast}


def wide(fold: Node) -> str:
    """The dtype in which chunks are added up: float64 for float32, which costs nothing."""
    sums = fold.op.name in ("reduce_sum", "reduce_prod")
    return "float64" if sums and fold.spec.dtype.name == "float32" else held(fold)


def identity(fold: Node) -> float:
    """What a reduction of nothing is."""
    dtype = fold.spec.dtype
    if fold.op.name in ("reduce_sum", "reduce_prod"):
        return int(fold.op.name == "reduce_prod")
    least = fold.op.name == "reduce_max"
    if dtype.kind == "b":
        return not least
    if dtype.kind in "fV":
        return -np.inf if least else np.inf
    return int(np.iinfo(dtype).min if least else np.iinfo(dtype).max)
