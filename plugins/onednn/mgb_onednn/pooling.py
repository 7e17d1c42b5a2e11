"""Pooling and its gradients, on NumPy's own layouts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from mgb.ir import Spec
from mgb.tensor.libraries import empty

from .chain import Chain
from .layouts import Shape, row_major
from .native import POOLING_AVG, POOLING_AVG_PADDED, POOLING_MAX, TRAINING, Arg, Native, dims

OPS = frozenset({"max_pool2d", "max_pool2d_grad", "avg_pool2d", "avg_pool2d_grad"})

_BYTE = np.dtype(np.uint8)


class Pooling:
    """The primitives that pool images of shape `x` to `y`.

    Parameters
    ----------
    native : Native
    op : str
    x, y : tuple of int
    params : mapping
        The op's.
    dtype : str
    threads : int
    """

    def __init__(
        self, native: Native, op: str, x: Shape, y: Shape, params: Mapping[str, Any], dtype: str, threads: int
    ) -> None:
        self.native, self.op, self.threads = native, op, threads
        self.x, self.y, self.dtype = x, y, dtype
        sizes = params["stride"], params["kernel"], (0, 0), params["padding"], params["padding"]
        self.window = tuple(map(dims, sizes))
        average = POOLING_AVG_PADDED if params.get("count_padding") else POOLING_AVG
        self.algorithm = POOLING_MAX if op.startswith("max") else average

    def layout(self, shape: Shape) -> int:
        """Return a new memory descriptor."""
        return self.native.layout(shape, row_major(shape), self.dtype)

    def forward(self) -> int:
        """Return a primitive descriptor for y; the gradient wants it as a hint."""
        native, create = self.native, "dnnl_pooling_forward_primitive_desc_create"
        x, y = self.layout(self.x), self.layout(self.y)
        made = native.make(
            create, native.engine, TRAINING, self.algorithm, x, y, *self.window, native.attributes
        )
        native.destroy_layouts(x, y)
        return made

    def backward(self, hint: int) -> int:
        """Return a primitive descriptor for the gradient of x."""
        native, create = self.native, "dnnl_pooling_backward_primitive_desc_create"
        x, y = self.layout(self.x), self.layout(self.y)
        made = native.make(create, native.engine, self.algorithm, x, y, *self.window, hint, native.attributes)
        native.destroy_layouts(x, y)
        return made

    def chain(self, description: int, *operands: tuple[Arg, int]) -> Chain:
        """Return a chain over `operands`."""
        return Chain(self.op, self.native, description, operands, self.threads)


def pooling(
    native: Native, op: str, shapes: Sequence[Shape], output: Spec, params: Mapping[str, Any], threads: int
) -> tuple[Chain, Callable[..., Any]]:
    """Return the chain that does the work of `op`, and `op` as a function of its operands."""
    is_gradient = op.endswith("_grad")
    x, y = (output.shape, shapes[0]) if is_gradient else (shapes[0], output.shape)
    pool = Pooling(native, op, x, y, params, output.dtype.name, threads)
    with native.threads(threads):
        if op.startswith("max"):
            return _maximum_gradient(pool, output) if is_gradient else _maximum(pool, output)
        forward = pool.forward()
        if not is_gradient:
            chain = pool.chain(forward, (Arg.SRC, pool.layout(x)), (Arg.DST, pool.layout(y)))
            return chain, _unary(chain, output)
        backward = pool.backward(forward)
        native.call("dnnl_primitive_desc_destroy", forward)
        chain = pool.chain(backward, (Arg.DIFF_DST, pool.layout(y)), (Arg.DIFF_SRC, pool.layout(x)))
        return chain, _unary(chain, output)


def is_finite(x: Any) -> bool:
    """Return whether every element of `x` is finite; False as well when the sum is too large.

    The maxima of the library pass NaN over and begin at the lowest finite number; ours do not.
    """
    return math.isfinite(x.sum())


def _unary(chain: Chain, output: Spec) -> Callable[..., Any]:
    def call(x: Any) -> Any:
        out = empty(output.shape, output.dtype)
        chain(np.ascontiguousarray(x), out)
        return out

    return call


def _winners(pool: Pooling, description: int) -> tuple[Chain, int]:
    """Return the chain that gives the indices and values of the maxima, and the bytes of the indices."""
    places = pool.native.copy_layout(pool.native.wanted(description, Arg.WORKSPACE))
    nbytes = pool.native.functions.dnnl_memory_desc_get_size(places)
    x, y = pool.layout(pool.x), pool.layout(pool.y)
    return pool.chain(description, (Arg.SRC, x), (Arg.WORKSPACE, places), (Arg.DST, y)), nbytes


def _maximum(pool: Pooling, output: Spec) -> tuple[Chain, Callable[..., Any]]:
    chain, nbytes = _winners(pool, pool.forward())

    def call(x: Any) -> Any:
        if not is_finite(x):
            return None
        out = empty(output.shape, output.dtype)
        chain(np.ascontiguousarray(x), empty((nbytes,), _BYTE), out)
        return out

    return chain, call


def _maximum_gradient(pool: Pooling, output: Spec) -> tuple[Chain, Callable[..., Any]]:
    """Return a gradient that finds the places of the maxima again, since the op does not return them."""
    forward = pool.forward()
    backward = pool.backward(forward)
    places = pool.native.copy_layout(pool.native.wanted(backward, Arg.WORKSPACE))
    find, nbytes = _winners(pool, forward)
    g, x = pool.layout(pool.y), pool.layout(pool.x)
    spread = pool.chain(backward, (Arg.DIFF_DST, g), (Arg.WORKSPACE, places), (Arg.DIFF_SRC, x))

    def call(g: Any, x: Any, y: Any) -> Any:
        if not is_finite(y):  # a window that has NaN or nothing finite gives no finite maximum
            return None
        winners = empty((nbytes,), _BYTE)
        find(np.ascontiguousarray(x), winners, empty(y.shape, output.dtype))
        out = empty(output.shape, output.dtype)
        spread(np.ascontiguousarray(g), winners, out)
        return out

    return spread, call
