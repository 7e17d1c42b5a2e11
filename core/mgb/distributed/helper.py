"""Training with the same parameters on all ranks: their start, their gradients in buckets, barriers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ..autodiff.attached import backwarding
from ..errors import ShapeError
from ..ops.creation import zeros
from ..ops.layout import concat, reshape
from ..ops.primitives import add
from ..tensor import ACTIVE, Tensor
from ..tensor.apply import literal
from ..tensor.holding import Holder
from . import collective
from .group import WORLD, Group, as_group, is_distributed, mesh_size

#: What a traced function may call of it: see `holding`.
__tracing__ = {"no_sync": "changes", "__call__": "tells"}

P = ParamSpec("P")
R = TypeVar("R")


def group_barrier(group: Group = WORLD) -> None:
    """Wait until all ranks of the group are here; in a trace, a step like any other collective.

    Examples
    --------
    >>> mgb.distributed.group_barrier()  # goes on once all ranks are here
    """
    if is_distributed():
        collective.all_reduce_max(literal(np.uint8(0)), group=as_group(group).key)


def synchronized(func: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that all ranks wait for each other at its end.

    Examples
    --------
    >>> @mgb.distributed.synchronized
    ... def evaluate():
    ...     return 0.9
    >>> evaluate()
    0.9
    """

    @functools.wraps(func)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        result = func(*args, **kwargs)
        group_barrier()
        return result

    return wrapper


def bcast_list_(inps: Iterable[Tensor], group: Group = WORLD) -> None:
    """Give each Tensor the value that it has on the root: parameters and buffers, before training.

    Examples
    --------
    >>> layer = M.Linear(2, 1)
    >>> mgb.distributed.bcast_list_(layer.parameters())  # all ranks begin with the parameters of rank 0
    """
    for inp in inps:
        inp._reset(collective.broadcast(inp.detach(), group=as_group(group).key))


def shard(*arrays: Any, group: Group = WORLD) -> Any:
    """Return this rank's rows of a batch that all ranks have: equal parts along axis 0, by rank.

    Parameters
    ----------
    *arrays : array or Tensor
        A batch, of as many rows each: data and labels, as `mgb.data.batches` gives them.
    group : Group

    Returns
    -------
    array or Tensor, or a tuple of them
        As many as were given.

    Raises
    ------
    ShapeError
        The rows cannot be divided into equal parts: their means would not be the mean of all.

    Examples
    --------
    >>> mgb.distributed.shard(mgb.tensor([[1], [2]])).shape  # here of a job of one rank
    (2, 1)
    """
    size = as_group(group).size if is_distributed() else 1
    for array in arrays:
        if not array.ndim or array.shape[0] % size:
            raise ShapeError(
                f"shard: a batch of shape {tuple(array.shape)} gives no equal parts for {size} ranks: take a "
                "batch size that they divide, and leave the last, smaller batch out (drop_last=True)"
            )
    if mesh_size():
        parts = tuple(collective.mesh_part(a, group=as_group(group).key, size=size, axis=0) for a in arrays)
    else:
        rank = as_group(group).rank if is_distributed() else 0
        parts = tuple(a[a.shape[0] // size * rank : a.shape[0] // size * (rank + 1)] for a in arrays)
    return parts[0] if len(parts) == 1 else parts


def get_offsets(shapes: Iterable[Sequence[int]]) -> list[int]:
    """Return where arrays of these shapes begin and end in one buffer: ``[begin0, end0, begin1, end1, ...]``.

    Examples
    --------
    >>> mgb.distributed.get_offsets([(2, 3), (4,)])
    [0, 6, 6, 10]
    """
    offsets, end = [], 0
    for shape in shapes:
        offsets += [end, end + math.prod(shape)]
        end = offsets[-1]
    return offsets


def param_pack_concat(inps: Sequence[Tensor], offsets: Any, offsets_val: Sequence[int]) -> Tensor:
    """Concatenate tensors of one dtype into one vector.

    Parameters
    ----------
    inps : sequence of Tensor
    offsets : Tensor
        As `offsets_val`; taken for the sake of MegEngine.
    offsets_val : sequence of int
        ``[begin0, end0, begin1, end1, ...]``, increasing; between them are zeros.

    Raises
    ------
    ShapeError
        There is another number of elements.

    Examples
    --------
    >>> parts = [F.ones((2,)), F.zeros((1, 2))]
    >>> offsets = mgb.distributed.get_offsets([part.shape for part in parts])
    >>> mgb.distributed.param_pack_concat(parts, None, offsets)
    Tensor([1., 1., 0., 0.], device=xpux:0)
    """
    parts, end = [], 0
    for inp, begin, stop in zip(inps, offsets_val[::2], offsets_val[1::2], strict=True):
        if begin < end or stop - begin != inp.size:
            raise ShapeError(f"param_pack_concat: {inp.shape} does not fit from {begin} to {stop}")
        parts += [zeros((begin - end,), inp.dtype)] * (begin > end)
        parts.append(reshape(inp, shape=(inp.size,)))
        end = stop
    return parts[0] if len(parts) == 1 else concat(*parts, axis=0)


def param_pack_split(inp: Tensor, offsets: Sequence[int], shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """Return the Tensors that `param_pack_concat` has put together: views.

    Parameters
    ----------
    inp : Tensor of one axis
    offsets : sequence of int
        ``[begin0, end0, begin1, end1, ...]``.
    shapes : sequence of tuple of int

    Raises
    ------
    ShapeError
        A shape has another number of elements.

    Examples
    --------
    >>> pack = mgb.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> mgb.distributed.param_pack_split(pack, [0, 2, 2, 5], [(2,), (3, 1)])[0]
    Tensor([1., 2.], device=xpux:0)
    """
    ends = zip(offsets[::2], offsets[1::2], shapes, strict=True)
    return [reshape(inp[begin:end], shape=tuple(shape)) for begin, end, shape in ends]


class AllreduceCallback(Holder):
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

    Examples
    --------
    >>> w = mgb.Parameter([2.0])
    >>> gm = mgb.autodiff.GradManager()
    >>> _ = gm.attach(w, callbacks=mgb.distributed.AllreduceCallback("mean"))
    >>> with gm:
    ...     gm.backward(w * w)
    >>> w.grad
    Tensor([4.], device=xpux:0)
    """

    __revision__ = 0

    def __init__(
        self, reduce_method: str, group: Group = WORLD, backend: str | None = None, bucket: int = 10 << 20
    ) -> None:
        if reduce_method.lower() not in ("sum", "mean"):
            raise ValueError(f"reduce_method is 'sum' or 'mean', got {reduce_method!r}")
        self._mean, self._group, self._bucket = reduce_method.lower() == "mean", group, bucket
        self._local = False

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Keep gradients on this rank, where they add up; the next `backward` exchanges their sum.

        Raises
        ------
        ValueError
            For sums: what has been exchanged and what has not could not be told apart.
        """
        if not self._mean:
            raise ValueError(
                "no_sync is for make_allreduce_cb('mean'); for sums, scale the loss by the ranks"
            )
        before, self._local = self._local, True
        try:
            yield
        finally:
            self._local = before

    def __call__(self, param: Tensor, grad: Tensor) -> Tensor:
        """Take a gradient into a bucket; what is returned has its value when `backward` is over."""
        session = ACTIVE.get()
        if session is not None:
            session.entered(self)
        if self._local:
            return grad
        found = backwarding()
        if found is None:
            return self._reduced([grad])[0]
        buckets = found.kept.setdefault(id(self), {})
        if not buckets:
            found.at_end(lambda: self._flush(buckets))
        waiting = buckets.setdefault(grad.dtype, [])
        # A mean of what is a mean already stays as it is, so all that has been added up may be exchanged.
        held = param.grad if self._mean else None
        total = grad if held is None else add(held, grad)
        waiting.append((param, out := total._alias(None)))
        if sum(t.size * t.dtype.itemsize for _, t in waiting) >= self._bucket:
            self._send(buckets.pop(grad.dtype))
            buckets.setdefault(grad.dtype, [])
        return out

    def _flush(self, buckets: dict[Any, list[tuple[Tensor, Tensor]]]) -> None:
        for waiting in buckets.values():
            if waiting:
                self._send(waiting)

    def _send(self, waiting: list[tuple[Tensor, Tensor]]) -> None:
        for (param, tensor), reduced in zip(waiting, self._reduced([t for _, t in waiting]), strict=True):
            tensor._reset(reduced)
            if self._mean:
                param.grad = None  # it is in the mean

    def _reduced(self, grads: list[Tensor]) -> list[Tensor]:
        """Return the gradients of all ranks, summed by one exchange."""
        group, shapes = as_group(self._group), [g.shape for g in grads]
        packed = collective.all_reduce_packed(*grads, group=group.key, number=len(grads))
        parts = param_pack_split(packed, get_offsets(shapes), shapes)
        return [part / group.size for part in parts] if self._mean else parts

    # for the compiler

    def __parts__(self) -> Iterator[tuple[str, Any]]:
        return iter(())

    def __decides__(self) -> Iterator[Any]:
        yield "_local"


make_allreduce_cb = AllreduceCallback
