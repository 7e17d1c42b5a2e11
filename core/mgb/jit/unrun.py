"""A recording of a call of which nothing is run, and whose body Python never runs again."""

from __future__ import annotations

import gc
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from ..errors import TraceError, TraceOutputError
from ..tensor import CONSTANT, Tensor
from .record import Record
from .recording import Recording


class UnrunRecording(Recording):
    """Refuses what would need Python at a later call."""

    #: What the errors call the function.
    subject: str

    @abstractmethod
    def reading(self, what: str) -> TraceError:
        """The error for a body that does `what`, which needs a value."""

    def read(self, tensor: Tensor) -> Any:
        if self._finished or tensor._index in self.record.statics:
            return super().read(tensor)
        raise self.reading(f"wants the value of {self.entry(tensor._index)}")

    def seen(self, tensor: Tensor) -> None:
        if tensor._index != CONSTANT and id(tensor._data) not in self._made:
            raise self.reading("wants the value of a tensor from outside")

    def check_kept(self, record: Record, results: Iterable[int | None]) -> None:
        """Refuse Tensors that the body keeps elsewhere than in its result."""
        kept = record.escaping(results)
        if kept:
            gc.collect()  # what only refers to itself is nowhere
            kept &= {t._index for t in self.alive()}
        if kept:
            entry = record.entries[min(kept)]
            raise TraceOutputError(
                f"{self.subject} keeps the result of {entry} at {entry.source} elsewhere than in what it "
                "returns, or a grad of it, where later calls could not renew it: return it"
            )
