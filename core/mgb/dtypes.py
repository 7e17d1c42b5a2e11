"""The dtypes, and which dtype an op computes in when its operands differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from .errors import ConversionError

bool_ = np.dtype(np.bool_)
int8, int16, int32, int64 = (np.dtype(f"int{n}") for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (np.dtype(f"uint{n}") for n in (8, 16, 32, 64))
float16, float32, float64 = (np.dtype(f"float{n}") for n in (16, 32, 64))
bfloat16 = np.dtype(ml_dtypes.bfloat16)

SIGNED = (int8, int16, int32, int64)
UNSIGNED = (uint8, uint16, uint32, uint64)
INTEGERS = SIGNED + UNSIGNED
HALVES = (float16, bfloat16)
FLOATS = (*HALVES, float32, float64)
DTYPES = (bool_, *INTEGERS, *FLOATS)
BY_NAME = {d.name: d for d in DTYPES}

_RANK = {"bool": 0, "int": 1, "float": 2}
_CATEGORY: dict[np.dtype[Any], str] = {
    bool_: "bool",
    **dict.fromkeys(INTEGERS, "int"),
    **dict.fromkeys(FLOATS, "float"),
}
_WEAK = {bool: bool_, int: int32, float: float32}
_CONSTRUCTED = {float64: float32, int64: int32}

#: A Python scalar's type stands for a weak operand: it gives way to any tensor of its category or a higher
#: one.
Operand = np.dtype[Any] | type


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """`dtype` as one of `DTYPES`; anything NumPy understands, and ``"bfloat16"``, is accepted."""
    try:
        found = BY_NAME[dtype] if isinstance(dtype, str) and dtype in BY_NAME else np.dtype(dtype)
    except TypeError as error:
        raise ConversionError(f"{dtype!r} is not a dtype; choose one of {', '.join(BY_NAME)}") from error
    if found not in _CATEGORY:
        raise ConversionError(f"dtype {found} is not supported; choose one of {', '.join(BY_NAME)}")
    return found


def category(dtype: Operand) -> str:
    """``"bool"``, ``"int"`` or ``"float"``."""
    return _CATEGORY[_WEAK[dtype] if isinstance(dtype, type) else dtype]


def constructed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of ``tensor(array)`` when none is asked for: 64 bits become 32, as in MegEngine."""
    return _CONSTRUCTED.get(dtype, dtype)


def common(operands: Sequence[Operand]) -> np.dtype[Any]:
    """The dtype in which operands of these dtypes meet (MegEngine's rules; float64 stays).

    Python scalars are weak: they matter only when their category is above that of every tensor. Two tensors
    of one category meet in the larger; of mixed categories in the float, or float32 when that float has 16
    bits; float16 with bfloat16 is float32.

    Raises
    ------
    ConversionError
        Signed and unsigned integers do not meet: cast one of them.
    """
    strong = [d for d in operands if not isinstance(d, type)]
    weak = [_WEAK[d] for d in operands if isinstance(d, type)]
    best = max((_RANK[category(d)] for d in strong), default=-1)
    over = [d for d in weak if _RANK[category(d)] > best]
    if over:
        return max(over, key=lambda d: _RANK[category(d)])
    result = strong[0]
    for d in strong[1:]:
        result = _meet(result, d)
    return result


def _meet(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    if a == b:
        return a
    if category(a) != category(b):
        floats = [d for d in (a, b) if category(d) == "float"]
        return float64 if float64 in floats else float32
    if category(a) == "int" and a.kind != b.kind:
        raise ConversionError(f"{a} and {b} differ in signedness: cast one of them with astype")
    if a.itemsize == b.itemsize:
        return float32
    larger = a if a.itemsize > b.itemsize else b
    return larger
