"""What a deferred op is applied to, as its link remembers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...tensor import CONSTANT, Tensor
from ..entry import Literal

#: Stands for a number that equality says too little of, such as a zero, which has a sign.
INEXACT = object()


@dataclass(frozen=True, slots=True, eq=False)
class Varying:
    """An operand that is a Python number, another one from time to time: an input like any array.

    Attributes
    ----------
    number : int
        Which external input it is.
    kind : type
        bool, int or float.
    dtype : dtype
        What the op promotes it to.
    """

    number: int
    kind: type
    dtype: np.dtype[Any]


#: An operand: the op of this sequence that made it (0, 1, ...), an external input (-1 is the first, ...), a
#: constant, or a number that varies.
Ref = int | Literal | Varying


#: What an array on memory of another library has as its base, and a view of it as the base of that.
_FOREIGN = type(np.from_dlpack(np.zeros(1)).base)
_FOREIGN_ON_GPU = frozenset({"DLPackMemory", "UnownedMemory"})


def as_it_is_now(array: Any) -> Any:
    """`array`, or a copy where it lies on memory that another library may change before the op runs."""
    base = array.base
    if array.__class__ is not np.ndarray:
        memory = getattr(getattr(array, "data", None), "mem", None)
        return array.copy() if type(memory).__name__ in _FOREIGN_ON_GPU else array
    if base.__class__ is np.ndarray:
        base = base.base
    return array.copy() if base.__class__ is _FOREIGN else array


def compared(scalar: Any) -> Any:
    """`scalar` where equality tells it from others; else `INEXACT`, for zeros have signs."""
    is_exact = scalar.__class__ in (bool, int) or (scalar.__class__ is float and scalar)
    return scalar if is_exact else INEXACT


def is_number(tensor: Tensor) -> bool:
    """Was it made of a Python number? A list that holds one is an array, of a shape of its own."""
    return tensor._index == CONSTANT and not tensor._data.ndim


def same_bits(mine: Any, other: Any) -> bool:
    """Are two constants one and the same, the sign of zero and the payload of NaN included?"""
    return bool(mine.dtype == other.dtype and mine.shape == other.shape and mine.tobytes() == other.tobytes())


@np.errstate(over="ignore")
def array_of_number(value: Any, dtype: Any) -> Any:
    """A Python number as a 0-d array."""
    return np.array(value, dtype)
