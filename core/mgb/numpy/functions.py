"""Which function serves which of NumPy's, for ``np.sum(tensor)`` and its like; the arguments are NumPy's.

Ufuncs are found without a table: see `mgb.ops.numpy_protocol`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..functional import einstein, math, matrices, rearrange, tensor
from ..ops import methods
from ..ops.methods import reshaped
from ..ops.numpy_protocol import FUNCTIONS
from ..ops.primitives import add, maximum, minimum, mul
from . import compositions as c
from . import linalg, sequences
from .quantiles import nanmedian, quantiles


def _where(condition: Any, *values: Any) -> Any:
    return tensor.where(condition, *values) if values else tensor.nonzero(condition)


# fmt: off
FUNCTIONS.update({
    # reductions
    np.sum: c.reduction_from(methods.sum, add),
    np.prod: c.reduction_from(methods.prod, mul),
    np.min: c.extreme(math.min, minimum),
    np.max: c.extreme(math.max, maximum),
    np.mean: c.reduction(math.mean),
    np.average: c.average,
    np.median: c.median,
    np.nanmedian: nanmedian,
    np.quantile: quantiles(1.0, skip=False),
    np.percentile: quantiles(0.01, skip=False),
    np.nanquantile: quantiles(1.0, skip=True),
    np.nanpercentile: quantiles(0.01, skip=True),
    np.cov: sequences.cov,
    np.corrcoef: sequences.corrcoef,
    np.var: c.spread(math.var, root=False),
    np.std: c.spread(math.std, root=True),
    np.any: lambda a, axis=None, *, keepdims=False: math.any(a, axis, keepdims),
    np.all: lambda a, axis=None, *, keepdims=False: math.all(a, axis, keepdims),
    np.argmax: lambda a, axis=None, *, keepdims=False: math.argmax(a, axis, keepdims),
    np.argmin: lambda a, axis=None, *, keepdims=False: math.argmin(a, axis, keepdims),
    np.count_nonzero: c.count_nonzero,
    np.trace: c.trace,
    # order, running sums
    np.sort: c.sort,
    np.argsort: c.argsort,
    np.cumsum: c.cumsum,
    np.cumprod: c.cumprod,
    np.diff: c.diff,
    # element by element
    np.round: c.round_even,
    np.around: c.round_even,
    np.clip: c.clip,
    np.where: _where,
    np.isclose: c.isclose,
    np.nan_to_num: c.nan_to_num,
    np.interp: c.interp,
    np.searchsorted: sequences.searchsorted,
    np.digitize: sequences.digitize,
    np.gradient: sequences.gradient,
    np.trapezoid: sequences.trapezoid,
    # products
    np.dot: c.dot,
    np.outer: c.outer,
    np.kron: sequences.kron,
    np.cross: sequences.cross,
    np.convolve: sequences.convolve,
    np.correlate: sequences.correlate,
    np.tensordot: c.tensordot,
    np.einsum: lambda subscripts, *operands, optimize=False: einstein.einsum(subscripts, *operands),
    # another shape
    np.reshape: lambda a, shape: reshaped(a, shape),
    np.ravel: lambda a: tensor.flatten(a),
    np.transpose: lambda a, axes=None: tensor.transpose(a, axes),
    np.swapaxes: lambda a, axis1, axis2: tensor.swapaxes(a, axis1, axis2),
    np.moveaxis: lambda a, source, destination: tensor.moveaxis(a, source, destination),
    np.expand_dims: lambda a, axis: tensor.expand_dims(a, axis),
    np.squeeze: lambda a, axis=None: tensor.squeeze(a, axis),
    np.broadcast_to: lambda array, shape: tensor.broadcast_to(array, shape),
    np.atleast_1d: c.at_least(1),
    np.atleast_2d: c.at_least(2),
    np.atleast_3d: c.at_least(3),
    # joining, cutting, repeating
    np.concatenate: c.concatenate,
    np.stack: lambda arrays, axis=0: tensor.stack(arrays, axis),
    np.vstack: c.stacked(2, 0),
    np.hstack: c.stacked(1, 1),
    np.dstack: c.stacked(3, 2),
    np.split: c.split,
    np.repeat: lambda a, repeats, axis=None: rearrange.repeat(a, repeats, axis),
    np.tile: lambda A, reps: rearrange.tile(A, reps),
    np.flip: lambda m, axis=None: rearrange.flip(m, axis),
    np.roll: lambda a, shift, axis=None: rearrange.roll(a, shift, axis),
    np.pad: c.pad,
    np.meshgrid: lambda *xi, indexing="xy": tensor.meshgrid(*map(c.as_tensor, xi), indexing=indexing),
    # choosing
    np.take: lambda a, indices, axis=None: tensor.take(a, indices, axis),
    np.take_along_axis: c.take_along_axis,
    np.tril: lambda m, k=0: matrices.tril(m, k),
    np.triu: lambda m, k=0: matrices.triu(m, k),
    np.diag: lambda v, k=0: matrices.diag(v, k),
    np.diagonal: c.diagonal,
    # what needs the values
    np.nonzero: lambda a: tensor.nonzero(a),
    np.argwhere: lambda a: tensor.non_zero(a),
    np.flatnonzero: lambda a: tensor.nonzero(tensor.flatten(a))[0],
    np.unique: c.unique,
    np.bincount: c.bincount,
    np.histogram: c.histogram,
    np.array_equal: c.on_arrays(np.array_equal),
    np.allclose: c.on_arrays(np.allclose),
    # alike
    np.zeros_like: lambda a, dtype=None: tensor.zeros_like(a, dtype),
    np.empty_like: lambda prototype, dtype=None: tensor.zeros_like(prototype, dtype),
    np.ones_like: lambda a, dtype=None: tensor.ones_like(a, dtype),
    np.full_like: lambda a, fill_value, dtype=None: tensor.full_like(a, fill_value, dtype),
    np.copy: lambda a: tensor.copy(a),
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: lambda a: a.size,
    np.iscomplexobj: lambda x: False,
    np.isrealobj: lambda x: True,
})
# fmt: on

FUNCTIONS.update(
    (getattr(np.linalg, name), function)
    for name, function in vars(linalg).items()
    if callable(function) and hasattr(np.linalg, name)
)
