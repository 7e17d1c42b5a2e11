"""Connectionist temporal classification (Graves, Fernandez, Gomez, Schmidhuber 2006)."""

from __future__ import annotations

import math

import numpy as np

from ..errors import ShapeError
from ..ir import dtypes
from ..ops.bodies.transcendental import log
from ..ops.creation import along, full
from ..ops.elementwise import logaddexp, ne
from ..ops.index import index_get
from ..ops.layout import concat, cut_along, reshape
from ..ops.primitives import cast, le, logical_and, lt, maximum, neg, where
from ..tensor import Tensor
from ..tensor.apply import literal
from .loss import reduced
from .softmaxes import logsumexp

__all__ = ["ctc_loss"]

#: Smaller probabilities count as this one, 0 too: what cannot happen has a finite loss and a gradient.
LEAST = float(np.finfo(np.float32).tiny)


def ctc_loss(
    pred: Tensor,
    pred_lengths: Tensor,
    label: Tensor,
    label_lengths: Tensor,
    blank: int = 0,
    reduction: str = "mean",
) -> Tensor:
    """Return minus the log probability that `pred` emits `label`, summed over all alignments.

    Parameters
    ----------
    pred : Tensor
        Of shape (T, N, C): the probabilities of the classes at each time.
    pred_lengths : Tensor
        Of shape (N,): how many times count.
    label : Tensor
        Of shape (N, S), or all labels in one row; without blanks.
    label_lengths : Tensor
        Of shape (N,): how many labels count.
    blank : int
        The class that stands for no label.
    reduction : str
        ``"mean"`` divides each loss by the length of its label, then takes the mean.

    Returns
    -------
    Tensor
        One number, or of shape (N,) with ``reduction="none"``. A label that is too long for its times has the
        loss of a start of the least probability, 1.2e-38, as in MegEngine; it is not infinite.

    Raises
    ------
    ShapeError
        The axes of `pred` and the lengths of the others do not fit.

    Examples
    --------
    >>> pred = F.ones((2, 1, 2)) / 2  # a blank and one letter, equally likely, at two times
    >>> one = mgb.tensor([1])
    >>> loss = F.ctc_loss(pred, mgb.tensor([2]), one.reshape(1, 1), one)  # "a-", "-a", "aa": 3 of 4 ways
    >>> np.allclose(loss.item(), -np.log(3 / 4))
    True
    """
    if pred.ndim != 3 or {pred_lengths.shape, label_lengths.shape} != {(pred.shape[1],)}:
        raise ShapeError(
            f"ctc_loss: predictions of shape {pred.shape} (time, batch, class) do not fit lengths of shape "
            f"{pred_lengths.shape} and {label_lengths.shape}"
        )
    if label.ndim == 1:
        label = _rows(label, label_lengths)
    loss = neg(_log_likelihood(pred, pred_lengths, _with_blanks(label, blank), label_lengths, blank))
    if reduction == "mean":
        loss = loss / maximum(label_lengths, 1)
    return reduced(loss, reduction)


def _rows(label: Tensor, lengths: Tensor) -> Tensor:
    """Return labels in one row as a matrix, filled with class 0. Their lengths are read."""
    counts = lengths.numpy()
    places = np.cumsum(counts)[:, None] - counts[:, None] + np.arange(max(counts, default=0))
    places = np.minimum(places, label.size - 1)
    return index_get(label, literal(places, dtypes.int32, label.device), axes=(0,), place=0)


def _with_blanks(label: Tensor, blank: int) -> Tensor:
    """Return ``blank, l1, blank, l2, ..., blank`` for each row of `label`."""
    batch, length = label.shape
    pairs = reshape(cast(label, dtype=dtypes.int32), shape=(batch, length, 1))
    pairs = concat(full((batch, length, 1), blank, dtypes.int32, label.device), pairs, axis=2)
    last = full((batch, 1), blank, dtypes.int32, label.device)
    return concat(reshape(pairs, shape=(batch, 2 * length)), last, axis=1)


def _log_likelihood(
    pred: Tensor, pred_lengths: Tensor, states: Tensor, label_lengths: Tensor, blank: int
) -> Tensor:
    """Return the forward recursion over time, on the logarithms of the probability to be in each state."""
    rows = along(states.shape, (0,), dtypes.int32, states.device)
    column = along(states.shape, (1,), dtypes.int32, states.device)
    emitted = log(maximum(index_get(pred, rows, states, axes=(1, 2), place=1), LEAST))
    steps = le(1, column)
    skips = logical_and(le(2, column), ne(states, _shifted(states, 2, blank)))
    lengths, ends = (reshape(t, shape=(t.size, 1)) for t in (pred_lengths, label_lengths * 2))
    alpha = where(lt(column, 2), _at(emitted, 0), math.log(LEAST))
    for time in range(1, pred.shape[0]):
        before = where(steps, logaddexp(alpha, _shifted(alpha, 1, 0)), alpha)
        before = where(skips, logaddexp(before, _shifted(alpha, 2, 0)), before)
        alpha = where(lt(time, lengths), before + _at(emitted, time), alpha)
    final = logical_and(le(column, ends), le(ends - 1, column))
    return logsumexp(where(final, alpha, -math.inf), axis=1)


def _at(x: Tensor, time: int) -> Tensor:
    return reshape(cut_along(x, 0, time, time + 1), shape=x.shape[1:])


def _shifted(x: Tensor, count: int, fill: float) -> Tensor:
    """Shift rows to the right by `count`, with `fill` in what becomes free."""
    batch, length = x.shape
    kept = max(length - count, 0)
    free = full((batch, length - kept), fill, x.dtype, x.device)
    return concat(free, cut_along(x, 1, 0, kept), axis=1)
