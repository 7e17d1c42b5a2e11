"""Calls that run the body and match what it does against what was recorded."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..executor import Program
from . import reasons
from .arguments import ARRAYS, arrays_among, names_of, shapes_of
from .binding import P, R
from .bodies import Impure, Matched, Matches, Streams
from .deferred.body import BodyStream
from .deferred.lengths import Forms
from .deferred.strict import ImperativeStream, StrictStream
from .traced import Traced
from .tree import flatten
from .variant import Variant
from .weak_cache import WeakCache

#: So often a sequence of ops runs one by one before it is compiled; that of a recorded call has run once.
_AFTER = 1

#: Sets of arguments that are arrays for which records are kept where the body runs.
_KINDS = 32


class Matching(Traced[P, R]):
    """A traced function whose body is run: freely, or matched op by op."""

    def __init__(self, function: Any, **options: Any) -> None:
        super().__init__(function, **options)
        self._stream = partial(
            BodyStream, _AFTER, self._compiler, self._statistics.again, self.symbolic_shape
        )
        self._taped = Streams(self._stream)
        self._impure: WeakCache[Impure] = WeakCache()
        self._forms = Forms()
        #: By whether a tape of the caller looks on, and by which arguments are NumPy's.
        self._matches: dict[tuple[bool, tuple[bool, ...]], Matches] = {}

    def _call_with_body(self, taped: bool, args: Any, kwargs: Any) -> Any:
        """The result of the body, which runs."""
        if self._skips:  # as freely as in eager code
            self._statistics.body_runs += 1
            return self._taped.run(self.__wrapped__, args, kwargs)
        matches, shapes = self._matches_of(taped, args, kwargs), shapes_of(args, kwargs)
        matched = matches.of(shapes, args, kwargs)
        if matched is None:
            with self._lock:
                matched = matches.of(shapes, args, kwargs)  # another thread may have been faster
                if matched is None:
                    return self._record_new(matches, shapes, args, kwargs)
        self._statistics.body_runs += 1
        return matched.streams.run(self.__wrapped__, args, kwargs)

    def _matches_of(self, taped: bool, args: Any, kwargs: Any) -> Matches:
        key = taped, arrays_among(args, kwargs)
        found = self._matches.get(key)
        if found is None:
            with self._lock:
                found = self._matches.setdefault(key, Matches())
                while len(self._matches) > _KINDS:
                    del self._matches[next(iter(self._matches))]
        return found

    def _matched_with(self, variant: Variant) -> Matched:
        """`variant`, for calls that are matched with it."""
        kind = ImperativeStream if self.imperative else StrictStream
        compile, report, symbolic_shape = self._compiler, self._statistics.again, self.symbolic_shape
        forms = self._forms

        def make(variant: Variant) -> BodyStream:
            stream = kind(variant, _AFTER, compile, report, symbolic_shape)
            if not symbolic_shape:  # whose ops depend on shapes in ways that lengths do not report
                stream.share(forms)
            return stream

        return Matched(variant, make)

    def _programs_of_bodies(self) -> list[Program]:
        """What was compiled where the body runs."""
        matched = [matched.streams for matches in list(self._matches.values()) for matched in matches]
        impure = [impure.streams for impure in self._impure.values()]
        streams = (self._taped, *matched, *impure)
        return list(dict.fromkeys(program for each in streams for program in each.programs()))

    def _record_new(self, matches: Matches, shapes: Any, args: Any, kwargs: Any) -> Any:
        reason = None
        if shapes in matches.shapes():
            reason = reasons.of_found(self.__name__)
        elif matches:
            reason = self._reason_of_shapes(matches, args, kwargs)
        elif self._statistics.records:
            reason = self._reason_of_kinds(args, kwargs)
        recorded = self._record(args, kwargs, *flatten((args, kwargs)), None)
        matches.keep(shapes, self._matched_with(recorded.variant))
        if reason is not None:
            self._statistics.again(reason)
        return recorded.result

    def _reason_of_shapes(self, matches: Matches, args: Any, kwargs: Any) -> str:
        leaves, arrangement = flatten((args, kwargs))
        names = [n for n, leaf in zip(names_of(arrangement), leaves) if isinstance(leaf, ARRAYS)]
        return reasons.of_shapes(self.__name__, matches.shapes(), shapes_of(args, kwargs), names)

    def _reason_of_kinds(self, args: Any, kwargs: Any) -> str:
        arrays = arrays_among(args, kwargs)
        if any(kinds != arrays for (_, kinds), known in list(self._matches.items()) if known):
            return f"other arguments of {self.__name__} are arrays, and others Tensors, than recorded"
        return f"a GradManager outside of {self.__name__} records some of its calls, and not others"
