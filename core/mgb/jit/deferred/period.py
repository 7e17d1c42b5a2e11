"""Where to end a sequence in a loop that never asks for a value."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from .link import Link
from .links import crossing


def period_of(sequence: Sequence[Link]) -> tuple[int, int] | None:
    """The length of the loop that `sequence` ends in.

    Returns
    -------
    tuple of int, or None
        How many ops an iteration has, and how many are missing at the end until the point in the loop where
        the fewest bytes are alive. None: the second half of `sequence` does not repeat.
    """
    length = shortest_period([(link.op, link.spec) for link in sequence])
    if length is None:
        return None
    end = len(sequence)
    held = crossing(sequence)
    starts = range(end - 2 * length + 1, end - length + 1)  # a whole iteration before the last
    best = min(starts, key=held.__getitem__)
    return length, (best - end) % length


def shortest_period(items: Sequence[Hashable]) -> int | None:
    """The least p for which the second half of `items`, and at least their last 2 p, repeat after p."""
    numbers: dict[Hashable, int] = {}
    backwards = [numbers.setdefault(item, len(numbers)) for item in reversed(items)]
    for length, again in enumerate(matches(backwards)):
        if length and again >= length and again + length >= len(items) // 2:
            return length
    return None


def matches(items: Sequence[int]) -> list[int]:
    """For each start, how many items from there on are those of the beginning: Gusfield's Z (1997)."""
    count = len(items)
    z = [0] * count
    left = right = 0
    for start in range(1, count):
        same = min(right - start, z[start - left]) if start < right else 0
        while start + same < count and items[same] == items[start + same]:
            same += 1
        z[start] = same
        if start + same > right:
            left, right = start, start + same
    return z
