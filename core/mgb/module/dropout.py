"""Dropout."""

from __future__ import annotations

from .. import functional as F
from ..tensor import Tensor
from .module import Module


class Dropout(Module):
    """Set elements to 0 at random in training, and scale the others so that the mean stays.

    Parameters
    ----------
    drop_prob : float
        The share that is set to 0; in eval mode nothing happens.
    name : str, optional

    Raises
    ------
    ValueError
        `drop_prob` is not in [0, 1).

    Examples
    --------
    >>> M.Dropout(0.5)(F.ones((2, 3))).shape
    (2, 3)
    """

    def __init__(self, drop_prob: float = 0.0, name: str | None = None) -> None:
        super().__init__(name)
        if not 0.0 <= drop_prob < 1.0:
            raise ValueError(f"drop_prob must be at least 0 and less than 1, got {drop_prob}")
        self.drop_prob = drop_prob

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply it; the shape stays."""
        return F.dropout(inputs, self.drop_prob, self.training)

    def _describe(self) -> str:
        return f"drop_prob={self.drop_prob}"
