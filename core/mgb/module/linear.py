"""Linear maps."""

from __future__ import annotations

import math

import numpy as np

from .. import functional as F
from ..functional.options import COMPUTE_MODES, choice
from ..tensor import Parameter, Tensor
from . import init
from .module import Module
from .sizes import size


class Linear(Module):
    """``x @ weight.T + bias`` on the last axis.

    Parameters
    ----------
    in_features, out_features : int
    bias : bool
    compute_mode : str
        See `functional.linear`.
    name : str, optional

    Attributes
    ----------
    weight : Parameter of shape (out_features, in_features)
        Normal with the deviation ``1 / sqrt(in_features)``.
    bias : Parameter of shape (out_features,), or None
        0.

    Examples
    --------
    >>> M.Linear(3, 2)(F.ones((5, 3))).shape
    (5, 2)
    """

    compute_mode = "default"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        compute_mode: str = "default",
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        self.compute_mode = choice("Linear, compute_mode", compute_mode, COMPUTE_MODES)
        self.in_features = size("in_features", in_features)
        self.out_features = size("out_features", out_features)
        self.weight = Parameter(np.zeros((self.out_features, self.in_features)))
        self.bias = Parameter(np.zeros(self.out_features)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        init.normal_(self.weight, 0.0, 1.0 / math.sqrt(self.in_features))
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., in_features)`` to ``(..., out_features)``."""
        return F.linear(x, self.weight, self.bias)

    def _describe(self) -> str:
        features = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{features}, bias={self.bias is not None}"
