"""The collectives as ops, with their gradients: those of the sum of all ranks' losses.

Each is `ordered`, so that every rank makes them in the order of its program. What is moved without being
reduced is bytes to a communicator. 16-bit floats are reduced in float32 and rounded once; the largest and the
smallest of floats are found among integers in the same order, so that NaN wins on every rank.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..apply import apply, caller
from ..errors import ShapeError
from ..ir import Kind, Op, Spec
from ..ops.creation import zeros_like
from ..ops.declare import declare, op_of
from ..ops.primitives import cast, eq, mul
from ..tensor import Tensor
from .communicator import Collective
from .errors import CollectiveMismatchError, GroupError
from .world import world

_BLOCKED_TARGET = frozenset({"all_gather", "gather"})
_BLOCKED_SOURCE = frozenset({"reduce_scatter", "scatter"})


def _place() -> str:
    """The user's line: that of an op of a program stands in the text of the program."""
    file, _, line = caller().rpartition(":")
    noted = linecache.getline(file, int(line)).partition("  # ")[2].strip() if file.startswith("<") else ""
    return noted or f"{file}:{line}"


def _exchanged(what: Collective, x: Any, target: Any, group: str, about: str) -> Any:
    """Make an exchange of row-major arrays, and give `target`."""
    if not isinstance(x, np.ndarray | np.generic):
        raise GroupError(f"{about}: this communicator takes arrays of the CPU; move them with .to('cpu0')")
    raw: Any = np.ascontiguousarray(x)
    out = target
    if not what.reduce:
        raw, out = (None if a is None else a.reshape(-1).view(np.uint8) for a in (raw, out))
    root = world().rank == world().line(group).ranks[what.peer] if what.kind not in ("send", "recv") else True
    if what.kind == "broadcast":
        if root and out is not None:
            out[...] = raw
        raw = None
    given = None if (what.kind == "scatter" and not root) or what.kind == "recv" else raw
    wanted = None if (what.kind in ("reduce", "gather") and not root) or what.kind == "send" else out
    world().exchange(group, what, given, wanted, about, f" at {_place()}")
    return target


def _ordered_bits(x: Any, nan: int) -> Any:
    """Integers in the order of floats; `nan` for each NaN."""
    whole = np.dtype(f"int{8 * x.dtype.itemsize}")
    bits = np.atleast_1d(x).view(whole).reshape(x.shape)
    return np.where(np.isnan(x), nan, np.where(bits < 0, bits ^ np.iinfo(whole).max, bits)).astype(whole)


def _reduced(what: Collective, x: Any, shape: tuple[int, ...], group: str, about: str) -> Any:
    """A reduction in a dtype that every communicator has."""
    dtype = x.dtype
    if dtype in dtypes.HALVES:
        return _reduced(what, x.astype(np.float32), shape, group, about).astype(dtype)
    if dtype == dtypes.bool_:
        return _reduced(what, x.astype(np.uint8), shape, group, about).astype(bool)
    if what.reduce == "sum" or dtype not in dtypes.FLOATS:
        return _exchanged(what, x, np.zeros(shape, dtype), group, about)
    info = np.iinfo(f"int{8 * dtype.itemsize}")
    keys = _ordered_bits(x, info.max if what.reduce == "max" else info.min)
    found = _reduced(what, keys, shape, group, about)
    return np.where(found < 0, found ^ info.max, found).astype(keys.dtype).view(dtype)


def _run(kind: str, reduce: str = "") -> Callable[..., Any]:
    """The eager rule of a collective."""

    def run(x: Any, *_before: Any, group: str, size: int = 1, axis: int = 0, axes: Any = None) -> Any:
        split, joined = axes or (axis, axis)
        about = f"{kind}{'_' * bool(reduce)}{reduce} of {x.dtype.name}{list(x.shape)}"
        about += f" along {axes or axis}" if size > 1 or axes else ""
        first = np.moveaxis(x, axis, 0) if x.ndim and axes is None else x
        what = Collective(kind, reduce)
        if axes is not None:
            blocks = np.stack(np.split(x, size, split))
            return np.concatenate(list(_exchanged(what, blocks, np.empty_like(blocks), group, about)), joined)
        shape = first.shape
        if kind in _BLOCKED_TARGET:
            shape = (size * shape[0], *shape[1:])
        elif kind in _BLOCKED_SOURCE:
            shape = (shape[0] // size, *shape[1:])
        if reduce:
            out = _reduced(what, first, shape, group, about)
        else:
            out = _exchanged(what, first, np.zeros(shape, x.dtype), group, about)
        return np.moveaxis(out, 0, axis) if x.ndim else out

    return run


def _same(x: Spec, *_before: Spec, group: str) -> Spec:
    return Spec(x.shape, x.dtype)


def _larger(x: Spec, *_before: Spec, group: str, size: int, axis: int) -> Spec:
    _axis_of(x, axis)
    return Spec((*x.shape[:axis], x.shape[axis] * size, *x.shape[axis + 1 :]), x.dtype)


def _smaller(x: Spec, *_before: Spec, group: str, size: int, axis: int) -> Spec:
    _axis_of(x, axis, size)
    return Spec((*x.shape[:axis], x.shape[axis] // size, *x.shape[axis + 1 :]), x.dtype)


def _turned(x: Spec, *before: Spec, group: str, size: int, axes: tuple[int, int]) -> Spec:
    split, joined = axes
    part = _smaller(x, *before, group=group, size=size, axis=split)
    return _larger(part, *before, group=group, size=size, axis=joined)


def _axis_of(x: Spec, axis: int, size: int = 1) -> None:
    if not 0 <= axis < x.ndim:
        raise ShapeError(f"a collective along axis {axis} of shape {x.shape}")
    if x.shape[axis] % size:
        raise ShapeError(f"axis {axis} of shape {x.shape} is not divisible by {size} ranks")


def _op(name: str, infer: Any, eager: Any, grad: Any, promote: Any = None) -> Callable[..., Tensor]:
    return declare(Op(name, Kind.OPAQUE, infer, eager, grad, promote=promote, keeps_bits=True, ordered=True))


def _extreme(g: Tensor, y: Tensor, x: Tensor, group: str) -> tuple[Tensor]:
    """The gradient goes to every element that is the extreme one."""
    return (mul(all_reduce_sum(g, group=group), cast(eq(x, y), dtype=g.dtype)),)


def _summed_back(g: Tensor, _y: Any, _x: Any, group: str) -> tuple[Tensor]:
    return (all_reduce_sum(g, group=group),)


def _to_root(g: Tensor, _y: Any, _x: Any, group: str) -> tuple[Tensor]:
    return (reduce_sum(g, group=group),)


def _from_root(g: Tensor, _y: Any, _x: Any, group: str) -> tuple[Tensor]:
    return (broadcast(g, group=group),)


def _by(inverse: Callable[[], Op]) -> Callable[..., tuple[Tensor]]:
    """The gradient is another collective along the same axis."""
    return lambda g, _y, _x, **params: (apply(inverse(), g, **params),)


def _turned_back(g: Tensor, _y: Any, _x: Any, group: str, size: int, axes: tuple[int, int]) -> tuple[Tensor]:
    return (all_to_all(g, group=group, size=size, axes=axes[::-1]),)


_Function = Callable[..., Tensor]

all_reduce_sum: _Function = _op("all_reduce_sum", _same, _run("all_reduce", "sum"), _summed_back)
all_reduce_max: _Function = _op("all_reduce_max", _same, _run("all_reduce", "max"), _extreme)
all_reduce_min: _Function = _op("all_reduce_min", _same, _run("all_reduce", "min"), _extreme)
broadcast: _Function = _op("broadcast_from_root", _same, _run("broadcast"), _to_root)
reduce_sum: _Function = _op("reduce_sum_to_root", _same, _run("reduce", "sum"), _from_root)
all_gather: _Function = _op("all_gather", _larger, _run("all_gather"), _by(lambda: op_of(reduce_scatter_sum)))
reduce_scatter_sum: _Function = _op(
    "reduce_scatter_sum", _smaller, _run("reduce_scatter", "sum"), _by(lambda: op_of(all_gather))
)
gather: _Function = _op("gather_to_root", _larger, _run("gather"), _by(lambda: op_of(scatter)))
scatter: _Function = _op("scatter_from_root", _smaller, _run("scatter"), _by(lambda: op_of(gather)))
all_to_all: _Function = _op("all_to_all", _turned, _run("all_to_all"), _turned_back)


def _sent(x: Any, *_before: Any, peer: int) -> Any:
    _announce("send", x, peer)
    _exchanged(Collective("send", peer=peer), x, None, "world", f"send to rank {peer}")
    return np.zeros((), np.float32)


def _received(like: Any, *_before: Any, peer: int) -> Any:
    _announce("recv", like, peer)
    out = np.empty(like.shape, like.dtype)
    return _exchanged(Collective("recv", peer=peer), like, out, "world", f"receive from rank {peer}")


def _announce(kind: str, x: Any, peer: int) -> None:
    """Send what comes, or see whether it is what is wanted."""
    mine = f"{x.dtype.name}{list(x.shape)}"
    text = np.frombuffer(mine.encode().ljust(256), np.uint8)
    about = f"{kind} of {mine} with rank {peer}"
    found = _exchanged(Collective(kind, peer=peer), text, np.empty_like(text), "world", about)
    theirs = bytes(found).decode().strip() if kind == "recv" else mine
    if theirs != mine:
        raise CollectiveMismatchError(f"rank {peer} sends {theirs} where {mine} is wanted at {_place()}")


def _received_back(_g: Tensor, _y: Any, x: Tensor, peer: int) -> tuple[Tensor]:
    return (remote_recv(zeros_like(x), peer=peer),)


def _sent_back(g: Tensor, _y: Any, like: Tensor, peer: int) -> tuple[Tensor]:
    remote_send(g, peer=peer)
    return (zeros_like(like),)


def _a_token(_x: Spec, *_before: Spec, peer: int) -> Spec:
    return Spec((), dtypes.float32)


def _alike(like: Spec, *_before: Spec, peer: int) -> Spec:
    return Spec(like.shape, like.dtype)


remote_send: _Function = _op("remote_send", _a_token, _sent, _received_back)
remote_recv: _Function = _op("remote_recv", _alike, _received, _sent_back)
