"""What was recorded of calls whose body runs, and which of it a call is to follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .. import forking
from ..tensor import Tensor
from .environment import Impurity
from .merging import numbers_between
from .tree import flatten, is_itself
from .variant import Variant

#: Variants that are kept, the newest: as many as have `_STEPS` steps together, within bounds. A step takes
#: about a kilobyte, its share of graphs and programs included.
_FEWEST, _MOST, _STEPS = 8, 256, 1 << 15

#: Recorded calls whose lengths are followed, that are asked for those of other lengths.
_RESIZED = 16

#: How often a body that was impure is recorded: at the first call, the second, the fourth, the eighth.
_ATTEMPTS = 4

#: The shapes of the Tensors among the arguments.
Shapes = tuple[tuple[int, ...], ...]


def most_like(variant: Variant) -> int:
    """How many variants as long as this one are kept."""
    return min(_MOST, max(_FEWEST, _STEPS // variant.steps))


class Variants:
    """Variants by the shapes of the arguments. Several threads may use it at once.

    Attributes
    ----------
    departs : bool
        Has a call done other ops than every variant that it could follow?
    """

    departs = False

    def __init__(self) -> None:
        self._kept: dict[Shapes, tuple[Variant, ...]] = {}  # of each the one first that was followed last
        self._resizable: tuple[Variant, ...] = ()  # the newest first
        self._lock = forking.lock()

    def __iter__(self) -> Iterator[Variant]:
        return (variant for kept in list(self._kept.values()) for variant in reversed(kept))

    def __bool__(self) -> bool:
        return bool(self._kept)

    def shapes(self) -> list[Shapes]:
        """The sets of shapes of arguments that are known, the oldest first."""
        return list(self._kept)

    def of(self, shapes: Shapes, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[Variant]:
        """Those that a call with arguments of `shapes` may follow, as it finds what they found."""
        kept = self._kept.get(shapes, ())
        for variant in kept:
            if variant.finds(args, kwargs):
                yield variant
        known = [variant.sized for variant in kept]
        for variant in self._resizable:
            if variant.sized not in known:
                resized = variant.resized(flatten((args, kwargs))[0])
                if resized is not None and resized.finds(args, kwargs):
                    yield resized

    def keep(self, shapes: Shapes, variant: Variant) -> Variant:
        """Add what was recorded, or, if numbers alone are others than known, one with inputs in their place.

        Returns
        -------
        Variant
            What was added.
        """
        with self._lock:
            others = []
            for other in self._kept.get(shapes, ()):
                places = (
                    numbers_between(other.record, variant.record) if other.found == variant.found else None
                )
                if places is None:
                    others.append(other)
                else:
                    base = other if variant.sized is None else variant
                    variant = base.with_inputs(places)
                    self._resizable = tuple(v for v in self._resizable if v.sized is not other.sized)
            if variant.sized is not None:
                self._resizable = (variant, *self._resizable)[:_RESIZED]
            self._put(shapes, (variant, *others))
        return variant

    def follow(self, shapes: Shapes, variant: Variant) -> None:
        """Told that a call with arguments of `shapes` did what `variant` says."""
        kept = self._kept.get(shapes, ())
        if not kept or kept[0] is not variant:
            with self._lock:
                kept = self._kept.get(shapes, ())
                self._put(shapes, (variant, *(other for other in kept if not _is_same(other, variant))))

    def _put(self, shapes: Shapes, variants: tuple[Variant, ...]) -> None:
        most = most_like(variants[0])
        self._kept.pop(shapes, None)
        self._kept[shapes] = variants[:most]
        while sum(map(len, self._kept.values())) > most:
            del self._kept[next(iter(self._kept))]


def _is_same(one: Variant, other: Variant) -> bool:
    """Are two variants for the same shapes the same one, which two threads may have made?"""
    return one is other or (one.sized is not None and one.sized is other.sized)


class Impure:
    """Calls whose body must run at each: those of arguments that are alike but for sizes and numbers.

    What a body writes outside it may write once, as when it makes something at its first call. So it is
    recorded again a few times, in case it is pure then.

    Attributes
    ----------
    variants : Variants
        What was recorded of such calls.
    calls : int
        How many there were.
    unsettled : str or None
        What the body finds that is new at each call, in words, if no record serves others for that.
    """

    def __init__(self, leaves: Sequence[Any]) -> None:
        self.variants = Variants()
        self.calls = 0
        held = (leaf for leaf in leaves if not isinstance(leaf, Tensor) and not is_itself(leaf))
        self._leaves = list(held)  # whose ids stay taken
        self._attempts = 0
        self.unsettled: str | None = None
        self._next = 1
        self._reasons: frozenset[str] = frozenset()

    def may_record(self) -> bool:
        """Shall a call that no variant serves be recorded? Less and less, where all do."""
        if self.unsettled is None:
            return True
        due = self.calls >= self._next
        self._next = 2 * self.calls if due else self._next
        return due

    def is_due(self) -> bool:
        """Shall the next call be recorded again?"""
        return self._attempts < _ATTEMPTS and self.calls + 1 >= 1 << self._attempts

    def found(self, impurities: Sequence[Impurity]) -> bool:
        """Told why a body that was recorded must run; is that new?"""
        lasting = not all(impurity.once for impurity in impurities)
        self.calls += 1
        self._attempts = _ATTEMPTS if lasting else self._attempts + 1
        known, self._reasons = self._reasons, self._reasons.union(map(str, impurities))
        return known != self._reasons
