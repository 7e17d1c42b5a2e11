"""Exchanges between the devices of a mesh; each finds its rank as the index along the axis of the mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from mgb.ir import Node

from .arithmetic import Word
from .shapes import Value, like, number

#: The name of the mesh's only axis.
AXIS = "ranks"


def anywhere(flag: Value) -> Value:
    """Return whether it is true on any device."""
    return _summed(flag)


def _wide(x: Value) -> Value:
    """Widen to a dtype that is exchanged everywhere: 16-bit floats to float32, smaller ones to 32 bits."""
    if x.dtype.itemsize >= 4:
        return x
    wide = {"f": np.float32, "V": np.float32, "u": np.uint32}.get(x.dtype.kind, np.int32)
    return lax.convert_element_type(x, wide)


def _summed(x: Value) -> Value:
    """Sum; sums of 16-bit floats are rounded once, those of bools say whether there is any."""
    return lax.convert_element_type(lax.psum(_wide(x), AXIS), x.dtype)


def _sum(_node: Node, x: Value) -> Value:
    return _summed(x)


def _packed(_node: Node, *xs: Value) -> Value:
    return _summed(lax.concatenate([lax.reshape(x, (x.size,)) for x in xs], 0))


def _extreme(reduce: Callable[..., Value], nan: str) -> Word:
    """Make an extreme of floats among integers in the same order, where NaN is the `nan` one of these."""

    def word(_node: Node, x: Value) -> Value:
        if x.dtype.kind not in "fV":
            return lax.convert_element_type(reduce(_wide(x), AXIS), x.dtype)
        whole = np.dtype(f"int{8 * x.dtype.itemsize}")
        most = number(np.iinfo(whole).max, whole)
        bits = _ordered(lax.bitcast_convert_type(x, whole), most)
        bits = lax.select(lax.ne(x, x), like(bits, getattr(np.iinfo(whole), nan)), bits)
        found = lax.convert_element_type(reduce(_wide(bits), AXIS), whole)
        return lax.bitcast_convert_type(_ordered(found, most), x.dtype)

    return word


def _ordered(bits: Value, most: Any) -> Value:
    """Convert the bits of floats to integers in their order, and back."""
    return lax.select(lax.lt(bits, like(bits, 0)), lax.bitwise_xor(bits, like(bits, most)), bits)


def _on_root(x: Value) -> Value:
    """Return `x` on the first device, zeros elsewhere."""
    is_root = lax.eq(lax.axis_index(AXIS), number(0, np.int32))
    return lax.select(lax.broadcast(is_root, x.shape), x, like(x, 0))


def _of_root(x: Value) -> Value:
    """Return the root's `x`, bit by bit: of all but one of what is added the bits are 0."""
    if x.dtype.kind in "fV":
        whole = np.dtype(f"uint{8 * x.dtype.itemsize}")
        return lax.bitcast_convert_type(_summed(_on_root(lax.bitcast_convert_type(x, whole))), x.dtype)
    return _summed(_on_root(x))


def _broadcast(_node: Node, x: Value) -> Value:
    return _of_root(x)


def _reduce(_node: Node, x: Value) -> Value:
    return _on_root(_summed(x))


def _all_gather(node: Node, x: Value) -> Value:
    return lax.all_gather(x, AXIS, axis=node.params["axis"], tiled=True)


def _gather(node: Node, x: Value) -> Value:
    return _on_root(_all_gather(node, x))


def _reduce_scatter(node: Node, x: Value) -> Value:
    found = lax.psum_scatter(_wide(x), AXIS, scatter_dimension=node.params["axis"], tiled=True)
    return lax.convert_element_type(found, x.dtype)


def _all_to_all(node: Node, x: Value) -> Value:
    return lax.all_to_all(x, AXIS, *node.params["axes"], tiled=True)


def _scatter(node: Node, x: Value) -> Value:
    return _part(node, _of_root(x))


def _part(node: Node, x: Value) -> Value:
    """Return the device's own part; it may have come in parts already."""
    axis, shape = node.params["axis"], node.spec.shape
    if x.shape == shape:
        return x
    return lax.dynamic_slice_in_dim(x, _place(shape[axis]), shape[axis], axis)


def _whole(node: Node, x: Value) -> Value:
    """Return zeros, except for the device's own part."""
    axis, zeros = node.params["axis"], lax.full(node.spec.shape, number(0, x.dtype), x.dtype)
    return lax.dynamic_update_slice_in_dim(zeros, x, _place(x.shape[axis]), axis)


def _place(length: int) -> Value:
    return lax.mul(lax.axis_index(AXIS), number(length, np.int32))


WORDS: dict[str, Word] = {
    "mesh_all_reduce_sum": _sum,
    "mesh_all_reduce_max": _extreme(lax.pmax, "max"),
    "mesh_all_reduce_min": _extreme(lax.pmin, "min"),
    "mesh_all_reduce_packed": _packed,
    "mesh_broadcast_from_root": _broadcast,
    "mesh_reduce_sum_to_root": _reduce,
    "mesh_all_gather": _all_gather,
    "mesh_reduce_scatter_sum": _reduce_scatter,
    "mesh_gather_to_root": _gather,
    "mesh_scatter_from_root": _scatter,
    "mesh_all_to_all": _all_to_all,
    "mesh_part": _part,
    "mesh_whole": _whole,
}
