"""Casts to 16-bit floats of numbers that float32 rounds, too; from float32 every backend has them.

S. Boldo and G. Melquiond, "When double rounding is odd", 2005.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir import Node, dtypes
from ...tensor import Tensor
from ..declare import NUMERIC, Typing, composite
from ..primitives import (
    CAST,
    bit_and,
    bit_or,
    bitcast,
    cast,
    eq,
    logical_and,
    logical_or,
    lt,
    neg,
    shr,
    where,
)


def rounds_twice(node: Node) -> bool:
    """Return whether it is a cast to 16 bits that float32 rounds, too."""
    if node.op is not CAST or node.spec.dtype not in dtypes.HALVES:
        return False
    return _is_longer(node.inputs[0].spec.dtype)


def cast_once(x: Tensor, dtype: np.dtype[Any]) -> Tensor:
    """Cast by way of float32 rounded to odd, so that the second rounding is as good as one."""
    short = x.dtype in dtypes.INTEGERS and x.dtype.itemsize == 4
    return cast(_jammed(x, dtypes.float32, 24) if short else round_to_odd(x), dtype=dtype)


def _is_longer(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize >= 4 and dtype != dtypes.float32


@composite(Typing(NUMERIC.promote, lambda _given: dtypes.float32), differentiable=False)
def round_to_odd(x: Tensor) -> Tensor:
    """Return `x` in float32: where that is not exact, the neighbour whose last bit is 1."""
    if not _is_longer(x.dtype):
        return cast(x, dtype=dtypes.float32)
    long = x.dtype in (dtypes.int64, dtypes.uint64)
    x = _jammed(x, dtypes.float64, 53) if long else cast(x, dtype=dtypes.float64)
    near = cast(x, dtype=dtypes.float32)
    back, bits = cast(near, dtype=dtypes.float64), bitcast(near, dtype=dtypes.int32)
    inexact = logical_or(lt(back, x), lt(x, back))
    even = eq(bit_and(bits, 1), 0)
    beyond = eq(lt(x, back), lt(0, x))  # further from 0 than `x`
    moved = where(beyond, bits - 1, bits + 1)
    return bitcast(where(logical_and(inexact, even), moved, bits), dtype=dtypes.float32)


def _jammed(x: Tensor, dtype: np.dtype[Any], digits: int) -> Tensor:
    """Return an integer as the float of its size.

    Some first digits stay, the last is 1 if any other is lost.
    """
    unit = 1 << 8 * x.dtype.itemsize - digits
    low = bit_and(x, unit - 1)
    odd = bit_or(x - low, where(eq(low, 0), low, unit))
    size = x if x.dtype in dtypes.UNSIGNED else where(lt(x, 0), neg(x), x)
    return cast(where(eq(shr(size, digits), 0), x, odd), dtype=dtype)
