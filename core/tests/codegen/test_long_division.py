"""The long division that backends print by their own words: here by Python's, with any precision."""

from __future__ import annotations

import math
import operator
from fractions import Fraction

import numpy as np
import pytest
from mgb.codegen import long_division, scalar
from mgb.ir import CONST, Node

RNG = np.random.default_rng(5)
LIMITS = np.finfo(np.float32)


def once(a: float, b: float, c: float) -> float:
    """``a * b + c``, rounded once."""
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    return float(Fraction(a) * Fraction(b) + Fraction(c))


def remainder(x: float, y: float, fused: bool) -> float:
    """What the graph of the division gives of two numbers of Python."""
    words = {
        "add": operator.add, "sub": operator.sub, "neg": operator.neg, "lt": operator.lt,
        "div": lambda a, b: float(np.divide(a, b)), "where": lambda c, a, b: a if c else b,
        "fma": once if fused else lambda a, b, c: a * b + c,
    }  # fmt: skip

    def rule(node: Node, *operands: float) -> float:
        return float(scalar(node)) if node.op is CONST else words[node.op.name](*operands)

    (found,) = long_division(fused).fold(rule, (x, y))
    return found


def sizes(count: int) -> list[float]:
    """Of numbers of any bits, and of those at the ends."""
    some = np.abs(RNG.integers(0, 1 << 31, count, np.uint32).view(np.float32))
    most = [LIMITS.max, LIMITS.tiny, LIMITS.smallest_subnormal, LIMITS.max / 3, np.float32(1e-45) * 7, np.inf]
    return [*map(float, some), *map(float, most), 0.0, 1.0, 3.0, math.nan]


@pytest.mark.parametrize("fused", [True, False], ids=["rounded once", "rounded twice"])
def test_remainder_is_exact(fused: bool) -> None:
    """For quotients of any number of bits; also where a reciprocal is rounded up or down."""
    xs, ys = sizes(60), sizes(60)
    with np.errstate(all="ignore"):
        found = [remainder(x, y, fused) for x in xs for y in ys]
        wanted = [float(np.fmod(x, y)) for x in xs for y in ys]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("fused", [True, False], ids=["rounded once", "rounded twice"])
def test_remainder_is_exact_next_to_multiples_of_the_divisor(fused: bool) -> None:
    """Where the quotient is a whole number or half of an odd one, and one unit away from that."""
    divisors = [float(np.float32(v)) for v in RNG.uniform(0.5, 2, 40)]
    for y in divisors:
        for times in (0.5, 1, 1.5, 3, 1 << 22, 3 << 40, 1 << 100):
            near = np.float32(y * times)
            for x in map(float, (near, np.nextafter(near, np.float32(0)), np.nextafter(near, LIMITS.max))):
                assert remainder(x, y, fused) == math.fmod(x, y)
