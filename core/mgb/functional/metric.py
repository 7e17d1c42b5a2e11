"""Metrics of a network's quality."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ShapeError
from ..ir import dtypes
from ..ops.layout import cut_along, reshape
from ..ops.methods import mean, sum
from ..ops.primitives import cast, eq
from ..ops.sort import topk as first
from ..tensor import Tensor

__all__ = ["topk_accuracy"]


def topk_accuracy(logits: Tensor, target: Tensor, topk: int | Sequence[int] = 1) -> Tensor | list[Tensor]:
    """Return the share of rows whose label is among the classes of the largest scores.

    Parameters
    ----------
    logits : Tensor of shape (N, C)
        The scores of the classes.
    target : integer Tensor of shape (N,)
        The labels.
    topk : int or sequence of int
        How many classes count.

    Returns
    -------
    Tensor of float32
        A list of them where `topk` holds several numbers.

    Raises
    ------
    ShapeError
        There is not one label for each row.

    Examples
    --------
    >>> F.topk_accuracy(mgb.tensor([[0.1, 0.9], [0.8, 0.2]]), mgb.tensor([1, 1])).item()
    0.5
    """
    counts = (topk,) if isinstance(topk, int) else tuple(topk)
    if logits.ndim != 2 or target.shape != logits.shape[:1]:
        raise ShapeError(
            f"topk_accuracy: needs logits (rows, classes) and one label per row, got {logits.shape} and "
            f"{target.shape}"
        )
    _, classes = first(logits, max(counts))
    found = cast(eq(classes, reshape(target, shape=(target.size, 1))), dtype=dtypes.float32)
    shares = [mean(sum(cut_along(found, 1, 0, min(k, found.shape[1])), 1)) for k in counts]
    return shares[0] if len(shares) == 1 else shares
