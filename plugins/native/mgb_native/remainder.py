"""The remainder of float32 numbers: a long division in float64, exact, and without a branch.

Each step takes the nearest multiple of ``divisor * 2**k`` from the rest, found by the reciprocal; what is
left, of either sign, is half of that at most, and a little. A multiple has the digits of the divisor and
those that its step finds; a rest has none below the last one of both numbers, and 26 at most. So they are
exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from .target import instructions

Value = TypeVar("Value")

#: What an infinite divisor is taken for: of it no float32 has the half.
_FAR = 2.0**200

#: Bits of the largest quotient. What a step finds of them: where a product and a sum are rounded once; and
#: where the product must be exact by itself.
_QUOTIENT, _FUSED, _APART = 277, 47, 28


@dataclass(frozen=True, slots=True)
class Doubles(Generic[Value]):
    """Arithmetic of float64 in a backend's language, in no other order than it is asked for.

    Attributes
    ----------
    number : callable
        A constant.
    neg, add, sub, div : callable
    fma : callable
        ``a * b + c``.
    less : callable
        ``less(a, b, c, d)``: `c` where ``a < b``, else `d`.
    fused : bool
        Whether `fma` is rounded once.
    """

    number: Callable[[float], Value]
    neg: Callable[[Value], Value]
    add: Callable[[Value, Value], Value]
    sub: Callable[[Value, Value], Value]
    div: Callable[[Value, Value], Value]
    fma: Callable[[Value, Value, Value], Value]
    less: Callable[[Value, Value, Value, Value], Value]
    fused: bool


def remainder(rest: Value, divisor: Value, words: Doubles[Value]) -> Value:
    """Compute the remainder of the sizes of two float32 numbers; NaN as from ``fmod``."""
    far = words.number(_FAR)
    divisor = words.less(far, divisor, far, divisor)
    reciprocal, minus = words.div(words.number(1.0), divisor), words.neg(divisor)
    bits = _FUSED if words.fused else _APART
    for step in reversed(range(-(-_QUOTIENT // bits))):
        near = words.number(1.5 * 2.0 ** (52 + bits * step))  # around it, numbers are 2**(bits * step) apart
        whole = words.sub(words.fma(rest, reciprocal, near), near)
        rest = words.fma(whole, minus, rest)
    return words.less(rest, words.number(0.0), words.add(rest, divisor), rest)


def fuses() -> bool:
    """Return whether the processor has an instruction for `Doubles.fma` that rounds once."""
    return not {"fma", "asimd"}.isdisjoint(instructions())
