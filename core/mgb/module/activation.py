"""Element-wise layers, and softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from .. import functional as F
from ..errors import ShapeError
from ..tensor import Parameter, Tensor
from .module import Module


class _Activation(Module):
    """A function without parameters."""

    function: ClassVar[Callable[[Tensor], Tensor]]

    def forward(self, x: Tensor) -> Tensor:
        """Element by element; the shape stays."""
        return type(self).function(x)


def _layer(name: str, function: Callable[[Tensor], Tensor], text: str) -> type[_Activation]:
    members = {"__doc__": text, "__module__": __name__, "function": staticmethod(function)}
    return type(name, (_Activation,), members)


ReLU = _layer("ReLU", F.relu, "``max(x, 0)``.")
ReLU6 = _layer("ReLU6", F.relu6, "``min(max(x, 0), 6)``.")
Sigmoid = _layer("Sigmoid", F.sigmoid, "``1 / (1 + exp(-x))``.")
Tanh = _layer("Tanh", F.tanh, "The hyperbolic tangent.")
GELU = _layer("GELU", F.gelu, "``x`` times the normal distribution's probability of less than ``x``.")
SiLU = _layer("SiLU", F.silu, "``x * sigmoid(x)``.")
Softplus = _layer("Softplus", F.softplus, "``log(1 + exp(x))``.")
LogSigmoid = _layer("LogSigmoid", F.logsigmoid, "``log(sigmoid(x))``.")
HSigmoid = _layer("HSigmoid", F.hsigmoid, "``relu6(x + 3) / 6``.")
HSwish = _layer("HSwish", F.hswish, "``x * relu6(x + 3) / 6``.")


class Identity(Module):
    """Its input, unchanged."""

    def forward(self, x: Tensor) -> Tensor:
        """The input itself."""
        return x


class LeakyReLU(Module):
    """``x`` where it is positive, ``negative_slope * x`` elsewhere.

    Parameters
    ----------
    negative_slope : float
    name : str, optional
    """

    def __init__(self, negative_slope: float = 0.01, name: str | None = None) -> None:
        super().__init__(name)
        self.negative_slope = negative_slope

    def forward(self, x: Tensor) -> Tensor:
        """Element by element; the shape stays."""
        return F.leaky_relu(x, self.negative_slope)

    def _describe(self) -> str:
        return f"negative_slope={self.negative_slope}"


class PReLU(Module):
    """`LeakyReLU` with a learnt slope.

    Parameters
    ----------
    num_parameters : int
        1, or the number of channels (the second axis), each of which then has its own slope.
    init : float
        The initial slope.
    name : str, optional

    Attributes
    ----------
    weight : Parameter of shape (1,) or (1, num_parameters, 1, 1)
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, name: str | None = None) -> None:
        super().__init__(name)
        self.num_parameters = num_parameters
        shape = (1,) if num_parameters == 1 else (1, num_parameters, 1, 1)
        self.weight = Parameter(np.full(shape, init))

    def forward(self, x: Tensor) -> Tensor:
        """Element by element; the shape stays."""
        if self.num_parameters > 1 and (x.ndim != 4 or x.shape[1] != self.num_parameters):
            raise ShapeError(f"PReLU of {self.num_parameters} channels got an input of {x.shape}")
        return F.prelu(x, self.weight)

    def _describe(self) -> str:
        return f"num_parameters={self.num_parameters}"


class Softmax(Module):
    """``exp(x) / sum(exp(x))`` along an axis.

    Parameters
    ----------
    axis : int, optional
        By default 0 for inputs of 0, 1 or 3 axes and 1 for others.
    name : str, optional
    """

    def __init__(self, axis: int | None = None, name: str | None = None) -> None:
        super().__init__(name)
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        """The shape stays."""
        return F.softmax(x, self.axis)

    def _describe(self) -> str:
        return f"axis={self.axis}"
