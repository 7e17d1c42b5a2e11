"""Look-up tables."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from .. import functional as F
from ..errors import ShapeError
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
    padding_idx, max_norm, norm_type : None
        As in MegEngine, nothing else can be chosen.
    initial_weight : Tensor or array, optional
        Copied; standard normal numbers where it is not given.
    freeze : bool
        No gradient reaches the vectors.
    name : str, optional

    Attributes
    ----------
    weight : Parameter of shape (num_embeddings, embedding_dim)

    Raises
    ------
    ShapeError
        `initial_weight` has another shape.
    ValueError
        `padding_idx`, `max_norm` or `norm_type` is given.

    Examples
    --------
    >>> M.Embedding(10, 4)(mgb.tensor([1, 2])).shape
    (2, 4)
    """

    freeze = False

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: None = None,
        max_norm: None = None,
        norm_type: None = None,
        initial_weight: Tensor | np.ndarray[Any, Any] | None = None,
        freeze: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        options = {"padding_idx": padding_idx, "max_norm": max_norm, "norm_type": norm_type}
        for option, value in options.items():
            if value is not None:
                raise ValueError(f"Embedding: {option}={value!r} is not supported, here and in MegEngine")
        self.num_embeddings = size("num_embeddings", num_embeddings)
        self.embedding_dim = size("embedding_dim", embedding_dim)
        self.freeze = freeze
        shape = (self.num_embeddings, self.embedding_dim)
        if initial_weight is None:
            self.weight = Parameter(np.zeros(shape))
            self.reset_parameters()
        else:
            given = _vectors(initial_weight)
            if given.shape != shape:
                raise ShapeError(f"Embedding: initial_weight must have shape {shape}, got {given.shape}")
            self.weight = Parameter(given.numpy(), given.dtype, given.device)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor | np.ndarray[Any, Any], freeze: bool = True, **options: Any
    ) -> Self:
        """Return a layer that looks up in `embeddings`, of shape (num_embeddings, embedding_dim).

        Parameters
        ----------
        embeddings : Tensor or array
            Copied.
        freeze : bool
            No gradient reaches the vectors.
        **options
            The other ones of the class.
        """
        given = _vectors(embeddings)
        if given.ndim != 2:
            raise ShapeError(
                f"Embedding.from_pretrained: embeddings must have shape (number, length), got {given.shape}"
            )
        number, length = given.shape
        return cls(number, length, initial_weight=given, freeze=freeze, **options)

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        init.normal_(self.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map integers of any shape to that shape and ``(embedding_dim,)``."""
        return F.embedding(inputs, self.weight.detach() if self.freeze else self.weight)

    def _describe(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


def _vectors(given: Any) -> Tensor:
    return given if isinstance(given, Tensor) else Tensor(given)
