"""``ufunc.reduceat``: folds of parts of an axis; the arguments are NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..functional import tensor
from ..ops import methods
from ..ops.declare import normalize_axis
from ..ops.scatter import scatter_reduce
from ..tensor import Tensor
from . import compositions as c


def reduceat(fold: str) -> Callable[..., Tensor]:
    """Make ``np.add.reduceat`` and the like: each index reduces the elements up to the next one.

    Where the next one is not larger there is but the element at the index. The indices are read.
    """

    def folded(array: Tensor, indices: Any, axis: int = 0, dtype: Any = None) -> Tensor:
        (along,) = normalize_axis("reduceat", axis, array.ndim)
        if dtype is not None or fold in ("sum", "prod"):
            array = array.astype(dtype or methods.sum(array[:0]).dtype)
        first = np.asarray(indices.numpy() if isinstance(indices, Tensor) else indices)
        length = int(array.shape[along])
        if first.ndim != 1 or first.dtype.kind not in "iu":
            raise ShapeError(
                f"reduceat: indices must be a vector of integers, got {first.dtype} of shape {first.shape}"
            )
        if first.size and not 0 <= int(first.min()) <= int(first.max()) < length:
            wrong = first[(first < 0) | (first >= length)][0]
            raise IndexError(f"reduceat: index {wrong} is out of range for axis {along} of length {length}")
        counts = np.maximum(np.append(first[1:], length) - first, 1)
        begins = np.cumsum(counts) - counts
        places = np.arange(counts.sum()) + np.repeat(first - begins, counts)
        source = tensor.take(array, places.astype("int32"), along)
        number = np.repeat(np.arange(len(first), dtype="int32"), counts)
        number = number.reshape(-1, *(1,) * (array.ndim - 1 - along))
        index = tensor.broadcast_to(c.as_tensor(number), source.shape)
        shape = (*array.shape[:along], len(first), *array.shape[along + 1 :])
        begin = tensor.zeros(shape, array.dtype, array.device)
        return scatter_reduce(begin, along, index, source, fold, include_self=False)

    return folded
