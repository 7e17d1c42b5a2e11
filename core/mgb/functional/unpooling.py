"""Max pooling that tells the places of the maxima, and what puts values back there; torch's arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..errors import ShapeError
from ..ops.creation import as_shape, zeros
from ..ops.images import pooling
from ..ops.index import gather_, scatter_
from ..ops.layout import reshape
from ..tensor import Tensor
from .convolution import Pair, pair
from .windows import _image, _row

__all__ = ["max_pool1d_with_indices", "max_pool2d_with_indices", "max_unpool1d", "max_unpool2d"]


def _flat(x: Tensor) -> Tensor:
    return reshape(x, shape=(*x.shape[:2], math.prod(x.shape[2:])))


def max_pool2d_with_indices(
    inp: Tensor, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0
) -> tuple[Tensor, Tensor]:
    """Return `max_pool2d`, and the place of each maximum.

    Parameters
    ----------
    inp : Tensor of shape (N, C, H, W)
    kernel_size, stride, padding : int or pair of int
        See `max_pool2d`.

    Returns
    -------
    values, indices : Tensor of shape (N, C, oh, ow)
        The indices are int32, and count row-major in an image: ``row * W + column``.

    Examples
    --------
    >>> values, places = F.max_pool2d_with_indices(mgb.tensor([[[[1.0, 2.0], [4.0, 3.0]]]]), 2)
    >>> values.item(), places.item()  # the third of four, row by row
    (4.0, 2)
    """
    kernel, frame = pair("kernel_size", kernel_size), pair("padding", padding)
    step = kernel if stride is None else pair("stride", stride)
    places = pooling.max_pool2d_places(inp, kernel=kernel, stride=step, padding=frame)
    return reshape(gather_(_flat(inp), _flat(places), axis=2), shape=places.shape), places


def max_pool1d_with_indices(
    inp: Tensor, kernel_size: int, stride: int | None = None, padding: int = 0
) -> tuple[Tensor, Tensor]:
    """Return `max_pool1d` of (N, C, L), and the place of each maximum in its row.

    Examples
    --------
    >>> values, places = F.max_pool1d_with_indices(mgb.tensor([[[1.0, 3.0, 7.0, 5.0]]]), 2)
    >>> values.tolist(), places.tolist()
    ([[[3.0, 7.0]]], [[[1, 2]]])
    """
    step = kernel_size if stride is None else stride
    image = _image("max_pool1d_with_indices", inp)
    values, places = max_pool2d_with_indices(image, (1, kernel_size), (1, step), (0, padding))
    return _row(values), _row(places)


def max_unpool2d(
    inp: Tensor,
    indices: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Put `inp` into images at the `indices` from `max_pool2d_with_indices`, with 0 elsewhere.

    Parameters
    ----------
    inp, indices : Tensor of shape (N, C, oh, ow)
    kernel_size, stride, padding : int or pair of int
        Those of the pooling.
    output_size : sequence of int, optional
        The shape of the result, or its height and width, where pooling makes the same of several sizes.

    Returns
    -------
    Tensor of shape (N, C, H, W)

    Raises
    ------
    ShapeError
        The shapes differ, or the pooling does not make them of images of `output_size`.
    IndexError
        An index is none of the image.

    Examples
    --------
    >>> F.max_unpool2d(mgb.tensor([[[[4.0]]]]), mgb.tensor([[[[2]]]]), 2).tolist()
    [[[[0.0, 0.0], [4.0, 0.0]]]]
    """
    kernel, frame = pair("kernel_size", kernel_size), pair("padding", padding)
    step = kernel if stride is None else pair("stride", stride)
    if inp.ndim != 4 or inp.shape != indices.shape:
        raise ShapeError(
            f"max_unpool2d: inp must have 4 axes and indices its shape, got {inp.shape} and {indices.shape}"
        )
    usual = [(n - 1) * s - 2 * p + k for n, k, s, p in zip(inp.shape[2:], kernel, step, frame, strict=True)]
    size = usual if output_size is None else as_shape(output_size, "max_unpool2d: output_size")[-2:]
    if any(abs(n - u) >= s for n, u, s in zip(size, usual, step, strict=True)):
        raise ShapeError(f"max_unpool2d: {inp.shape[2:]} windows are not those of images of {tuple(size)}")
    empty = zeros((*inp.shape[:2], size[0] * size[1]), dtype=inp.dtype, device=str(inp.device))
    return reshape(scatter_(empty, _flat(inp), _flat(indices), axis=2), shape=(*inp.shape[:2], *size))


def max_unpool1d(
    inp: Tensor,
    indices: Tensor,
    kernel_size: int,
    stride: int | None = None,
    padding: int = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Return `max_unpool2d` of rows (N, C, L).

    Examples
    --------
    >>> F.max_unpool1d(mgb.tensor([[[3.0, 7.0]]]), mgb.tensor([[[1, 2]]]), 2).tolist()
    [[[0.0, 3.0, 7.0, 0.0]]]
    """
    step = kernel_size if stride is None else stride
    size = None if output_size is None else (1, as_shape(output_size, "max_unpool1d: output_size")[-1])
    values, places = (_image("max_unpool1d", x) for x in (inp, indices))
    return _row(max_unpool2d(values, places, (1, kernel_size), (1, step), (0, padding), size))
