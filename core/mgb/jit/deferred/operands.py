"""The operands of a deferred op, as its link stores them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...tensor import CONSTANT, Tensor
from ..entry import Literal

#: Stands for a number that equality does not tell from others: 0.0 == -0.0, and NaN equals nothing.
INEXACT = object()


@dataclass(frozen=True, slots=True, eq=False)
class Varying:
    """An operand that is a Python number and changes from time to time: an input like any array.

    Attributes
    ----------
    number : int
        The number of the external input.
    kind : type
        bool, int or float.
    dtype : dtype
        The dtype that the op promotes it to.
    """

    number: int
    kind: type
    dtype: np.dtype[Any]


#: An operand: the index of an op of this sequence (0, 1, ...), an external input (-1 is the first, -2 the
#: second, ...), a constant, or a number that varies.
Ref = int | Literal | Varying


#: The type of the base of an array whose memory another library owns; a view has it as the base of its base.
_FOREIGN = type(np.from_dlpack(np.zeros(1)).base)
_FOREIGN_ON_GPU = frozenset({"DLPackMemory", "UnownedMemory"})


def snapshot(array: Any) -> Any:
    """Return `array`, or a copy where another library owns its memory and may write it before the op runs."""
    base = array.base
    if array.__class__ is not np.ndarray:
        memory = getattr(getattr(array, "data", None), "mem", None)
        return array.copy() if type(memory).__name__ in _FOREIGN_ON_GPU else array
    if base.__class__ is np.ndarray:
        base = base.base
    return array.copy() if base.__class__ is _FOREIGN else array


def normalize_scalar(scalar: Any) -> Any:
    """Return `scalar` if equality tells it from all others, else `INEXACT`: zeros have signs."""
    is_exact = scalar.__class__ in (bool, int) or (scalar.__class__ is float and scalar)
    return scalar if is_exact else INEXACT


def is_number(tensor: Tensor) -> bool:
    """Check whether `tensor` was made of a Python number; a list of one number is an array with a shape."""
    return tensor._index == CONSTANT and not tensor._data.ndim


@np.errstate(over="ignore")
def number_to_array(value: Any, dtype: Any) -> Any:
    """Return a Python number as a 0-d array."""
    return np.array(value, dtype)
