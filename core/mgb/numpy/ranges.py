"""NumPy's functions that make a grid from numbers; the arguments are NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..functional import tensor
from ..ir import dtypes
from ..ops.bodies.transcendental import exp, log
from ..ops.declare import broadcast_shapes
from ..ops.elementwise import abs as magnitude
from ..ops.layout import reshape
from ..ops.methods import flatten
from ..ops.operators import power
from ..ops.primitives import cast, where
from ..tensor import Tensor
from ..tensor.apply import tensors
from . import compositions as c

__all__ = ["common_type", "geomspace", "ix_", "linspace", "logspace"]


def _ends(name: str, start: Any, stop: Any) -> list[Tensor]:
    ends = [
        x if x.dtype in dtypes.INEXACT else cast(x, dtype=dtypes.float32)
        for x in tensors(name, (start, stop))
    ]
    shape = broadcast_shapes(name, *(x.shape for x in ends))
    meeting = dtypes.common([x.dtype for x in ends])
    return [reshape(tensor.broadcast_to(cast(x, dtype=meeting), shape), shape=(1, *shape)) for x in ends]


def _shares(like: Tensor, num: int, endpoint: bool) -> Tensor:
    steps = tensor.arange(num, dtype=like.dtype, device=like.device) / max(num - bool(endpoint), 1)
    return reshape(steps, shape=(num, *(1,) * (like.ndim - 1)))


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """Return `num` evenly spaced numbers from `start` to `stop` along `axis`; or these and the step."""
    first, last = _ends("linspace", start, stop)
    share = _shares(first, num, endpoint)
    made = tensor.moveaxis(first * (1 - share) + last * share, 0, axis)
    made = made if dtype is None else made.astype(dtype)
    steps = num - bool(endpoint)
    return (made, (last - first)[0] / (steps if steps > 0 else np.nan)) if retstep else made


def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> Tensor:
    """Return the powers of `base` by evenly spaced exponents."""
    made = power(base, linspace(start, stop, num, endpoint, axis=axis))
    return made if dtype is None else made.astype(dtype)


def geomspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0
) -> Tensor:
    """Return `num` numbers from `start` to `stop` of one sign, each the same multiple of the one before."""
    first, last = _ends("geomspace", start, stop)
    share = _shares(first, num, endpoint)
    way = log(magnitude(last)) - log(magnitude(first))
    made = first * exp(way * share)
    made = where(share >= 1, last, made)  # which the exponential may miss
    made = tensor.moveaxis(made, 0, axis)
    return made if dtype is None else made.astype(dtype)


def common_type(*arrays: Any) -> Any:
    """Return the floating-point dtype in which the arrays meet."""
    met = dtypes.common([x.dtype for x in tensors("common_type", arrays)])
    return (met if met in dtypes.INEXACT else dtypes.float32).type


def ix_(*args: Any) -> tuple[Tensor, ...]:
    """Return vectors of indices, each along an axis of its own; those of a mask are read."""
    found = []
    for place, x in enumerate(map(c.as_tensor, args)):
        vector = tensor.nonzero(x)[0] if x.dtype == dtypes.bool_ else flatten(x)
        found.append(reshape(vector, shape=tuple(-1 if i == place else 1 for i in range(len(args)))))
    return tuple(found)
