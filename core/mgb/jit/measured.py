"""Arrays among the arguments, as mgb's own code sees them while a call is recorded."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

_PACKAGE = Path(__file__).parent.parent
#: Code that hands arrays on to ops and asks for no length.
_HANDS_ON = frozenset(
    str(_PACKAGE / name)
    for name in (
        "apply.py", "ops/operators.py", "ops/numpy_protocol.py", "ops/declare.py", "tensor/tensor.py",
        "jit/recording.py", "jit/inputs.py", "jit/environment/hooks.py",
    )
)  # fmt: skip


class Measured(np.ndarray[Any, Any]):
    """A view of an array whose lengths are followed; what NumPy makes of it has plain ones.

    Attributes
    ----------
    given : array
        What it is a view of.
    """

    given: Any = None
    _lengths: tuple[Any, ...] | None = None

    @classmethod
    def of(cls, array: Any, lengths: tuple[Any, ...]) -> Measured:
        """The view of `array` with these lengths."""
        view: Measured = array.view(cls)
        view.given, view._lengths = array, lengths
        return view

    @property  # type: ignore[misc]
    def shape(self) -> tuple[Any, ...]:
        plain: tuple[Any, ...] = np.ndarray.shape.__get__(self)
        return plain if self._lengths is None else self._lengths

    @property
    def size(self) -> Any:
        return math.prod(self.shape)

    def __len__(self) -> int:
        return operator.index(self.shape[0])


def given(value: Any) -> Any:
    """What the user knows of a value: of a view the array."""
    return value.given if type(value) is Measured and value.given is not None else value


def with_views(value: Any, views: Sequence[tuple[Any, Measured]]) -> Any:
    """`value` with `views` in place of their arrays, in lists and tuples too."""
    if type(value) is np.ndarray:
        return next((view for array, view in views if array is value), value)
    if type(value) in (list, tuple):
        parts = [with_views(part, views) for part in value]
        return value if all(map(operator.is_, parts, value)) else type(value)(parts)
    return value


def is_handed_on() -> bool:
    """Has the body given an op its operand, with nobody in between who may have asked for a length?"""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (file := frame.f_code.co_filename).startswith(str(_PACKAGE)):
        if file not in _HANDS_ON:
            return False
        frame = frame.f_back
    return True
