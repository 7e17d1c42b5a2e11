"""Convolutions over images, ``(batch, channels, height, width)``, and over rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .. import functional as F
from ..errors import ShapeError
from ..functional.convolution import Pair, pair
from ..functional.options import check_conv_modes, choice
from ..functional.volumes import triple
from ..tensor import Parameter, Tensor
from . import init
from .module import Module
from .sizes import size


class _Convolution(Module):
    """Base class of convolutions: sizes, initial values, repr. `axes` is the number of axes of a window."""

    axes = 2
    conv_mode, compute_mode = "cross_correlation", "default"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        groups: int,
        bias: bool,
        conv_mode: str,
        compute_mode: str,
        name: str | None,
    ) -> None:
        super().__init__(name)
        check_conv_modes(type(self).__name__, conv_mode, compute_mode)
        self.conv_mode, self.compute_mode = conv_mode, compute_mode
        in_channels, out_channels = size("in_channels", in_channels), size("out_channels", out_channels)
        if size("groups", groups) < 1:
            raise ShapeError(f"groups must be at least 1, got {groups}")
        if in_channels % groups or out_channels % groups:
            raise ShapeError(
                f"in_channels = {in_channels} and out_channels = {out_channels} must be multiples of groups "
                f"= {groups}"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = self._each("kernel_size", kernel_size), self._each("stride", stride)
        self.padding, self.dilation = self._each("padding", padding), self._each("dilation", dilation)
        self.weight = Parameter(np.zeros(self._weight_shape()))
        self.bias = Parameter(np.zeros((1, out_channels, *(1,) * self.axes))) if bias else None
        self.reset_parameters()

    def _each(self, name: str, value: Pair) -> tuple[int, ...]:
        """Return `value` for each axis of the window."""
        if self.axes > 1:
            return (pair if self.axes == 2 else triple)(name, value)
        return (size(name, value[0] if isinstance(value, Sequence) and len(value) == 1 else value),)

    def _weight_shape(self) -> tuple[int, ...]:
        """Return the shape of the weight: grouped weights have the group as a first axis."""
        raise NotImplementedError

    def _grouped(self, first: int, second: int) -> tuple[int, ...]:
        if self.groups == 1:
            return (first, second, *self.kernel_size)
        return (self.groups, first // self.groups, second // self.groups, *self.kernel_size)

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        fan_in = math.prod(self.kernel_size) * self.in_channels // self.groups
        init.normal_(self.weight, 0.0, 1.0 / math.sqrt(fan_in))
        if self.bias is not None:
            init.zeros_(self.bias)

    def _describe(self) -> str:
        sizes = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        options = (
            ("stride", self.stride, (1,) * self.axes),
            ("padding", self.padding, (0,) * self.axes),
            ("dilation", self.dilation, (1,) * self.axes),
            ("groups", self.groups, 1),
            ("bias", self.bias is not None, True),
            ("padding_mode", getattr(self, "padding_mode", "zeros"), "zeros"),
        )
        return sizes + "".join(f", {name}={value}" for name, value, usual in options if value != usual)


class Conv2d(_Convolution):
    """Cross-correlation of images with learnt windows.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size, stride, padding, dilation : int or pair of int
    groups : int
        Channels are split into this many groups that do not see each other.
    bias : bool
    conv_mode, compute_mode : str
        See `functional.conv2d`.
    padding_mode : str
        What the border is made of: ``"zeros"``, ``"reflect"`` or ``"replicate"``; see `functional.pad`.
    name : str, optional

    Attributes
    ----------
    weight : Parameter of shape (out_channels, in_channels, height, width)
        With groups, (groups, out_channels / groups, in_channels / groups, height, width). Normal with the
        deviation ``1 / sqrt(fan_in)``.
    bias : Parameter of shape (1, out_channels, 1, 1), or None
        0.

    Raises
    ------
    ShapeError
        `groups` does not divide the channels.
    ValueError
        A mode is none.

    Examples
    --------
    >>> M.Conv2d(3, 8, 3, padding=1)(F.ones((2, 3, 6, 6))).shape
    (2, 8, 6, 6)
    """

    padding_mode = "zeros"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        padding_mode: str = "zeros",
        name: str | None = None,
    ) -> None:
        window = (kernel_size, stride, padding, dilation)
        super().__init__(in_channels, out_channels, *window, groups, bias, conv_mode, compute_mode, name)
        known = ("zeros", "reflect", "replicate")
        self.padding_mode = choice(f"{type(self).__name__}, padding_mode", padding_mode, known)

    def _weight_shape(self) -> tuple[int, ...]:
        return self._grouped(self.out_channels, self.in_channels)

    def _padded(self, inp: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """Return `inp` with a border that is not of zeros, and what is left to pad."""
        if self.padding_mode == "zeros":
            return inp, self.padding
        border = [(0, 0), (0, 0), *((p, p) for p in self.padding)]
        return F.pad(inp, border, self.padding_mode), (0,) * self.axes

    def forward(self, inp: Tensor) -> Tensor:
        """Map ``(batch, in_channels, height, width)`` to ``(batch, out_channels, ...)``."""
        inp, padding = self._padded(inp)
        return F.conv2d(inp, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(Conv2d):
    """`Conv2d` of rows: windows have a length alone.

    Attributes
    ----------
    weight : Parameter of shape (out_channels, in_channels, length)
        With groups, (groups, out_channels / groups, in_channels / groups, length).
    bias : Parameter of shape (1, out_channels, 1), or None

    Examples
    --------
    >>> M.Conv1d(3, 8, 3)(F.ones((2, 3, 6))).shape
    (2, 8, 4)
    """

    axes = 1

    def forward(self, inp: Tensor) -> Tensor:
        """Map ``(batch, in_channels, length)`` to ``(batch, out_channels, ...)``."""
        inp, (padding,) = self._padded(inp)
        (stride,), (dilation,) = self.stride, self.dilation
        return F.conv1d(inp, self.weight, self.bias, stride, padding, dilation, self.groups)


class Conv3d(Conv2d):
    """`Conv2d` of volumes: windows have depth, height and width; `padding_mode` as there.

    Attributes
    ----------
    weight : Parameter of shape (out_channels, in_channels, depth, height, width)
        With groups, (groups, out_channels / groups, in_channels / groups, depth, height, width).
    bias : Parameter of shape (1, out_channels, 1, 1, 1), or None

    Examples
    --------
    >>> layer = mgb.module.Conv3d(2, 4, kernel_size=3, padding=1)
    >>> layer(mgb.functional.ones((1, 2, 4, 5, 6))).shape
    (1, 4, 4, 5, 6)
    """

    axes = 3

    def forward(self, inp: Tensor) -> Tensor:
        """Map ``(batch, in_channels, depth, height, width)`` to ``(batch, out_channels, ...)``."""
        inp, padding = self._padded(inp)
        return F.conv3d(inp, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class ConvTranspose2d(_Convolution):
    """The transpose of a convolution: the gradient of `Conv2d` for its input, as a layer of its own.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size, stride, padding : int or pair of int
    output_padding : int or pair of int
        Rows and columns added at the end of the result, to choose among the sizes that a stride leaves open.
    dilation : int or pair of int
    groups : int
    bias : bool
    conv_mode, compute_mode : str
        See `functional.conv2d`.
    name : str, optional

    Attributes
    ----------
    weight : Parameter of shape (in_channels, out_channels, height, width)
        With groups, (groups, in_channels / groups, out_channels / groups, height, width).
    bias : Parameter of shape (1, out_channels, 1, 1), or None

    Raises
    ------
    ShapeError
        `groups` does not divide the channels.

    Examples
    --------
    >>> M.ConvTranspose2d(3, 2, 2)(F.ones((1, 3, 4, 4))).shape
    (1, 2, 5, 5)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        output_padding: Pair = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        name: str | None = None,
    ) -> None:
        window = (kernel_size, stride, padding, dilation)
        super().__init__(in_channels, out_channels, *window, groups, bias, conv_mode, compute_mode, name)
        self.output_padding = self._each("output_padding", output_padding)

    _function = staticmethod(F.conv_transpose2d)

    def _weight_shape(self) -> tuple[int, ...]:
        return self._grouped(self.in_channels, self.out_channels)

    def forward(self, inp: Tensor) -> Tensor:
        """Map ``(batch, in_channels, height, width)`` to ``(batch, out_channels, ...)``."""
        return self._function(
            inp,
            self.weight,
            self.bias,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
            output_padding=self.output_padding,
        )


class ConvTranspose3d(ConvTranspose2d):
    """The transpose of `Conv3d`, as `ConvTranspose2d` is that of `Conv2d`; its windows have three axes.

    Examples
    --------
    >>> layer = mgb.module.ConvTranspose3d(4, 2, kernel_size=2, stride=2)
    >>> layer(mgb.functional.ones((1, 4, 2, 3, 3))).shape
    (1, 2, 4, 6, 6)
    """

    axes = 3
    _function = staticmethod(F.conv_transpose3d)
