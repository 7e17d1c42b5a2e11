"""How a matrix product is cut, by a rule over sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

#: Elements of the result that a thread has at most: its registers hold them and what is computed of them.
OWN = 64


@dataclass(frozen=True, slots=True)
class Tiles:
    """How a product is cut.

    Attributes
    ----------
    m, n, k : int
        Of a program's part of the result, and of a step along what is summed.
    warps : int
    group : int
        Rows of programs that run together, so that they find the same columns in the cache.
    """

    m: int = 128
    n: int = 128
    k: int = 32
    warps: int = 8
    group: int = 8


def tiles_for(m: int, n: int, k: int, itemsize: int, own: int = OWN) -> Tiles:
    """Choose tiles: smaller ones for small products, at most `own` elements per thread, steps of 64 bytes."""
    down, right = (max(16, min(128, 1 << max(0, d - 1).bit_length())) for d in (m, n))
    step = max(16, min(64 // itemsize, 1 << max(0, k - 1).bit_length()))
    tiles = Tiles(down, right, step, 8 if down * right >= 128 * own else 4)
    return next(t for t in (tiles, *smaller(tiles)) if t.m * t.n <= 256 * own)


def smaller(tiles: Tiles) -> Iterator[Tiles]:
    """Yield tiles of which each needs less of a block than the one before it."""
    while max(tiles.m, tiles.n, tiles.k) > 16:
        if max(tiles.m, tiles.n) > 16:
            low = tiles.m > tiles.n
            tiles = replace(tiles, m=tiles.m // 2) if low else replace(tiles, n=tiles.n // 2)
            tiles = replace(tiles, warps=min(tiles.warps, max(4, tiles.m * tiles.n >> 9)))
        else:
            tiles = replace(tiles, k=tiles.k // 2)
        yield tiles
