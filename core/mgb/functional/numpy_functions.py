"""Which function serves which of NumPy's, for ``np.sum(tensor)`` and its like; the arguments are NumPy's.

Ufuncs are found without a table: see `mgb.ops.numpy_protocol`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ops.methods import reshaped
from ..ops.numpy_protocol import FUNCTIONS
from ..ops.operators import product
from ..ops.primitives import round
from ..tensor import Tensor
from . import elemwise, math, matrices, rearrange, tensor


def _sort(a: Tensor, axis: int = -1) -> Tensor:
    return math.sort(a, axis=axis)[0]


def _round(a: Tensor, decimals: int = 0) -> Tensor:
    scale = 10.0**decimals
    return round(a) if decimals == 0 else round(a * scale) / scale


def _where(condition: Any, *values: Any) -> Any:
    return tensor.where(condition, *values) if values else tensor.nonzero(condition)


def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Tensor:
    return elemwise.clip(a, a_min if min is None else min, a_max if max is None else max)


def _reshape(a: Tensor, shape: Any) -> Tensor:
    return reshaped(a, shape)


def _cumsum(a: Tensor, axis: int | None = None) -> Tensor:
    return math.cumsum(tensor.flatten(a) if axis is None else a, 0 if axis is None else axis)


def _on_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """For functions whose answer is no array: they read the values."""

    def read(*args: Any, **kwargs: Any) -> Any:
        return function(*(a.numpy() if isinstance(a, Tensor) else a for a in args), **kwargs)

    return read


# fmt: off
FUNCTIONS.update({
    np.sum: lambda a, axis=None, keepdims=False: math.sum(a, axis, keepdims),
    np.prod: lambda a, axis=None, keepdims=False: math.prod(a, axis, keepdims),
    np.min: lambda a, axis=None, keepdims=False: math.min(a, axis, keepdims),
    np.max: lambda a, axis=None, keepdims=False: math.max(a, axis, keepdims),
    np.mean: lambda a, axis=None, keepdims=False: math.mean(a, axis, keepdims),
    np.var: lambda a, axis=None, keepdims=False: math.var(a, axis, keepdims),
    np.std: lambda a, axis=None, keepdims=False: math.std(a, axis, keepdims),
    np.any: lambda a, axis=None, keepdims=False: math.any(a, axis, keepdims),
    np.all: lambda a, axis=None, keepdims=False: math.all(a, axis, keepdims),
    np.argmax: lambda a, axis=None, keepdims=False: math.argmax(a, axis, keepdims),
    np.argmin: lambda a, axis=None, keepdims=False: math.argmin(a, axis, keepdims),
    np.sort: _sort,
    np.argsort: lambda a, axis=-1: math.argsort(a, axis=axis),
    np.cumsum: _cumsum,
    np.linalg.norm: lambda x, ord=None, axis=None, keepdims=False: math.norm(x, ord, axis, keepdims),
    np.round: _round,
    np.around: _round,
    np.clip: _clip,
    np.where: _where,
    np.dot: product,
    np.reshape: _reshape,
    np.ravel: lambda a: tensor.flatten(a),
    np.transpose: lambda a, axes=None: tensor.transpose(a, axes),
    np.swapaxes: tensor.swapaxes,
    np.moveaxis: tensor.moveaxis,
    np.expand_dims: lambda a, axis: tensor.expand_dims(a, axis),
    np.squeeze: lambda a, axis=None: tensor.squeeze(a, axis),
    np.broadcast_to: lambda array, shape: tensor.broadcast_to(array, shape),
    np.concatenate: lambda arrays, axis=0: tensor.concat(arrays, axis),
    np.stack: lambda arrays, axis=0: tensor.stack(arrays, axis),
    np.split: lambda ary, indices_or_sections, axis=0: tensor.split(ary, indices_or_sections, axis),
    np.repeat: lambda a, repeats, axis=None: rearrange.repeat(a, repeats, axis),
    np.tile: lambda A, reps: rearrange.tile(A, reps),
    np.flip: lambda m, axis=None: rearrange.flip(m, axis),
    np.roll: lambda a, shift, axis=None: rearrange.roll(a, shift, axis),
    np.take: lambda a, indices, axis=None: tensor.take(a, indices, axis),
    np.take_along_axis: lambda arr, indices, axis: tensor.take_along_axis(arr, indices, axis),
    np.nonzero: tensor.nonzero,
    np.tril: lambda m, k=0: matrices.tril(m, k),
    np.triu: lambda m, k=0: matrices.triu(m, k),
    np.diag: lambda v, k=0: matrices.diag(v, k),
    np.zeros_like: lambda a, dtype=None: tensor.zeros_like(a, dtype),
    np.ones_like: lambda a, dtype=None: tensor.ones_like(a, dtype),
    np.full_like: lambda a, fill_value, dtype=None: tensor.full_like(a, fill_value, dtype),
    np.copy: lambda a: tensor.copy(a),
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: lambda a: a.size,
    np.array_equal: _on_arrays(np.array_equal),
    np.allclose: _on_arrays(np.allclose),
})
# fmt: on
