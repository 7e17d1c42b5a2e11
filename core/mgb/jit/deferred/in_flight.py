"""A deferred sequence while it is computed, and the values that a signal handler may read of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import AutoInterruptedError
from ...tensor import Session, Tensor, run_in
from ...tensor.apply import evaluate
from ..entry import Literal
from .link import Link
from .operands import Varying
from .results import Rebound, undo

REENTRANT_READ = "the value of a Tensor was wanted by code that ran while it was computed"


@dataclass(slots=True)
class InFlight:
    """A sequence that is being computed.

    Attributes
    ----------
    at : Link
        Where it ends.
    fed : list of arrays
        Its external inputs; empty once ops run one by one.
    alive : list of Tensor
        The Tensors that stand for its results.
    rebound : list of Rebound
        The Tensors that took new values in it.
    values : dict
        The values computed so far.
    before : dict
        The external inputs that `undo` needs once `fed` is empty.
    updated : mapping
        From ops whose results may be written over an external input to the number of that input.
    """

    at: Link
    fed: list[Any]
    alive: list[Tensor]
    rebound: list[Rebound]
    values: dict[int, Any] = field(default_factory=dict)
    before: dict[int, Any] = field(default_factory=dict)
    updated: Mapping[int, int] = field(default_factory=dict)
    _is_reading: bool = False

    def undo(self, session: Session[Tensor]) -> None:
        """Give all Tensors that were rebound their values of before the sequence."""
        inputs = {-1 - n: array for n, array in enumerate(self.fed)}
        undo(session, self.rebound, -1, inputs | self.before)

    def value(self, tensor: Tensor) -> Any:
        """Return the value of a Tensor that stands for an op, without disturbing the computation.

        That is the value which eager code would see. If a program may have overwritten an input that it is
        made of, return the array in place of the Tensor, before its update or after it.
        """
        if self._is_reading:  # an op reads it while `value` computes that op
            raise AutoInterruptedError(REENTRANT_READ)
        self._is_reading = True
        try:
            return self._value(tensor)
        finally:
            self._is_reading = False

    def _value(self, tensor: Tensor) -> Any:
        written = set(self.updated.values())
        known = self.values | {-1 - n: array for n, array in enumerate(self.fed) if n not in written}
        try:
            return run_in(None, self._evaluate, tensor._index, known, self.at.sequence())
        except KeyError:
            number = self.updated.get(tensor._index)
            if number is None or number >= len(self.fed):
                raise AutoInterruptedError(REENTRANT_READ) from None
            return self.fed[number]

    def _evaluate(self, index: int, known: dict[int, Any], sequence: list[Link]) -> Any:
        if index not in known:
            link = sequence[index] if index >= 0 else None
            if link is None or link.op is None:
                raise KeyError(index)
            arrays = [
                ref.array
                if isinstance(ref, Literal)
                else self._evaluate(-1 - ref.number if isinstance(ref, Varying) else ref, known, sequence)
                for ref in link.args
            ]
            known[index] = evaluate(link.op, arrays, link.params or {}, link.spec.device if link.spec else "")
        return known[index]
