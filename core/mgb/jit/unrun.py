"""A recording of a call of which nothing is run, and whose body Python never runs again."""

from __future__ import annotations

from abc import abstractmethod
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

    def check_kept(self, record: Record) -> None:
        """Refuse Tensors that the body keeps elsewhere than in its result, and those that it let go of."""
        if record.kept:
            entry = record.entries[min(record.kept)]
            raise TraceOutputError(
                f"{self.subject} keeps the result of {entry} at {entry.source} elsewhere than in what it "
                "returns, or a grad of it, where later calls could not renew it: return it and keep it "
                "outside, or keep a Tensor and give that its value in place, as in `state[...] = value`"
            )
        if (record.kept_leaves or record.keeps_data) and record.changes is None:
            what = "an argument" if record.kept_leaves else "an alias or a tensor made of data"
            raise TraceOutputError(
                f"{self.subject} keeps {what} elsewhere than in what it returns, "
                "where later calls could not renew it: keep it outside, or give a Tensor that is kept its "
                "value in place, as in `state[...] = value`"
            )
        self.undo()
        self.forget()
        if (gone := record.gone()) is not None:
            raise TraceOutputError(
                f"{self.subject} takes the tensor used at {gone} from where it leaves none or another one, "
                "and later calls could not do that: pass it as an argument"
            )
