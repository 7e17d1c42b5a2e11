"""A recording of a call of which nothing is run, and whose body Python never runs again."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from ..errors import TraceError
from ..tensor import CONSTANT, Tensor
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

    def check_skippable(self) -> None:
        """Refuse Tensors that the body keeps elsewhere than in its result, and those that it let go of."""
        self.undo()
        self.forget()
        self.check_kept()
