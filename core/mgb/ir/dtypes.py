"""The dtypes, and which dtype an op computes in when its operands differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import ConversionError

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
#: What kernels compute in.
DTYPES = (bool_, *INTEGERS, *FLOATS)

complex64, complex128 = np.dtype(np.complex64), np.dtype(np.complex128)

#: What libraries compute in, each op by itself: no backend is asked to print them.
COMPLEX = (complex64, complex128)

#: What has gradients.
INEXACT = FLOATS + COMPLEX
BY_NAME = {d.name: d for d in (*DTYPES, *COMPLEX)}

_RANK = {"bool": 0, "int": 1, "float": 2, "complex": 3}
_CATEGORY: dict[np.dtype[Any], str] = {
    bool_: "bool",
    **dict.fromkeys(INTEGERS, "int"),
    **dict.fromkeys(FLOATS, "float"),
    **dict.fromkeys(COMPLEX, "complex"),
}
_CONSTRUCTED = {float64: float32, int64: int32, complex128: complex64}

#: The types of numbers that give way to any tensor of their category or a higher one, and the dtype of such a
#: number among others like it. ``np.float64`` is what NumPy's functions make of a Python float.
WEAK: dict[type, np.dtype[Any]] = {
    bool: bool_, int: int32, float: float32, np.float64: float32,
    complex: complex64, np.complex128: complex64,
}  # fmt: skip

#: The type of a number in `WEAK` stands for a weak operand.
Operand = np.dtype[Any] | type


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """`dtype` as one of `DTYPES`; anything NumPy understands, and ``"bfloat16"``, is accepted.

    That of another order of bytes is the one of this machine's order.
    """
    try:
        found = BY_NAME[dtype] if isinstance(dtype, str) and dtype in BY_NAME else np.dtype(dtype)
    except TypeError as error:
        raise ConversionError(f"{dtype!r} is not a dtype; choose one of {', '.join(BY_NAME)}") from error
    if found not in _CATEGORY:
        found = found.newbyteorder("=")
    if found not in _CATEGORY:
        raise ConversionError(f"dtype {found} is not supported; choose one of {', '.join(BY_NAME)}")
    return found


def category(dtype: Operand) -> str:
    """``"bool"``, ``"int"``, ``"float"`` or ``"complex"``."""
    return _CATEGORY[WEAK[dtype] if isinstance(dtype, type) else dtype]


def constructed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of ``tensor(array)`` when none is asked for: 64 bits become 32, as in MegEngine."""
    return _CONSTRUCTED.get(dtype, dtype)


#: Places among so many elements fit in int32.
PLACES = 1 << 31


def of_places(length: Any) -> np.dtype[Any]:
    """The dtype of places among `length` elements: int32, as in MegEngine, int64 where that is too small."""
    return int32 if length <= PLACES else int64


def real_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of the parts of a complex number; any other dtype is its own."""
    return {complex64: float32, complex128: float64}.get(dtype, dtype)


def complex_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The complex dtype in which numbers of `dtype` are parts, or itself."""
    return complex128 if dtype in (float64, complex128) else complex64


def check_cast(source: np.dtype[Any], target: np.dtype[Any]) -> None:
    """Refuse a cast that would drop the imaginary parts.

    Raises
    ------
    ConversionError
    """
    if source in COMPLEX and target not in COMPLEX and target != bool_:
        raise ConversionError(
            f"a cast of {source} to {target} would drop the imaginary parts: take x.real, x.imag or abs(x)"
        )


def summed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of a sum or a product of elements of `dtype`: of integers 64 bits, as in NumPy."""
    if dtype in INEXACT:
        return dtype
    return uint64 if dtype in UNSIGNED else int64


def common(operands: Sequence[Operand]) -> np.dtype[Any]:
    """The dtype in which operands of these dtypes meet.

    Numbers of `WEAK` types matter only when their category is above that of every tensor. A bool gives way to
    anything. Two integers meet as in NumPy; two floats in the larger, float16 and bfloat16 in float32; an
    integer and a float in that float, or in float32 when it has 16 bits (MegEngine's rule). A complex number
    and another one meet in complex128 if one of them, or its parts, has 64 bits of float, else in complex64.
    """
    strong = [d for d in operands if not isinstance(d, type)]
    weak = [WEAK[d] for d in operands if isinstance(d, type)]
    best = max((_RANK[category(d)] for d in strong), default=-1)
    over = [d for d in weak if _RANK[category(d)] > best]
    if over:
        highest = max(over, key=lambda d: _RANK[category(d)])
        if highest not in COMPLEX:
            return highest
        strong.append(highest)
    result = strong[0]
    for d in strong[1:]:
        result = _meet(result, d)
    return result


def _meet(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    if a == b:
        return a
    kinds = {category(a), category(b)}
    if "bool" in kinds:
        return b if a == bool_ else a
    if kinds == {"int"}:
        return np.promote_types(a, b)
    if "complex" in kinds:
        return complex128 if {a, b} & {float64, complex128} else complex64
    if "int" in kinds:
        return float64 if float64 in (a, b) else float32
    if a.itemsize == b.itemsize:
        return float32
    return a if a.itemsize > b.itemsize else b


def __dir__() -> list[str]:
    return [*(f"{name}_" if name == "bool" else name for name in BY_NAME), "DTYPES", "as_dtype"]
