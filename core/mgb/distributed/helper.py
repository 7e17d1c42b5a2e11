"""Training with the same parameters on all ranks: their start, their gradients in buckets, barriers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ..apply import literal
from ..autodiff.grad_manager import backwarding
from ..ops.layout import concat, reshape
from ..tensor import Tensor
from . import collective
from .group import WORLD, Group, as_group, is_distributed

P = ParamSpec("P")
R = TypeVar("R")


def group_barrier(group: Group = WORLD) -> None:
    """Wait until all ranks of the group are here; in a trace, a step like any other collective."""
    if is_distributed():
        collective.all_reduce_max(literal(np.uint8(0)), group=as_group(group).key)


def synchronized(func: Callable[P, R]) -> Callable[P, R]:
    """Decorator: all ranks wait for each other at the end of the function."""

    @functools.wraps(func)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        result = func(*args, **kwargs)
        group_barrier()
        return result

    return wrapper


def bcast_list_(inps: Iterable[Tensor], group: Group = WORLD) -> None:
    """Give each Tensor the value that it has on the root: parameters and buffers, before training."""
    for inp in inps:
        inp._reset(collective.broadcast(inp.detach(), group=as_group(group).key))


class AllreduceCallback:
    """For ``GradManager.attach(parameters, callbacks=...)``: gradients are sums or means over ranks.

    Gradients of one dtype are collected until there are `bucket` bytes, and summed by one exchange, in the
    order in which they are complete, which is that of the program and so the same on all ranks. Buckets are
    made when the ops are recorded and not by a pass, so that a rank that records and one that replays match.

    Parameters
    ----------
    reduce_method : str
        ``"sum"`` or ``"mean"``.
    group : Group
    backend : str, optional
        Taken for the sake of MegEngine; the communicator is that of `init_process_group`.
    bucket : int
    """

    def __init__(
        self, reduce_method: str, group: Group = WORLD, backend: str | None = None, bucket: int = 10 << 20
    ) -> None:
        if reduce_method.lower() not in ("sum", "mean"):
            raise ValueError(f"reduce_method is 'sum' or 'mean', got {reduce_method!r}")
        self._mean, self._group, self._bucket = reduce_method.lower() == "mean", group, bucket

    def __call__(self, param: Tensor, grad: Tensor) -> Tensor:
        """Take a gradient into a bucket; what is returned has its value when `backward` is over."""
        found = backwarding()
        if found is None:
            (reduced,) = self._reduced([grad])
            return reduced
        buckets = found.kept.setdefault(id(self), {})
        if not buckets:
            found.at_end(lambda: self._flush(buckets))
        waiting = buckets.setdefault(grad.dtype, [])
        waiting.append(out := grad._alias(None))
        if sum(t.size * t.dtype.itemsize for t in waiting) >= self._bucket:
            self._send(buckets.pop(grad.dtype))
            buckets.setdefault(grad.dtype, [])
        return out

    def _flush(self, buckets: dict[Any, list[Tensor]]) -> None:
        for waiting in buckets.values():
            if waiting:
                self._send(waiting)

    def _send(self, waiting: list[Tensor]) -> None:
        for tensor, reduced in zip(waiting, self._reduced(waiting), strict=True):
            tensor._reset(reduced)

    def _reduced(self, grads: list[Tensor]) -> list[Tensor]:
        """The gradients of all ranks, summed by one exchange."""
        group = as_group(self._group)
        flat = [reshape(g, shape=(g.size,)) for g in grads]
        packed = collective.all_reduce_sum(
            flat[0] if len(flat) == 1 else concat(*flat, axis=0), group=group.key
        )
        packed = packed / group.size if self._mean else packed
        found, start = [], 0
        for g in grads:
            found.append(reshape(packed[start : start + g.size], shape=g.shape))
            start += g.size
        return found


make_allreduce_cb = AllreduceCallback
