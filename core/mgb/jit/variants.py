"""The variants of one recorded sequence, which differ in shapes and in what follows from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .. import forking
from ..ir import Spec
from .record import Entry, Literal, Record
from .variant import Variant

#: Variants that are kept, the newest: as many as have `_STEPS` steps together, within bounds. A step takes
#: about a kilobyte, its share of graphs and programs included.
_FEWEST, _MOST, _STEPS = 8, 256, 1 << 15


def most_like(variant: Variant) -> int:
    """How many variants as long as this one are kept."""
    return min(_MOST, max(_FEWEST, _STEPS // variant.steps))


class Variants:
    """Variants of one sequence of ops: all have the same segments. Several threads may use it at once."""

    def __init__(self) -> None:
        self._kept: tuple[tuple[tuple[Any, ...], Variant], ...] = ()  # the oldest first
        self._newest: dict[tuple[Any, ...], Variant] = {}
        self._lock = forking.lock()

    def __iter__(self) -> Iterator[Variant]:
        return (variant for _, variant in self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def shapes(self) -> list[tuple[Any, ...]]:
        """The sets of shapes of arguments that are known, the oldest first."""
        return list(dict.fromkeys(shapes for shapes, _ in self._kept))

    def newest(self, shapes: tuple[Any, ...]) -> Variant | None:
        """The newest for arguments of `shapes`."""
        return self._newest.get(shapes)

    def oldest(self) -> Variant:
        """The oldest of all."""
        return self._kept[0][1]

    def resized(self, leaves: Sequence[Any]) -> Variant | None:
        """A variant for arguments of other lengths, made of one that follows lengths."""
        asked: list[Any] = []
        for _, variant in self._kept[::-1]:
            if variant.sized is not None and variant.sized not in asked:
                asked.append(variant.sized)
                found = variant.resized(leaves)
                if found is not None:
                    return found
        return None

    def keep(self, shapes: tuple[Any, ...], variant: Variant) -> None:
        """Add a variant, in place of one that is equal; drop the oldest where there are too many."""
        record = variant.record
        specs = dict(enumerate(record.signature))
        with self._lock:
            others = [(s, v) for s, v in self._kept if not _begins_like(v.record, record.entries, specs)]
            kept = (*others, (shapes, variant))[-most_like(variant) :]
            self._kept, self._newest = kept, dict(kept)

    def drop_oldest(self) -> None:
        """Forget the oldest of several."""
        with self._lock:
            self._kept = self._kept[1:] or self._kept
            self._newest = dict(self._kept)

    def find(
        self, record: Record, steps: int, specs: Mapping[int, Spec], fits: Callable[[Entry], bool]
    ) -> Variant | None:
        """A variant that a call which began otherwise than recorded agrees with so far.

        Parameters
        ----------
        record : Record
            What the call has followed.
        steps : int
            For so many steps.
        specs : mapping
            Of the external inputs that were fed, by number.
        fits : callable
            Does the step that comes now agree with this one?

        Returns
        -------
        Variant or None
            The newest one that fits.
        """
        beginning = record.entries[:steps]
        for _, variant in self._kept[::-1]:
            if fits(variant.record.entries[steps]) and _begins_like(variant.record, beginning, specs):
                return variant
        return None


def _begins_like(record: Record, entries: list[Entry], specs: Mapping[int, Spec]) -> bool:
    """Has `record` inputs of `specs`, and does it begin with `entries`, of the same ops and wiring?"""
    externals = record.externals
    if any(n >= len(externals) or externals[n].node.spec != spec for n, spec in specs.items()):
        return False
    return all(mine is other or _same(mine, other) for mine, other in zip(record.entries, entries))


def _same(mine: Entry, other: Entry) -> bool:
    """Do two entries have the same op, parameters and constants?"""
    return (
        mine.op is other.op
        and mine.params == other.params
        and len(mine.args) == len(other.args)
        and all(
            a is b or (isinstance(a, Literal) and isinstance(b, Literal) and a.matches(b.array))
            for a, b in zip(mine.args, other.args)
            if isinstance(a, Literal) or isinstance(b, Literal)
        )
    )
