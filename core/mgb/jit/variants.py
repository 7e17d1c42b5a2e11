"""What was recorded of calls whose body runs, and which of it a call is to follow."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .. import forking
from ..executor import Program
from ..tensor import Tensor
from .deferral.body import BodyStream
from .entry import Entry
from .environment import Impurity
from .guard import MISS
from .tree import flatten, is_itself, is_looked_into
from .variant import Variant

#: Variants that are kept, the newest: as many as have `_STEPS` steps together, within bounds. A step takes
#: about a kilobyte, its share of graphs and programs included.
_FEWEST, _MOST, _STEPS = 8, 256, 1 << 15

#: Recorded calls whose lengths are followed, that are asked for those of other lengths.
_RESIZED = 16

#: After so many calls in a row that no variant fits most are not matched any more.
_DEPARTURES = 16

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
        Has a call departed from every variant that it could follow?
    departures : int
        How many calls in a row have.
    """

    departs = False
    departures = 0

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

    def first(self, shapes: Shapes, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Variant | None:
        """The first of `of`, if there is one."""
        kept = self._kept.get(shapes)
        if kept and kept[0].finds(args, kwargs):
            return kept[0]
        return next(self.of(shapes, args, kwargs), None)

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

    def decides(self, leaves: Sequence[Any]) -> str | None:
        """The line where lengths decide, for which what is recorded for others does not serve `leaves`."""
        sized = (variant.sized for variant in self._resizable if variant.sized is not None)
        return next(filter(None, (record.decides(leaves) for record in sized)), None)

    def keep(self, shapes: Shapes, variant: Variant, instead: Variant | None = None) -> None:
        """Add what a call with arguments of `shapes` did, `instead` of another: the next follows it first."""
        kept = self._kept.get(shapes, ())
        if kept and kept[0] is variant:
            return
        most = most_like(variant)
        with self._lock:
            kept = self._kept.pop(shapes, ())
            others = (other for other in kept if other is not instead and not _is_same(other, variant))
            self._kept[shapes] = (variant, *others)[:most]
            while sum(map(len, self._kept.values())) > most:
                del self._kept[next(iter(self._kept))]
            if variant.sized is not None and all(v.sized is not variant.sized for v in self._resizable):
                self._resizable = (variant, *self._resizable)[:_RESIZED]


def _is_same(one: Variant, other: Variant) -> bool:
    """Do two variants for arguments of the same shapes say the same?"""
    if one is other or (one.sized is not None and one.sized is other.sized):
        return True
    mine, its = one.record.entries, other.record.entries
    return one.specs == other.specs and len(mine) == len(its) and all(map(Entry.is_like, mine, its))


class Impure:
    """Calls whose body must run at each: those of arguments that are alike but for sizes and numbers.

    What a body writes outside it may write once, as when it makes something at its first call. So it is
    recorded again a few times, in case it is pure then.

    Attributes
    ----------
    variant : Variant or None
        What was recorded of the latest such call.
    calls : int
        How many there were.
    unsettled : str or None
        What the body finds that is new at each call, in words, if no record serves others for that.
    """

    variant: Variant | None = None

    def __init__(self, leaves: Sequence[Any]) -> None:
        self.calls = 0
        known = (leaf for leaf in leaves if not is_itself(leaf) and not is_looked_into(leaf))
        self._leaves = [leaf for leaf in known if not isinstance(leaf, Tensor)]  # whose ids stay taken
        self._attempts = 0
        self.unsettled: str | None = None
        self._reasons: frozenset[str] = frozenset()
        self._idle: list[BodyStream] = []  # one for each of the calls that run at once
        self._streams: weakref.WeakSet[BodyStream] = weakref.WeakSet()

    def run(self, make: Callable[[], BodyStream], body: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What `body` gives: its ops are deferred, and what came often enough is compiled."""
        self.calls += 1
        try:
            stream = self._idle.pop()
        except IndexError:
            stream = make()
            self._streams.add(stream)
            if self.variant is not None:
                stream.seed(self.variant.record)
        try:
            return stream.run(body, args, kwargs)
        finally:
            self._idle.append(stream)

    def again(
        self, args: tuple[Any, ...], run: Callable[[tuple[Any, ...]], Any]
    ) -> Callable[..., Any] | None:
        """``run(args)`` for arguments like these, Tensors and numbers, or `MISS`; None: others are given.

        It asks for less than a key does, so that a small body costs about what it costs without a trace.
        """
        kinds = list(map(_kind_of, args))
        tensors = [id(a) for a in args if isinstance(a, Tensor)]
        if None in kinds or len(set(tensors)) < len(tensors):
            return None
        several = len(tensors) > 1

        def again(args: tuple[Any, ...]) -> Any:
            if len(args) != len(kinds) or self.is_due():
                return MISS
            for a, kind in zip(args, kinds):
                if a.__class__ is not kind and _kind_of(a) != kind:
                    return MISS
            if several and len({id(a) for a in args if isinstance(a, Tensor)}) < len(tensors):
                return MISS
            return run(args)

        return again

    def programs(self) -> list[Program]:
        """What was compiled."""
        return [program for stream in list(self._streams) for program in stream.programs()]

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


def _kind_of(value: Any) -> Any:
    """What the pattern of a call says of a Tensor that has a value, or of a number; None: another thing."""
    if isinstance(value, Tensor):
        array = value._data
        return None if array is None else (value.__class__, array.ndim, array.dtype, value._device)
    return value.__class__ if value.__class__ in (int, float) else None
