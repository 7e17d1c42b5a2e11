"""Arrays out of nothing: constants, ranges, windows, random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mgb import dtypes
from mgb.errors import FileFormatError, UnsupportedError
from mgb.functional.softmaxes import softmax
from mgb.ops.creation import along, full
from mgb.ops.elementwise import trunc
from mgb.ops.layout import reshape
from mgb.ops.primitives import cast, eq, le, lt, minimum, where
from mgb.ops.reduce import reduce_sum
from mgb.ops.scans import cumsum_
from mgb.random import generator
from mgb.storage.limits import meter
from mgb.tensor import Tensor

from ..values import Host, Value, dtype_of
from .elementwise import ints, like, number
from .table import operator


@operator("Constant")
def constant(
    *,
    value: Host | None = None,
    sparse_value: Host | None = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
    value_string: str | None = None,
    value_strings: Sequence[str] | None = None,
) -> Host:
    if value is not None:
        return value
    if sparse_value is not None:
        return sparse_value
    if value_float is not None or value_floats is not None:
        return np.array(value_floats if value_float is None else value_float, np.float32)
    if value_int is not None or value_ints is not None:
        return np.array(value_ints if value_int is None else value_int, np.int64)
    if value_string is not None or value_strings is not None:
        raise UnsupportedError("strings are not supported")
    raise FileFormatError("Constant without a value")


@operator("ConstantOfShape")
def constant_of_shape(shape: Host, *, value: Host | None = None) -> Host:
    """Return a view of one element: it takes no memory."""
    element = np.float32(0) if value is None else np.reshape(value, ())
    meter().value(lengths := ints(shape), element.itemsize)
    return np.broadcast_to(element, lengths)


@operator("Range")
def count_up(start: Host, limit: Host, delta: Host) -> Host:
    first, last, step = number(start), number(limit), number(delta)
    count = max(int(np.ceil((last - first) / step)), 0)
    meter().value([count])
    values: Host = first + np.arange(count) * step
    return values.astype(start.dtype)


@operator("EyeLike")
def eye_like(x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    rows, columns = (along(x.shape, (i,), np.int32, x.device) for i in (0, 1))
    return cast(eq(columns, rows + k), dtype=x.dtype if dtype is None else dtype_of(dtype, "EyeLike"))


@operator("OneHot")
def one_hot(indices: Tensor, depth: Host, values: Tensor, *, axis: int = -1) -> Tensor:
    count, ndim = int(number(depth)), indices.ndim + 1
    place = axis % ndim
    labels = indices if indices.dtype in dtypes.INTEGERS else cast(trunc(indices), dtype=dtypes.int64)
    labels = where(lt(labels, 0), labels + count, labels)
    shape = (*labels.shape[:place], 1, *labels.shape[place:])
    places = along((*shape[:place], count, *shape[place + 1 :]), (place,), labels.dtype, labels.device)
    return where(eq(labels.reshape(shape), places), values[1], values[0])


# windows


def _window(size: Host, periodic: int, output_datatype: int, weights: Sequence[float]) -> Host:
    """Return the sum of cosines with `weights`, over ``size`` points of one period."""
    count = int(number(size))
    meter().value([count])
    phase = 2 * np.pi * np.arange(count) / (count if periodic else max(count - 1, 1))
    total: Any = sum(w * np.cos(i * phase) for i, w in enumerate(weights))
    return np.asarray(total).astype(dtype_of(output_datatype, "window"))


@operator("HannWindow")
def hann(size: Host, *, periodic: int = 1, output_datatype: int = 1) -> Host:
    return _window(size, periodic, output_datatype, (0.5, -0.5))


@operator("HammingWindow")
def hamming(size: Host, *, periodic: int = 1, output_datatype: int = 1) -> Host:
    return _window(size, periodic, output_datatype, (25 / 46, -21 / 46))


@operator("BlackmanWindow")
def blackman(size: Host, *, periodic: int = 1, output_datatype: int = 1) -> Host:
    return _window(size, periodic, output_datatype, (0.42, -0.5, 0.08))


# random numbers: those of `mgb.random`; a node's own `seed` could not make them equal to another runtime's


def _typed(x: Tensor, dtype: int | None, otherwise: Any = dtypes.float32) -> Tensor:
    return cast(x, dtype=otherwise if dtype is None else dtype_of(dtype, "random"))


@operator("RandomUniform", folds=False)
def random_uniform(
    *, shape: Sequence[int], dtype: int = 1, high: float = 1.0, low: float = 0.0, seed: float | None = None
) -> Tensor:
    return _typed(generator().uniform(low, high, tuple(shape)), dtype)


@operator("RandomUniformLike", folds=False)
def random_uniform_like(
    x: Tensor, *, dtype: int | None = None, high: float = 1.0, low: float = 0.0, seed: float | None = None
) -> Tensor:
    return _typed(generator(x.device).uniform(low, high, x.shape), dtype, x.dtype)


@operator("RandomNormal", folds=False)
def random_normal(
    *, shape: Sequence[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Tensor:
    return _typed(generator().normal(mean, scale, tuple(shape)), dtype)


@operator("RandomNormalLike", folds=False)
def random_normal_like(
    x: Tensor, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Tensor:
    return _typed(generator(x.device).normal(mean, scale, x.shape), dtype, x.dtype)


@operator("Bernoulli", folds=False)
def bernoulli(x: Tensor, *, dtype: int | None = None, seed: float | None = None) -> Tensor:
    return _typed(lt(generator(x.device).uniform(size=x.shape), x), dtype, x.dtype)


@operator("Multinomial", folds=False)
def multinomial(x: Tensor, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None) -> Tensor:
    """Draw classes by the logarithms of their weights: where a uniform number meets the running sums."""
    rows, classes = x.shape
    sums = cumsum_(softmax(x, 1), axis=1)
    drawn = generator(x.device).uniform(size=(rows, sample_size, 1))
    below = le(reshape(sums, shape=(rows, 1, classes)), cast(drawn, dtype=x.dtype))
    place = reduce_sum(cast(below, dtype=dtypes.int32), axis=(2,))
    return _typed(minimum(reshape(place, shape=(rows, sample_size)), classes - 1), dtype)


@operator("Dropout", folds=False)
def dropout(
    x: Tensor,
    ratio: Host | None = None,
    training_mode: Host | None = None,
    *,
    wanted: int,
    seed: int | None = None,
) -> Value:
    """Return it unchanged unless the node is in training mode; the mask is the second result."""
    share = 0.5 if ratio is None else float(number(ratio))
    training = training_mode is not None and bool(number(training_mode))
    if training and share:
        kept = lt(share, generator(x.device).uniform(size=x.shape))
        out = like(where(kept, x / (1 - share), 0), x)
    else:
        kept, out = full(x.shape, True, dtypes.bool_, x.device), x
    return (out, kept) if wanted > 1 else out
