"""Collectives of Tensors, under the names and with the arguments of MegEngine.

`group` is a `Group` or a list of ranks; every rank of it calls the same with the same shape and dtype.
`device` may name where the result is to lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ArgumentError
from ..ops.creation import zeros
from ..ops.declare import normalize_axis
from ..tensor import ACTIVE, Tensor
from . import collective, message
from .group import WORLD, Group, as_group, mesh_size

__all__ = [
    "all_gather",
    "all_reduce_max",
    "all_reduce_min",
    "all_reduce_sum",
    "all_to_all",
    "broadcast",
    "gather",
    "reduce_scatter_sum",
    "reduce_sum",
    "remote_recv",
    "remote_send",
    "scatter",
]

Ranks = Group | Sequence[int] | None


def _on(device: str | None, out: Tensor) -> Tensor:
    return out if device is None else out.to(device)


def _whole(function: Any, inp: Any, group: Ranks, device: str | None) -> Tensor:
    return _on(device, function(inp, group=as_group(group).key))


def _along(function: Any, inp: Any, group: Ranks, device: str | None, axis: int) -> Tensor:
    found = as_group(group)
    (axis,) = normalize_axis(function.__name__, axis, inp.ndim)
    return _on(device, function(inp, group=found.key, size=found.size, axis=axis))


def all_reduce_sum(inp: Tensor, group: Ranks = WORLD, device: str | None = None) -> Tensor:
    """Return the sum over all ranks, on each."""
    return _whole(collective.all_reduce_sum, inp, group, device)


def all_reduce_max(inp: Tensor, group: Ranks = WORLD, device: str | None = None) -> Tensor:
    """Return the largest of all ranks, element by element, on each; NaN wins."""
    return _whole(collective.all_reduce_max, inp, group, device)


def all_reduce_min(inp: Tensor, group: Ranks = WORLD, device: str | None = None) -> Tensor:
    """Return the smallest of all ranks, element by element, on each; NaN wins."""
    return _whole(collective.all_reduce_min, inp, group, device)


def broadcast(inp: Tensor, group: Ranks = WORLD, device: str | None = None) -> Tensor:
    """Return the root's Tensor, on each rank; the others give one of its shape and dtype."""
    return _whole(collective.broadcast, inp, group, device)


def reduce_sum(inp: Tensor, group: Ranks = WORLD, device: str | None = None) -> Tensor:
    """Return the sum over all ranks, on the root; zeros elsewhere, where a gradient enters by them."""
    return _whole(collective.reduce_sum, inp, group, device)


def all_gather(inp: Tensor, group: Ranks = WORLD, device: str | None = None, axis: int = 0) -> Tensor:
    """Return the Tensors of all ranks behind each other along `axis`, on each."""
    return _along(collective.all_gather, inp, group, device, axis)


def reduce_scatter_sum(inp: Tensor, group: Ranks = WORLD, device: str | None = None, axis: int = 0) -> Tensor:
    """Return the part of the sum over all ranks that is this rank's, along `axis`."""
    return _along(collective.reduce_scatter_sum, inp, group, device, axis)


def gather(inp: Tensor, group: Ranks = WORLD, device: str | None = None, axis: int = 0) -> Tensor:
    """Gather like `all_gather`, on the root only; zeros elsewhere, where gradients enter by them."""
    return _along(collective.gather, inp, group, device, axis)


def scatter(inp: Tensor, group: Ranks = WORLD, device: str | None = None, axis: int = 0) -> Tensor:
    """Return the rank's part of the root's Tensor, along `axis`.

    The others give one of its shape and dtype.
    """
    return _along(collective.scatter, inp, group, device, axis)


def all_to_all(
    inp: Tensor,
    group: Ranks = WORLD,
    device: str | None = None,
    split_axis: int = 0,
    concat_axis: int = 0,
) -> Tensor:
    """Send part k along `split_axis` to rank k; concatenate what arrives along `concat_axis`."""
    found = as_group(group)
    axes = tuple(normalize_axis("all_to_all", axis, inp.ndim)[0] for axis in (split_axis, concat_axis))
    return _on(device, collective.all_to_all(inp, group=found.key, size=found.size, axes=axes))


def _check_messages() -> None:
    as_group(None)
    if mesh_size():
        raise ArgumentError(
            "the devices of a mesh run one program and cannot send one by one: use all_to_all"
        )


def remote_send(inp: Tensor, dest_rank: int) -> Tensor:
    """Send to another rank of the job, which calls `remote_recv`.

    Returns
    -------
    Tensor
        A 0-d one. ``gm.backward`` of it waits for the gradient, which the other rank sends back.
    """
    _check_messages()
    return message.remote_send(inp, peer=dest_rank)


def remote_recv(
    src_rank: int,
    device: str | None = None,
    inp: Tensor | None = None,
    shape: tuple[int, ...] | None = None,
    dtype: Any = "float32",
) -> Tensor:
    """Receive a tensor from another rank of the job.

    Parameters
    ----------
    src_rank : int
    device : str, optional
    inp : Tensor, optional
        Has the shape and dtype that come, else `shape` and `dtype` say them. Where a GradManager records
        it, the gradient of the result is sent back.
    shape : tuple of int, optional
        Without one, nor an `inp`, it is as the sender says, and so is the dtype: not in a trace.

    Raises
    ------
    ArgumentError
        A trace needs the type of the result.
    CollectiveMismatchError
        Something else comes.
    """
    _check_messages()
    if inp is None and shape is None:
        if ACTIVE.get() is not None:
            raise ArgumentError(
                "remote_recv: a trace needs the type of the result: give inp, or shape and dtype"
            )
        dtype, _, lengths = message.what_comes(src_rank).partition("[")
        like = zeros(tuple(int(n) for n in lengths.strip("]").split(",") if n), dtype)
        return _on(device, message.remote_recv(like, peer=src_rank, told=True))
    like = zeros(shape or (), dtype) if inp is None else inp
    return _on(device, message.remote_recv(like, peer=src_rank))


def __dir__() -> list[str]:
    return __all__
