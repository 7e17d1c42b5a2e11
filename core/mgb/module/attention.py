"""Attention."""

from __future__ import annotations

from .. import functional as F
from ..errors import ShapeError
from ..functional.nn import attention_weights
from ..tensor import Tensor
from . import init
from .dropout import Dropout
from .linear import Linear
from .module import Module


class MultiHeadAttention(Module):
    """Scaled dot-product attention in several heads (Vaswani et al. 2017).

    Parameters
    ----------
    embed_dim : int
        Length of the vectors of queries, keys, values and results.
    num_heads : int
        The vectors are cut into this many parts, which attend independently.
    dropout : float
        The share of attention weights set to 0 in training.
    bias : bool
        Of the four projections.
    name : str, optional

    Attributes
    ----------
    query, key, value, out : Linear
        The projections, Xavier-uniform.

    Raises
    ------
    ShapeError
        `num_heads` does not divide `embed_dim`.

    Examples
    --------
    >>> M.MultiHeadAttention(8, 2)(F.ones((1, 3, 8)), F.ones((1, 3, 8)), F.ones((1, 3, 8))).shape
    (1, 3, 8)
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        if embed_dim % num_heads:
            raise ShapeError(f"embed_dim = {embed_dim} must be a multiple of num_heads = {num_heads}")
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.query, self.key, self.value, self.out = (Linear(embed_dim, embed_dim, bias) for _ in range(4))
        self.dropout = Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        for projection in (self.query, self.key, self.value, self.out):
            projection.reset_parameters()
            init.xavier_uniform_(projection.weight)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Attend.

        Parameters
        ----------
        query : Tensor of shape (batch, length, embed_dim)
            What asks.
        key : Tensor of shape (batch, source, embed_dim), optional
            What is compared with the query; `query` by default.
        value : Tensor of shape (batch, source, embed_dim), optional
            What is averaged; `key` by default.
        attn_mask : Tensor, optional
            Broadcasts to (batch, heads, length, source). Boolean: True where a query may look; a float
            is added to the scores.
        is_causal : bool
            Place i sees no place after i.

        Returns
        -------
        Tensor of shape (batch, length, embed_dim)
        """
        key = query if key is None else key
        value = key if value is None else value
        factor = (self.embed_dim // self.num_heads) ** -0.5
        q = self._split(self.query(query) * factor)  # scaled here, it is one kernel with the bias
        k, v = self._split(self.key(key)), self._split(self.value(value))
        if self.dropout.drop_prob and (self.training or self.dropout.training):
            weights = self.dropout(attention_weights(q, k, attn_mask, is_causal, scale=1))
            attended = F.matmul(weights, v)
        else:
            attended = F.scaled_dot_product_attention(q, k, v, attn_mask, is_causal=is_causal, scale=1)
        heads = F.transpose(attended, (0, 2, 1, 3))
        out: Tensor = self.out(F.reshape(heads, query.shape))
        return out

    def _split(self, x: Tensor) -> Tensor:
        """Split heads: ``(batch, length, embed_dim)`` to ``(batch, heads, length, embed_dim / heads)``."""
        batch, length, width = x.shape
        parts = F.reshape(x, (batch, length, self.num_heads, width // self.num_heads))
        return F.transpose(parts, (0, 2, 1, 3))

    def _describe(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}"
