"""The dtypes, and which dtype an op computes in when its operands differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import ConversionError

__all__ = [
    "DTYPES", "as_dtype", "bfloat16", "bool_", "complex64", "complex128", "float16", "float32", "float64",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip

bool_ = np.dtype(np.bool_)
int8, int16, int32, int64 = (np.dtype(f"int{n}") for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (np.dtype(f"uint{n}") for n in (8, 16, 32, 64))
float16, float32, float64 = (np.dtype(f"float{n}") for n in (16, 32, 64))
bfloat16 = np.dtype(ml_dtypes.bfloat16)

SIGNED = (int8, int16, int32, int64)
UNSIGNED = (uint8, uint16, uint32, uint64)
INTEGERS = SIGNED + UNSIGNED
#: Another one goes to the end: samples of tests are drawn by places in `DTYPES`.
FLOATS = (float16, bfloat16, float32, float64)
#: The narrow floats, which are stored, and computed in float32.
HALVES = tuple(d for d in FLOATS if d.itemsize < 4)
#: What kernels compute in.
DTYPES = (bool_, *INTEGERS, *FLOATS)

complex64, complex128 = np.dtype(np.complex64), np.dtype(np.complex128)

#: What libraries compute in, each op by itself: no backend is asked to print them.
COMPLEX = (complex64, complex128)

#: What has gradients.
INEXACT = FLOATS + COMPLEX
BY_NAME = {d.name: d for d in (*DTYPES, *COMPLEX)}
#: ``dtype.name``, which NumPy puts together at each look.
name_of = cache(attrgetter("name"))

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
    """Return `dtype` as one of `DTYPES`; anything NumPy understands, and ``"bfloat16"``, is accepted.

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
    """Return ``"bool"``, ``"int"``, ``"float"`` or ``"complex"``."""
    return _CATEGORY[WEAK[dtype] if isinstance(dtype, type) else dtype]


@dataclass(frozen=True, slots=True)
class Row:
    """The facts of a dtype, from which whoever stores, prints or computes it makes a table.

    Attributes
    ----------
    dtype : numpy.dtype
    signed : bool
    bits : int
        Those of a value: 1 of a bool, which takes a byte of memory.
    digits : int
        Of an integer the bits of its size; of a float those of the significand in memory.
    exponent : int
        Bits of the exponent of a float, and its `bias`.
    bias : int
    most : float
        The largest finite number; of an integer the power of 2 at or above it.
    infinite : bool
        Whether there are infinities; in a float without, NaN stands for what is too large.
    carrier : numpy.dtype
        What it is computed in.
    """

    dtype: np.dtype[Any]
    signed: bool
    bits: int
    digits: int
    exponent: int
    bias: int
    most: float
    infinite: bool
    carrier: np.dtype[Any]

    @property
    def word(self) -> np.dtype[Any]:
        """The unsigned integer of its size in memory."""
        return BY_NAME[f"uint{max(self.bits, 8)}"]


def float_row(dtype: np.dtype[Any]) -> Row:
    """Return the facts of a float, from its bits."""
    info, bits = ml_dtypes.finfo(dtype), 8 * dtype.itemsize  # type: ignore[no-untyped-call]
    digits, bias = int(info.nmant), 1 - int(info.minexp)
    infinite = bool(np.isinf(np.array(np.inf).astype(dtype).astype(np.float64)))
    carrier = float32 if dtype.itemsize < 4 else dtype
    return Row(dtype, True, bits, digits, bits - 1 - digits, bias, float(info.max), infinite, carrier)


def _integer_row(dtype: np.dtype[Any]) -> Row:
    signed, bits = dtype in SIGNED, 1 if dtype == bool_ else 8 * dtype.itemsize
    return Row(dtype, signed, bits, bits - signed, 0, 0, float(2 ** (bits - signed)), False, dtype)


#: What there is to know of each dtype that kernels compute in.
ROWS = {d: float_row(d) if d in FLOATS else _integer_row(d) for d in DTYPES}


@cache
def exact(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Return whether `target` holds every value of `source`."""
    if source == target or target in COMPLEX:
        return source == target or exact(real_of(source), real_of(target))
    if source in COMPLEX:
        return False
    a, b = ROWS[source], ROWS[target]
    if target not in FLOATS:
        return source not in FLOATS and a.signed <= b.signed and a.digits <= b.digits
    if a.digits - (source not in FLOATS) > b.digits or a.most > b.most:
        return False
    return source not in FLOATS or (a.infinite <= b.infinite and a.bias + a.digits <= b.bias + b.digits)


def short(dtype: np.dtype[Any]) -> str:
    """Return the name of `dtype` in texts of types: ``"f32"``, ``"bf16"``, ``"u8"``, ``"bool"``."""
    return dtype.name.replace("float", "f").replace("complex", "c").replace("uint", "u").replace("int", "i")


def constructed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of ``tensor(array)`` when none is asked for: 64 bits become 32, as in MegEngine."""
    return _CONSTRUCTED.get(dtype, dtype)


#: Places among so many elements fit in int32.
PLACES = 1 << 31


def of_places(length: Any) -> np.dtype[Any]:
    """Return the dtype of places among `length` elements.

    Int32, as in MegEngine, int64 where that is too small.
    """
    return int32 if length <= PLACES else int64


def real_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of the parts of a complex number; any other dtype is its own."""
    return {complex64: float32, complex128: float64}.get(dtype, dtype)


def complex_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the complex dtype in which numbers of `dtype` are parts, or itself."""
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
    """Return the dtype of a sum or a product of elements of `dtype`: of integers 64 bits, as in NumPy."""
    if dtype in INEXACT:
        return dtype
    return uint64 if dtype in UNSIGNED else int64


def common(operands: Sequence[Operand]) -> np.dtype[Any]:
    """Return the dtype in which operands of these dtypes meet.

    Numbers of `WEAK` types matter only when their category is above that of every tensor. A bool gives way to
    anything. Two integers meet as in NumPy; two floats in the larger, of one size in float32; an integer and
    a float in that float, or in float32 when it is narrow (MegEngine's rule). A complex number and another
    one meet in complex128 if one of them, or its parts, has 64 bits of float, else in complex64.
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
    return __all__
