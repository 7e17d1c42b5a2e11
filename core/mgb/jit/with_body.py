"""Traced functions whose body runs: its ops are deferred, or must repeat a record."""

from __future__ import annotations

from functools import partial, update_wrapper
from typing import Any

from ..executor import Program
from . import reasons
from .arguments import ARRAYS, arrays_among, names_of, shapes_of
from .binding import P, R
from .body_calls import ImpureCalls, StreamPool, StrictRecord, StrictRecords
from .deferred.body import BodyStream
from .deferred.lengths import Forms
from .deferred.strict import ImperativeStream, StrictStream
from .traced import Traced
from .tree import flatten
from .variant import Variant
from .weak_cache import WeakCache

#: How often a sequence runs op by op before it is compiled; that of a recorded call has run once.
_AFTER = 1

#: The most entries of `TracedWithBody._strict_records`.
_MOST_KINDS = 32


class TracedWithBody(Traced[P, R]):
    """A traced function that runs its body: freely, or in strict repetition of a record."""

    def __init__(self, function: Any, **options: Any) -> None:
        super().__init__(function, **options)
        self._make_stream = partial(
            BodyStream, _AFTER, self._compiler, self._statistics.again, self.symbolic_shape
        )
        self._taped = StreamPool(self._make_stream)
        self._impure_calls: WeakCache[ImpureCalls] = WeakCache()
        self._forms = Forms()
        #: By whether a tape of the caller is open, and by which arguments are NumPy arrays.
        self._strict_records: dict[tuple[bool, tuple[bool, ...]], StrictRecords] = {}

    def _call_with_body(self, taped: bool, args: Any, kwargs: Any) -> Any:
        """Run the body and return its result."""
        if self._skips:
            self._statistics.body_runs += 1
            return self._taped.run(self.__wrapped__, args, kwargs)
        records, shapes = self._get_strict_records(taped, args, kwargs), shapes_of(args, kwargs)
        record = records.find(shapes, args, kwargs)
        if record is None:
            with self._lock:
                record = records.find(shapes, args, kwargs)  # another thread may have been faster
                if record is None:
                    return self._record_strict(records, shapes, args, kwargs)
        self._statistics.body_runs += 1
        return record.streams.run(self.__wrapped__, args, kwargs)

    def _get_strict_records(self, taped: bool, args: Any, kwargs: Any) -> StrictRecords:
        key = taped, arrays_among(args, kwargs)
        found = self._strict_records.get(key)
        if found is None:
            with self._lock:
                found = self._strict_records.setdefault(key, StrictRecords())
                while len(self._strict_records) > _MOST_KINDS:
                    del self._strict_records[next(iter(self._strict_records))]
        return found

    def _cache_strict(
        self, taped: bool, args: Any, kwargs: Any, variant: Variant, replaces: bool = False
    ) -> None:
        """Cache `variant` as a record that calls must repeat; it may replace others for these shapes."""
        records, record = self._get_strict_records(taped, args, kwargs), self._make_strict_record(variant)
        records.add(shapes_of(args, kwargs), record, replaces)

    def _make_strict_record(self, variant: Variant) -> StrictRecord:
        kind = ImperativeStream if self.imperative else StrictStream
        compile, report, symbolic_shape = self._compiler, self._statistics.again, self.symbolic_shape
        forms = self._forms

        def make(variant: Variant) -> BodyStream:
            stream = kind(variant, _AFTER, compile, report, symbolic_shape)
            if not symbolic_shape:  # else ops depend on shapes in ways that lengths do not show
                stream.share(forms)
            return stream

        return StrictRecord(variant, make)

    def _list_body_programs(self) -> list[Program]:
        """Return the programs compiled for calls that run the body."""
        strict = [record.streams for records in list(self._strict_records.values()) for record in records]
        impure = [impure.streams for impure in self._impure_calls.values()]
        streams = (self._taped, *strict, *impure)
        return list(dict.fromkeys(program for each in streams for program in each.programs()))

    def _record_strict(self, records: StrictRecords, shapes: Any, args: Any, kwargs: Any) -> Any:
        reason = None
        if shapes in records.shapes():
            reason = reasons.explain_training_state(self.__name__)
        elif records:
            reason = self._explain_shapes(records, args, kwargs)
        elif self._statistics.records:
            reason = self._explain_kinds(args, kwargs)
        recorded = self._record(args, kwargs, *flatten((args, kwargs)), None)
        records.add(shapes, self._make_strict_record(recorded.variant))
        if reason is not None:
            self._statistics.again(reason)
        return recorded.result

    def _explain_shapes(self, records: StrictRecords, args: Any, kwargs: Any) -> str:
        leaves, arrangement = flatten((args, kwargs))
        names = [n for n, leaf in zip(names_of(arrangement), leaves) if isinstance(leaf, ARRAYS)]
        return reasons.explain_shapes(self.__name__, records.shapes(), shapes_of(args, kwargs), names)

    def _explain_kinds(self, args: Any, kwargs: Any) -> str:
        arrays = arrays_among(args, kwargs)
        if any(kinds != arrays for (_, kinds), known in list(self._strict_records.items()) if known):
            return f"other arguments of {self.__name__} are arrays, and others Tensors, than recorded"
        return f"a GradManager outside of {self.__name__} records some of its calls, and not others"


# `inspect.signature` and `help` show the options.
update_wrapper(TracedWithBody.__init__, Traced.__init__)
