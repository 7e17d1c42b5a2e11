"""Calls of NumPy's quantiles, differences, convolutions and searches, as in `numpy_calls`."""

from __future__ import annotations

import numpy as np
from mgb.numpy.quantiles import _CONTINUOUS, _PLACES
from numpy_calls import Call

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4, 5))
HOLES = np.where(RNG.random((3, 7)) < 0.3, np.nan, RNG.normal(size=(3, 7)))
HOLES[1] = np.nan
LONG, SHORT = RNG.normal(size=9), RNG.normal(size=4)
EDGES = np.array([-1.0, 0.0, 0.5, 1.5])
PLACES = np.cumsum(RNG.uniform(0.5, 2, 5))
METHODS = (*_CONTINUOUS, *_PLACES)

#: What has a gradient.
SMOOTH: list[Call] = [
    *((np.quantile, (X, [0.0, 0.1, 0.35, 0.5, 1.0], 2), {"method": m}) for m in METHODS),
    (np.quantile, (LONG, 0.3), {}),
    (np.quantile, (X, [[0.2, 0.4]]), {"axis": (0, 2), "keepdims": True}),
    (np.percentile, (X, 35.0), {"axis": 1}),
    (np.percentile, (X, [25, 75]), {}),
    (np.gradient, (LONG,), {}),
    (np.gradient, (X, 0.5), {"axis": 1}),
    (np.gradient, (X, 0.5, 2.0), {"axis": (0, 2), "edge_order": 2}),
    (np.gradient, (X, PLACES), {"axis": -1, "edge_order": 2}),
    (np.gradient, (SHORT[:2],), {}),
    (np.trapezoid, (X,), {"dx": 0.5, "axis": 1}),
    (np.trapezoid, (X, PLACES), {}),
    (np.trapezoid, (X, X), {"axis": 0}),
    *((np.convolve, (LONG, SHORT, m), {}) for m in ("full", "same", "valid")),
    *((np.convolve, (SHORT, LONG, m), {}) for m in ("full", "same", "valid")),
    *((np.correlate, (LONG, SHORT, m), {}) for m in ("full", "same", "valid")),
    *((np.correlate, (SHORT, LONG, m), {}) for m in ("full", "same", "valid")),
    *((np.convolve, (LONG, SHORT[:3], m), {}) for m in ("full", "same", "valid")),
    (np.kron, (X[0], X[1, :2]), {}),
    (np.kron, (SHORT, X), {}),
    (np.cross, (X[..., :3], X[0, 1, 1:4]), {}),
    (np.cross, (X, X[:, :1]), {"axis": 0}),
    (np.cov, (X[0],), {}),
    (np.cov, (X[0], X[1]), {"rowvar": False, "ddof": 0}),
    (np.cov, (LONG,), {"bias": True}),
    (np.corrcoef, (X[0],), {}),
    (np.corrcoef, (LONG, LONG[::-1].copy()), {}),
]

OTHERS: list[Call] = [
    *((np.nanquantile, (HOLES, [0.0, 0.3, 0.8], 1), {"method": m}) for m in METHODS),
    (np.nanpercentile, (HOLES, 40), {}),
    (np.nanmedian, (HOLES,), {"axis": 0}),
    (np.quantile, (HOLES, 0.5, 1), {}),
    (np.quantile, (np.arange(6), 0.3), {}),
    (np.searchsorted, (EDGES, X), {}),
    (np.searchsorted, (EDGES, EDGES), {"side": "right"}),
    (np.searchsorted, (EDGES, np.array([np.nan, np.inf])), {}),
    (np.digitize, (X, EDGES), {}),
    (np.digitize, (EDGES, EDGES), {"right": True}),
    (np.digitize, (np.append(X, EDGES), EDGES[::-1].copy()), {}),
    (np.digitize, (EDGES, EDGES[::-1].copy()), {"right": True}),
    (np.histogram, (X,), {"bins": 4, "weights": X * 2, "range": (-1.0, 1.0)}),
    (np.convolve, (np.arange(5), np.arange(3)), {}),
    (np.cov, (np.arange(6).reshape(2, 3),), {}),
]
