"""Activations under MegEngine's names."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError
from ..ops import activations as a
from ..ops.declare import op_of
from ..tensor import Tensor
from ..tensor.apply import apply

__all__ = [
    "celu", "elu", "gelu", "gelu_tanh", "hardtanh", "hsigmoid", "hswish", "leaky_relu",
    "logsigmoid", "mish", "prelu", "relu", "relu6", "selu", "sigmoid", "silu", "softplus",
    "softsign", "tanhshrink",
]  # fmt: skip

_RELU, _SIGMOID = op_of(a.relu), op_of(a.sigmoid)

celu, elu, gelu, gelu_tanh, hardtanh = a.celu, a.elu, a.gelu, a.gelu_tanh, a.hardtanh
hsigmoid, hswish, logsigmoid, mish = a.hsigmoid, a.hswish, a.logsigmoid, a.mish
relu6, selu, silu, softplus, softsign, tanhshrink = (
    a.relu6,
    a.selu,
    a.silu,
    a.softplus,
    a.softsign,
    a.tanhshrink,
)


def relu(x: Tensor) -> Tensor:
    """Return ``max(x, 0)``; NaN stays NaN.

    Examples
    --------
    >>> F.relu(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([0., 0., 2.], device=xpux:0)
    """
    return apply(_RELU, x)


def sigmoid(x: Tensor) -> Tensor:
    """Return ``1 / (1 + exp(-x))``.

    Examples
    --------
    >>> F.sigmoid(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([0.2689414, 0.5      , 0.880797 ], device=xpux:0)
    """
    return apply(_SIGMOID, x)


def prelu(inp: Tensor, weight: Any) -> Tensor:
    """Return `inp` where it is positive, ``weight * inp`` elsewhere.

    Parameters
    ----------
    inp : Tensor
        Of shape (N, C, ...).
    weight : Tensor
        Of one element, or of C: one for each channel.

    Raises
    ------
    ShapeError
        `weight` has neither one element nor one for each channel.

    Examples
    --------
    >>> F.prelu(mgb.tensor([-2.0, 4.0]), mgb.tensor([0.5]))
    Tensor([-1.,  4.], device=xpux:0)
    """
    size = weight.size if isinstance(weight, Tensor) else 1
    if size > 1:
        if inp.ndim < 2 or size != inp.shape[1]:
            raise ShapeError(
                f"prelu: {size} weights for an input of shape {inp.shape}; give 1 or one a channel"
            )
        weight = weight.reshape(1, -1, *([1] * (inp.ndim - 2)))
    return a.prelu(inp, weight)


def leaky_relu(inp: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Return `inp` where it is positive, ``negative_slope * inp`` elsewhere.

    Examples
    --------
    >>> F.leaky_relu(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([-0.01,  0.  ,  2.  ], device=xpux:0)
    """
    return a.leaky_relu(inp, negative_slope=negative_slope)
