"""Numbers as small integers with a scale and a zero point (Jacob et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mgb import dtypes
from mgb.errors import ShapeError, UnsupportedError
from mgb.functional import matrices
from mgb.functional.rearrange import repeat
from mgb.ops.layout import reshape
from mgb.ops.primitives import cast, eq, maximum, minimum, round, where
from mgb.ops.reduce import reduce_max, reduce_min
from mgb.tensor import Tensor

from ..values import dtype_of
from .contractions import conv, shifted
from .layout import axis_of
from .table import operator


def _spread(parameter: Tensor, x: Tensor, axis: int, block_size: int) -> Tensor:
    """Return a scale or zero point over `x`.

    One for all, for each place along `axis`, or for each block of it.
    """
    if parameter.size == 1:
        return reshape(parameter, shape=())
    place = axis_of("axis", axis, x.ndim)
    if block_size:
        whole = repeat(parameter, block_size, place)
        return whole[(*(slice(None) for _ in range(place)), slice(0, x.shape[place]))]
    if parameter.ndim != 1:
        raise ShapeError(f"a scale of shape {parameter.shape} for {x.shape} needs a block_size")
    return reshape(parameter, shape=tuple(d if i == place else 1 for i, d in enumerate(x.shape)))


def _rounded(x: Tensor, zero: Tensor | None, dtype: np.dtype[Any]) -> Tensor:
    """Round to the nearest integer, ties to even, shifted by the zero point, kept in range."""
    if dtype not in dtypes.INTEGERS:
        raise UnsupportedError(f"quantization to {dtype} is not supported")
    whole = cast(round(x), dtype=dtypes.float64 if dtype.itemsize > 2 else x.dtype)
    if zero is not None:
        whole = whole + cast(zero, dtype=whole.dtype)
    limits = np.iinfo(dtype)
    return cast(minimum(maximum(whole, float(limits.min)), float(limits.max)), dtype=dtype)


@operator("QuantizeLinear")
def quantize(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Tensor:
    if zero is not None:
        dtype = zero.dtype
    else:
        dtype = dtype_of(output_dtype, "QuantizeLinear") if output_dtype else dtypes.uint8
    computed = dtype_of(precision, "QuantizeLinear") if precision else scale.dtype
    by = _spread(scale, x, axis, block_size)
    point = None if zero is None else _spread(zero, x, axis, block_size)
    wide = dtypes.float32 if computed in dtypes.HALVES else computed
    return _rounded(cast(x, dtype=wide) / cast(by, dtype=wide), point, dtype)


@operator("DequantizeLinear")
def dequantize(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    wide = dtypes.float32 if scale.dtype in dtypes.HALVES else scale.dtype
    if zero is None:
        whole = cast(x, dtype=wide)
    else:
        point = cast(_spread(zero, x, axis, block_size), dtype=dtypes.int64)
        whole = cast(cast(x, dtype=dtypes.int64) - point, dtype=wide)
    out = whole * cast(_spread(scale, x, axis, block_size), dtype=wide)
    return cast(out, dtype=dtype_of(output_dtype, "DequantizeLinear") if output_dtype else scale.dtype)


@operator("DynamicQuantizeLinear")
def dynamic_quantize(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Quantize to uint8, with a scale and a zero point such that 0 and all of `x` are in range."""
    axes = tuple(range(x.ndim))
    high = reshape(maximum(reduce_max(x, axis=axes), 0), shape=())
    low = reshape(minimum(reduce_min(x, axis=axes), 0), shape=())
    scale = (high - low) / 255
    by = where(eq(scale, 0), 1, scale)
    zero = cast(minimum(maximum(round(-low / by), 0), 255), dtype=dtypes.uint8)
    return _rounded(x / by, zero, dtypes.uint8), scale, zero


def _requantized(total: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """Return int32 sums, times `scale`, as integers of the dtype of `zero`."""
    wide = dtypes.float64
    return _rounded(cast(total, dtype=wide) * cast(scale, dtype=wide), zero, zero.dtype)


@operator("QLinearMatMul")
def quantized_matmul(
    a: Tensor, a_scale: Tensor, a_zero: Tensor,
    b: Tensor, b_scale: Tensor, b_zero: Tensor,
    y_scale: Tensor, y_zero: Tensor,
) -> Tensor:  # fmt: skip
    total = matrices.matmul(shifted(a, a_zero, -2), shifted(b, b_zero, -1))
    scales = [cast(s, dtype=dtypes.float64) for s in (a_scale, b_scale, y_scale)]
    return _requantized(total, _one(scales[0]) * _one(scales[1]) / _one(scales[2]), _one(y_zero))


def _one(x: Tensor) -> Tensor:
    return reshape(x, shape=()) if x.size == 1 else x


@operator("QLinearConv")
def quantized_conv(
    x: Tensor, x_scale: Tensor, x_zero: Tensor,
    w: Tensor, w_scale: Tensor, w_zero: Tensor,
    y_scale: Tensor, y_zero: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    total = conv(
        shifted(x, x_zero, 1), shifted(w, w_zero, 0), bias,
        auto_pad=auto_pad, dilations=dilations, group=group, pads=pads, strides=strides,
    )  # fmt: skip
    by_output = cast(w_scale, dtype=dtypes.float64)
    if by_output.size > 1:
        by_output = reshape(by_output, shape=(by_output.size, *(1,) * (x.ndim - 2)))
    scale = (
        _one(cast(x_scale, dtype=dtypes.float64))
        * _one(by_output)
        / _one(cast(y_scale, dtype=dtypes.float64))
    )
    return _requantized(total, scale, _one(y_zero))
