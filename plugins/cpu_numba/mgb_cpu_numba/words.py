"""How this backend spells each op, in Python that Numba compiles.

Where Python has no operator, or Numba's would leave the dtype (its ``int8 + int8`` is an int64, its
``math.floor`` an integer), the word is a function of `intrinsics`.
"""

from __future__ import annotations

from collections.abc import Callable

from mgb.codegen import Spelling
from mgb.ir import Node
from mgb_native.folds import FOLDS


def _operator(symbol: str, function: str) -> Callable[..., str]:
    """An operator on floats, a function on integers, whose arithmetic must stay in their width."""

    def spell(node: Node, *operands: str) -> str:
        if node.spec.dtype.kind in "fV":
            return f" {symbol} ".join(operands) if len(operands) > 1 else f"{symbol}{operands[0]}"
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
    "quotient": _function("towards_zero"), "fmod_float": _function("fmod"), "fmod_double": _function("fmod"),
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
# fmt: on

VOCABULARY = frozenset(WORDS) | frozenset(FOLDS) | {"extent"}

#: The functions that fold a row into one number, in any order.
FOLDERS = {
    "reduce_sum": "sum_up", "reduce_prod": "multiply_up", "reduce_max": "greatest", "reduce_min": "least",
}  # fmt: skip

#: A reduction that folds nothing is its operand.
SPELLINGS: dict[str, Spelling] = {**WORDS, **dict.fromkeys(FOLDS, "{0}"), "cast": _cast}
