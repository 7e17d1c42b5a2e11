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

from ..errors import ArgumentError, ConversionError, MeshError, ShapeError
from ..ir import Kind, Op, Spec, dtypes
from ..ops.declare import declare
from ..ops.layout import reshape
from ..ops.primitives import cast, eq, mul
from ..runtime import memory
from ..tensor import Tensor
from ..tensor.apply import caller
from .communicator import Collective
from .exchange import Exchange
from .group import MESH
from .world import world

#: What all ranks get alike.
_COMMON = frozenset(
    [*(f"all_reduce_{how}" for how in ("sum", "max", "min", "packed")), "broadcast_from_root", "all_gather"]
)
_BLOCKED_TARGET = frozenset({"all_gather", "gather"})
_BLOCKED_SOURCE = frozenset({"reduce_scatter", "scatter"})


def place_of_user() -> str:
    """Return the user's line: that of an op of a program stands in the text of the program."""
    file, _, line = caller().rpartition(":")
    noted = linecache.getline(file, int(line)).partition("  # ")[2].strip() if file.startswith("<") else ""
    return noted or f"{file}:{line}"


def begun(what: Collective, source: Any, target: Any, group: str, about: str) -> Exchange:
    """Begin an exchange of row-major arrays, bytes where nothing is reduced."""
    if not what.reduce:
        source, target = (None if a is None else a.reshape(-1).view(np.uint8) for a in (source, target))
    return world().begin(group, what, source, target, about, f" at {place_of_user()}")


def taken(x: Any, about: str) -> Any:
    """Return `x`, if it is an array that the communicator takes."""
    on_cpu, devices = isinstance(x, np.ndarray | np.generic), world().communicator.devices
    if ("cpu" if on_cpu else "gpu") not in devices:
        which, other = ("CPU", "cpu0") if "cpu" in devices else ("GPU", "gpu0")
        raise ArgumentError(
            f"{about}: this communicator takes arrays of the {which}; move them with .to({other!r})"
        )
    return np.asarray(x) if on_cpu else x


def empty_beside(x: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an array where `x` is."""
    on_cpu = isinstance(x, np.ndarray | np.generic)
    return memory.empty(shape, dtype) if on_cpu else np.empty_like(x, shape=shape, dtype=dtype)


def _is_root(what: Collective, group: str) -> bool:
    return world().rank == world().line(group).ranks[what.peer]


def _ordered_bits(x: Any, nan: int) -> Any:
    """Return integers in the order of floats; `nan` for each NaN."""
    whole = np.dtype(f"int{8 * x.dtype.itemsize}")
    bits = np.atleast_1d(x).view(whole).reshape(x.shape)
    return np.where(np.isnan(x), nan, np.where(bits < 0, bits ^ np.iinfo(whole).max, bits)).astype(whole)


def _code(reduce: str, dtype: np.dtype[Any]) -> tuple[np.dtype[Any], Any, Any]:
    """Return a dtype that every communicator reduces, and what leads there and back; None: a cast does."""
    if dtype in dtypes.HALVES:
        wide, there, back = _code(reduce, dtypes.float32)
        return (
            wide,
            there and (lambda x: there(x.astype(np.float32))),
            back and (lambda x: back(x).astype(dtype)),
        )
    if dtype == dtypes.bool_:
        return np.dtype(np.uint8), None, None
    if reduce == "sum" or dtype not in dtypes.FLOATS:
        return dtype, None, None
    info = np.iinfo(f"int{8 * dtype.itemsize}")
    nan = info.max if reduce == "max" else info.min

    def floats(found: Any) -> Any:
        return np.where(found < 0, found ^ info.max, found).astype(info.dtype).view(dtype)

    return np.dtype(info.dtype), (lambda x: _ordered_bits(x, nan)), floats


class Begun:
    """An exchange under way, and what makes the result of its target."""

    def __init__(self, exchange: Exchange, result: Callable[[], Any]) -> None:
        self._exchange, self._result = exchange, result

    def test(self) -> bool:
        """Return whether it is done. All that are under way go on."""
        return world().test(self._exchange)

    def finish(self) -> Any:
        """Return the result, when it is done."""
        world().finish(self._exchange)
        return self._result()


def _summed(reduce: str) -> Callable[..., Begun]:
    """Return a function that starts to reduce arrays, joined in one buffer; a single one keeps its shape."""

    def begin(*arrays: Any, group: str, number: int = 0) -> Begun:
        xs = arrays[: number or 1]  # what follows is not an operand
        dtype, shape = xs[0].dtype, xs[0].shape if not number else (sum(x.size for x in xs),)
        about = f"all_reduce_{reduce} of {dtype.name}{list(shape)}"
        wide, there, back = _code(reduce, dtype)
        target, end = empty_beside(xs[0], (sum(x.size for x in xs),), wide), 0
        for x in xs:
            x = taken(x, about).reshape(-1)
            target[end : end + x.size] = x if there is None else there(x)
            end += x.size

        def result() -> Any:
            found = target if back is None else back(target)
            return found.reshape(shape).astype(dtype, copy=False)

        return Begun(begun(Collective("all_reduce", reduce), None, target, group, about), result)

    return begin


def _run(kind: str, reduce: str = "") -> Callable[..., Any]:
    """Return the eager rule of a collective."""

    def run(x: Any, *_before: Any, group: str, size: int = 1, axis: int = 0, axes: Any = None) -> Any:
        what = Collective(kind, reduce)
        about = f"{kind}{'_' * bool(reduce)}{reduce} of {x.dtype.name}{list(x.shape)}"
        about += f" along {axes or axis}" if size > 1 or axes else ""
        x = taken(x, about)
        if axes is not None:
            blocks = np.stack(np.split(x, size, axes[0]))
            found = _exchanged(what, blocks, blocks.shape, group, about)
            return np.concatenate(list(found), axes[1])
        first = np.moveaxis(x, axis, 0) if x.ndim else x
        shape = first.shape
        if kind in _BLOCKED_TARGET:
            shape = (size * shape[0], *shape[1:])
        elif kind in _BLOCKED_SOURCE:
            shape = (shape[0] // size, *shape[1:])
        out = _exchanged(what, first, shape, group, about)
        return np.moveaxis(out, 0, axis) if x.ndim else out

    return run


def _exchanged(what: Collective, x: Any, shape: tuple[int, ...], group: str, about: str) -> Any:
    """Make an exchange, and give its target; zeros where nothing comes."""
    wide, there, back = _code(what.reduce, x.dtype) if what.reduce else (x.dtype, None, None)
    source = (x if there is None else there(x)).astype(wide, order="C", copy=False)
    target = np.zeros_like(source, shape=shape)
    is_root = _is_root(what, group)
    if what.kind == "broadcast" and is_root:
        target[...] = source
    gives = what.kind != "broadcast" and (what.kind != "scatter" or is_root)
    gets = what.kind not in ("reduce", "gather") or is_root
    world().finish(begun(what, source if gives else None, target if gets else None, group, about))
    return (target if back is None else back(target)).astype(x.dtype, copy=False)


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
        raise ShapeError(f"axis {axis} is out of range for a collective of shape {x.shape}")
    if x.shape[axis] % size:
        raise ShapeError(f"axis {axis} of shape {x.shape} is not divisible by {size} ranks")


def _joined(x: Spec, *more: Spec, group: str, number: int) -> Spec:
    xs = (x, *more)[:number]
    if any(other.dtype != x.dtype for other in xs):
        raise ConversionError(
            "a packed collective needs arrays of one dtype, got "
            f"{', '.join(other.dtype.name for other in xs)}"
        )
    return Spec((sum(other.size for other in xs),), x.dtype)


def _op(
    name: str, infer: Any, eager: Any, grad: Any, meaning: str, begin: Any = None
) -> Callable[..., Tensor]:
    fields: dict[str, Any] = {"keeps_bits": True, "meaning": meaning}
    between = declare(Op(name, Kind.OPAQUE, infer, eager, grad, ordered=True, begin=begin, **fields))
    alike = f"As ``{name}``, between the devices of the mesh that `group` names."
    over_mesh = _over_mesh(name, infer, grad, alike, name in _COMMON)

    def function(*xs: Any, group: str, **params: Any) -> Tensor:
        return (over_mesh if group.startswith(MESH) else between)(*xs, group=group, **params)

    return function


def _over_mesh(name: str, infer: Any, grad: Any, meaning: str, common: bool = False) -> Callable[..., Tensor]:
    """Reduce between the devices of a mesh: one program orders it, so that it need not be `ordered`."""

    def cut_out(*_xs: Any, group: str, **_params: Any) -> Any:
        raise MeshError(
            f"{name} between the devices of a {group} stands outside of the executable: the backend has no "
            "meshes, or computes what is around it op by op"
        )

    fields: dict[str, Any] = {"keeps_bits": True, "over_mesh": True, "common": common}
    return declare(Op(f"mesh_{name}", Kind.OPAQUE, infer, cut_out, grad, meaning=meaning, **fields))


def _all_reduce(name: str, infer: Any, reduce: str, grad: Any, meaning: str) -> Callable[..., Tensor]:
    begin = _summed(reduce)
    return _op(name, infer, lambda *xs, **params: begin(*xs, **params).finish(), grad, meaning, begin)


def _extreme(g: Tensor, y: Tensor, x: Tensor, group: str) -> tuple[Tensor]:
    """Give the gradient to every element that is the extreme one."""
    return (mul(all_reduce_sum(g, group=group), cast(eq(x, y), dtype=g.dtype)),)


def _summed_back(g: Tensor, _y: Any, _x: Any, group: str) -> tuple[Tensor]:
    return (all_reduce_sum(g, group=group),)


def _cut_back(g: Tensor, _y: Any, *xs: Any, group: str, number: int) -> list[Tensor]:
    summed, grads, end = all_reduce_sum(g, group=group), list[Tensor](), 0
    for x in xs[:number]:
        grads.append(reshape(summed[end : end + x.size], shape=x.shape))
        end += x.size
    return grads


def _to_root(g: Tensor, _y: Any, _x: Any, group: str) -> tuple[Tensor]:
    return (reduce_sum(g, group=group),)


def _from_root(g: Tensor, _y: Any, _x: Any, group: str) -> tuple[Tensor]:
    return (broadcast(g, group=group),)


def _by(inverse: Callable[[], Callable[..., Tensor]]) -> Callable[..., tuple[Tensor]]:
    """Return the gradient: another collective along the same axis."""
    return lambda g, _y, _x, **params: (inverse()(g, **params),)


def _turned_back(g: Tensor, _y: Any, _x: Any, group: str, size: int, axes: tuple[int, int]) -> tuple[Tensor]:
    return (all_to_all(g, group=group, size=size, axes=axes[::-1]),)


Function = Callable[..., Tensor]

all_reduce_sum: Function = _all_reduce(
    "all_reduce_sum", _same, "sum", _summed_back,
    "The sum over the ranks of `group`, for each of them.",
)  # fmt: skip
all_reduce_max: Function = _all_reduce(
    "all_reduce_max", _same, "max", _extreme,
    "The greatest over the ranks of `group`, for each of them.",
)  # fmt: skip
all_reduce_min: Function = _all_reduce(
    "all_reduce_min", _same, "min", _extreme,
    "The least over the ranks of `group`, for each of them.",
)  # fmt: skip
all_reduce_packed: Function = _all_reduce(
    "all_reduce_packed", _joined, "sum", _cut_back,
    "The sum over the ranks of `group` of the first `number` operands, one after the other on one axis.",
)  # fmt: skip
broadcast: Function = _op(
    "broadcast_from_root", _same, _run("broadcast"), _to_root,
    "The `x` of the first rank of `group`, for each of them.",
)  # fmt: skip
reduce_sum: Function = _op(
    "reduce_sum_to_root", _same, _run("reduce", "sum"), _from_root,
    "The sum over the ranks of `group`, for the first of them; zeros for the others.",
)  # fmt: skip
all_gather: Function = _op(
    "all_gather", _larger, _run("all_gather"), _by(lambda: reduce_scatter_sum),
    "The `x` of all `size` ranks of `group` one after the other along `axis`, for each of them.",
)  # fmt: skip
reduce_scatter_sum: Function = _op(
    "reduce_scatter_sum", _smaller, _run("reduce_scatter", "sum"), _by(lambda: all_gather),
    "Of the sum over the `size` ranks of `group`, cut into as many parts along `axis`, each rank's own part.",
)  # fmt: skip
gather: Function = _op(
    "gather_to_root", _larger, _run("gather"), _by(lambda: scatter),
    "As ``all_gather``, for the first rank of `group`; zeros for the others.",
)  # fmt: skip
scatter: Function = _op(
    "scatter_from_root", _smaller, _run("scatter"), _by(lambda: gather),
    "Of the `x` of the first rank of `group`, cut into `size` parts along `axis`, each rank's own part.",
)  # fmt: skip
all_to_all: Function = _op(
    "all_to_all", _turned, _run("all_to_all"), _turned_back,
    "`x` is cut into `size` parts along the first of `axes`, one for each rank of `group`; what comes from "
    "them stands one after the other along the second.",
)  # fmt: skip

mesh_part: Function = _over_mesh(
    "part", _smaller, _by(lambda: mesh_whole),
    "`x` is cut into `size` parts along `axis`, one for each device of the mesh that `group` names; its own.",
)  # fmt: skip
mesh_whole: Function = _over_mesh(
    "whole", _larger, _by(lambda: mesh_part),
    "Zeros, `size` times as long as `x` along `axis`, but for the device's own part, which is `x`.",
)  # fmt: skip
