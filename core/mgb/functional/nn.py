"""The functions of neural networks: linear maps, convolution, pooling, normalisation, softmax, attention."""

from __future__ import annotations

import math

from ml_dtypes import finfo

from ..ir import dtypes
from ..ops.images import contract
from ..ops.images.attention import attention, below, is_served
from ..ops.index import index_get
from ..ops.layout import reshape
from ..ops.primitives import logical_and, where
from ..random import generator
from ..runtime.precision import LOW
from ..tensor import Tensor
from ..tensor.apply import autocasted
from . import (
    activation,
    convolution,
    ctc,
    loss,
    normalization,
    pooling,
    softmaxes,
    unpooling,
    volumes,
    windows,
)
from .activation import *
from .convolution import *
from .ctc import *
from .interpolation import interpolate, pixel_shuffle
from .loss import *
from .normalization import *
from .options import COMPUTE_MODES, choice
from .pooling import *
from .rearrange import pad
from .softmaxes import *
from .softmaxes import softmax
from .tensor import indexing_one_hot, one_hot
from .unpooling import *
from .volumes import *
from .windows import *

__all__ = [
    "dropout", "embedding", "indexing_one_hot", "interpolate", "linear", "one_hot", "pad", "pixel_shuffle",
    "scaled_dot_product_attention",
]  # fmt: skip
__all__ += activation.__all__
__all__ += convolution.__all__
__all__ += ctc.__all__
__all__ += loss.__all__
__all__ += normalization.__all__
__all__ += pooling.__all__
__all__ += softmaxes.__all__
__all__ += unpooling.__all__
__all__ += volumes.__all__
__all__ += windows.__all__

# linear maps


def linear(inp: Tensor, weight: Tensor, bias: Tensor | None = None, compute_mode: str = "default") -> Tensor:
    """Return ``inp @ weight.T + bias``.

    Parameters
    ----------
    inp : Tensor
        Of shape (..., inputs).
    weight : Tensor
        Of shape (outputs, inputs).
    bias : Tensor, optional
        Of shape (outputs,).
    compute_mode : str
        ``"default"`` or ``"float32"``: 16-bit floats are summed in float32 by either.

    Returns
    -------
    Tensor
        Of shape (..., outputs).

    Examples
    --------
    >>> F.linear(mgb.tensor([[1.0, 2.0]]), mgb.tensor([[1.0, 1.0]]), mgb.tensor([0.5]))
    Tensor([[3.5]], device=xpux:0)
    """
    if compute_mode != "default":
        choice("linear, compute_mode", compute_mode, COMPUTE_MODES)
    rows = inp if inp.ndim == 2 else reshape(inp, shape=(math.prod(inp.shape[:-1]), inp.shape[-1]))
    out = contract.matmul(rows, weight, transpose_b=True)
    if inp.ndim != 2:
        out = reshape(out, shape=(*inp.shape[:-1], weight.shape[0]))
    if bias is not None:
        out = out + autocasted(LOW, (bias,))[0]
    return out


# the rest


def dropout(inp: Tensor, drop_prob: float, training: bool = True) -> Tensor:
    """Set each element to 0 with probability `drop_prob` and divide the others by ``1 - drop_prob``.

    `inp` itself when not `training`. The random numbers are those of `mgb.random`.

    Raises
    ------
    ValueError
        `drop_prob` is not in ``[0, 1)``.

    Examples
    --------
    >>> F.dropout(F.ones((100,)), 0.0).sum().item()
    100.0
    """
    if not 0 <= drop_prob < 1:
        raise ValueError(f"dropout: drop_prob {drop_prob} is not in [0, 1)")
    if not training or drop_prob == 0:
        return inp
    kept = generator(inp.device).uniform(size=inp.shape) >= drop_prob
    return where(kept, inp * (1 / (1 - drop_prob)), 0)


def embedding(inp: Tensor, weight: Tensor) -> Tensor:
    """Look up the rows of `weight` (rows, width) by the integers in `inp`: shape ``(*inp.shape, width)``.

    Examples
    --------
    >>> F.embedding(mgb.tensor([1, 0]), mgb.tensor([[1.0, 2.0], [3.0, 4.0]]))
    Tensor([[3., 4.],
            [1., 2.]], device=xpux:0)
    """
    return index_get(weight, inp, axes=(0,), place=0)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Return ``softmax(query @ key.T * scale) @ value`` (Vaswani et al. 2017).

    Parameters
    ----------
    query : Tensor
        Of shape (..., L, E).
    key : Tensor
        Of shape (..., S, E).
    value : Tensor
        Of shape (..., S, V).
    mask : Tensor, optional
        Broadcasts to (..., L, S): of bool, which keys a query sees, where one that sees none gets zeros; else
        it is added to the scores.
    is_causal : bool
        The i-th query sees the keys up to the i-th.
    scale : float, optional
        None is ``1 / sqrt(E)``.

    Returns
    -------
    Tensor
        Of shape (..., L, V).

    Examples
    --------
    >>> F.scaled_dot_product_attention(F.ones((1, 2, 3, 4)), F.ones((1, 2, 5, 4)), F.ones((1, 2, 5, 4))).shape
    (1, 2, 3, 4)
    """
    query, key, value = autocasted(LOW, (query, key, value))
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    query = query if factor == 1 else query * factor
    if mask is None and is_served(query, key, value, is_causal):
        return attention(query, key, value, causal=is_causal)
    return contract.matmul(attention_weights(query, key, mask, is_causal, scale=1), value)


def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None = None
) -> Tensor:
    """Return the weight of each key for each query, (..., L, S); see `scaled_dot_product_attention`."""
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = contract.matmul(query if factor == 1 else query * factor, key, transpose_b=True)
    if is_causal:
        scores = where(below(scores), scores, -math.inf)
    if mask is None:
        return softmax(scores, axis=-1)
    if mask.dtype != dtypes.bool_:
        return softmax(scores + mask, axis=-1)
    if is_causal:
        mask = logical_and(mask, below(scores))
    # Finite: a query that sees nothing has weights, all of them taken away again, and no NaN in its gradient.
    hidden = float(finfo(scores.dtype).min)  # type: ignore[no-untyped-call]
    return where(mask, softmax(where(mask, scores, hidden), axis=-1), 0)


def __dir__() -> list[str]:
    return __all__
