"""A body that has to do at each call what was recorded of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import get_ident
from typing import Any

from ...apply import evaluate
from ...ir import Op
from ...tensor import Tensor, handling
from ..entry import END, EXCLUDE, Literal
from ..variant import Variant
from .body import BodyStream
from .departure import Departure, Place
from .ending import Compile, Outcome
from .link import IN_ALL, IN_NUMBERS, NOT_AT_ALL, Link
from .operands import Ref
from .seed import Section, seed, take_programs


class StrictStream(BodyStream):
    """A stream for calls that are matched with a record; one that differs raises an error at its line.

    Parameters
    ----------
    variant : Variant
    after, compile, tell, symbolic_shape
        As for `BodyStream`.
    """

    replays = True
    _as_it_is_now = staticmethod(lambda array: array)  # the same array is one input of a record
    _sections: Sequence[Section] = ()
    _number = 0  # of the section
    _looked = False
    _may_differ = NOT_AT_ALL  # what comes: see `Link`

    def __init__(
        self,
        variant: Variant,
        after: int,
        compile: Compile,
        tell: Callable[[str], object],
        symbolic_shape: bool = False,
    ) -> None:
        super().__init__(after, compile, tell, symbolic_shape)
        self._record = variant.record
        self._sections = seed(variant.record, Link, symbolic_shape, keeps_constants=True)
        take_programs(self._sections, variant)

    def run(self, body: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        self._number, self._looked, self._may_differ = 0, False, NOT_AT_ALL
        if self._at is not self._sections[0].root:
            self._begin(self.most_ops)
        return super().run(body, args, kwargs)

    def _finish(self) -> None:
        self._must_not(Place.differs_in_cut, END)
        super()._finish()

    def _begin(self, limit: int, root: Link | None = None) -> None:
        known = self._number < len(self._sections)
        super()._begin(limit, self._sections[self._number].root if known else Link())
        self._counted = self._root

    def _begun(self) -> list[Link]:
        return [section.root for section in self._sections]

    def _place(self) -> Place:
        section = self._sections[min(self._number, len(self._sections) - 1)]
        if self._at is not section.last:
            self._count_in()
        done, departed = self._at.index + 1, self._may_differ > NOT_AT_ALL
        return Place(self, self._record, section, done, self._fed, self._looked, departed)

    def _count_in(self) -> None:
        """What the links since the last such call say that may differ counts from now on."""
        link = self._at
        while link is not self._counted and link.parent is not None:
            self._may_differ = max(self._may_differ, link.may_differ)
            link = link.parent
        self._counted = self._at

    def _must_not(self, differs: Callable[..., Departure | None], *args: Any) -> None:
        """Refuse what a call may not do otherwise than recorded, if ``differs(place, *args)`` finds that."""
        place = self._place()
        if self._may_differ == IN_ALL:
            return
        departure = differs(place, *args)
        if departure is None:
            return
        if not departure.may:
            raise departure.error
        self._may_differ = IN_ALL if departure.frees else IN_NUMBERS

    def seen(self, tensor: Tensor) -> None:
        self._looked = True

    def _go_on(self) -> None:
        """The section is over."""
        self._number += 1
        if self._at is self._root:
            self._begin(self.most_ops)
        else:
            self.flush()

    def step(self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any]) -> Tensor:
        if op.ordered:
            self._leaves(op, inputs, params)
            self._go_on()
        return super().step(op, inputs, params)

    def _followed(
        self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any], raw: Any, full: bool
    ) -> Tensor | None:
        out = super()._followed(op, inputs, params, raw, full)
        if self._at is not self._root:
            self._at.may_differ = max(self._at.may_differ, self._may_differ)
        return out

    def _leaves(self, op: Op, inputs: Sequence[Tensor], params: dict[str, Any]) -> None:
        self._must_not(Place.differs_in_op, op, inputs, params)

    def _is_restless(self, op: Op, params: dict[str, Any]) -> bool:
        return False

    def read(self, tensor: Tensor) -> Any:
        is_own = tensor._session is self and get_ident() == self._thread and not handling()
        if is_own and self._now is None and not self._busy:
            self._must_not(Place.differs_in_read, tensor)
            self._looked = True
            self._go_on()
        return super().read(tensor)

    def _is(self, tensor: Tensor, ref: Ref, link: Link) -> bool:
        if isinstance(ref, Literal) and tensor._session is not self:
            return ref.array is tensor._data or ref.matches(tensor._data)
        return super()._is(tensor, ref, link)

    def pause(self) -> None:
        self._must_not(Place.differs_in_cut, EXCLUDE)
        self._go_on()


class ImperativeStream(StrictStream):
    """One that matches, and runs each op when it comes."""

    _gives = True

    def _begin(self, limit: int, root: Link | None = None) -> None:
        super()._begin(limit, root)
        self._values: dict[int, Any] = {}

    def _result(self, link: Link) -> Tensor | None:
        assert link.op is not None and link.params is not None and link.spec is not None
        arrays = [self._array_at(ref) for ref in link.args]
        try:
            self._values[link.index] = evaluate(link.op, arrays, link.params, link.spec.device)
        except BaseException:
            del self._fed[self._at.fed :]
            raise
        return super()._result(link)

    def _array_at(self, ref: Ref) -> Any:
        if isinstance(ref, int) and ref >= 0:
            return self._values[ref]
        return self._fed[-1 - ref] if isinstance(ref, int) else self._array_of(ref)

    def _compute(self, limit: int, root: Link | None) -> None:
        self._computed = self._values
        super()._compute(limit, root)

    def _run(self, at: Link, alive: Sequence[Tensor], *others: Any) -> Outcome:
        return {t._index: self._computed[t._index] for t in alive}, {}
