"""Calls of the functions of NumPy's main namespace: (function, positional arguments, keyword arguments)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

RNG = np.random.default_rng(5)
X, Y = RNG.uniform(0.5, 2, (3, 4)), RNG.uniform(0.5, 2, (3, 4))
SIGNED = RNG.normal(size=(3, 4))
HOLES = np.where(RNG.random((3, 4)) < 0.4, np.nan, SIGNED)
HOLES[1] = np.nan
CUBE = RNG.normal(size=(2, 3, 4))
V = np.array([3.0, 1.0, 2.0, 2.0])
N = np.array([[4, 1, 7, 0], [12, -6, 3, 9]], np.int32)
M = np.array([6, 4, -3, 0], np.int32)
MASK = np.array([True, False, True, True])
EDGES = np.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 1e-3])
ANGLES = np.cumsum(RNG.uniform(-5, 5, (2, 8)), axis=1)

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
NAN_REDUCTIONS = (np.nansum, np.nanprod, np.nanmax, np.nanmin, np.nanmean, np.nanvar, np.nanstd)

CALLS: list[Call] = [
    *((f, (HOLES,), {}) for f in NAN_REDUCTIONS),
    *((f, (HOLES,), {"axis": 0}) for f in NAN_REDUCTIONS),
    *((f, (HOLES[[0, 2]],), {"axis": 1, "keepdims": True}) for f in NAN_REDUCTIONS),
    *((f, (HOLES,), {"axis": 0, "ddof": 1}) for f in (np.nanvar, np.nanstd)),
    *((f, (N,), {"axis": 1}) for f in NAN_REDUCTIONS),
    *((f, (HOLES[[0, 2]],), {"axis": 1}) for f in (np.nanargmax, np.nanargmin)),
    *((f, (HOLES,), {"axis": 1}) for f in (np.nancumsum, np.nancumprod)),
    *((f, (X,), {"axis": 1}) for f in (np.ptp, np.amin, np.amax)),
    # turned, cut, joined
    *((np.rot90, (X, k), {}) for k in (-1, 0, 1, 2, 3)),
    (np.rot90, (CUBE,), {"axes": (2, 1)}),
    (np.fliplr, (X,), {}), (np.flipud, (X,), {}),
    *((np.rollaxis, (CUBE, axis, start), {}) for axis in range(3) for start in range(4)),
    (np.array_split, (V, 3), {}), (np.array_split, (X, 5), {"axis": 1}), (np.array_split, (X, [1, 3], 1), {}),
    (np.hsplit, (X, 2), {}), (np.hsplit, (V, 2), {}), (np.vsplit, (X, [1]), {}), (np.dsplit, (CUBE, 2), {}),
    (np.ediff1d, (X,), {}), (np.ediff1d, (V,), {"to_begin": 5.0, "to_end": np.array([1.0, 2.0])}),
    (np.trim_zeros, (np.array([0.0, 0, 1, 0, 2, 0]),), {}), (np.trim_zeros, (np.array([0.0, 1, 0]), "b"), {}),
    (np.column_stack, ([V, X.T],), {}), (np.append, (X, Y), {"axis": 0}), (np.append, (X, V), {}),
    (np.block, ([[X, Y], [Y, X]],), {}), (np.block, ([V, V],), {}), (np.block, ([[X, V[:3, None]]],), {}),
    (np.insert, (V, 2, 9.0), {}), (np.insert, (V, 1, np.array([8.0, 9.0])), {}),
    (np.insert, (V, [0, 2, 2], np.array([7.0, 8.0, 9.0])), {}), (np.insert, (X, -1, 5.0), {"axis": 1}),
    (np.insert, (X, 1, V), {"axis": 0}), (np.insert, (X, [1], V[:3, None]), {"axis": 1}),
    (np.insert, (X, slice(0, 3, 2), 0.0), {"axis": 1}), (np.insert, (X, 1, V[:3]), {"axis": 1}),
    (np.delete, (V, 1), {}), (np.delete, (X, [0, -1]), {"axis": 1}), (np.delete, (X, slice(1, None), 0), {}),
    (np.delete, (V, MASK), {}),
    (np.resize, (V, (2, 3)), {}), (np.broadcast_arrays, (X, V, 2.0), {}),
    (np.diagflat, (N[:, :2],), {"k": 1}),
    (np.vander, (V,), {}), (np.vander, (V, 3), {"increasing": True}),
    (np.ix_, (np.array([0, 2]), MASK), {}), (np.unstack, (CUBE,), {"axis": 1}),
    (np.tril_indices_from, (X,), {"k": 1}), (np.triu_indices_from, (X,), {}),
    (np.diag_indices_from, (X[:, :3],), {}),
    (np.matrix_transpose, (CUBE,), {}),
    # chosen, in order
    (np.select, ([X > 1, X > 0.7], [X, Y]), {"default": -1.0}),
    (np.choose, (N[0] % 2, [V, -V]), {}), (np.choose, (N[1], [V, -V]), {"mode": "wrap"}),
    (np.choose, (N[1], [V, -V]), {"mode": "clip"}),
    (np.compress, (MASK, X), {"axis": 1}), (np.compress, (MASK, V), {}), (np.extract, (X > 1, X), {}),
    (np.piecewise, (SIGNED, [SIGNED < 0, SIGNED > 0.5], [np.negative, 3.0, np.square]), {}),
    (np.piecewise, (SIGNED, [SIGNED < 0], [1.0]), {}),
    (np.partition, (np.array([1.0, 2.0, 3.0]), 1), {}), (np.argpartition, (np.array([3.0, 2.0, 1.0]), 1), {}),
    (np.lexsort, ((N[0], V),), {}), (np.lexsort, (X[::-1].round(),), {}),
    (np.unravel_index, (np.array([0, 7, 11]), (3, 4)), {}),
    (np.ravel_multi_index, ((np.array([0, 2]), np.array([3, 1])), (3, 4)), {}),
    (np.ravel_multi_index, ((np.array([0, 5]), np.array([3, -1])), (3, 4)), {"mode": "clip"}),
    (np.ravel_multi_index, ((np.array([0, 5]), np.array([3, -1])), (3, 4)), {"mode": "wrap"}),
    (np.unwrap, (ANGLES,), {}), (np.unwrap, (ANGLES,), {"axis": 0, "discont": 4.0}),
    (np.unwrap, (ANGLES,), {"period": 3.0}),
    (np.fix, (SIGNED,), {}), (np.isposinf, (EDGES,), {}), (np.isneginf, (EDGES,), {}),
    (np.inner, (X, Y), {}), (np.inner, (CUBE, V), {}), (np.inner, (V, 2.0), {}),
    (np.apply_along_axis, (lambda r: r[:2] * r.sum(), 1, CUBE), {}), (np.apply_along_axis,
    (np.sum, 0, X), {}),
    (np.apply_over_axes, (np.sum, CUBE, (0, 2)), {}),
    # sets
    (np.isin, (N, M), {}), (np.isin, (HOLES, V), {"invert": True}), (np.isin, (N, M[:0]), {}),
    (np.union1d, (N, M), {}), (np.intersect1d, (N, M), {}), (np.setdiff1d, (N, M), {}),
    (np.setxor1d, (N, M), {}),
    *((f, (N,), {}) for f in (np.unique_all, np.unique_counts, np.unique_inverse, np.unique_values)),
    # polynomials
    (np.polyval, (V, X), {}), (np.polyadd, (V, V[1:]), {}), (np.polysub, (V[2:], V), {}),
    (np.polymul, (V, V[1:]), {}), (np.polydiv, (V, V[:2]), {}), (np.polyder, (V,), {"m": 2}),
    (np.polyint, (V,), {"m": 2, "k": [1.0, 2.0]}), (np.polyfit, (np.arange(5.0), np.arange(5.0) ** 2, 2), {}),
    (np.polyfit, (X[0], Y[:2].T, 1), {"w": V}), (np.poly, (V,), {}),
    (np.roots, (np.array([0.0, 1.0, -6.0, 11.0, -6.0, 0.0]),), {}),
    # ranges
    (np.linspace, (V, X, 5), {}), (np.linspace, (0.0, V, 4), {"axis": -1, "endpoint": False}),
    (np.linspace, (V, 9.0, 3), {"retstep": True}), (np.logspace, (V, 0.0, 4), {"base": 2.0}),
    (np.geomspace, (V, X, 4), {}), (np.geomspace, (-V, -1.0, 3), {"endpoint": False}),
    (np.cumulative_sum, (V,), {"include_initial": True}), (np.cumulative_prod, (X,), {"axis": 1}),
    (np.astype, (V, "int32"), {}), (np.sort_complex, (V,), {}), (np.real_if_close, (V + 0j,), {}),
    (np.histogramdd, (X[:, :2],), {"bins": 2}),
    (np.histogram2d, (V, V[::-1].copy()), {"bins": 2}), (np.histogram_bin_edges, (X,), {"bins": 3}),
    # element by element
    *((f, (EDGES,), {}) for f in (np.radians, np.degrees, np.deg2rad, np.rad2deg, np.fabs, np.modf, np.sinc)),
    *((f, (EDGES[:, None], EDGES), {}) for f in (np.fmax, np.fmin, np.logaddexp2)),
    (np.heaviside, (EDGES, 0.25), {}), (np.spacing, (EDGES,), {}), (np.spacing, (X,), {}),
    *((f, (N, M), {}) for f in (np.gcd, np.lcm)),
    (np.gcd, (np.array([2**40 * 9, 0]), np.array([2**35 * 6, -12])), {}),
    (np.gcd, (np.array([3, 6, -128], np.int8), np.array([-128, -128, 3], np.int8)), {}),
    (np.ldexp, (X, N[0]), {}), (np.ldexp, (np.array([1e-300]), np.array([1800])), {}),
    *((np.frexp, (x,), {}) for x in (EDGES, X, np.array([2.0**-1074, 2.0**-1030 * 3, 1e308, -0.0, 7.5]))),
    (np.frexp, (np.array([2.0**-149, 3.0**-90, 3e38, -1.0], np.float32),), {}),
    (np.frexp, (np.array([2.0**-24, 60000, -3.0], np.float16),), {}),
    (np.i0, (np.array([0.0, -0.5, 3.0, 7.999, 8.0, -30.0, 700.0, 710.0, np.nan]),), {}), (np.i0, (X,), {}),
    (np.take, (X, np.array([[7, -9], [3, 0]])), {"mode": "wrap", "axis": 1}),
    (np.take, (X, np.array([100, -3, 2])), {"mode": "clip"}), (np.take, (X, [1, -1], 0, None, "clip"), {}),
    *((f.reduceat, (CUBE, [1, 0, 1]), {"axis": 1}) for f in (np.add, np.multiply, np.maximum, np.minimum)),
    (np.add.reduceat, (V, np.array([0, 3, 1, 2])), {}), (np.add.reduceat, (N, [0]), {}),
    (np.multiply.reduceat, (X, [2, 0]), {"axis": -1}), (np.add.reduceat, (X > 1, [0, 2]), {}),
    (np.float_power, (X, 2.5), {}), (np.float_power, (np.array([3]), np.array([-2])), {}),
    (np.bitwise_count, (N,), {}), (np.bitwise_count, (np.array([0, 255, 7], np.uint8),), {}),
    (np.bitwise_count, (np.array([-(2**63), 2**62 + 5, -1]),), {}),
    (np.vecdot, (CUBE, V), {}), (np.matvec, (CUBE, V), {}), (np.vecmat, (V[:3], CUBE), {}),
    *((f.accumulate, (SIGNED,), {"axis": 1}) for f in (np.maximum, np.minimum, np.logaddexp)),
    *((f.accumulate, (SIGNED,), {}) for f in (np.maximum, np.minimum)),
    (np.logaddexp.reduce, (SIGNED,), {}), (np.fmax.reduce, (HOLES,), {}),
    (np.fmin.reduce, (HOLES,), {"axis": 1}),
    (np.hypot.reduce, (SIGNED,), {"axis": 1}),
]  # fmt: skip

#: What writes into its first argument.
WRITES: list[Call] = [
    (np.copyto, (V,), {}), (np.copyto, (V,), {"where": X > 1}), (np.putmask, (X > 1, V[:3]), {}),
    (np.place, (X > 1, V[:3]), {}), (np.put, ([0, -1, 5], [7.0, 8.0]), {}),
    (np.put_along_axis, (np.array([[0], [2], [1]]), 9.0), {"axis": 1}),
    (np.fill_diagonal, (5.0,), {}), (np.fill_diagonal, ([5.0, 6.0],), {"wrap": True}),
    (np.add.at, ([0, 0, 2], V), {}), (np.subtract.at, ((np.array([1, 1]), [3, 3]), 2.0), {}),
    (np.multiply.at, ((slice(None), [0, 0]), 2.0), {}), (np.maximum.at, ([1, 1], 1.1), {}),
    (np.minimum.at, ([0], 1.0), {}),
]  # fmt: skip

#: What gives no Tensor, of an array of float32.
ANSWERS: list[Call] = [
    *((f, (V,), {}) for f in (np.array2string, np.array_repr, np.array_str)),
    *((f, (V,), {}) for f in (np.min_scalar_type, np.common_type)),
    (np.array_equiv, (V, V[None]), {}), (np.can_cast, (V, "float64"), {}), (np.result_type, (V, M), {}),
    (np.einsum_path, ("i,i", V, V), {}),
]  # fmt: skip
FILES = (np.save, np.savez, np.savez_compressed, np.savetxt)

#: What does not take Tensors, and why.
REFUSED: dict[str, str] = {
    **dict.fromkeys("busday_count busday_offset datetime_as_string is_busday isnat".split(), "dates"),
    **dict.fromkeys("packbits unpackbits".split(), "bytes of bits, which no op makes"),
}
