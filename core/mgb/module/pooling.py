"""Pooling over images, ``(batch, channels, height, width)``."""

from __future__ import annotations

from collections.abc import Sequence

from .. import functional as F
from ..functional.convolution import Pair, pair
from ..tensor import Tensor
from .module import Module
from .sizes import size


class _Pool(Module):
    """A window that slides over the image.

    Parameters
    ----------
    kernel_size : int or pair of int
    stride : int or pair of int, optional
        `kernel_size` by default: the windows do not overlap.
    padding : int or pair of int
    name : str, optional
    """

    def __init__(
        self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0, name: str | None = None
    ) -> None:
        super().__init__(name)
        self.kernel_size, self.padding = kernel_size, padding
        self.stride = kernel_size if stride is None else stride
        for option in ("kernel_size", "stride", "padding"):
            pair(option, getattr(self, option))  # refused now, not at the first call

    def _describe(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxPool2d(_Pool):
    """The maximum of each window.

    Parameters
    ----------
    kernel_size : int or pair of int
    stride : int or pair of int, optional
        `kernel_size` by default: the windows do not overlap.
    padding : int or pair of int
        Never the maximum.
    name : str, optional

    Examples
    --------
    >>> M.MaxPool2d(2)(F.ones((1, 1, 4, 4))).shape
    (1, 1, 2, 2)
    """

    def forward(self, inp: Tensor) -> Tensor:
        """Pool the input."""
        return F.max_pool2d(inp, self.kernel_size, self.stride, self.padding)


class MaxUnpool2d(_Pool):
    """The values of a max pooling at their places in images of zeros; see `functional.max_unpool2d`.

    Parameters
    ----------
    kernel_size, stride, padding : int or pair of int
        Those of the pooling.
    name : str, optional

    Examples
    --------
    >>> x = mgb.tensor([[[[1.0, 2.0], [4.0, 3.0]]]])
    >>> values, indices = mgb.functional.max_pool2d_with_indices(x, 2)
    >>> mgb.module.MaxUnpool2d(2)(values, indices).tolist()
    [[[[0.0, 0.0], [4.0, 0.0]]]]
    """

    def forward(self, inp: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """Put `inp` at `indices`."""
        return F.max_unpool2d(inp, indices, self.kernel_size, self.stride, self.padding, output_size)


class AvgPool2d(_Pool):
    """The mean of each window.

    Parameters
    ----------
    kernel_size : int or pair of int
    stride : int or pair of int, optional
        `kernel_size` by default: the windows do not overlap.
    padding : int or pair of int
    mode : {"average_count_exclude_padding", "average"}
        Whether the padding's zeros do not count, or do.
    name : str, optional

    Examples
    --------
    >>> M.AvgPool2d(2)(F.ones((1, 1, 4, 4))).shape
    (1, 1, 2, 2)
    """

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        mode: str = "average_count_exclude_padding",
        name: str | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, name)
        self.mode = mode

    def forward(self, inp: Tensor) -> Tensor:
        """Pool the input."""
        return F.avg_pool2d(inp, self.kernel_size, self.stride, self.padding, self.mode)


class _RowPool(Module):
    """A window that slides along the last axis of (batch, channels, length).

    Parameters
    ----------
    kernel_size : int
    stride : int, optional
        `kernel_size` by default: the windows do not overlap.
    padding : int
    name : str, optional
    """

    def __init__(
        self, kernel_size: int, stride: int | None = None, padding: int = 0, name: str | None = None
    ) -> None:
        super().__init__(name)
        self.kernel_size, self.padding = size("kernel_size", kernel_size), padding
        self.stride = self.kernel_size if stride is None else size("stride", stride)

    def _describe(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxPool1d(_RowPool):
    """The maximum of each window along the last axis; see `functional.max_pool1d`.

    Examples
    --------
    >>> M.MaxPool1d(2)(F.ones((1, 1, 4))).shape
    (1, 1, 2)
    """

    def forward(self, inp: Tensor) -> Tensor:
        """Pool the input."""
        return F.max_pool1d(inp, self.kernel_size, self.stride, self.padding)


class MaxUnpool1d(_RowPool):
    """`MaxUnpool2d` of rows; see `functional.max_unpool1d`.

    Examples
    --------
    >>> values, indices = mgb.functional.max_pool1d_with_indices(mgb.tensor([[[1.0, 3.0, 2.0, 0.0]]]), 2)
    >>> mgb.module.MaxUnpool1d(2)(values, indices).tolist()
    [[[0.0, 3.0, 2.0, 0.0]]]
    """

    def forward(self, inp: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """Put `inp` at `indices`."""
        return F.max_unpool1d(inp, indices, self.kernel_size, self.stride, self.padding, output_size)


class AvgPool1d(_RowPool):
    """The mean of each window along the last axis, without padding; see `functional.avg_pool1d`.

    Examples
    --------
    >>> M.AvgPool1d(2)(F.ones((1, 1, 4))).shape
    (1, 1, 2)
    """

    def forward(self, inp: Tensor) -> Tensor:
        """Pool the input."""
        return F.avg_pool1d(inp, self.kernel_size, self.stride, self.padding)


class AdaptiveAvgPool2d(Module):
    """The mean of windows chosen so that the result has a given size.

    Parameters
    ----------
    oshp : int or pair of int
        Height and width of the result.
    name : str, optional

    Examples
    --------
    >>> M.AdaptiveAvgPool2d(1)(F.ones((1, 2, 4, 4))).shape
    (1, 2, 1, 1)
    """

    def __init__(self, oshp: Pair, name: str | None = None) -> None:
        super().__init__(name)
        self.oshp = pair("oshp", oshp)

    def forward(self, inp: Tensor) -> Tensor:
        """Pool the input."""
        return F.adaptive_avg_pool2d(inp, self.oshp)

    def _describe(self) -> str:
        return f"oshp={self.oshp}"


class AdaptiveMaxPool2d(AdaptiveAvgPool2d):
    """The largest element of windows chosen so that the result has a given size.

    Examples
    --------
    >>> M.AdaptiveMaxPool2d(1)(F.ones((1, 2, 4, 4))).shape
    (1, 2, 1, 1)
    """

    def forward(self, inp: Tensor) -> Tensor:
        """Pool the input."""
        return F.adaptive_max_pool2d(inp, self.oshp)


class PixelShuffle(Module):
    """Channels spread over the image, which becomes larger; see `functional.pixel_shuffle`.

    Parameters
    ----------
    upscale_factor : int
        How many times longer height and width become.
    name : str, optional

    Examples
    --------
    >>> M.PixelShuffle(2)(F.ones((1, 4, 2, 2))).shape
    (1, 1, 4, 4)
    """

    def __init__(self, upscale_factor: int, name: str | None = None) -> None:
        super().__init__(name)
        self.upscale_factor = size("upscale_factor", upscale_factor)

    def forward(self, inp: Tensor) -> Tensor:
        """Spread."""
        return F.pixel_shuffle(inp, self.upscale_factor)

    def _describe(self) -> str:
        return f"upscale_factor={self.upscale_factor}"
