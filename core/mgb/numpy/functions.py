"""The table of functions that serve NumPy's, for ``np.sum(tensor)`` and its like, with NumPy's arguments.

Ufuncs are found without a table: see `mgb.ops.numpy_protocol`.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters
from typing import Any

import numpy as np

from ..functional import complex_numbers, einstein, math, matrices, rearrange, softmaxes, tensor
from ..ops import methods
from ..ops.elementwise import ne
from ..ops.methods import reshaped
from ..ops.numpy_protocol import FUNCTIONS, UFUNC_METHODS, UFUNCS
from ..ops.primitives import add, eq, maximum, minimum, mul
from . import (
    arranging,
    data_types,
    fft,
    in_place,
    linalg,
    manipulation,
    polynomials,
    ranges,
    searching,
    segments,
    sequences,
    sets,
    special,
    statistics,
    ufuncs,
    without_nan,
)
from . import compositions as c
from .quantiles import nanmedian, quantiles


def _with_equation(operands: Sequence[Any]) -> Sequence[Any]:
    """Return the arguments of `einsum` with an equation in place of lists of axes beside the operands."""
    if isinstance(operands[0], str):
        return operands
    xs, axes = operands[: len(operands) // 2 * 2 : 2], [*operands[1::2], *operands[len(operands) // 2 * 2 :]]
    terms = ["".join("..." if n is ... else ascii_letters[n] for n in term) for term in axes]
    return ["->".join([",".join(terms[: len(xs)]), *terms[len(xs) :]]), *xs]


def _where(condition: Any, *values: Any) -> Any:
    return tensor.where(condition, *values) if values else tensor.nonzero(condition)


# fmt: off
FUNCTIONS.update({
    # reductions
    np.sum: c.reduction_from(methods.sum, add),
    np.prod: c.reduction_from(methods.prod, mul),
    np.min: c.extreme(math.min, minimum),
    np.max: c.extreme(math.max, maximum),
    np.amin: c.extreme(math.min, minimum),
    np.amax: c.extreme(math.max, maximum),
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
    np.einsum: lambda *operands, optimize=False: einstein.einsum(*_with_equation(operands)),
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
    np.take: c.take,
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
    np.may_share_memory: c.on_arrays(np.may_share_memory),
    np.shares_memory: c.on_arrays(np.shares_memory),
    # alike
    np.zeros_like: lambda a, dtype=None: tensor.zeros_like(a, dtype),
    np.empty_like: lambda prototype, dtype=None: tensor.zeros_like(prototype, dtype),
    np.ones_like: lambda a, dtype=None: tensor.ones_like(a, dtype),
    np.full_like: lambda a, fill_value, dtype=None: tensor.full_like(a, fill_value, dtype),
    np.copy: lambda a: tensor.copy(a),
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.tril_indices_from: lambda arr, k=0: np.tril_indices(arr.shape[-2], k, arr.shape[-1]),
    np.triu_indices_from: lambda arr, k=0: np.triu_indices(arr.shape[-2], k, arr.shape[-1]),
    np.diag_indices_from: lambda arr: np.diag_indices(arr.shape[0], arr.ndim),
    np.histogram2d: c.histograms(np.histogram2d),
    np.histogramdd: c.histograms(np.histogramdd),
    np.size: lambda a: a.size,
    # complex numbers
    np.real: lambda val: complex_numbers.real(val),
    np.imag: lambda val: complex_numbers.imag(val),
    np.angle: lambda z, deg=False: complex_numbers.angle(z, deg),
    np.iscomplexobj: lambda x: complex_numbers.is_complex(x),
    np.isrealobj: lambda x: not complex_numbers.is_complex(x),
    np.iscomplex: lambda x: ne(complex_numbers.imag(x), 0),
    np.isreal: lambda x: eq(complex_numbers.imag(x), 0),
    np.vdot: sequences.vdot,
    # the standard's
    np.astype: lambda x, dtype, /, *, copy=True: data_types.astype(x, dtype, copy=copy),
    np.can_cast: lambda from_, to: data_types.can_cast(from_, to),
    np.result_type: data_types.result_type,
    np.matrix_transpose: linalg.matrix_transpose,
    np.cumulative_sum: statistics.cumulative_sum,
    np.cumulative_prod: statistics.cumulative_prod,
    np.unique_all: searching.unique_all,
    np.unique_counts: searching.unique_counts,
    np.unique_inverse: searching.unique_inverse,
    np.unique_values: searching.unique_values,
    np.unstack: manipulation.unstack,
    # others
    np.sinc: ufuncs.sinc,
    np.min_scalar_type: lambda a: a.dtype,
    np.histogram_bin_edges: c.on_arrays(np.histogram_bin_edges),
    # copies, for what is no Tensor
    np.sort_complex: c.on_arrays(np.sort_complex),
    np.real_if_close: lambda a, tol=100: (
        c.on_arrays(np.real_if_close)(a, tol) if c.as_tensor(a).dtype.kind == "c" else +c.as_tensor(a)
    ),
    np.array_equiv: c.on_arrays(np.array_equiv),
    np.array_repr: c.on_arrays(np.array_repr),
    np.array_str: c.on_arrays(np.array_str),
    np.array2string: c.on_arrays(np.array2string),
    np.save: c.on_arrays(np.save),
    np.savez: c.on_arrays(np.savez),
    np.savez_compressed: c.on_arrays(np.savez_compressed),
    np.savetxt: c.on_arrays(np.savetxt),
    np.einsum_path: c.on_arrays(np.einsum_path),
})
# fmt: on

FUNCTIONS.update(
    (getattr(np, name), getattr(room, name))
    for room in (without_nan, arranging, sets, polynomials, in_place, ranges, special)
    for name in room.__all__
)
UFUNCS.update((getattr(np, name), getattr(ufuncs, name)) for name in ufuncs.__all__)
UFUNC_METHODS.update({
    (np.add, "at"): in_place.at("sum"),
    (np.subtract, "at"): in_place.at("sum", -1),
    (np.multiply, "at"): in_place.at("prod"),
    (np.maximum, "at"): in_place.at("amax"),
    (np.minimum, "at"): in_place.at("amin"),
    (np.add, "reduceat"): segments.reduceat("sum"),
    (np.multiply, "reduceat"): segments.reduceat("prod"),
    (np.maximum, "reduceat"): segments.reduceat("amax"),
    (np.minimum, "reduceat"): segments.reduceat("amin"),
    (np.maximum, "accumulate"): lambda array, axis=0: math.cummax(array, axis)[0],
    (np.minimum, "accumulate"): lambda array, axis=0: math.cummin(array, axis)[0],
    (np.logaddexp, "accumulate"): lambda array, axis=0: math.logcumsumexp(array, axis),
    (np.logaddexp, "reduce"): lambda array, axis=0: softmaxes.logsumexp(array, axis),
    (np.fmax, "reduce"): np.nanmax,
    (np.fmin, "reduce"): np.nanmin,
    (np.hypot, "reduce"): lambda array, axis=0, keepdims=False: linalg.norm(array, None, axis, keepdims),
})  # fmt: skip

FUNCTIONS.update(
    (getattr(room, name), getattr(ours, name))
    for ours, room in ((linalg, np.linalg), (fft, np.fft))
    for name in ours.__all__
    if hasattr(room, name) and not name.endswith("freq")  # which takes no array
)
