"""Look-up tables."""

from __future__ import annotations

import numpy as np

from .. import functional as F
from ..tensor import Parameter, Tensor
from . import init
from .module import Module
from .sizes import size


class Embedding(Module):
    """A learnt vector for each integer.

    Parameters
    ----------
    num_embeddings : int
        Integers from 0 to ``num_embeddings - 1`` are looked up.
    embedding_dim : int
        Length of a vector.
    name : str, optional

    Attributes
    ----------
    weight : Parameter of shape (num_embeddings, embedding_dim)
        Standard normal.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, name: str | None = None) -> None:
        super().__init__(name)
        self.num_embeddings = size("num_embeddings", num_embeddings)
        self.embedding_dim = size("embedding_dim", embedding_dim)
        self.weight = Parameter(np.zeros((self.num_embeddings, self.embedding_dim)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the initial values anew."""
        init.normal_(self.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map integers of any shape to that shape and ``(embedding_dim,)``."""
        return F.embedding(inputs, self.weight)

    def _describe(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"
