"""The array API standard's functions that join, cut and rearrange, and those that choose."""

from __future__ import annotations

from collections.abc import Sequence

from ..functional.rearrange import flip, repeat, roll, tile
from ..functional.tensor import broadcast_to, expand_dims, moveaxis, stack, take
from ..functional.tensor import squeeze as _squeeze
from ..ops.creation import Shape
from ..ops.declare import broadcast_shapes, normalize_axis
from ..ops.methods import reshaped, transposed
from ..tensor import Tensor
from .compositions import concatenate as concat
from .compositions import take_along_axis

__all__ = [
    "broadcast_arrays", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis", "permute_dims",
    "repeat", "reshape", "roll", "squeeze", "stack", "take", "take_along_axis", "tile", "unstack",
]  # fmt: skip


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """Return each as large as all of them together.

    Examples
    --------
    >>> mgb.numpy.broadcast_arrays(F.ones((2, 1)), F.ones((3,)))[0].shape
    (2, 3)
    """
    shape = broadcast_shapes("broadcast_arrays", *(x.shape for x in arrays))
    return [broadcast_to(x, shape) for x in arrays]


def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    """Return the axes in the order of `axes`.

    Examples
    --------
    >>> mgb.numpy.permute_dims(F.ones((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    return transposed(x, tuple(axes)) if x.ndim else +x


def reshape(x: Tensor, /, shape: Shape, *, copy: bool | None = None) -> Tensor:
    """Return the same elements in row-major order under another shape, where one length may be -1.

    A Tensor is a value: whether its memory is copied is seen by nobody, whatever `copy` says.

    Examples
    --------
    >>> mgb.numpy.reshape(F.ones((2, 6)), (3, -1)).shape
    (3, 4)
    """
    return reshaped(x, shape)


def squeeze(x: Tensor, /, axis: Shape) -> Tensor:
    """Remove the axes in `axis`, whose length is 1.

    Examples
    --------
    >>> mgb.numpy.squeeze(F.ones((2, 1, 3)), 1).shape
    (2, 3)
    """
    return _squeeze(x, axis)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the parts of `x` along an axis, which they do not have.

    Raises
    ------
    ShapeError
        The axis is out of range.

    Examples
    --------
    >>> first, second = mgb.numpy.unstack(mgb.tensor([[1, 2], [3, 4]]), axis=1)
    >>> first
    Tensor([1, 3], dtype=int32, device=xpux:0)
    """
    (place,) = normalize_axis("unstack", axis, x.ndim)
    return tuple(x[(slice(None),) * place + (i,)] for i in range(x.shape[place]))
