"""Indexing by arrays: the opaque ops, their compositions, and one-hot encoding.

Results and gradients follow NumPy: an index that stands twice is read twice and added to twice, and of two
assignments through it the last one stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ConversionError, ShapeError
from ..ir import Kind, Op, Spec, dtypes
from ..ir.sizes import amount, count
from ..tensor import Tensor
from .creation import along, zeros_like
from .declare import broadcast_shapes, declare, normalize_axis
from .eager import add_at, add_to_rows
from .eager import take as eager_take
from .layout import Window, reshape, slice_, slices
from .primitives import cast, eq, where
from .reduce import reduce_sum

Axes = tuple[int, ...]


# arrays along some axes


def _like_first(operands: Sequence[dtypes.Operand]) -> Sequence[np.dtype[Any]]:
    """Return dtypes that store a value in that of its target; indices stay as they are."""
    first = dtypes.common(operands[:1])
    return (first, first, *(dtypes.common([d]) for d in operands[2:]))


def _rest(shape: Sequence[int], axes: Axes) -> tuple[int, ...]:
    return tuple(d for i, d in enumerate(shape) if i not in axes)


def selected(name: str, x: Any, indices: Sequence[Any], axes: Axes, place: int) -> tuple[int, ...]:
    """Return the shape of what `indices` along `axes` select of `x`; they are specs or Tensors."""
    for index in indices:
        if index.dtype not in dtypes.INTEGERS:
            raise IndexError(f"{name}: arrays used as indices must be of an integer type, got {index.dtype}")
    rest = _rest(x.shape, axes)
    return (*rest[:place], *broadcast_shapes(name, *(i.shape for i in indices)), *rest[place:])


def _get_infer(x: Spec, *indices: Spec, axes: Axes, place: int) -> Spec:
    return Spec(selected("index_get", x, indices, axes, place), x.dtype)


def _key(ndim: int, indices: Sequence[Any], axes: Axes) -> tuple[Any, ...]:
    at = dict(zip(axes, indices, strict=True))
    return tuple(at.get(i, slice(None)) for i in range(ndim))


def _moves(indices: Sequence[Any], axes: Axes, place: int) -> tuple[range, range]:
    """Return where NumPy puts the axes of the indices, and where `place` requires them."""
    ndim = max(i.ndim for i in indices)
    given = axes[0] if axes[-1] - axes[0] + 1 == len(axes) else 0
    return range(given, given + ndim), range(place, place + ndim)


def _get(x: Any, *indices: Any, axes: Axes, place: int) -> Any:
    if axes == (place,):  # behind the first axis 25 times as fast as by square brackets
        return eager_take(x, indices[0], place)
    given, wanted = _moves(indices, axes, place)
    out = x[_key(x.ndim, indices, axes)]
    return out if given == wanted else np.copy(np.moveaxis(out, given, wanted), order="C")


def _get_grad(
    g: Tensor, _y: Spec, _x: Spec, *indices: Tensor, axes: Axes, place: int
) -> tuple[Tensor | None, ...]:
    return (index_add(zeros_like(_x), g, *indices, axes=axes, place=place), *(None for _ in indices))


index_get = declare(
    Op(
        "index_get",
        Kind.OPAQUE,
        _get_infer,
        _get,
        _get_grad,
        cost=lambda _node: 0,
        picks=True,
        meaning="`x` indexed by integer arrays along `axes`. They broadcast against each other; their axes "
        "stand at `place` among the remaining axes of `x`. Negative ones count from the end; one that is out "
        "of range is an IndexError.",
    )
)


def _put_infer(x: Spec, value: Spec, *indices: Spec, axes: Axes, place: int) -> Spec:
    shape = selected("index_set", x, indices, axes, place)
    if broadcast_shapes("index_set", value.shape, shape) != shape:
        raise ShapeError(f"index_set: a value of shape {value.shape} does not broadcast to {shape}")
    return Spec(x.shape, x.dtype)


def _placed(x: Any, value: Any, indices: Sequence[Any], axes: Axes, place: int) -> Any:
    """Return `value` with its axes where NumPy wants them for an assignment."""
    given, wanted = _moves(indices, axes, place)
    if given == wanted:
        return value
    ndim = x.ndim - len(axes) + len(wanted)
    value = value.reshape((1,) * (ndim - value.ndim) + value.shape)
    return np.moveaxis(value, wanted, given)


def _set(x: Any, value: Any, *indices: Any, axes: Axes, place: int) -> Any:
    out = x.copy()
    out[_key(x.ndim, indices, axes)] = _placed(x, value, indices, axes, place)
    return out


def _set_grad(
    g: Tensor, _y: Spec, _x: Spec, _value: Spec, *indices: Tensor, axes: Axes, place: int
) -> tuple[Tensor | None, ...]:
    kept = index_set(g, 0, *indices, axes=axes, place=place)
    return (kept, index_get(g, *indices, axes=axes, place=place), *(None for _ in indices))


index_set = declare(
    Op(
        "index_set",
        Kind.OPAQUE,
        _put_infer,
        _set,
        _set_grad,
        promote=_like_first,
        cost=lambda _node: 0,
        meaning="`x` with `value` at ``index_get(x, *indices, ...)``; of a place that stands several times "
        "the last.",
    )
)


def _add(x: Any, value: Any, *indices: Any, axes: Axes, place: int) -> Any:
    if axes == (0,) and place == 0:
        return add_to_rows(x, indices[0], value)
    return add_at(x, _key(x.ndim, indices, axes), _placed(x, value, indices, axes, place))


def _add_grad(
    g: Tensor, _y: Spec, _x: Spec, _value: Spec, *indices: Tensor, axes: Axes, place: int
) -> tuple[Tensor | None, ...]:
    return (g, index_get(g, *indices, axes=axes, place=place), *(None for _ in indices))


index_add = declare(
    Op(
        "index_add",
        Kind.OPAQUE,
        _put_infer,
        _add,
        _add_grad,
        promote=_like_first,
        meaning="As ``index_set``, but adds, several times where a place stands several times.",
    )
)


# a window


def _slice_set_infer(x: Spec, value: Spec, window: Window) -> Spec:
    shape = tuple(count(*w) for w in window)
    if broadcast_shapes("slice_set", value.shape, shape) != shape:
        raise ShapeError(f"slice_set: a value of shape {value.shape} does not broadcast to {shape}")
    return Spec(x.shape, x.dtype)


def _slice_set(x: Any, value: Any, window: Window) -> Any:
    out = x.copy()
    out[slices(window)] = value
    return out


def _slice_set_grad(g: Tensor, _y: Spec, _x: Spec, _value: Spec, window: Window) -> tuple[Tensor, Tensor]:
    return slice_set(g, 0, window=window), slice_(g, window=window)


slice_set = declare(
    Op(
        "slice_set",
        Kind.OPAQUE,
        _slice_set_infer,
        _slice_set,
        _slice_set_grad,
        promote=_like_first,
        cost=lambda _node: 0,
        parts=lambda _x, _value, window: (None, window),
        meaning="`x` with `value` in a window of ranges.",
    )
)


# one index for each element of the result


def _grid(index: Any, axis: int) -> tuple[Any, ...]:
    """Return `index` along `axis` and each element's own place along the other axes."""
    counts = (
        np.arange(d, like=index).reshape(-1, *(1,) * (index.ndim - 1 - i)) for i, d in enumerate(index.shape)
    )
    return tuple(index if i == axis else count for i, count in enumerate(counts))


def _check_gather(name: str, x: Any, index: Any, axis: int) -> None:
    """Check `x` and `index`, which are specs or arrays."""
    if index.dtype not in dtypes.INTEGERS:
        raise IndexError(f"{name}: the index must be of an integer type, got {index.dtype}")
    if x.ndim != index.ndim or any(
        i > d for d, i in zip(_rest(x.shape, (axis,)), _rest(index.shape, (axis,)))
    ):
        raise ShapeError(f"{name}: an index of shape {index.shape} does not fit {x.shape} beside axis {axis}")


def _gather_infer(x: Spec, index: Spec, axis: int) -> Spec:
    _check_gather("gather", x, index, axis)
    return Spec(index.shape, x.dtype)


def _gather(x: Any, index: Any, axis: int) -> Any:
    _check_gather("gather", x, index, axis)
    return x[_grid(index, axis)]


def _gather_grad(g: Tensor, _y: Spec, _x: Spec, index: Tensor, axis: int) -> tuple[Tensor | None, None]:
    return scatter_add_(zeros_like(_x), g, index, axis=axis), None


gather_ = declare(
    Op(
        "gather",
        Kind.OPAQUE,
        _gather_infer,
        _gather,
        _gather_grad,
        cost=lambda _node: 0,
        picks=True,
        meaning="``out[i][j] = x[index[i][j]][j]`` for axis 0, and so on.",
    )
)


def _check_scatter(x: Any, value: Any, index: Any, axis: int) -> None:
    _check_gather("scatter", x, index, axis)
    if value.shape != index.shape:
        raise ShapeError(f"scatter: the source has shape {value.shape}, the index {index.shape}")


def _scatter_infer(x: Spec, value: Spec, index: Spec, axis: int) -> Spec:
    _check_scatter(x, value, index, axis)
    return Spec(x.shape, x.dtype)


def _scatter(x: Any, value: Any, index: Any, axis: int) -> Any:
    _check_scatter(x, value, index, axis)
    out = x.copy()
    out[_grid(index, axis)] = value
    return out


def _scatter_grad(
    g: Tensor, _y: Spec, _x: Spec, _value: Spec, index: Tensor, axis: int
) -> tuple[Tensor | None, ...]:
    return scatter_(g, zeros_like(_value), index, axis=axis), gather_(g, index, axis=axis), None


def _scatter_add(x: Any, value: Any, index: Any, axis: int) -> Any:
    _check_scatter(x, value, index, axis)
    rest = zip(index.shape[1:], index.strides[1:], strict=True)
    if (
        index.size
        and axis == 0
        and index.shape[1:] == x.shape[1:]
        and all(step == 0 or d == 1 for d, step in rest)
    ):
        return add_to_rows(x, index[(slice(None), *(0,) * (x.ndim - 1))], value)  # one place for a whole row
    return add_at(x, _grid(index, axis), value)


def _scatter_add_grad(
    g: Tensor, _y: Spec, _x: Spec, _value: Spec, index: Tensor, axis: int
) -> tuple[Tensor | None, ...]:
    return g, gather_(g, index, axis=axis), None


scatter_ = declare(
    Op(
        "scatter",
        Kind.OPAQUE,
        _scatter_infer,
        _scatter,
        _scatter_grad,
        promote=_like_first,
        cost=lambda _node: 0,
        meaning="`x` with `value` where ``gather(x, index, axis=)`` reads; of several the last.",
    )
)
scatter_add_ = declare(
    Op(
        "scatter_add",
        Kind.OPAQUE,
        _scatter_infer,
        _scatter_add,
        _scatter_add_grad,
        promote=_like_first,
        meaning="As ``scatter``, but adds, several times where a place stands several times.",
    )
)


# labels


def _labels(x: Any, count: int) -> Any:
    if isinstance(x, np.ndarray) and x.size:
        least, greatest = int(x.min()), int(x.max())
        if least < 0 or greatest >= count:
            wrong = least if least < 0 else greatest
            raise IndexError(f"label {wrong} is out of range for {count} classes (valid: 0..{count - 1})")
    return x


labels = declare(
    Op(
        "labels",
        Kind.OPAQUE,
        lambda x, count: x,
        _labels,
        body=lambda x, count: cast(x, dtype=x.dtype),
        differentiable=False,
        meaning="`x` itself, which is refused unless all its elements are from 0 to ``count - 1``. A GPU "
        "is not waited for, and a compiler that takes whole programs cannot refuse: its word is "
        "the body.",
    )
)


# what users call


def _one_axis(name: str, axis: int, ndim: int) -> int:
    return normalize_axis(name, axis, ndim)[0]


def gather(inp: Tensor, axis: int, index: Tensor) -> Tensor:
    """Read one element of `inp` for each element of `index`, along `axis`.

    Parameters
    ----------
    inp : Tensor
        The elements.
    axis : int
        Along which `index` counts.
    index : integer Tensor
        As many axes as `inp`, and nowhere longer, except along `axis`.

    Returns
    -------
    Tensor of the shape of `index`

    Raises
    ------
    IndexError
        An index is out of range.

    Examples
    --------
    >>> F.gather(mgb.tensor([[1, 2], [3, 4]]), 1, mgb.tensor([[0], [1]]))
    Tensor([[1],
            [4]], dtype=int32, device=xpux:0)
    """
    return gather_(inp, index, axis=_one_axis("gather", axis, inp.ndim))


def scatter(inp: Tensor, axis: int, index: Tensor, source: Tensor) -> Tensor:
    """Return `inp` with the elements of `source` written where ``gather(inp, axis, index)`` reads.

    Examples
    --------
    >>> F.scatter(F.zeros((3,)), 0, mgb.tensor([2, 0]), mgb.tensor([5.0, 7.0]))
    Tensor([7., 0., 5.], device=xpux:0)
    """
    return scatter_(inp, source, index, axis=_one_axis("scatter", axis, inp.ndim))


def scatter_add(inp: Tensor, axis: int, index: Tensor, source: Tensor) -> Tensor:
    """Return `inp` with the elements of `source` added where ``gather(inp, axis, index)`` reads.

    Examples
    --------
    >>> F.scatter_add(F.zeros((2,)), 0, mgb.tensor([1, 1]), mgb.tensor([5.0, 7.0]))
    Tensor([ 0., 12.], device=xpux:0)
    """
    return scatter_add_(inp, source, index, axis=_one_axis("scatter_add", axis, inp.ndim))


def take(inp: Tensor, indices: Any, axis: int | None = None) -> Tensor:
    """Return the slices of `inp` along `axis` at `indices`; without `axis`, of the flattened `inp`.

    Examples
    --------
    >>> F.take(mgb.tensor([5.0, 6.0, 7.0]), mgb.tensor([2, 0]))
    Tensor([7., 5.], device=xpux:0)
    """
    if axis is None:
        inp, axis = reshape(inp, shape=(inp.size,)), 0
    place = _one_axis("take", axis, inp.ndim)
    return index_get(inp, indices, axes=(place,), place=place)


def one_hot(inp: Tensor, num_classes: int) -> Tensor:
    """Return 1 at each label and 0 elsewhere.

    Parameters
    ----------
    inp : integer Tensor of shape S
        The labels; one that is out of range makes zeros only.
    num_classes : int
        The length of the new last axis.

    Returns
    -------
    int32 Tensor of shape (*S, num_classes)

    Examples
    --------
    >>> F.one_hot(mgb.tensor([2, 0]), 3)
    Tensor([[0, 0, 1],
            [1, 0, 0]], dtype=int32, device=xpux:0)
    """
    if inp.dtype not in dtypes.INTEGERS:
        raise ConversionError(f"one_hot: labels must be integers, got {inp.dtype}")
    classes = along(
        (*(1 for _ in inp.shape), amount(num_classes, "one_hot: num_classes")),
        (inp.ndim,),
        inp.dtype,
        inp.device,
    )
    return cast(eq(reshape(inp, shape=(*inp.shape, 1)), classes), dtype=dtypes.int32)


def indexing_one_hot(src: Tensor, index: Tensor, axis: int = 1, keepdims: bool = False) -> Tensor:
    """Return one element of `src` along `axis` for each element of `index`.

    It is a comparison and a sum of one term and zeros, so that it fuses with the softmax around it.

    Parameters
    ----------
    src : Tensor
        The elements.
    index : integer Tensor
        The shape of `src` without `axis`; an index that is out of range makes 0.
    axis : int
        Along which `index` counts.
    keepdims : bool
        Keep `axis` with length 1.

    Raises
    ------
    ShapeError

    Examples
    --------
    >>> F.indexing_one_hot(mgb.tensor([[1.0, 2.0], [3.0, 4.0]]), mgb.tensor([1, 0]))
    Tensor([2., 3.], device=xpux:0)
    """
    place = _one_axis("indexing_one_hot", axis, src.ndim)
    expected = _rest(src.shape, (place,))
    if index.shape != expected:
        raise ShapeError(f"indexing_one_hot: the index must have shape {expected}, got {index.shape}")
    kept = (*expected[:place], 1, *expected[place:])
    chosen = eq(reshape(index, shape=kept), along(src.shape, (place,), index.dtype, src.device))
    out = reduce_sum(where(chosen, src, 0), axis=(place,))
    return out if keepdims else reshape(out, shape=expected)
