"""Places in what is in order already."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..ir import Kind, Op, Spec, dtypes
from .declare import SAME, declare


def _infer(a: Spec, v: Spec, right: bool) -> Spec:
    if a.ndim != 1:
        raise ShapeError(f"searchsorted: the sorted array must be a vector, got shape {a.shape}")
    return Spec(v.shape, dtypes.of_places(a.shape[0] + 1))


def _searchsorted(a: Any, v: Any, right: bool) -> Any:
    return np.searchsorted(a, v, side="right" if right else "left").astype(dtypes.of_places(a.shape[0] + 1))


searchsorted_ = declare(
    Op(
        "searchsorted",
        Kind.OPAQUE,
        _infer,
        _searchsorted,
        promote=SAME.promote,
        differentiable=False,
        meaning="How many elements of the ascending `a` are less than each of `v`, or equal.",
    )
)
