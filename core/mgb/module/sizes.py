"""The numbers that say how large a layer is."""

from __future__ import annotations

import operator
from typing import Any

from ..errors import ConversionError, ShapeError


def size(name: str, value: Any) -> int:
    """Return `value`, an argument of the name `name`.

    Raises
    ------
    ConversionError
        It is not an integer.
    ShapeError
        It is negative, or more than int64 holds.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise ConversionError(f"{name} must be an integer, got {value!r}") from None
    if number < 0:
        raise ShapeError(f"{name} must be at least 0, got {number}")
    if number >= 1 << 63:
        raise ShapeError(f"{name} must be at most 2**63 - 1, got {number}")
    return number
