"""Helpers that every op needs: operands of one shape, and constants of a dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

#: A value inside a program: an array of NumPy's, or what JAX traces with.
Value = Any
Shape = tuple[int, ...]


def spread(x: Value, shape: Shape) -> Value:
    """Return `x` broadcast to `shape`, as NumPy does."""
    if x.shape == shape:
        return x
    lead = len(shape) - len(x.shape)
    kept = [i for i, d in enumerate(x.shape) if d == shape[lead + i]]
    bare = lax.reshape(x, tuple(x.shape[i] for i in kept)) if len(kept) < len(x.shape) else x
    return lax.broadcast_in_dim(bare, shape, tuple(lead + i for i in kept))


def alike(*xs: Value) -> tuple[Value, ...]:
    """Return all of them broadcast to one shape."""
    shape = np.broadcast_shapes(*(x.shape for x in xs))
    return tuple(spread(x, shape) for x in xs)


def number(value: Any, dtype: Any) -> Any:
    """Return a constant of no axes."""
    return np.asarray(value, dtype)


def like(x: Value, value: Any) -> Value:
    """Return `value` in the shape and dtype of `x`."""
    return lax.full(x.shape, number(value, x.dtype), x.dtype)


def is_float(x: Value) -> bool:
    """Return whether it is of a floating dtype, bfloat16 among them."""
    return x.dtype.kind in "fV"


def kept(x: Value, axis: Sequence[int]) -> Shape:
    """Return the shape of a fold of `x` over `axis`, which stay with length 1."""
    return tuple(1 if i in axis else d for i, d in enumerate(x.shape))


def iota(shape: Shape, dtype: Any) -> Value:
    """Return each element's row-major place, cast to `dtype`."""
    size = int(np.prod(shape, dtype=np.int64))
    counted = np.dtype(np.int32 if size < 1 << 31 else np.int64)
    return lax.convert_element_type(lax.reshape(lax.iota(counted, size), shape), dtype)
