"""Run a body that must repeat its record at each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import get_ident
from typing import Any

from ...ir import Op
from ...tensor import Tensor, handling
from ...tensor.apply import evaluate
from ..entry import END, EXCLUDE, Literal
from ..variant import Variant
from .body import BodyStream
from .divergence import Divergence, Position
from .in_flight import InFlight
from .link import IN_ALL, IN_NUMBERS, NOT_AT_ALL, Link
from .operands import Ref
from .plan import Compile, Outcome
from .seed import Section, adopt_programs, seed


class StrictStream(BodyStream):
    """A stream for calls that must match a record; a divergence raises an error at its line.

    Parameters
    ----------
    variant : Variant
    after, compile, report, symbolic_shape
        As for `BodyStream`.
    """

    replays = True
    _snapshot = staticmethod(lambda array: array)  # a record identifies an input by its array
    _sections: Sequence[Section] = ()
    _number = 0  # of the section
    _has_read = False
    _may_differ = NOT_AT_ALL  # what the next ops may differ in: see `Link`

    def __init__(
        self,
        variant: Variant,
        after: int,
        compile: Compile,
        report: Callable[[str], object],
        symbolic_shape: bool = False,
    ) -> None:
        super().__init__(after, compile, report, symbolic_shape)
        self._record = variant.record
        self._sections = seed(variant.record, Link, symbolic_shape, keeps_constants=True)
        adopt_programs(self._sections, variant)

    def run(self, body: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        self._number, self._has_read, self._may_differ = 0, False, NOT_AT_ALL
        if self._at is not self._sections[0].root:
            self._reset(self.most_ops)
        return super().run(body, args, kwargs)

    def _finish(self) -> None:
        self._check(Position.compare_cut, END)
        super()._finish()

    def _reset(self, limit: int, root: Link | None = None) -> None:
        known = self._number < len(self._sections)
        super()._reset(limit, self._sections[self._number].root if known else Link())
        self._applied = self._root

    def _get_roots(self) -> list[Link]:
        return [section.root for section in self._sections]

    def _position(self) -> Position:
        section = self._sections[min(self._number, len(self._sections) - 1)]
        if self._at is not section.last:
            self._apply_allowances()
        done, has_diverged = self._at.index + 1, self._may_differ > NOT_AT_ALL
        return Position(self, self._record, section, done, self._fed, self._has_read, has_diverged)

    def _apply_allowances(self) -> None:
        """Apply what the links since the last such call allow to differ."""
        link = self._at
        while link is not self._applied and link.parent is not None:
            self._may_differ = max(self._may_differ, link.may_differ)
            link = link.parent
        self._applied = self._at

    def _check(self, compare: Callable[..., Divergence | None], *args: Any) -> None:
        """Raise the divergence that ``compare(position, *args)`` returns, unless it is allowed."""
        position = self._position()
        if self._may_differ == IN_ALL:
            return
        divergence = compare(position, *args)
        if divergence is None:
            return
        if not divergence.is_allowed:
            raise divergence.error
        self._may_differ = IN_ALL if divergence.ends_matching else IN_NUMBERS

    def seen(self, tensor: Tensor) -> None:
        self._has_read = True

    def _enter_next_section(self) -> None:
        """End the current section and enter the next one."""
        self._number += 1
        if self._at is self._root:
            self._reset(self.most_ops)
        else:
            self.flush()

    def step(self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any]) -> Tensor:
        if op.ordered:
            self._on_new_op(op, inputs, params)
            self._enter_next_section()
        return super().step(op, inputs, params)

    def _defer(
        self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any], raw: Any, full: bool
    ) -> Tensor | None:
        out = super()._defer(op, inputs, params, raw, full)
        if self._at is not self._root:
            self._at.may_differ = max(self._at.may_differ, self._may_differ)
        return out

    def _on_new_op(self, op: Op, inputs: Sequence[Tensor], params: dict[str, Any]) -> None:
        self._check(Position.compare_op, op, inputs, params)

    def _is_megamorphic(self, op: Op, params: dict[str, Any]) -> bool:
        return False

    def read(self, tensor: Tensor) -> Any:
        is_own = tensor._session is self and get_ident() == self._thread and not handling()
        if is_own and self._in_flight is None and not self._busy:
            self._check(Position.compare_read, tensor)
            self._has_read = True
            self._enter_next_section()
        return super().read(tensor)

    def _match_operand(self, tensor: Tensor, ref: Ref, link: Link) -> bool:
        if isinstance(ref, Literal) and tensor._session is not self:
            return ref.array is tensor._data or ref.matches(tensor._data)
        return super()._match_operand(tensor, ref, link)

    def pause(self) -> None:
        self._check(Position.compare_cut, EXCLUDE)
        self._enter_next_section()


class ImperativeStream(StrictStream):
    """A stream that matches a record and runs each op at once."""

    _is_imperative = True

    def _reset(self, limit: int, root: Link | None = None) -> None:
        super()._reset(limit, root)
        self._values: dict[int, Any] = {}

    def _make_result(self, link: Link) -> Tensor | None:
        assert link.op is not None and link.params is not None and link.spec is not None
        arrays = [self._array_of(ref) for ref in link.args]
        try:
            self._values[link.index] = evaluate(link.op, arrays, link.params, link.spec.device)
        except BaseException:
            del self._fed[self._at.fed :]
            raise
        return super()._make_result(link)

    def _array_of(self, ref: Ref) -> Any:
        return self._values[ref] if isinstance(ref, int) and ref >= 0 else super()._array_of(ref)

    def _compute(self, limit: int, root: Link | None) -> None:
        self._results = self._values
        super()._compute(limit, root)

    def _run_plan(self, now: InFlight) -> Outcome:
        return {t._index: self._results[t._index] for t in now.alive}, {}
