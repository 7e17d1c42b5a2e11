"""Bodies that run at each call: what is known of them, and the streams that their ops are deferred in."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .. import forking
from ..executor import Program
from ..tensor import Tensor
from .deferred.body import BodyStream
from .guard import MISS
from .tree import flatten, is_itself, is_looked_into
from .variant import Variant
from .watch import Impurity

#: Recorded calls that are kept, the newest: as many as have `_STEPS` steps together, within bounds. A step
#: takes about a kilobyte, its share of graphs and programs included.
_FEWEST, _MOST, _STEPS = 8, 256, 1 << 15

#: How often a body that was impure is recorded: at the first call, the second, the fourth, the eighth.
_ATTEMPTS = 4

#: After so many calls that each found something new the body is recorded once more, and after twice as many.
_RETRIED = 256

#: The shapes of the Tensors among the arguments.
Shapes = tuple[tuple[int, ...], ...]


def most_like(variant: Variant) -> int:
    """How many recorded calls as long as this one are kept."""
    return min(_MOST, max(_FEWEST, _STEPS // variant.steps))


class Streams:
    """The streams of the calls of one body: each is used by one call at a time.

    Parameters
    ----------
    make : callable
        Makes one more.
    """

    def __init__(self, make: Callable[[], BodyStream]) -> None:
        self._make = make
        self._idle: list[BodyStream] = []
        self._known: weakref.WeakSet[BodyStream] = weakref.WeakSet()

    def run(self, body: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What `body` gives."""
        try:
            stream = self._idle.pop()
        except IndexError:
            stream = self._make()
            self._known.add(stream)
        try:
            return stream.run(body, args, kwargs)
        finally:
            self._idle.append(stream)

    def programs(self) -> list[Program]:
        """What was compiled."""
        return [program for stream in list(self._known) for program in stream.programs()]


class Impure:
    """Calls whose body must run at each: those of arguments that are alike but for sizes and numbers.

    What a body writes outside it may write once, as when it makes something at its first call. So it is
    recorded again a few times, in case it is pure then.

    Parameters
    ----------
    leaves : sequence
        The flattened arguments.
    make : callable
        Makes a stream.

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
    unsettled: str | None = None

    def __init__(self, leaves: Sequence[Any], make: Callable[[], BodyStream]) -> None:
        self.calls = 0
        self.streams = Streams(self._stream)
        self._make = make
        known = (leaf for leaf in leaves if not is_itself(leaf) and not is_looked_into(leaf))
        self._leaves = [leaf for leaf in known if not isinstance(leaf, Tensor)]  # whose ids stay taken
        self._attempts, self._retried = 0, _RETRIED
        self._reasons: frozenset[str] = frozenset()

    def _stream(self) -> BodyStream:
        stream = self._make()
        if self.variant is not None:
            stream.seed(self.variant)
        return stream

    def run(self, body: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What `body` gives: its ops are deferred, and what came often enough is compiled."""
        self.calls += 1
        return self.streams.run(body, args, kwargs)

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

    def is_due(self) -> bool:
        """Shall the next call be recorded again?"""
        if self.unsettled is not None:
            return self.calls + 1 >= self._retried
        return self._attempts < _ATTEMPTS and self.calls + 1 >= 1 << self._attempts

    def retried(self) -> None:
        """Told that it is, as what was new at each call may be here to stay."""
        self._retried *= 2

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


class Matched:
    """A recorded call that others are matched with.

    Parameters
    ----------
    variant : Variant
    make : callable
        Makes a stream that is as strict as wanted, from a record.
    """

    def __init__(self, variant: Variant, make: Callable[[Variant], BodyStream]) -> None:
        self.variant = variant
        self.streams = Streams(lambda: make(variant))
        self._found = variant.record.guards.of_training()

    def finds(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Would a call with these arguments find what the recorded one found, as which ``grad`` is None?"""
        if self._found is None:
            return True
        if not self._found.asks_arguments():
            return self._found.hold(())
        leaves, arrangement = flatten((args, kwargs))
        return self.variant.record.arrangement in (None, arrangement) and self._found.hold(leaves)


class Matches:
    """Recorded calls by the shapes of the arguments. Several threads may use it at once."""

    def __init__(self) -> None:
        self._kept: dict[Shapes, tuple[Matched, ...]] = {}  # of each the newest first
        self._lock = forking.lock()

    def __iter__(self) -> Iterator[Matched]:
        return (matched for kept in list(self._kept.values()) for matched in reversed(kept))

    def __bool__(self) -> bool:
        return bool(self._kept)

    def shapes(self) -> list[Shapes]:
        """The sets of shapes of arguments that are known, the oldest first."""
        return list(self._kept)

    def of(self, shapes: Shapes, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Matched | None:
        """The one that a call with arguments of `shapes` is to follow, as it finds what that found."""
        return next((known for known in self._kept.get(shapes, ()) if known.finds(args, kwargs)), None)

    def keep(self, shapes: Shapes, matched: Matched, alone: bool = False) -> None:
        """Add what a call with arguments of `shapes` did, or have it stand `alone` for these."""
        most = most_like(matched.variant)
        with self._lock:
            kept = self._kept.pop(shapes, ())
            self._kept[shapes] = (matched, *(() if alone else kept))[:most]
            while sum(map(len, self._kept.values())) > most:
                del self._kept[next(iter(self._kept))]
