"""Linear maps."""

from __future__ import annotations

import math
from typing import Any

from .. import functional as F
from ..tensor import Parameter, Tensor
from . import init
from .module import Module


class Linear(Module):
    """``x @ weight.T + bias`` on the last axis.

    Parameters
    ----------
    in_features, out_features : int
    bias : bool
    name : str, optional

    Attributes
    ----------
    weight : Parameter of shape (out_features, in_features)
        Normal with the deviation ``1 / sqrt(in_features)``.
    bias : Parameter of shape (out_features,), or None
        0.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, name: str | None = None) -> None:
        super().__init__(name)
        self.in_features = in_features
        self.out_features = out_features
        self.weight = zeros_parameter((out_features, in_features))
        self.bias = zeros_parameter((out_features,)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the initial values anew."""
        init.normal_(self.weight, 0.0, 1.0 / math.sqrt(self.in_features))
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., in_features)`` to ``(..., out_features)``."""
        return F.linear(x, self.weight, self.bias)

    def _describe(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def zeros_parameter(shape: tuple[int, ...], dtype: Any = "float32") -> Parameter:
    """A Parameter of zeros."""
    import numpy as np

    return Parameter(np.zeros(shape, "float32"), dtype=dtype)
