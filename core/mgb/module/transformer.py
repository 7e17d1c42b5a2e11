"""Blocks of a transformer, with the names of PyTorch's."""

from __future__ import annotations

from copy import deepcopy

from .. import functional as F
from ..functional.options import choice
from ..tensor import Tensor
from .attention import MultiHeadAttention
from .containers import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .normalization import LayerNorm
from .sizes import size


class TransformerEncoderLayer(Module):
    """Self-attention and two linear maps, each added to its input and normalised (Vaswani et al. 2017).

    Inputs have the shape (N, L, d_model): the batch is first, as with PyTorch's ``batch_first=True``,
    whatever layer the weights come from.

    Parameters
    ----------
    d_model : int
        Length of the vectors.
    nhead : int
        Heads of the attention.
    dim_feedforward : int
        Length between the two linear maps.
    dropout : float
        The share of attention weights, and of elements of the maps and sums, set to 0 in training.
    activation : {"relu", "gelu"}
        Between the linear maps.
    layer_norm_eps : float
    norm_first : bool
        Normalise what goes into attention and maps instead of what comes out.
    bias : bool
        Of the linear maps and the projections.
    name : str, optional

    Raises
    ------
    ShapeError
        `nhead` does not divide `d_model`.

    Examples
    --------
    >>> M.TransformerEncoderLayer(8, 2)(F.ones((3, 1, 8))).shape
    (3, 1, 8)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        layer_norm_eps: float = 1e-5,
        norm_first: bool = False,
        bias: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        self.activation = choice("TransformerEncoderLayer, activation", activation, ("relu", "gelu"))
        self.norm_first = norm_first
        self.self_attn = MultiHeadAttention(d_model, nhead, dropout=dropout, bias=bias)
        self.linear1 = Linear(d_model, dim_feedforward, bias)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias)
        self.norm1, self.norm2 = (LayerNorm(d_model, layer_norm_eps) for _ in range(2))
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)

    def forward(self, src: Tensor, src_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """Map ``(batch, length, d_model)`` to that shape.

        Parameters
        ----------
        src : Tensor of shape (batch, length, d_model)
        src_mask : Tensor, optional
            See `MultiHeadAttention`: True is where a place may look, the opposite of PyTorch's layer.
        is_causal : bool
            Place i sees no place after i.
        """
        if self.norm_first:
            x = src + self._attended(self.norm1(src), src_mask, is_causal)
            return x + self._mapped(self.norm2(x))
        x = self.norm1(src + self._attended(src, src_mask, is_causal))
        out: Tensor = self.norm2(x + self._mapped(x))
        return out

    def _attended(self, x: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
        out: Tensor = self.dropout1(self.self_attn(x, attn_mask=mask, is_causal=is_causal))
        return out

    def _mapped(self, x: Tensor) -> Tensor:
        act = F.relu if self.activation == "relu" else F.gelu
        out: Tensor = self.dropout2(self.linear2(self.dropout(act(self.linear1(x)))))
        return out


class TransformerEncoder(Module):
    """Layers one after the other.

    Parameters
    ----------
    encoder_layer : TransformerEncoderLayer
        Copied for each layer; the copies draw their own initial values.
    num_layers : int
    norm : Module, optional
        Applied to the result.
    name : str, optional

    Examples
    --------
    >>> layer = M.TransformerEncoderLayer(8, 2, 16)
    >>> M.TransformerEncoder(layer, 2)(F.ones((1, 5, 8))).shape
    (1, 5, 8)
    """

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Module | None = None, name: str | None = None
    ) -> None:
        super().__init__(name)
        self.layers = ModuleList(deepcopy(encoder_layer) for _ in range(size("num_layers", num_layers)))
        self.norm = norm
        for module in self.layers.modules():
            getattr(module, "reset_parameters", lambda: None)()

    def forward(self, src: Tensor, mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """Call every layer in turn; see `TransformerEncoderLayer`."""
        for layer in self.layers:
            src = layer(src, mask, is_causal)
        return src if self.norm is None else self.norm(src)
