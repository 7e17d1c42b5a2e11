"""Convolution of volumes, and its transpose: those of images, with windows along the depth as channels."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ShapeError
from ..ir.dtypes import HALVES, float32
from ..ir.sizes import whole
from ..ops.images import contract
from ..ops.layout import concat, cut_along, reshape, slice_, transpose, unslice
from ..ops.primitives import cast
from ..tensor import Tensor
from .convolution import _with_bias, along_axes, ungrouped
from .options import check_conv_modes

__all__ = ["conv3d", "conv_transpose3d"]

#: One number for all axes of a volume, or one for each.
Triple = int | Sequence[int]


def triple(name: str, value: Triple) -> tuple[int, int, int]:
    """Return `value`, known as `name`, for depth, height and width.

    Raises
    ------
    ShapeError
        It is neither one number nor three.
    """
    depth, height, width = along_axes(name, value, 3)
    return depth, height, width


def _kernel(name: str, inp: Tensor, weight: Tensor, groups: int) -> Tensor:
    """Return the weight without an axis for its groups."""
    weight = ungrouped(name, weight, groups, 3)
    if inp.ndim != 5 or weight.ndim != 5:
        raise ShapeError(
            f"{name}: needs 5 axes each, got volumes of {inp.shape} and weights of {weight.shape}"
        )
    return weight


def _flat(weight: Tensor) -> Tensor:
    """Return the taps along the depth as channels."""
    outputs, inputs, depth, *rest = weight.shape
    return reshape(weight, shape=(outputs, inputs * depth, *rest))


def _by_layer(x: Tensor) -> Tensor:
    """Return volumes (N, C, D, H, W) as images (N * D, C, H, W)."""
    n, c, depth, *size = x.shape
    return reshape(transpose(x, axes=(0, 2, 1, 3, 4)), shape=(n * depth, c, *size))


def _tap(tap: int, stride: int, dilation: int, count: int) -> tuple[int, int, int]:
    """Return the layers that a tap of the kernel meets."""
    return tap * dilation, tap * dilation + stride * (count - 1) + 1, stride


def conv3d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Triple = 1,
    padding: Triple = 0,
    dilation: Triple = 1,
    groups: int = 1,
    conv_mode: str = "cross_correlation",
    compute_mode: str = "default",
) -> Tensor:
    """Cross-correlate volumes with windows.

    Parameters
    ----------
    inp : Tensor
        Of shape (N, C, D, H, W).
    weight : Tensor
        Of shape (O, C / groups, kd, kh, kw) or (groups, O / groups, C / groups, kd, kh, kw).
    bias : Tensor, optional
        Of shape (1, O, 1, 1, 1) or (O,).
    stride, padding, dilation : int or three of them
        From window to window; zeros on both sides; from tap to tap of the kernel.
    groups : int
        Into how many the channels are divided, each with outputs of its own.
    conv_mode, compute_mode : str
        See `conv2d`.

    Returns
    -------
    Tensor of shape (N, O, od, oh, ow)

    Raises
    ------
    ShapeError
        The shapes do not fit.

    Examples
    --------
    >>> F.conv3d(F.ones((1, 2, 4, 4, 4)), F.ones((3, 2, 2, 2, 2))).shape
    (1, 3, 3, 3, 3)
    >>> F.conv3d(F.ones((1, 2, 4, 4, 4)), F.ones((3, 2, 2, 2, 2))).max().item()  # 2 channels, 8 taps
    16.0
    """
    check_conv_modes("conv3d", conv_mode, compute_mode)
    steps, frame, spread = triple("stride", stride), triple("padding", padding), triple("dilation", dilation)
    kernel = _kernel("conv3d", inp, weight, groups)
    n, c, depth, height, width = inp.shape
    taps = kernel.shape[2]
    window_kernel = (taps, kernel.shape[3])
    count, _ = contract.window_counts(
        "conv3d", (depth, height), window_kernel, steps[:2], frame[:2], spread[:2]
    )
    if frame[0]:
        framed = (n, c, depth + 2 * frame[0], height, width)
        inside = ((0, n, 1), (0, c, 1), (frame[0], frame[0] + depth, 1), (0, height, 1), (0, width, 1))
        inp = unslice(inp, shape=framed, window=inside)
    layers = []
    for tap in range(taps):
        rows = _tap(tap, steps[0], spread[0], count)
        layer = slice_(inp, window=((0, n, 1), (0, c, 1), rows, (0, height, 1), (0, width, 1)))
        layers.append(reshape(_by_layer(layer), shape=(n * count, c, 1, height, width)))
    images = reshape(concat(*layers, axis=2), shape=(n * count, c * taps, height, width))
    groups = whole(groups, "conv3d: groups")
    window = {"stride": steps[1:], "padding": frame[1:], "dilation": spread[1:], "groups": groups}
    out = contract.conv2d(images, _flat(kernel), **window)
    out = transpose(reshape(out, shape=(n, count, *out.shape[1:])), axes=(0, 2, 1, 3, 4))
    return _with_bias(out, bias)


def conv_transpose3d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Triple = 1,
    padding: Triple = 0,
    output_padding: Triple = 0,
    dilation: Triple = 1,
    groups: int = 1,
    conv_mode: str = "cross_correlation",
    compute_mode: str = "default",
) -> Tensor:
    """Return the transpose of `conv3d` as a linear map of volumes; see `conv_transpose2d` for the arguments.

    `inp` has the shape (N, C, D, H, W), `weight` (C, O / groups, kd, kh, kw) or
    (groups, C / groups, O / groups, kd, kh, kw).

    Examples
    --------
    >>> F.conv_transpose3d(F.ones((1, 3, 3, 3, 3)), F.ones((3, 2, 2, 2, 2))).shape
    (1, 2, 4, 4, 4)
    """
    check_conv_modes("conv_transpose3d", conv_mode, compute_mode)
    half = inp.dtype if inp.dtype == weight.dtype and inp.dtype in HALVES else None
    if half:  # taps are added in float32, as in every convolution
        inp, weight = cast(inp, dtype=float32), cast(weight, dtype=float32)
    steps, frame, spread = triple("stride", stride), triple("padding", padding), triple("dilation", dilation)
    extra = triple("output_padding", output_padding)
    kernel = _kernel("conv_transpose3d", inp, weight, groups)
    n, depth = inp.shape[0], inp.shape[2]
    lengths = zip(inp.shape[2:], kernel.shape[2:], steps, spread, extra, strict=True)
    framed = [(length - 1) * s + d * (k - 1) + e + 1 for length, k, s, d, e in lengths]
    size = [length - 2 * p for length, p in zip(framed, frame, strict=True)]
    if min(size) < 1:
        raise ShapeError(f"conv_transpose3d: padding {frame} leaves nothing of volumes of {tuple(framed)}")
    groups = whole(groups, "conv_transpose3d: groups")
    outputs, taps = kernel.shape[1] * groups, kernel.shape[2]
    window = {"stride": steps[1:], "padding": frame[1:], "dilation": spread[1:], "groups": groups}
    parts = contract.conv2d_grad_input(_by_layer(inp), _flat(kernel), size=tuple(size[1:]), **window)
    parts = transpose(reshape(parts, shape=(n, depth, outputs, taps, *size[1:])), axes=(0, 2, 3, 1, 4, 5))
    shape, out = (n, outputs, framed[0], *size[1:]), None
    for tap in range(taps):
        layer = reshape(cut_along(parts, 2, tap, tap + 1), shape=(n, outputs, depth, *size[1:]))
        rows = _tap(tap, steps[0], spread[0], depth)
        spot = ((0, n, 1), (0, outputs, 1), rows, (0, size[1], 1), (0, size[2], 1))
        placed = unslice(layer, shape=shape, window=spot)
        out = placed if out is None else out + placed
    assert out is not None
    out = cut_along(out, 2, frame[0], frame[0] + size[0])
    return _with_bias(cast(out, dtype=half) if half else out, bias)
