"""Activations and matrix products under MegEngine's names."""

from __future__ import annotations

from typing import Any

from ..apply import apply, tensors
from ..errors import ShapeError
from ..ops import activations as a
from ..ops.contract import matmul as matmul_op
from ..ops.declare import op_of
from ..ops.layout import transpose
from ..ops.operators import product
from ..tensor import Tensor
from .options import COMPUTE_MODES, choice

__all__ = [
    "celu", "dot", "elu", "gelu", "gelu_tanh", "hardtanh", "hsigmoid", "hswish", "leaky_relu",
    "logsigmoid", "matmul", "mish", "prelu", "relu", "relu6", "selu", "sigmoid", "silu", "softplus",
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
    """``max(x, 0)``; NaN stays NaN."""
    return apply(_RELU, x)


def sigmoid(x: Tensor) -> Tensor:
    """``1 / (1 + exp(-x))``."""
    return apply(_SIGMOID, x)


def prelu(inp: Tensor, weight: Any) -> Tensor:
    """`inp` where it is positive, ``weight * inp`` elsewhere.

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
    """`inp` where it is positive, ``negative_slope * inp`` elsewhere."""
    return a.leaky_relu(inp, negative_slope=negative_slope)


def matmul(
    inp1: Tensor,
    inp2: Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    compute_mode: str = "default",
) -> Tensor:
    """The matrix product; leading axes are batches and broadcast, vectors are rows or columns as in NumPy.

    Parameters
    ----------
    inp1, inp2 : Tensor
    transpose_a, transpose_b : bool
        Swap the last two axes of that operand first.
    compute_mode : str
        ``"default"`` or ``"float32"``: 16-bit floats are summed in float32 by either.

    Raises
    ------
    ShapeError
        The inner lengths differ; the message names both shapes.
    ValueError
        There is no such mode.
    """
    if compute_mode != "default":
        choice("matmul, compute_mode", compute_mode, COMPUTE_MODES)
    inp1, inp2 = tensors("matmul", (inp1, inp2))
    if inp1.ndim >= 2 and inp2.ndim >= 2:
        return matmul_op(inp1, inp2, transpose_a=transpose_a, transpose_b=transpose_b)
    return product(_swapped(inp1) if transpose_a else inp1, _swapped(inp2) if transpose_b else inp2)


def _swapped(x: Tensor) -> Tensor:
    axes = (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2) if x.ndim >= 2 else (0,)
    return transpose(x, axes=axes)


def dot(inp1: Tensor, inp2: Tensor) -> Tensor:
    """The inner product of two vectors.

    Raises
    ------
    ShapeError
        An operand is no vector, or the lengths differ.
    """
    if inp1.ndim > 1 or inp2.ndim > 1:
        raise ShapeError(f"dot: takes vectors, got shapes {inp1.shape} and {inp2.shape}; see matmul")
    return product(inp1, inp2) if inp1.ndim and inp2.ndim else inp1 * inp2
