"""Philox4x32-10: random bits as a function of a counter and a key, so that each element is made on its own.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..tensor import Tensor
from .declare import Typing, composite
from .primitives import eq, lt, mulhi, where

ROUNDS = 10
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85  # the golden ratio and sqrt(3) - 1, times 2**32

#: All operands are 32-bit words, and so is the result.
WORDS = Typing(lambda operands: (dtypes.uint32,) * len(operands), lambda given: given[0])

_LOW, _BITS = np.uint64(0xFFFFFFFF), np.uint64(32)


def _eager(word: Any, c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Any:
    """The rounds in 64-bit words, where a product has both halves; the shape of `word` joins at the end."""
    m0, m1, w0, w1 = (np.uint64(x) for x in (*MULTIPLIERS, *WEYL))
    c0, c1, c2, c3, k0, k1 = (x.astype(np.uint64) for x in (c0, c1, c2, c3, k0, k1))
    for _ in range(ROUNDS):
        p0, p1 = m0 * c0, m1 * c2
        c0, c1, c2, c3 = (p1 >> _BITS) ^ c1 ^ k0, p1 & _LOW, (p0 >> _BITS) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = k0 + w0 & _LOW, k1 + w1 & _LOW
    c0, c1, c2, c3 = (x.astype(np.uint32) for x in (c0, c1, c2, c3))
    return np.where(word < 2, np.where(word == 0, c0, c1), np.where(word == 2, c2, c3))


@composite(WORDS, eager=_eager, differentiable=False)
def philox(word: Tensor, c0: Tensor, c1: Tensor, c2: Tensor, c3: Tensor, k0: Tensor, k1: Tensor) -> Tensor:
    """One of the four words that Philox4x32-10 makes of a counter and a key.

    Parameters
    ----------
    word : Tensor of uint32
        Which one, 0 to 3.
    c0, c1, c2, c3 : Tensor of uint32
        The counter, least significant word first.
    k0, k1 : Tensor of uint32
        The key.
    """
    for _ in range(ROUNDS):
        high0, high1 = mulhi(c0, MULTIPLIERS[0]), mulhi(c2, MULTIPLIERS[1])
        low0, low1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + WEYL[0], k1 + WEYL[1]
    return where(lt(word, 2), where(eq(word, 0), c0, c1), where(eq(word, 2), c2, c3))
