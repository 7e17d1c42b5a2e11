"""The eager rules of random numbers: all words of a counter at once, in blocks that stay in the cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.device import to_host
from ...runtime.memory import empty

ROUNDS = 10
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85  # the golden ratio and sqrt(3) - 1, times 2**32

#: Operands that are 32-bit words: the number of a word, a counter, a key. Those after them are floats.
WORDS = 7

#: Counters in a block, of 64 bytes each: one MiB. Threads do not pay: on blocks of this size they wait for
#: the interpreter's lock as long as they compute, and larger ones leave the cache.
BLOCK = 1 << 14

_LOW, _BITS = np.uint64(0xFFFFFFFF), np.uint64(32)


class Words:
    """The words of the counters of a block, in memory that serves one block after the other.

    Attributes
    ----------
    even, odd : array of uint64
        Words 0 and 2, words 1 and 3: shape (2, ...), with that of the counters. They may be overwritten.
    """

    def __init__(self, counters: int, like: Any) -> None:
        self._memory = np.empty_like(like, shape=(6 * counters,), dtype=np.uint64)
        self._multipliers, self._weyl = (
            np.asarray(np.array(pair, np.uint64), like=like) for pair in (MULTIPLIERS[::-1], WEYL)
        )

    def run(self, c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> None:
        """Run the rounds of Philox, in 64 bits, where a product has both halves."""
        shape = np.broadcast_shapes(*(x.shape for x in (c0, c1, c2, c3, k0, k1)))
        self.even, self.odd, self._product = self._memory[: 6 * math.prod(shape)].reshape(3, 2, *shape)
        for lane, word in zip((*self.even, *self.odd), (c0, c2, c1, c3), strict=True):
            lane[...] = word
        multipliers, weyl = (x.reshape(2, *(1,) * len(shape)) for x in (self._multipliers, self._weyl))
        key = np.stack(np.broadcast_arrays(k0, k1)).astype(np.uint64)
        for _ in range(ROUNDS):
            np.multiply(self.even[::-1], multipliers, out=self._product)
            np.right_shift(self._product, _BITS, out=self.even)
            self.even ^= self.odd
            self.even ^= key
            np.bitwise_and(self._product, _LOW, out=self.odd)
            key += weyl
            key &= _LOW

    def floats(self) -> tuple[Any, Any, Any]:
        """Return `even` and `odd` in float32, and room for half of that, in the place of `even`."""
        even, odd = self._product.reshape(-1).view(np.float32).reshape(2, *self.even.shape)
        even[...], odd[...] = self.even.view(np.int64), self.odd.view(np.int64)  # sooner than from uint64
        room = self.even.reshape(-1).view(np.float32)[: even.size].reshape(even.shape)
        return even, odd, room


def blocked(
    values: Callable[[Words], Sequence[Any]],
    dtype: np.dtype[Any],
    finish: Callable[..., object] | None = None,
) -> Callable[..., Any]:
    """Return an eager rule for operands ``(which, c0, c1, c2, c3, k0, k1, *floats)``.

    Parameters
    ----------
    values : callable
        From the words of a block what stands where `which` is 0, 1, ...; the last stands for more as well.
    dtype : np.dtype
        Of the result.
    finish : callable, optional
        ``finish(out, *floats)`` changes a part of the result in place.
    """

    def eager(*operands: Any) -> Any:
        shape = np.broadcast_shapes(*(x.shape for x in operands))
        like, ndim = (
            next((x for x in operands if not isinstance(x, np.generic)), operands[0]),
            max(1, len(shape)),
        )
        operands = tuple(
            np.full_like(like, x, x.dtype, shape=()) if isinstance(x, np.generic) else x for x in operands
        )
        operands = tuple(x.reshape((1,) * (ndim - x.ndim) + x.shape) for x in operands)
        length, *rest = np.broadcast_shapes(*(x.shape for x in operands[1:WORDS]))
        rows = max(1, BLOCK // max(1, math.prod(rest))) if type(like) is np.ndarray else max(1, length)
        out = _new(shape or (1,), dtype, like)
        words = Words(min(rows, length) * math.prod(rest), like)
        for start in range(0, len(out), rows):
            block = slice(start, start + rows)
            which, *state = (x[block] if len(x) > 1 else x for x in operands)
            words.run(*state[: WORDS - 1])
            _give_out(which, values(words), out[block])
            if finish is not None:
                finish(out[block], *state[WORDS - 1 :])
        return out.reshape(shape)

    return eager


def _new(shape: tuple[int, ...], dtype: np.dtype[Any], like: Any) -> Any:
    """Return an array that is to be filled; of the pool, where `like` is NumPy's."""
    return empty(shape, dtype) if type(like) is np.ndarray else np.empty_like(like, shape=shape, dtype=dtype)


def _give_out(which: Any, values: Sequence[Any], out: Any) -> None:
    """Write ``out = values[which]``, element by element; as a rule `which` varies where counters do not."""
    last, which = len(values) - 1, to_host(which)
    for place in np.ndindex(which.shape):
        value = values[min(int(which[place]), last)]
        axes = tuple(zip(place, which.shape, value.shape, strict=True))
        here = tuple(slice(None) if length == 1 else i for i, length, _ in axes)
        out[here] = value[tuple(slice(None) if length == 1 else i % own for i, length, own in axes)]


# what stands where a word is asked for


def words(block: Words) -> Sequence[Any]:
    """Return the words."""
    return block.even[0], block.odd[0], block.even[1], block.odd[1]


def pairs(block: Words) -> Sequence[Any]:
    """Return words 0 and 1 as one 64-bit number, the less significant half first; words 2 and 3 as well."""
    block.odd <<= _BITS
    block.odd |= block.even
    return tuple(block.odd)


def units(block: Words) -> Sequence[Any]:
    """Return floats of [0, 1) in steps of 2**-24."""
    block.even >>= np.uint64(8)
    block.odd >>= np.uint64(8)
    even, odd, _ = block.floats()
    for x in (even, odd):
        x *= np.float32(2.0**-24)
    return even[0], odd[0], even[1], odd[1]


def normals(block: Words) -> Sequence[Any]:
    """Box and Muller's pairs: a radius from an even word, an angle and its complement from the odd one."""
    radius, turn, cosine = block.floats()
    for x in (radius, turn):
        x *= np.float32(2.0**-32)
    radius += np.float32(2.0**-33)
    np.log(radius, out=radius)
    radius *= np.float32(-2.0)
    np.sqrt(radius, out=radius)
    np.multiply(turn, np.float32(2 * np.pi), out=cosine)
    np.cos(cosine, out=cosine)
    cosine *= radius
    turn -= np.float32(0.25)
    turn *= np.float32(2 * np.pi)
    np.cos(turn, out=turn)
    turn *= radius
    return cosine[0], turn[0], cosine[1], turn[1]


def scale(out: Any, factor: Any, shift: Any) -> None:
    """Write ``out * factor + shift`` to `out`."""
    out *= factor
    out += shift


def scale_below(out: Any, factor: Any, shift: Any, most: Any) -> None:
    """Write ``out * factor + shift``, but no more than `most`, to `out`."""
    scale(out, factor, shift)
    np.minimum(out, most, out=out)
