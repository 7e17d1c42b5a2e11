"""What code sees of a sequence that is being computed, as a signal handler does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...apply import evaluate
from ...errors import AutoInterruptedError
from ...tensor import Tensor, run_in
from ..entry import Literal
from .link import Link
from .operands import Varying

WANTED = "the value of a Tensor was wanted by code that ran while it was computed"


@dataclass(slots=True)
class Now:
    """A sequence on its way.

    Attributes
    ----------
    at : Link
        Where it ends.
    fed : list of arrays
        Its external inputs; empty once ops run one by one.
    values : dict
        What there is by then.
    updated : mapping
        From ops whose results may be written over an external input to its number.
    """

    at: Link
    fed: list[Any]
    values: dict[int, Any]
    updated: Mapping[int, int]
    _is_asked: bool = False

    def value(self, tensor: Tensor) -> Any:
        """The value of a Tensor that stands for an op; the computation goes on as it would.

        That is what eager code would see. Where a program has begun to write over what the Tensor is made of,
        it is what stands in the place of the Tensor, before its update or after it.
        """
        if self._is_asked:  # by an op, when it is computed
            raise AutoInterruptedError(WANTED)
        self._is_asked = True
        try:
            return self._value(tensor)
        finally:
            self._is_asked = False

    def _value(self, tensor: Tensor) -> Any:
        known = dict(self.values)
        written = set(self.updated.values())
        known |= {-1 - n: array for n, array in enumerate(self.fed) if n not in written}
        try:
            return run_in(None, self._computed, tensor._index, known, self.at.sequence())
        except KeyError:
            place = self.updated.get(tensor._index)
            if place is None or place >= len(self.fed):
                raise AutoInterruptedError(WANTED) from None
            return self.fed[place]

    def _computed(self, index: int, known: dict[int, Any], sequence: list[Link]) -> Any:
        if index not in known:
            link = sequence[index] if index >= 0 else None
            if link is None or link.op is None:
                raise KeyError(index)
            arrays = [
                ref.array
                if isinstance(ref, Literal)
                else self._computed(-1 - ref.number if isinstance(ref, Varying) else ref, known, sequence)
                for ref in link.args
            ]
            known[index] = evaluate(link.op, arrays, link.params or {}, link.spec.device if link.spec else "")
        return known[index]
