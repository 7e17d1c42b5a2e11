"""Calls that run the body and match what it does against what was recorded."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ..autodiff.tape import any_open
from ..tensor import ACTIVE
from . import reasons
from .arguments import ARRAYS, arrays_among, names_of, numbers_in, shapes_of
from .call import Recorded
from .environment import Observer
from .families import Families
from .guard import MISS
from .record import Record
from .replay import Replay
from .statistics import Statistics
from .tree import Structure, flatten
from .variant import Variant


class Matching(ABC):
    """A traced function whose body is run, and matched, op by op."""

    __name__: str
    __wrapped__: Callable[..., Any]
    imperative: bool
    symbolic_shape: bool
    _families: dict[tuple[bool, tuple[bool, ...]], Families]
    _lock: AbstractContextManager[Any]
    _skips: bool
    _statistics: Statistics

    @abstractmethod
    def _record(
        self, args: Any, kwargs: Any, leaves: list[Any], arrangement: Structure, observer: Observer | None
    ) -> Recorded:
        """Run the body, and record it."""

    @abstractmethod
    def _regrown(self, record: Record, base: Variant) -> Variant:
        """The Variant of a record that grows over the segments of `base`."""

    def _call_with_body(self, args: Any, kwargs: Any, families: Families) -> Any:
        result = self._follow(args, kwargs, families)
        if result is not MISS:
            return result
        shapes = shapes_of(args, kwargs)
        with self._lock:
            if families.of(shapes, args, kwargs)[0] is None:  # no other thread was faster
                return self._record_new(args, kwargs, families, shapes)
        return self._follow(args, kwargs, families)

    def _follow(self, args: Any, kwargs: Any, families: Families) -> Any:
        """The result of the body, matched against what was recorded; `MISS` where that is none."""
        shapes = shapes_of(args, kwargs)
        variants, known = families.of(shapes, args, kwargs)
        if variants is None:
            return MISS
        resized = None if known is not None else variants.resized(flatten((args, kwargs))[0])
        follows = known or resized or variants.oldest()
        session = Replay(follows, variants, self._regrown, self.imperative, known is None)
        session.symbolic_shape = self.symbolic_shape
        if self._skips:
            session.explained = functools.partial(_is_explained, args, kwargs)
        self._statistics.body_runs += 1
        before = ACTIVE.get()
        try:  # as `run_in`, without a call more
            ACTIVE.set(session)
            result = self.__wrapped__(*args, **kwargs)
            ACTIVE.set(before)
            session.finish(result)
        except BaseException as error:
            try:
                ACTIVE.set(before)
                session.abandon(error)
            except BaseException as another:  # a second interrupt
                ACTIVE.set(before)
                session.abandon(another)
                raise
            raise
        finally:
            if session.left:
                families.part(shapes)
        if session.grown is not None and not (session.left and session.reshaped):
            of_shapes = self._reason_of_shapes(families, args, kwargs) if session.reshaped else None
            reason = of_shapes or reasons.of_difference(self.__name__, session.grown)
            if not session.left:
                families.grow(variants, shapes, session.variant)
            self._statistics.again(reason + "; other ops follow from it, which ran one by one" * session.left)
        elif not session.left:
            families.follow(shapes)
            if resized is not None:
                families.grow(variants, shapes, session.variant)
        return result

    def _reason_of_shapes(self, families: Families, args: Any, kwargs: Any) -> str:
        leaves = flatten((args, kwargs))[0]
        names = [n for n, leaf in zip(names_of(args, kwargs), leaves) if isinstance(leaf, ARRAYS)]
        return reasons.of_shapes(self.__name__, families.shapes(), shapes_of(args, kwargs), names)

    def _reason_of_kinds(self, taped: bool, arrays: tuple[bool, ...]) -> str:
        others = (kinds for (tape, kinds), known in list(self._families.items()) if tape is taped and known)
        if any(kinds != arrays for kinds in others):
            return f"other arguments of {self.__name__} are arrays, and others Tensors, than recorded"
        records = "records" if taped else "does not record"
        return f"a GradManager outside of {self.__name__} {records} this call"

    def _record_new(self, args: Any, kwargs: Any, families: Families, shapes: tuple[Any, ...]) -> Any:
        reason = None
        if families.finds_other(shapes, args, kwargs):
            reason = reasons.of_found(self.__name__)
        elif families:
            reason = self._reason_of_shapes(families, args, kwargs)
        elif self._statistics.records:
            reason = self._reason_of_kinds(any_open(), arrays_among(args, kwargs))
        recorded = self._record(args, kwargs, *flatten((args, kwargs)), None)
        families.keep(shapes, recorded.variant)
        if reason is not None:
            self._statistics.again(reason)
        return recorded.result


def _is_explained(args: Any, kwargs: Any, record: Record) -> bool:
    """Is something else outside, or another number among the arguments, than the body of `record` found?"""
    leaves, arrangement = flatten((args, kwargs))
    return (
        not record.is_observed  # since tapes of the caller looked on
        or record.is_unknown
        or arrangement != record.arrangement
        or numbers_in(leaves) != record.numbers
        or record.guards.why(leaves) is not None
    )
