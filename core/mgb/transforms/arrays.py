"""Transformed functions that are called with NumPy arrays: these keep their dtypes, and arrays come back."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from ..jit.tree import flatten
from ..tensor import Tensor, active_trace, as_given


def on_arrays(transformed: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that gives arrays where all arrays among its arguments are NumPy's.

    SciPy's solvers in C take nothing else. Inside a trace Tensors come: an array would be a value read.

    Examples
    --------
    >>> mgb.grad(lambda x: F.sum(x * x))(np.array([1.0, 3.0]))
    array([2., 6.])
    """

    @wraps(transformed)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = flatten((args, kwargs))
        if not any(map(_is_array, leaves)) or any(isinstance(leaf, Tensor) for leaf in leaves):
            return transformed(*args, **kwargs)
        args, kwargs = structure.build(map(_tensor_of, leaves))
        found, structure = flatten(transformed(*args, **kwargs))
        if active_trace() is not None:
            return structure.build(iter(found))
        return structure.build(np.array(x) if isinstance(x, Tensor) else x for x in found)

    return call


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biufc"


def _tensor_of(leaf: Any) -> Any:
    return Tensor(array := as_given(leaf), array.dtype) if _is_array(leaf) else leaf
