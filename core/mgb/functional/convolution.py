"""Convolution of rows and images, and its transpose."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

from ..errors import ShapeError
from ..ir.sizes import whole
from ..ops.images import contract
from ..ops.layout import reshape
from ..runtime.precision import LOW
from ..tensor import Tensor
from ..tensor.apply import autocasted
from .options import check_conv_modes

__all__ = ["conv1d", "conv2d", "conv_transpose2d"]

#: One number for both axes of an image, or one for each.
Pair = int | Sequence[int]


def pair(name: str, value: Pair) -> tuple[int, int]:
    """Return `value`, known as `name`, for both axes.

    Raises
    ------
    ShapeError
        It is neither one number nor two.
    """
    height, width = along_axes(name, value, 2)
    return height, width


def along_axes(name: str, value: Any, count: int) -> tuple[int, ...]:
    """Return `value`, known as `name`, for each of `count` axes: one integer for all, or one for each."""
    try:
        given = (index(value),) * count
    except TypeError:
        try:
            given = tuple(map(index, value))
        except TypeError:
            given = ()
    if len(given) != count:
        raise ShapeError(f"{name} must be one integer or {'two' if count == 2 else 'three'}, got {value!r}")
    return given


def conv2d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    conv_mode: str = "cross_correlation",
    compute_mode: str = "default",
) -> Tensor:
    """Cross-correlate images with a kernel.

    Parameters
    ----------
    inp : Tensor
        Of shape (N, C, H, W).
    weight : Tensor
        Of shape (O, C / groups, kh, kw) or (groups, O / groups, C / groups, kh, kw).
    bias : Tensor, optional
        Of shape (1, O, 1, 1) or (O,).
    stride : int or two of them
        From window to window.
    padding : int or two of them
        Zeros on both sides.
    dilation : int or two of them
        From tap to tap of the kernel.
    groups : int
        Into how many the channels are divided, each with outputs of its own.
    conv_mode : str
        ``"cross_correlation"``, the only one.
    compute_mode : str
        ``"default"`` or ``"float32"``: 16-bit floats are summed in float32 by either.

    Returns
    -------
    Tensor
        Of shape (N, O, oh, ow) with ``oh = (H + 2 padding - dilation (kh - 1) - 1) // stride + 1``.

    Raises
    ------
    ShapeError
        The shapes do not fit; the message names them.
    ValueError
        `mode` is not one of the known modes.

    Examples
    --------
    >>> F.conv2d(F.ones((1, 1, 3, 3)), F.ones((1, 1, 3, 3)))
    Tensor([[[[9.]]]], device=xpux:0)
    """
    check_conv_modes("conv2d", conv_mode, compute_mode)
    window = _window(stride, padding, dilation, groups)
    out = contract.conv2d(inp, ungrouped("conv2d", weight, groups, 2), **window)
    return _with_bias(out, bias)


def _window(stride: Pair, padding: Pair, dilation: Pair, groups: int) -> dict[str, Any]:
    return {
        "stride": pair("stride", stride),
        "padding": pair("padding", padding),
        "dilation": pair("dilation", dilation),
        "groups": whole(groups, "conv2d: groups"),
    }


def ungrouped(name: str, weight: Tensor, groups: int, axes: int) -> Tensor:
    """Join the axis of the groups, if `weight` has one, with that of the outputs.

    Parameters
    ----------
    name : str
        The function that is called, for the error.
    weight : Tensor
        Of shape (O, C, *kernel) or (groups, O, C, *kernel).
    groups : int
    axes : int
        How many axes the kernel has.

    Raises
    ------
    ShapeError
        `groups` does not fit the weight.
    """
    if weight.ndim != axes + 3:
        return weight
    if weight.shape[0] != groups:
        raise ShapeError(
            f"{name}: groups = {groups} does not fit a weight of shape {weight.shape}, whose axis 0 is the "
            "groups"
        )
    return reshape(weight, shape=(groups * weight.shape[1], *weight.shape[2:]))


def _with_bias(out: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return out
    (bias,) = autocasted(LOW, (bias,))
    if bias.ndim == 1:
        bias = reshape(bias, shape=(bias.size, *(1,) * (out.ndim - 2)))
    biased: Tensor = out + bias
    return biased


def conv1d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    conv_mode: str = "cross_correlation",
    compute_mode: str = "default",
) -> Tensor:
    """Return `conv2d` of rows: `inp` has shape (N, C, L).

    `weight` has the shape (O, C / groups, k) or (groups, O / groups, C / groups, k).

    Examples
    --------
    >>> F.conv1d(mgb.tensor([[[1.0, 2.0, 3.0]]]), mgb.tensor([[[1.0, 1.0]]]))
    Tensor([[[3., 5.]]], device=xpux:0)
    """
    check_conv_modes("conv1d", conv_mode, compute_mode)
    weight = ungrouped("conv1d", weight, groups, 1)
    rows, kernel = (reshape(t, shape=(*t.shape[:-1], 1, t.shape[-1])) for t in (inp, weight))
    out = conv2d(rows, kernel, None, (1, stride), (0, padding), (1, dilation), groups)
    return _with_bias(reshape(out, shape=(*out.shape[:2], out.shape[3])), bias)


def conv_transpose2d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    output_padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    conv_mode: str = "cross_correlation",
    compute_mode: str = "default",
) -> Tensor:
    """Return the transpose of `conv2d` as a linear map of images: with a stride, it makes them larger.

    Parameters
    ----------
    inp : Tensor
        Of shape (N, C, H, W).
    weight : Tensor
        Of shape (C, O / groups, kh, kw) or (groups, C / groups, O / groups, kh, kw).
    bias : Tensor, optional
        Of shape (1, O, 1, 1) or (O,).
    stride : int or two of them
        Of the convolution that is transposed; so are padding, dilation and groups.
    padding : int or two of them
        Rows and columns that are cut off on both sides.
    output_padding : int or two of them
        Rows and columns at the end that the convolution did not reach; less than the stride.
    dilation : int or two of them
        From tap to tap of the kernel.
    groups : int
        Into how many the channels are divided.
    conv_mode : str
        ``"cross_correlation"``, the only one.
    compute_mode : str
        ``"default"`` or ``"float32"``: 16-bit floats are summed in float32 by either.

    Returns
    -------
    Tensor
        Of shape (N, O, oh, ow) with
        ``oh = (H - 1) stride - 2 padding + dilation (kh - 1) + output_padding + 1``.

    Examples
    --------
    >>> F.conv_transpose2d(F.ones((1, 1, 2, 2)), F.ones((1, 1, 2, 2)))
    Tensor([[[[1., 2., 1.],
              [2., 4., 2.],
              [1., 2., 1.]]]], device=xpux:0)
    """
    check_conv_modes("conv_transpose2d", conv_mode, compute_mode)
    window = _window(stride, padding, dilation, groups)
    kernel = ungrouped("conv_transpose2d", weight, groups, 2)
    if inp.ndim != 4 or kernel.ndim != 4:
        raise ShapeError(
            f"conv_transpose2d: needs 4 axes each, got images of {inp.shape} and weights of {weight.shape}"
        )
    size = tuple(
        (length - 1) * s - 2 * p + d * (k - 1) + extra + 1
        for length, k, s, p, d, extra in zip(
            inp.shape[2:],
            kernel.shape[2:],
            window["stride"],
            window["padding"],
            window["dilation"],
            pair("output_padding", output_padding),
            strict=True,
        )
    )
    return _with_bias(contract.conv2d_grad_input(inp, kernel, size=size, **window), bias)
