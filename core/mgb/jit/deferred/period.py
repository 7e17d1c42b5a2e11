"""Find where to end a sequence in a loop that reads no values."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from .link import Link


def find_period(sequence: Sequence[Link]) -> tuple[int, int] | None:
    """Return the period of the loop that `sequence` ends in.

    Returns
    -------
    tuple of int, or None
        The number of ops of an iteration, and how many more ops it takes to reach the point of the loop where
        the fewest bytes are alive. None: the second half of `sequence` does not repeat.
    """
    length = shortest_period([(link.op, link.spec) for link in sequence])
    if length is None:
        return None
    end = len(sequence)
    alive = live_bytes(sequence)
    starts = range(end - 2 * length + 1, end - length + 1)  # a whole iteration before the last
    best = min(starts, key=alive.__getitem__)
    return length, (best - end) % length


def live_bytes(sequence: Sequence[Link]) -> list[int]:
    """Return for each gap between two ops the bytes that are made before it and read after it."""
    last = list(range(len(sequence)))
    for link in sequence:
        for ref in link.args:
            if isinstance(ref, int) and ref >= 0:
                last[ref] = link.index
    change = [0] * (len(sequence) + 1)
    for link in sequence:
        assert link.spec is not None
        change[link.index + 1] += link.spec.nbytes
        change[last[link.index] + 1] -= link.spec.nbytes
    total, found = 0, []
    for step in change:
        total += step
        found.append(total)
    return found


def shortest_period(items: Sequence[Hashable]) -> int | None:
    """Return the least p after which the second half of `items`, and at least their last 2 p, repeat."""
    numbers: dict[Hashable, int] = {}
    backwards = [numbers.setdefault(item, len(numbers)) for item in reversed(items)]
    for length, again in enumerate(z_function(backwards)):
        if length and again >= length and again + length >= len(items) // 2:
            return length
    return None


def z_function(items: Sequence[int]) -> list[int]:
    """Return for each start how many items from there equal those from the beginning: Gusfield's Z (1997)."""
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
