"""Loss functions. Each takes ``reduction=``, by keyword only: ``"mean"``, ``"sum"`` or ``"none"``."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from ..errors import ConversionError, ShapeError
from ..ir import dtypes
from ..ops.activations import logsigmoid
from ..ops.bodies.transcendental import log
from ..ops.declare import normalize_axis
from ..ops.elementwise import abs, square, squared_magnitude
from ..ops.index import indexing_one_hot, labels
from ..ops.layout import reshape
from ..ops.methods import average
from ..ops.primitives import cast, le, logical_and, lt, maximum, neg, where
from ..ops.reduce import reduce_sum
from ..runtime.device import is_gpu
from ..runtime.precision import HIGH
from ..tensor import Tensor
from ..tensor.apply import autocasted, literals
from .softmaxes import logsumexp

__all__ = [
    "binary_cross_entropy", "cross_entropy", "hinge_loss", "huber_loss", "kl_div", "l1_loss", "nll_loss",
    "smooth_l1_loss", "square_loss",
]  # fmt: skip

_REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda x: reshape(average(x, tuple(range(x.ndim))), shape=()),
    "sum": lambda x: reshape(reduce_sum(x, axis=tuple(range(x.ndim))), shape=()),
    "none": lambda x: x,
}


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """Return `loss` as one number, or as it is for ``"none"``.

    Raises
    ------
    ValueError
        `reduction` is not one of ``"mean"``, ``"sum"``, ``"none"``.
    """
    if reduction not in _REDUCTIONS:
        raise ValueError(
            f"{reduction} is not a valid value for reduction, choose one of {', '.join(_REDUCTIONS)}"
        )
    return _REDUCTIONS[reduction](loss)


def _reducing(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Give a loss of many numbers the keyword ``reduction="mean"``; 16-bit floats are rounded once."""

    @wraps(function)
    def loss(*args: Any, reduction: str = "mean", **kwargs: Any) -> Tensor:
        args = autocasted(HIGH, args)
        wide = {name: _wide(x) for name, x in kwargs.items()}
        out = reduced(function(*map(_wide, args), **wide), reduction)
        floats = [dtype for x in (*args, *kwargs.values()) for dtype in _float_of(x)]
        narrow = bool(floats) and dtypes.common(floats) in dtypes.HALVES
        return cast(out, dtype=dtypes.common(floats)) if narrow else out

    return loss


def _wide(x: Any) -> Any:
    return cast(x, dtype=dtypes.float32) if isinstance(x, Tensor) and x.dtype in dtypes.HALVES else x


def _float_of(x: Any) -> list[np.dtype[Any]]:
    """Return the dtype of a Tensor, or of the one that an array or a list makes.

    Empty where that is not a float.
    """
    if isinstance(x, Tensor):
        dtype = x.dtype
    elif isinstance(x, np.ndarray | list):
        dtype = dtypes.constructed(x.dtype if isinstance(x, np.ndarray) else np.asarray(x).dtype)
    else:
        return []
    return [dtype] if dtype in dtypes.FLOATS else []


def picked(name: str, x: Tensor, label: Tensor, axis: int) -> Tensor:
    """Return ``x[..., label, ...]`` along `axis`, which stays with length 1; messages say `name`.

    Raises
    ------
    ShapeError, ConversionError
        `label` has another shape than `x` without that axis, or holds no integers.
    IndexError
        A label is none of the classes; on a GPU it makes NaN instead.
    """
    if not isinstance(label, Tensor):
        (label,) = literals(name, [label])  # so that the lengths of an array are followed
    if x.ndim != label.ndim + 1 or label.shape != (*x.shape[:axis], *x.shape[axis + 1 :]):
        raise ShapeError(_wrong_shape(name, x, label, axis))
    if label.dtype not in dtypes.INTEGERS:
        raise ConversionError(f"{name}: label must be integers, got {label.dtype}: use label.astype('int32')")
    label = labels(label, count=x.shape[axis])
    chosen = indexing_one_hot(x, cast(label, dtype=dtypes.int32), axis, keepdims=True)
    if not is_gpu(label.device):
        return chosen
    known = reshape(logical_and(le(0, label), lt(label, x.shape[axis])), shape=chosen.shape)
    return where(known, chosen, math.nan)  # a GPU, which is not waited for, cannot refuse a label


def _wrong_shape(name: str, x: Tensor, label: Tensor, axis: int) -> str:
    wanted = (*x.shape[:axis], *x.shape[axis + 1 :])
    text = f"{name}: label is of shape {label.shape}, pred of {x.shape} with the classes along axis {axis}: "
    if x.ndim != label.ndim + 1:
        ndims = f"input_ndim={x.ndim} target_ndim={label.ndim}"
        text += f"target ndim must be one less than input ndim; {ndims}; "
    if label.size == math.prod(wanted):
        return text + f"use label.reshape({wanted})"
    if label.shape == x.shape and name == "cross_entropy":
        return text + "where these are the probabilities of all classes, use label.astype('float32')"
    return text + f"it has to be of {wanted}"


def _without(x: Tensor, axis: int) -> Tensor:
    return reshape(x, shape=(*x.shape[:axis], *x.shape[axis + 1 :]))


@_reducing
def l1_loss(pred: Tensor, label: Tensor) -> Tensor:
    """Return ``abs(pred - label)``.

    Examples
    --------
    >>> F.l1_loss(mgb.tensor([1.0, -2.0]), mgb.tensor([3.0, 0.5]))
    Tensor(2.25, device=xpux:0)
    """
    return abs(pred - label)


@_reducing
def square_loss(pred: Tensor, label: Tensor) -> Tensor:
    """Return ``(pred - label) ** 2``.

    Examples
    --------
    >>> F.square_loss(mgb.tensor([1.0, 3.0]), mgb.tensor([1.0, 1.0]))
    Tensor(2., device=xpux:0)
    """
    return square(pred - label)


@_reducing
def smooth_l1_loss(pred: Tensor, label: Tensor, beta: float = 1.0) -> Tensor:
    """Return ``d ** 2 / (2 beta)`` where ``d = abs(pred - label)`` is below `beta`, else ``d - beta / 2``.

    Examples
    --------
    >>> F.smooth_l1_loss(mgb.tensor([1.0, -2.0]), mgb.tensor([3.0, 0.5]))
    Tensor(1.75, device=xpux:0)
    """
    rest = pred - label
    d = abs(rest)  # which has a corner at 0, as its square has not
    return where(lt(d, beta), squared_magnitude(rest) * (0.5 / beta), d - 0.5 * beta)


@_reducing
def huber_loss(pred: Tensor, label: Tensor, delta: float = 1.0) -> Tensor:
    """Return ``d ** 2 / 2`` where ``d = abs(pred - label)`` is below `delta`, else ``delta (d - delta / 2)``.

    Examples
    --------
    >>> F.huber_loss(mgb.tensor([1.0, -2.0]), mgb.tensor([3.0, 0.5]))
    Tensor(1.75, device=xpux:0)
    """
    rest = pred - label
    d = abs(rest)  # which has a corner at 0, as its square has not
    return where(lt(d, delta), squared_magnitude(rest) * 0.5, (d - 0.5 * delta) * delta)


@_reducing
def cross_entropy(
    pred: Tensor, label: Tensor, axis: int = 1, with_logits: bool = True, label_smooth: float = 0
) -> Tensor:
    """Return minus the logarithm of the probability that `pred` gives to `label`.

    Parameters
    ----------
    pred : Tensor
        Of shape (N, C, ...): logits, or probabilities.
    label : Tensor
        Of shape (N, ...): integers from 0 to C - 1. Or of the shape of `pred`: floats, the probabilities of
        all classes.
    axis : int
        The axis of the classes.
    with_logits : bool
        `pred` are logits, whose softmax gives the probabilities.
    label_smooth : float
        The part of the label's probability that is spread evenly over all classes.

    Returns
    -------
    Tensor
        One number, or of shape (N, ...) with ``reduction="none"``.

    Raises
    ------
    ShapeError
        `label` is not of the shape of `pred` without the axis of the classes.
    ConversionError
        Labels are not integers.
    IndexError
        A label is none of the C classes. A GPU and XLA do not wait to find out: a GPU gives NaN, XLA leaves
        the term of that label out.

    Examples
    --------
    >>> F.cross_entropy(mgb.tensor([[0.0, 0.0]]), mgb.tensor([1]))  # log(2)
    Tensor(0.6931472, device=xpux:0)
    """
    (axis,) = normalize_axis("cross_entropy", axis, pred.ndim)
    if isinstance(label, Tensor) and label.ndim == pred.ndim and label.dtype in dtypes.FLOATS:
        return _cross_entropy_of_shares(pred, label, axis, with_logits, label_smooth)
    chosen = picked("cross_entropy", pred, label, axis)
    if with_logits:
        total = logsumexp(pred, axis, keepdims=True)
        loss = total - chosen * (1 - label_smooth)
    else:
        loss = log(chosen) * -(1 - label_smooth)
    if label_smooth:
        loss = loss - average(pred if with_logits else log(pred), (axis,)) * label_smooth
    return _without(loss, axis)


def _cross_entropy_of_shares(
    pred: Tensor, label: Tensor, axis: int, with_logits: bool, label_smooth: float
) -> Tensor:
    """Return `cross_entropy` of the probabilities of all classes."""
    if label.shape != pred.shape:
        raise ShapeError(
            f"cross_entropy: label of floats has the shape of pred, {pred.shape}, and got {label.shape}; the "
            "numbers of classes are integers: use label.astype('int32')"
        )
    if label_smooth:
        label = label * (1 - label_smooth) + label_smooth / pred.shape[axis]
    logs = pred - logsumexp(pred, axis, keepdims=True) if with_logits else log(pred)
    return _without(neg(reduce_sum(label * logs, axis=(axis,))), axis)


@_reducing
def nll_loss(pred: Tensor, label: Tensor, axis: int = 1) -> Tensor:
    """Return ``-pred[label]`` along `axis`, where `pred` are log probabilities; see `cross_entropy`.

    Examples
    --------
    >>> F.nll_loss(mgb.tensor([[-1.0, -2.0]]), mgb.tensor([1]))
    Tensor(2., device=xpux:0)
    """
    (axis,) = normalize_axis("nll_loss", axis, pred.ndim)
    return _without(neg(picked("nll_loss", pred, label, axis)), axis)


@_reducing
def binary_cross_entropy(pred: Tensor, label: Tensor, with_logits: bool = True) -> Tensor:
    """Return ``-label log(p) - (1 - label) log(1 - p)`` where `p` is `pred`, or its sigmoid if it is logits.

    Examples
    --------
    >>> F.binary_cross_entropy(mgb.tensor([0.0]), mgb.tensor([1.0]))  # log(2)
    Tensor(0.6931472, device=xpux:0)
    """
    yes, no = (logsigmoid(pred), logsigmoid(neg(pred))) if with_logits else (log(pred), log(1 - pred))
    return neg(label * yes + (1 - label) * no)


@_reducing
def hinge_loss(pred: Tensor, label: Tensor, norm: str = "L1") -> Tensor:
    """Return the sum over axis 1 of ``max(0, 1 - pred * label)``, or with `norm` ``"L2"`` of its square.

    Labels are -1 or 1.

    Raises
    ------
    ValueError
        `norm` is something else.

    Examples
    --------
    >>> F.hinge_loss(mgb.tensor([[0.5, -2.0]]), mgb.tensor([[1.0, -1.0]])).item()
    0.5
    """
    if norm not in ("L1", "L2"):
        raise ValueError(f"hinge_loss: norm must be L1 or L2, got {norm!r}")
    margin = maximum(1 - pred * label, 0)
    return _without(reduce_sum(margin if norm == "L1" else square(margin), axis=(1,)), 1)


@_reducing
def kl_div(pred: Tensor, label: Tensor) -> Tensor:
    """Return ``label * (log(label) - pred)``, 0 where `label` is 0; `pred` are log probabilities.

    Examples
    --------
    >>> F.kl_div(mgb.tensor([1.0, -2.0]), mgb.tensor([3.0, 0.5]))
    Tensor(0.47463167, device=xpux:0)
    """
    positive = lt(0, label)
    return where(positive, label * (log(where(positive, label, 1)) - pred), 0)


def __dir__() -> list[str]:
    return __all__
