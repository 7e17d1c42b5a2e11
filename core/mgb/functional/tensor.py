"""Making, joining, cutting and rearranging tensors, under MegEngine's names."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Number
from typing import Any, Literal, overload

from ..errors import ConversionError, ShapeError
from ..ir import dtypes
from ..ir.sizes import indices, same_shape, whole
from ..ops import layout, primitives
from ..ops.creation import (
    Shape,
    arange,
    as_shape,
    eye,
    full,
    full_like,
    is_single,
    linspace,
    ones,
    ones_like,
    zeros,
    zeros_like,
)  # fmt: skip
from ..ops.declare import normalize_axis
from ..ops.getitem import nonzero
from ..ops.index import gather, indexing_one_hot, one_hot, scatter, scatter_add, take
from ..ops.layout import cut_along
from ..ops.methods import flatten, reshaped, transposed
from ..ops.scatter import scatter_reduce
from ..tensor import Tensor
from ..tensor.apply import tensors

__all__ = [
    "arange", "broadcast_to", "cast", "concat", "cond_take", "copy", "dimshuffle", "expand_dims",
    "eye", "flatten", "full", "full_like", "gather", "indexing_one_hot", "linspace", "masked_fill",
    "meshgrid", "moveaxis", "non_zero", "nonzero", "one_hot", "ones", "ones_like", "reshape",
    "scatter", "scatter_add", "scatter_reduce", "split", "squeeze", "stack", "swapaxes", "take",
    "take_along_axis", "transpose", "where", "zeros", "zeros_like",
]  # fmt: skip


def _axis(name: str, axis: int, ndim: int) -> int:
    return normalize_axis(name, axis, ndim)[0]


# another shape or dtype


def cast(inp: Tensor, dtype: Any) -> Tensor:
    """Return the same values as `dtype`.

    Examples
    --------
    >>> F.cast(mgb.tensor([1.9, -1.9]), "int32")
    Tensor([ 1, -1], dtype=int32, device=xpux:0)
    """
    return primitives.cast(inp, dtype=dtypes.as_dtype(dtype))


def copy(inp: Tensor, device: str | None = None) -> Tensor:
    """Return another Tensor of the same value, on `device` if it is given.

    Examples
    --------
    >>> F.copy(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([-1.,  0.,  2.], device=xpux:0)
    """
    return +inp if device is None else inp.to(device)


def reshape(inp: Tensor, target_shape: Shape) -> Tensor:
    """Return the same elements in row-major order under `target_shape`, where one length may be -1.

    Examples
    --------
    >>> F.reshape(mgb.tensor([1, 2, 3, 4]), (2, 2))
    Tensor([[1, 2],
            [3, 4]], dtype=int32, device=xpux:0)
    """
    return reshaped(inp, target_shape)


def broadcast_to(inp: Tensor, shape: Shape) -> Tensor:
    """Return `inp` repeated along new and length-1 axes until it has `shape`, where None keeps a length.

    Examples
    --------
    >>> F.broadcast_to(mgb.tensor([5, -7]), mgb.tensor([3, 2]))
    Tensor([[ 5, -7],
            [ 5, -7],
            [ 5, -7]], dtype=int32, device=xpux:0)
    """
    if isinstance(shape, Sequence):
        own = (*(None,) * (len(shape) - inp.ndim), *inp.shape[-len(shape) :])
        shape = [d if wanted is None else wanted for d, wanted in zip(own, shape)]
        if any(d is None for d in shape):
            raise ShapeError(
                f"broadcast_to: shape has None for a new axis of {inp.shape}: None is only for existing axes"
            )
    return layout.broadcast_to(inp, shape=as_shape(shape, "broadcast_to: shape"))


def expand_dims(inp: Tensor, axis: Shape) -> Tensor:
    """Insert axes of length 1, at `axis` in the result.

    Examples
    --------
    >>> F.expand_dims(mgb.tensor([[1.0, 2.0]]), axis=1).shape
    (1, 1, 2)
    """
    count = 1 if isinstance(axis, int) else len(axis)
    new = normalize_axis("expand_dims", axis, inp.ndim + count)
    lengths = iter(inp.shape)
    shape = tuple(1 if i in new else next(lengths) for i in range(inp.ndim + count))
    return layout.reshape(inp, shape=shape)


def squeeze(inp: Tensor, axis: Shape | None = None) -> Tensor:
    """Remove the axes of length 1 in `axis`; None means all of length 1.

    Raises
    ------
    ShapeError
        An axis is longer than 1.

    Examples
    --------
    >>> F.squeeze(mgb.tensor([[[1.0], [2.0]]])).shape
    (2,)
    """
    if axis is None:
        return layout.reshape(inp, shape=tuple(d for d in inp.shape if d != 1))
    gone = normalize_axis("squeeze", axis, inp.ndim)
    if any(inp.shape[a] != 1 for a in gone):
        raise ShapeError(f"squeeze: an axis of {gone} in shape {inp.shape} is longer than 1")
    return layout.reshape(inp, shape=tuple(d for i, d in enumerate(inp.shape) if i not in gone))


# the order of axes


def dimshuffle(inp: Tensor, pattern: Sequence[Any]) -> Tensor:
    """Return the axes in the order of `pattern`.

    Parameters
    ----------
    inp : Tensor
        The elements.
    pattern : sequence of int or "x"
        An axis of `inp`, or ``"x"`` for a new one of length 1. An axis of length 1 may be left out.

    Raises
    ------
    ShapeError
        A longer axis is left out, or one stands twice.

    Examples
    --------
    >>> F.dimshuffle(F.ones((2, 3)), (1, "x", 0)).shape
    (3, 1, 2)
    """
    kept = [p for p in pattern if p != "x"]
    order = [_axis("dimshuffle", whole(a, "dimshuffle: each axis"), inp.ndim) for a in kept]
    dropped = [i for i in range(inp.ndim) if i not in order]
    if len(set(order)) != len(order) or any(inp.shape[i] != 1 for i in dropped):
        raise ShapeError(f"dimshuffle: the pattern {tuple(pattern)} does not fit {inp.shape}")
    moved = layout.transpose(inp, axes=(*order, *dropped))
    lengths = iter(inp.shape[i] for i in order)
    shape = tuple(1 if p == "x" else next(lengths) for p in pattern)
    return moved if shape == moved.shape else layout.reshape(moved, shape=shape)


def transpose(inp: Tensor, pattern: Sequence[Any] | None = None) -> Tensor:
    """Return the axes in the order of `pattern`, see `dimshuffle`; without one, reversed.

    Examples
    --------
    >>> F.transpose(mgb.tensor([[1.0, 2.0], [4.0, 3.0]]), (1, 0))
    Tensor([[1., 4.],
            [2., 3.]], device=xpux:0)
    """
    return transposed(inp) if pattern is None else dimshuffle(inp, pattern)


def swapaxes(inp: Tensor, axis1: int, axis2: int) -> Tensor:
    """Return `axis1` and `axis2` exchanged.

    Examples
    --------
    >>> F.swapaxes(F.ones((2, 3)), 0, 1).shape
    (3, 2)
    """
    order = list(range(inp.ndim))
    a, b = _axis("swapaxes", axis1, inp.ndim), _axis("swapaxes", axis2, inp.ndim)
    order[a], order[b] = b, a
    return layout.transpose(inp, axes=tuple(order))


def moveaxis(inp: Tensor, source: Shape, destination: Shape) -> Tensor:
    """Return the axes in `source` moved to `destination`; the others keep their order.

    Examples
    --------
    >>> F.moveaxis(F.ones((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    moved = [_axis("moveaxis", a, inp.ndim) for a in as_shape(source, "moveaxis: source")]
    places = [_axis("moveaxis", a, inp.ndim) for a in as_shape(destination, "moveaxis: destination")]
    if len(moved) != len(places) or len(set(moved)) != len(moved) or len(set(places)) != len(places):
        raise ShapeError(f"moveaxis: cannot move axes {source} to {destination}")
    at = dict(zip(places, moved))
    rest = iter(i for i in range(inp.ndim) if i not in moved)
    return layout.transpose(inp, axes=tuple(at[i] if i in at else next(rest) for i in range(inp.ndim)))


# joining and cutting


def concat(inps: Sequence[Any], axis: int = 0, device: str | None = None) -> Tensor:
    """Return the tensors one after another along `axis`.

    Parameters
    ----------
    inps : sequence of Tensor
        Of one shape, except along `axis`; dtypes are promoted. A Python number is a vector of one element.
    axis : int
        Along which they are joined.
    device : str, optional
        Where they are moved first.

    Raises
    ------
    ShapeError
        The shapes differ.

    Examples
    --------
    >>> F.concat([mgb.tensor([1.0, 2.0]), mgb.tensor([3.0])])
    Tensor([1., 2., 3.], device=xpux:0)
    """
    if not len(inps):
        raise ShapeError("concat: needs at least one array, got an empty list")
    parts = tensors("concat", [[x] if isinstance(x, Number) else x for x in inps])
    parts = tuple(x.to(device) for x in parts) if device is not None else parts
    return layout.concat(*parts, axis=_axis("concat", axis, parts[0].ndim))


def stack(inps: Sequence[Any], axis: int = 0, device: str | None = None) -> Tensor:
    """Return the tensors, all of one shape, side by side along a new `axis`.

    Examples
    --------
    >>> F.stack([mgb.tensor([1.0, 2.0]), mgb.tensor([3.0, 4.0])], axis=1)
    Tensor([[1., 3.],
            [2., 4.]], device=xpux:0)
    """
    parts = tensors("stack", inps) if len(inps) else ()
    if not parts:
        raise ShapeError("stack: inps must hold at least one array, got none")
    if any(not same_shape(x.shape, parts[0].shape) for x in parts):
        raise ShapeError(
            f"stack: all arrays must have the same shape, got {', '.join(str(x.shape) for x in parts)}"
        )
    place = _axis("stack", axis, parts[0].ndim + 1)
    return concat([expand_dims(x, place) for x in parts], place, device)


def split(inp: Tensor, nsplits_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """Return `inp` cut along `axis`.

    Parameters
    ----------
    inp : Tensor
        The elements.
    nsplits_or_sections : int, sequence of int, or an integer Tensor of 0 axes or 1
        Into how many parts, of which the first are longer by one where they cannot be equal; or at which
        places.
    axis : int
        Which axis is cut.

    Raises
    ------
    ShapeError
        There are fewer elements than parts.

    Examples
    --------
    >>> [part.tolist() for part in F.split(mgb.tensor([1, 2, 3, 4]), 2)]
    [[1, 2], [3, 4]]
    """
    place = _axis("split", axis, inp.ndim)
    length = inp.shape[place]
    if is_single(nsplits_or_sections):
        parts = whole(nsplits_or_sections, "split: nsplits_or_sections")
        if not 1 <= parts <= length:
            raise ShapeError(
                f"split: cannot split axis {place} of shape {inp.shape} into {parts} parts (valid: "
                f"1..{length})"
            )
        each, longer = divmod(length, parts)
        cuts = [i * each + (i if i < longer else longer) for i in range(1, parts)]
    else:
        cuts = [
            indices(slice(whole(c, "split: nsplits_or_sections, each")), length)[1]
            for c in nsplits_or_sections
        ]
    return [cut_along(inp, place, a, max(a, b)) for a, b in zip([0, *cuts], [*cuts, length])]


# choosing


@overload
def where(mask: Any) -> tuple[Tensor, ...]: ...
@overload
def where(mask: Any, x: Any, y: Any) -> Tensor: ...
def where(mask: Any, x: Any = None, y: Any = None) -> Tensor | tuple[Tensor, ...]:
    """Return `x` where `mask` holds, `y` elsewhere; of a `mask` alone, ``non_zero(mask, as_tuple=True)``.

    Raises
    ------
    ConversionError
        `mask` is not of bools.
    TypeError
        One of `x` and `y` is left out.

    Examples
    --------
    >>> F.where(mgb.tensor([True, False]), mgb.tensor([1.0, 2.0]), mgb.tensor([3.0, 4.0]))
    Tensor([1., 4.], device=xpux:0)
    """
    if x is None and y is None:
        return nonzero(mask)
    if x is None or y is None:
        missing = "x" if x is None else "y"
        raise TypeError(
            f"where: {missing} is missing; give both x and y, or neither for where the mask holds"
        )
    if isinstance(mask, Tensor) and mask.dtype != dtypes.bool_:
        raise ConversionError(f"where: the mask must be of bools, got {mask.dtype}; write mask != 0")
    return primitives.where(mask, x, y)


def masked_fill(inp: Tensor, mask: Tensor, value: float) -> Tensor:
    """Return `value` where `mask` holds, `inp` elsewhere; the dtype is that of `inp`.

    Examples
    --------
    >>> F.masked_fill(mgb.tensor([1.0, 2.0]), mgb.tensor([True, False]), 9.0)
    Tensor([9., 2.], device=xpux:0)
    """
    return where(mask, full((), value, inp.dtype, inp.device), inp)


def cond_take(mask: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the elements of `x` where `mask` holds, and their places in the flattened `x`.

    The shape depends on the values of `mask`: inside a trace they are read.

    Returns
    -------
    values, indices : Tensor of shape (n,)
        The indices are int32.

    Raises
    ------
    ShapeError
        The shapes differ.
    ConversionError
        `mask` is not of bools.

    Examples
    --------
    >>> values, places = F.cond_take(mgb.tensor([True, False, True]), mgb.tensor([1.0, 2.0, 3.0]))
    >>> values.tolist(), places.tolist()
    ([1.0, 3.0], [0, 2])
    """
    if mask.shape != x.shape:
        raise ShapeError(f"cond_take: the mask has shape {mask.shape}, x has {x.shape}")
    if mask.dtype != dtypes.bool_:
        raise ConversionError(f"cond_take: the mask must be of bools, got {mask.dtype}; write mask != 0")
    (places,) = nonzero(flatten(mask))
    return take(x, places), places


def non_zero(condition: Tensor, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """Return the indices of what is not 0: one row for each, or, `as_tuple`, one Tensor for each axis.

    Examples
    --------
    >>> [part.tolist() for part in F.non_zero(mgb.tensor([0.0, 5.0, 7.0]), as_tuple=True)]
    [[1, 2]]
    """
    found = nonzero(condition)
    return found if as_tuple else stack(found, 1)


def take_along_axis(inp: Tensor, indices: Tensor, axis: int) -> Tensor:
    """Return `gather` in NumPy's argument order; lengths of 1 beside `axis` broadcast.

    Examples
    --------
    >>> F.take_along_axis(mgb.tensor([[1, 2], [3, 4]]), mgb.tensor([[1], [0]]), 1)
    Tensor([[2],
            [3]], dtype=int32, device=xpux:0)
    """
    place = _axis("take_along_axis", axis, inp.ndim)
    inp_to, index_to = list(inp.shape), list(indices.shape)
    for i in range(inp.ndim):
        if i != place:
            inp_to[i] = index_to[i] = max(inp.shape[i], indices.shape[i])
    return gather(broadcast_to(inp, inp_to), place, broadcast_to(indices, index_to))


def meshgrid(*inputs: Tensor, indexing: Literal["xy", "ij"] = "xy") -> tuple[Tensor, ...]:
    """Return the coordinates of a grid from those of its axes.

    Parameters
    ----------
    *inputs : Tensor of shape (n_i,)
        The coordinates along each axis.
    indexing : str
        ``ij``: axis i of the result belongs to input i. ``xy``: the first two are exchanged.

    Examples
    --------
    >>> [part.tolist() for part in F.meshgrid(mgb.tensor([1, 2]), mgb.tensor([3, 4]))]
    [[[1, 2], [1, 2]], [[3, 3], [4, 4]]]
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing is 'xy' or 'ij', not {indexing!r}")
    inputs = tensors("meshgrid", inputs)
    order = list(range(len(inputs)))
    if indexing == "xy" and len(inputs) > 1:
        order[:2] = 1, 0
    shape = tuple(inputs[i].size for i in order)
    columns = [tuple(x.size if i == j else 1 for j in order) for i, x in enumerate(inputs)]
    return tuple(broadcast_to(layout.reshape(x, shape=c), shape) for x, c in zip(inputs, columns))
