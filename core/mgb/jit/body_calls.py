"""Calls that run the body: their streams, and their records."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..executor import Program
from ..runtime import forking
from ..tensor import Tensor
from .deferred.body import BodyStream
from .generated import MISS
from .tree import flatten, is_known_by_identity, is_known_by_reads
from .variant import Variant
from .watch import Impurity

#: Bounds of the number of cached records; between them, as many as have `_MOST_STEPS` steps together. A step
#: takes about a kilobyte, including its share of graphs and programs.
_FEWEST, _MOST, _MOST_STEPS = 8, 256, 1 << 15

#: How often a body with side effects is recorded: at the first call, the second, the fourth, the eighth.
_ATTEMPTS = 4

#: After so many calls that each found something new the body is recorded again, and after twice as many.
_RETRIED = 256

#: The shapes of the Tensors among the arguments.
Shapes = tuple[tuple[int, ...], ...]


def cache_limit(variant: Variant) -> int:
    """Return how many records of this length are cached."""
    return min(_MOST, max(_FEWEST, _MOST_STEPS // variant.steps))


class StreamPool:
    """The streams of one body. One call at a time uses each.

    Parameters
    ----------
    make : callable
        Makes a stream.
    """

    def __init__(self, make: Callable[[], BodyStream]) -> None:
        self._make = make
        self._idle: list[BodyStream] = []
        self._all: weakref.WeakSet[BodyStream] = weakref.WeakSet()

    def run(self, body: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Return the result of `body`."""
        try:
            stream = self._idle.pop()
        except IndexError:
            stream = self._make()
            self._all.add(stream)
        try:
            return stream.run(body, args, kwargs)
        finally:
            self._idle.append(stream)

    def programs(self) -> list[Program]:
        """Return the compiled programs."""
        return [program for stream in list(self._all) for program in stream.programs()]


class ImpureCalls:
    """Calls of a body with side effects, whose arguments are equal except for sizes and numbers.

    A side effect may happen once, as when a body fills a cache at its first call. So the body is recorded
    again a few times, in case it has no side effects then.

    Parameters
    ----------
    leaves : sequence
        The flattened arguments.
    make : callable
        Makes a stream.

    Attributes
    ----------
    variant : Variant or None
        The record of the latest such call.
    calls : int
        The number of calls.
    megamorphic_reason : str or None
        What is new at each call, as text, if that is why no record serves other calls.
    """

    variant: Variant | None = None
    megamorphic_reason: str | None = None

    def __init__(self, leaves: Sequence[Any], make: Callable[[], BodyStream]) -> None:
        self.calls = 0
        self.streams = StreamPool(self._make_stream)
        self._make = make
        known = (leaf for leaf in leaves if not is_known_by_identity(leaf) and not is_known_by_reads(leaf))
        self._leaves = [leaf for leaf in known if not isinstance(leaf, Tensor)]  # keeps their ids in use
        self._attempts, self._retried = 0, _RETRIED
        self._reasons: frozenset[str] = frozenset()

    def _make_stream(self) -> BodyStream:
        stream = self._make()
        if self.variant is not None:
            stream.seed(self.variant)
        return stream

    def run(self, body: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Return the result of `body`. Its ops are deferred, and what came often enough is compiled."""
        self.calls += 1
        return self.streams.run(body, args, kwargs)

    def make_fast_path(
        self, args: tuple[Any, ...], run: Callable[[tuple[Any, ...]], Any]
    ) -> Callable[..., Any] | None:
        """Return a function that calls `run` for arguments like these and returns `MISS` for others.

        It checks less than a key does, so that a small body costs about as much as without a trace. None:
        an argument is neither a Tensor nor a number.
        """
        kinds = list(map(_abstract, args))
        tensors = [id(a) for a in args if isinstance(a, Tensor)]
        if None in kinds or len(set(tensors)) < len(tensors):
            return None
        several = len(tensors) > 1

        def fast_path(args: tuple[Any, ...]) -> Any:
            if len(args) != len(kinds) or self.should_record():
                return MISS
            for a, kind in zip(args, kinds):
                if a.__class__ is not kind and _abstract(a) != kind:
                    return MISS
            if several and len({id(a) for a in args if isinstance(a, Tensor)}) < len(tensors):
                return MISS
            return run(args)

        return fast_path

    def should_record(self) -> bool:
        """Check whether the next call should be recorded again."""
        if self.megamorphic_reason is not None:
            return self.calls + 1 >= self._retried
        return self._attempts < _ATTEMPTS and self.calls + 1 >= 1 << self._attempts

    def retry_later(self) -> None:
        """Double the number of calls until the next record, in case this one serves no other call."""
        self._retried *= 2

    def add_reasons(self, impurities: Sequence[Impurity]) -> bool:
        """Store why the body must run; return whether there is a new reason."""
        lasting = not all(impurity.once for impurity in impurities)
        self.calls += 1
        self._attempts = _ATTEMPTS if lasting else self._attempts + 1
        known, self._reasons = self._reasons, self._reasons.union(map(str, impurities))
        return known != self._reasons


def _abstract(value: Any) -> Any:
    """Return the part of a call's pattern for a Tensor with a value or a number; None for other values."""
    if isinstance(value, Tensor):
        array = value._data
        return None if array is None else (value.__class__, array.ndim, array.dtype, value._device)
    return value.__class__ if value.__class__ in (int, float) else None


class StrictRecord:
    """A record that calls must repeat.

    Parameters
    ----------
    variant : Variant
    make : callable
        Makes a stream from a record.
    """

    def __init__(self, variant: Variant, make: Callable[[Variant], BodyStream]) -> None:
        self.variant = variant
        self.streams = StreamPool(lambda: make(variant))
        self._guards = variant.record.guards.select_training()

    def serves(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Check whether the guards of training hold, such as which ``grad`` is None."""
        if self._guards is None:
            return True
        if not self._guards.depends_on_arguments():
            return self._guards.hold(())
        leaves, arrangement = flatten((args, kwargs))
        return self.variant.record.arrangement in (None, arrangement) and self._guards.hold(leaves)


class StrictRecords:
    """Strict records by the shapes of the arguments. It is thread-safe."""

    def __init__(self) -> None:
        self._records: dict[Shapes, tuple[StrictRecord, ...]] = {}  # the newest first
        self._lock = forking.lock()

    def __iter__(self) -> Iterator[StrictRecord]:
        return (record for records in list(self._records.values()) for record in reversed(records))

    def __bool__(self) -> bool:
        return bool(self._records)

    def shapes(self) -> list[Shapes]:
        """Return the known sets of shapes of arguments, the oldest first."""
        return list(self._records)

    def find(self, shapes: Shapes, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> StrictRecord | None:
        """Return the record that a call with arguments of `shapes` must repeat, or None."""
        return next((known for known in self._records.get(shapes, ()) if known.serves(args, kwargs)), None)

    def add(self, shapes: Shapes, record: StrictRecord, replaces: bool = False) -> None:
        """Add the record of a call with arguments of `shapes`; it `replaces` the others for these, or not."""
        most = cache_limit(record.variant)
        with self._lock:
            others = self._records.pop(shapes, ())
            self._records[shapes] = (record, *(() if replaces else others))[:most]
            while sum(map(len, self._records.values())) > most:
                del self._records[next(iter(self._records))]
