"""C's ``fmod`` of float64."""

from __future__ import annotations

from typing import Any

from mgb.ir import Node

from .toolchain import hl

Expr = Any


def fmod_double(a: Expr, b: Expr) -> Expr:
    """Return C's ``fmod``, which Halide lacks.

    It has one for ``atan2``, for which no kernel asks: `machine` binds it to ``fmod``. LLVM is not told, and
    would compute the ``atan2`` of two constants: where a word is `bound`, `a` is `hidden`.
    """
    return hl.atan2(a, b)


def bound(node: Node) -> bool:
    """Return whether the word for `node` calls a function of the C library by the name of another."""
    return node.op.name == "fmod_double"


def hidden(x: Expr, zero: Expr) -> Expr:
    """Return the same float64, of which no compiler knows anything; `zero` is an int32 that is always 0."""
    nothing = hl.cast(hl.UInt(64), hl.reinterpret(hl.UInt(32), zero))
    return hl.reinterpret(x.type(), hl.reinterpret(hl.UInt(64), x) ^ nothing)
