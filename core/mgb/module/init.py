"""Initial values of parameters. Every function changes its tensor in place."""

from __future__ import annotations

import math

import numpy as np

from .. import random
from ..tensor import Tensor

__all__ = [
    "calculate_correct_fan", "calculate_fan_in_and_fan_out", "calculate_gain", "fill_", "msra_normal_",
    "msra_uniform_", "normal_", "ones_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_",
]  # fmt: skip

_LINEAR = ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
_GAINS = dict.fromkeys(_LINEAR, 1.0) | {
    "sigmoid": 1.0,
    "identity": 1.0,
    "tanh": 5.0 / 3.0,
    "relu": math.sqrt(2.0),
}


def fill_(tensor: Tensor, val: float) -> None:
    """Set every element to `val`.

    Examples
    --------
    >>> w = mgb.Parameter([1.0, 2.0])
    >>> mgb.module.init.fill_(w, 7.0)
    >>> w.tolist()
    [7.0, 7.0]
    """
    array = np.full(tensor.shape, val, tensor.dtype)
    tensor._reset(Tensor(array, dtype=tensor.dtype, device=tensor.device))


def zeros_(tensor: Tensor) -> None:
    """Set every element to 0.

    Examples
    --------
    >>> w = mgb.Parameter([1.0, 2.0])
    >>> mgb.module.init.zeros_(w)
    >>> w.tolist()
    [0.0, 0.0]
    """
    fill_(tensor, 0)


def ones_(tensor: Tensor) -> None:
    """Set every element to 1.

    Examples
    --------
    >>> w = mgb.Parameter([0.0, 0.0])
    >>> mgb.module.init.ones_(w)
    >>> w.tolist()
    [1.0, 1.0]
    """
    fill_(tensor, 1)


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> None:
    """Draw from the uniform distribution over [a, b).

    Examples
    --------
    >>> w = mgb.Parameter(F.zeros((100, 100)))
    >>> mgb.module.init.uniform_(w, a=-0.1, b=0.1)
    >>> bool(0.99 < abs(w.numpy()).max() / 0.1 <= 1)
    True
    """
    _become(tensor, random.uniform(low=a, high=b, size=tensor.shape))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> None:
    """Draw from the normal distribution.

    Examples
    --------
    >>> w = mgb.Parameter(F.zeros((100, 100)))
    >>> mgb.module.init.normal_(w, std=0.1)
    >>> bool(abs(w.numpy().std() / 0.1 - 1) < 0.05)
    True
    """
    _become(tensor, random.normal(mean=mean, std=std, size=tensor.shape))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> None:
    """Draw uniformly with the variance ``2 gain^2 / (fan_in + fan_out)`` (Glorot and Bengio 2010).

    Examples
    --------
    >>> w = mgb.Parameter(F.zeros((100, 100)))
    >>> mgb.module.init.xavier_uniform_(w)
    >>> bool(0.99 < abs(w.numpy()).max() / (6 / 200) ** 0.5 <= 1)
    True
    """
    bound = math.sqrt(3.0) * _xavier_std(tensor, gain)
    uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> None:
    """Draw normally with the variance ``2 gain^2 / (fan_in + fan_out)`` (Glorot and Bengio 2010).

    Examples
    --------
    >>> w = mgb.Parameter(F.zeros((100, 100)))
    >>> mgb.module.init.xavier_normal_(w)
    >>> bool(abs(w.numpy().std() / (2 / 200) ** 0.5 - 1) < 0.05)
    True
    """
    normal_(tensor, 0.0, _xavier_std(tensor, gain))


def msra_uniform_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> None:
    """Draw uniformly with the variance ``gain^2 / fan`` (He et al. 2015).

    Parameters
    ----------
    tensor : Tensor
        A weight.
    a : float
        The negative slope, when `nonlinearity` is ``"leaky_relu"``.
    mode : {"fan_in", "fan_out"}
        Whether the variance is kept on the way forward or on the way back.
    nonlinearity : str
        See `calculate_gain`.

    Examples
    --------
    >>> w = mgb.Parameter(F.zeros((100, 100)))
    >>> mgb.module.init.msra_uniform_(w)
    >>> bool(0.99 < abs(w.numpy()).max() / (6 / 100) ** 0.5 <= 1)
    True
    """
    bound = math.sqrt(3.0) * _msra_std(tensor, a, mode, nonlinearity)
    uniform_(tensor, -bound, bound)


def msra_normal_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> None:
    """Draw normally with the variance ``gain^2 / fan``; see `msra_uniform_`.

    Examples
    --------
    >>> w = mgb.Parameter(F.zeros((100, 100)))
    >>> mgb.module.init.msra_normal_(w)
    >>> bool(abs(w.numpy().std() / (2 / 100) ** 0.5 - 1) < 0.05)
    True
    """
    normal_(tensor, 0.0, _msra_std(tensor, a, mode, nonlinearity))


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the factor by which a layer's initial deviation makes up for the non-linearity behind it.

    Parameters
    ----------
    nonlinearity : str
        ``"linear"``, the name of a convolution, ``"sigmoid"``, ``"tanh"``, ``"relu"`` or ``"leaky_relu"``.
    param : float, optional
        The negative slope of ``"leaky_relu"``, 0.01 by default.

    Raises
    ------
    ValueError
        The name is unknown.

    Examples
    --------
    >>> mgb.module.init.calculate_gain("tanh")  # 5 / 3
    1.6666666666666667
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else float(param)
        return math.sqrt(2.0 / (1.0 + slope**2))
    if nonlinearity not in _GAINS:
        known = ", ".join(sorted({*_GAINS, "leaky_relu"}))
        raise ValueError(f"unknown nonlinearity {nonlinearity!r}; known are {known}")
    return _GAINS[nonlinearity]


def calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[float, float]:
    """Return how many inputs one output of this weight reads, and how many outputs one input feeds.

    Weights are ``(out, in)``, ``(out, in, length)``, ``(out, in, height, width)``, or ``(groups, out, in,
    height, width)``. As in MegEngine, that of a grouped convolution of rows passes for one of images.

    Raises
    ------
    ValueError
        The tensor has another number of axes.

    Examples
    --------
    >>> mgb.module.init.calculate_fan_in_and_fan_out(mgb.tensor(np.ones((4, 3))))
    (3.0, 4.0)
    """
    shape = tensor.shape
    if not 2 <= len(shape) <= 5:
        raise ValueError(f"fan_in and fan_out are defined for weights of 2 to 5 axes, got shape {shape}")
    outputs, inputs, *window = shape[-4:]
    field = math.prod(window)
    return float(inputs * field), float(outputs * field)


def calculate_correct_fan(tensor: Tensor, mode: str) -> float:
    """Return the one of `calculate_fan_in_and_fan_out` that `mode` names, ``"fan_in"`` or ``"fan_out"``.

    Examples
    --------
    >>> calculate_correct_fan(F.zeros((4, 8)), "fan_out")
    4.0
    """
    modes = ("fan_in", "fan_out")
    if mode.lower() not in modes:
        raise ValueError(f"mode {mode!r} is not one of {', '.join(modes)}")
    return calculate_fan_in_and_fan_out(tensor)[modes.index(mode.lower())]


def _xavier_std(tensor: Tensor, gain: float) -> float:
    return gain * math.sqrt(2.0 / sum(calculate_fan_in_and_fan_out(tensor)))


def _msra_std(tensor: Tensor, slope: float, mode: str, nonlinearity: str) -> float:
    return calculate_gain(nonlinearity, slope) / math.sqrt(calculate_correct_fan(tensor, mode))


def _become(tensor: Tensor, drawn: Tensor) -> None:
    """Give `tensor` the drawn values in an array of its own."""
    tensor._reset(Tensor(drawn.numpy(), dtype=tensor.dtype, device=tensor.device))


def __dir__() -> list[str]:
    return __all__
