"""Random numbers as functions of a counter and a key, by Philox4x32-10, so that each is made on its own.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

Each op takes first which of the numbers of a counter is meant, then the counter, the least significant word
first, and the key. The body is for kernels, which have the rounds in registers.
"""

from __future__ import annotations

import math

from ...ir import dtypes
from ...tensor import Tensor
from ..bodies.integers import mulhi
from ..bodies.transcendental import cos, log
from ..declare import Typing, composite
from ..primitives import cast, eq, lt, minimum, shl, shr, sqrt, where
from .blocks import (
    MULTIPLIERS,
    ROUNDS,
    WEYL,
    WORDS,
    blocked,
    normals,
    pairs,
    scale,
    scale_below,
    units,
    words,
)

#: Keeps the logarithm of a `unit` finite.
TINY = 2.0**-33

#: 32-bit words, then floats; the result is like the last of them, or a pair of words.
DRAW = Typing(
    lambda operands: (dtypes.uint32,) * WORDS + (dtypes.float32,) * (len(operands) - WORDS),
    lambda given: given[-1],
)
PAIR = Typing(DRAW.promote, lambda _given: dtypes.uint64)


@composite(DRAW, eager=blocked(words, dtypes.uint32), differentiable=False)
def philox(which: Tensor, c0: Tensor, c1: Tensor, c2: Tensor, c3: Tensor, k0: Tensor, k1: Tensor) -> Tensor:
    """Return one of the four words of a counter, uint32."""
    for _ in range(ROUNDS):
        high0, high1 = mulhi(c0, MULTIPLIERS[0]), mulhi(c2, MULTIPLIERS[1])
        low0, low1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + WEYL[0], k1 + WEYL[1]
    return where(lt(which, 2), where(eq(which, 0), c0, c1), where(eq(which, 2), c2, c3))


@composite(PAIR, eager=blocked(pairs, dtypes.uint64), differentiable=False)
def philox_pair(
    which: Tensor, c0: Tensor, c1: Tensor, c2: Tensor, c3: Tensor, k0: Tensor, k1: Tensor
) -> Tensor:
    """Return one of the two numbers of 64 bits of a counter: words 0 and 1, or words 2 and 3."""
    low, high = (
        cast(philox(place, c0, c1, c2, c3, k0, k1), dtype=dtypes.uint64)
        for place in (where(eq(which, 0), 0, 2), where(eq(which, 0), 1, 3))
    )
    return low | shl(high, 32)


@composite(DRAW, eager=blocked(units, dtypes.float32, scale_below), differentiable=False)
def philox_uniform(
    which: Tensor,
    c0: Tensor,
    c1: Tensor,
    c2: Tensor,
    c3: Tensor,
    k0: Tensor,
    k1: Tensor,
    factor: Tensor,
    shift: Tensor,
    most: Tensor,
) -> Tensor:
    """Return a word as a number of [0, 1) in steps of 2**-24, times `factor`, plus `shift`, up to `most`."""
    bits = philox(which, c0, c1, c2, c3, k0, k1)
    return minimum(cast(shr(bits, 8), dtype=dtypes.float32) * 2.0**-24 * factor + shift, most)


@composite(DRAW, eager=blocked(normals, dtypes.float32, scale), differentiable=False)
def philox_normal(
    which: Tensor,
    c0: Tensor,
    c1: Tensor,
    c2: Tensor,
    c3: Tensor,
    k0: Tensor,
    k1: Tensor,
    factor: Tensor,
    shift: Tensor,
) -> Tensor:
    """Return a normal number by the method of Box and Muller, times `factor`, plus `shift`.

    Words 0 and 1 make numbers 0 and 1, words 2 and 3 the others: a radius, an angle and its complement.
    """
    is_first = lt(which, 2)
    first, second = (
        unit(philox(place, c0, c1, c2, c3, k0, k1))
        for place in (where(is_first, 0, 2), where(is_first, 1, 3))
    )
    radius = sqrt(log(first + TINY) * -2.0)
    turn = second - where(eq(which, 0) | eq(which, 2), 0.0, 0.25)
    return radius * cos(turn * (2 * math.pi)) * factor + shift


def unit(bits: Tensor) -> Tensor:
    """Return 32 bits as a float32 of [0, 1], exact near 0."""
    return cast(bits, dtype=dtypes.float32) * 2.0**-32
