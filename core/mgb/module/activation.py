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
        """Apply it element by element; the shape stays."""
        return type(self).function(x)


def _layer(name: str, function: Callable[[Tensor], Tensor], text: str, values: str) -> type[_Activation]:
    """Return a layer of `function`, whose values at -1 and 2 are the example."""
    text += f"\n\nExamples\n--------\n>>> M.{name}()(mgb.tensor([-1.0, 2.0])).tolist()\n[{values}]"
    members = {"__doc__": text, "__module__": __name__, "function": staticmethod(function)}
    return type(name, (_Activation,), members)


ReLU = _layer("ReLU", F.relu, "``max(x, 0)``.", "0., 2.")
ReLU6 = _layer("ReLU6", F.relu6, "``min(max(x, 0), 6)``.", "0., 2.")
Sigmoid = _layer("Sigmoid", F.sigmoid, "``1 / (1 + exp(-x))``.", "0.26894143, 0.880797")
Tanh = _layer("Tanh", F.tanh, "The hyperbolic tangent.", "-0.7615942, 0.9640276")
GELU = _layer(
    "GELU",
    F.gelu,
    "``x`` times the normal distribution's probability of less than ``x``.",
    "-0.15865526, 1.9544997",
)
SiLU = _layer("SiLU", F.silu, "``x * sigmoid(x)``.", "-0.26894143, 1.761594")
Softplus = _layer("Softplus", F.softplus, "``log(1 + exp(x))``.", "0.3132617, 2.126928")
LogSigmoid = _layer("LogSigmoid", F.logsigmoid, "``log(sigmoid(x))``.", "-1.3132617, -0.12692802")
HSigmoid = _layer("HSigmoid", F.hsigmoid, "``relu6(x + 3) / 6``.", "0.3333333, 0.8333333")
HSwish = _layer("HSwish", F.hswish, "``x * relu6(x + 3) / 6``.", "-0.3333333, 1.6666666")


class Identity(Module):
    """Its input, unchanged.

    Examples
    --------
    >>> M.Identity()(F.ones((2,))).shape
    (2,)
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the input itself."""
        return x


class LeakyReLU(Module):
    """``x`` where it is positive, ``negative_slope * x`` elsewhere.

    Parameters
    ----------
    negative_slope : float
    name : str, optional

    Examples
    --------
    >>> M.LeakyReLU()(F.ones((2,))).shape
    (2,)
    """

    def __init__(self, negative_slope: float = 0.01, name: str | None = None) -> None:
        super().__init__(name)
        self.negative_slope = negative_slope

    def forward(self, x: Tensor) -> Tensor:
        """Apply it element by element; the shape stays."""
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

    Examples
    --------
    >>> M.PReLU()(F.ones((2,))).shape
    (2,)
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, name: str | None = None) -> None:
        super().__init__(name)
        self.num_parameters = num_parameters
        shape = (1,) if num_parameters == 1 else (1, num_parameters, 1, 1)
        self.weight = Parameter(np.full(shape, init))

    def forward(self, x: Tensor) -> Tensor:
        """Apply it element by element; the shape stays."""
        if self.num_parameters > 1 and (x.ndim != 4 or x.shape[1] != self.num_parameters):
            raise ShapeError(
                f"PReLU: num_parameters = {self.num_parameters} does not fit an input of shape {x.shape}"
            )
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

    Examples
    --------
    >>> M.Softmax(axis=1)(F.ones((2, 3))).shape
    (2, 3)
    """

    def __init__(self, axis: int | None = None, name: str | None = None) -> None:
        super().__init__(name)
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        """Apply it; the shape stays."""
        return F.softmax(x, self.axis)

    def _describe(self) -> str:
        return f"axis={self.axis}"
