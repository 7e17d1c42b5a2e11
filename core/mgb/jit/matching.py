"""Calls that run the body and match what it does against what was recorded."""

from __future__ import annotations

from typing import Any

from ..autodiff.tape import any_open
from ..tensor import ACTIVE, replace_handlers, restore_handlers
from . import reasons
from .arguments import ARRAYS, arrays_among, names_of, shapes_of
from .binding import P, R
from .guard import MISS
from .replay import Replay
from .traced import Traced
from .tree import flatten
from .variant import Variant
from .variants import Variants


class Matching(Traced[P, R]):
    """A traced function whose body is run, and matched, op by op."""

    def _call_with_body(self, args: Any, kwargs: Any, variants: Variants) -> Any:
        result = self._follow(args, kwargs, variants)
        if result is MISS:
            with self._lock:
                result = self._follow(args, kwargs, variants)  # another thread may have been faster
                if result is MISS:
                    result = self._record_new(args, kwargs, variants)
        return result

    def _follow(self, args: Any, kwargs: Any, variants: Variants) -> Any:
        """The result of the body, matched against what was recorded; `MISS` where that is none."""
        shapes = shapes_of(args, kwargs)
        variant = variants.first(shapes, args, kwargs)
        if variant is None:
            return MISS
        session = Replay(variant, variants, (shapes, args, kwargs), self._skips, self.imperative)
        session.symbolic_shape = self.symbolic_shape
        self._statistics.body_runs += 1
        before, replaced = ACTIVE.get(), replace_handlers()
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
            restore_handlers(replaced)
        variants.departures = variants.departures + 1 if session.left else 0
        if session.left and not session.is_whole:
            variants.departs = True  # the next one that does keeps track of every Tensor, and is kept
            return result
        if session.left:
            variants.keep(shapes, Variant(session.record, self._compiler))
        else:
            variants.keep(shapes, session.variant, session.replaced)
        if session.reason is not None:
            self._statistics.again(session.reason)
        return result

    def _reason_of_shapes(self, variants: Variants, args: Any, kwargs: Any) -> str:
        leaves, arrangement = flatten((args, kwargs))
        names = [n for n, leaf in zip(names_of(arrangement), leaves) if isinstance(leaf, ARRAYS)]
        reason = reasons.of_shapes(self.__name__, variants.shapes(), shapes_of(args, kwargs), names)
        return reasons.where_lengths_decide(reason, variants.decides(leaves))

    def _reason_of_kinds(self, taped: bool, arrays: tuple[bool, ...]) -> str:
        others = (kinds for (tape, kinds), known in list(self._variants.items()) if tape is taped and known)
        if any(kinds != arrays for kinds in others):
            return f"other arguments of {self.__name__} are arrays, and others Tensors, than recorded"
        records = "records" if taped else "does not record"
        return f"a GradManager outside of {self.__name__} {records} this call"

    def _record_new(self, args: Any, kwargs: Any, variants: Variants) -> Any:
        shapes = shapes_of(args, kwargs)
        reason = None
        if shapes in variants.shapes():
            reason = reasons.of_found(self.__name__)
        elif variants:
            reason = self._reason_of_shapes(variants, args, kwargs)
        elif self._statistics.records:
            reason = self._reason_of_kinds(any_open(), arrays_among(args, kwargs))
        recorded = self._record(args, kwargs, *flatten((args, kwargs)), None)
        variants.keep(shapes, recorded.variant)
        if reason is not None:
            self._statistics.again(reason)
        return recorded.result
