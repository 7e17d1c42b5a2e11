"""Scans: running sums, products, extremes, logarithms of sums, sums that forget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..ir import Kind, Op, Spec, State, dtypes
from ..ir.sizes import same_shape
from ..tensor import Tensor, wrap
from .bodies.transcendental import exp, log
from .creation import along, ones_like, zeros_like
from .declare import PRECISE, SMOOTH, declare, normalize_axis, op_of
from .eager import accumulate
from .elementwise import abs, isnan, logaddexp
from .index import scatter_add_
from .layout import broadcast_to, concat, cut_along, reverse
from .methods import accumulated
from .primitives import cast, eq, fma, lt, maximum, minimum, mul, neg, where
from .reduce import reduce_max, reduce_min, reduce_prod, reduce_sum

Tensors = Sequence[Tensor]


def running(join: Callable[[Tensors, Tensors], Tensors], state: Tensors, axis: int) -> Tensors:
    """Return what `join` makes of all elements up to each, along the axis `axis`.

    After `k` steps each element is made of ``2**k``: a step for each doubling of the length.
    """
    length, reach = state[0].shape[axis], 1
    while reach < length:
        near, far, own = (
            [cut_along(x, axis, *window) for x in state]
            for window in ((0, reach), (0, length - reach), (reach, length))
        )
        state = [concat(a, b, axis=axis) for a, b in zip(near, join(far, own), strict=True)]
        reach *= 2
    return state


def _doubling(join: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def body(x: Tensor, axis: int) -> Tensor:
        return running(lambda a, b: [join(*a, *b)], [+x], axis)[0]

    return body


def _before(x: Tensor, first: Tensor, axis: int) -> Tensor:
    """Return the element before each, and `first` before the first."""
    length = x.shape[axis]
    return concat(first, cut_along(x, axis, 0, length - 1), axis=axis) if length else x


# of one number


def _running(
    name: str, fold: Callable[..., Tensor], ufunc: np.ufunc, meaning: str, **fields: Any
) -> Callable[..., Tensor]:
    def eager(x: Any, axis: int) -> Any:
        return accumulate(ufunc, x, axis)

    def infer(x: Spec, axis: int) -> Spec:
        return Spec(x.shape, x.dtype)

    row = op_of(fold)
    return declare(
        Op(
            name,
            Kind.SCAN,
            infer,
            eager,
            promote=row.promote,
            reduction=row.reduction,
            meaning=meaning,
            **fields,
        )
    )


def _cumsum_grad(g: Tensor, _y: Spec, _x: Spec, axis: int) -> tuple[Tensor]:
    return (reverse(cumsum_(reverse(g, (axis,)), axis=axis), (axis,)),)


def _cumprod_grad(g: Tensor, y: Tensor, x: Tensor, axis: int) -> tuple[Tensor]:
    """Multiply what is before an element by what is after it: no product is divided by, zeros count."""
    return (_sums_after(g, x, axis) * _before(y, ones_like(cut_along(y, axis, 0, 1)), axis),)


def _sums_after(g: Tensor, decay: Tensor, axis: int) -> Tensor:
    """Return ``s[i] = g[i] + decay[i + 1] * s[i + 1]``."""
    turned = reverse(decay, (axis,))
    later = _before(turned, zeros_like(cut_along(decay, axis, 0, 1)), axis)
    return reverse(decayed_sum(reverse(g, (axis,)), later, axis=axis), (axis,))


def _places_of(x: Tensor, extreme: Tensor, axis: int) -> Tensor:
    """Return where along `axis` the running extreme of `x` stands: of equal elements the last, or a NaN."""
    reached = eq(x, extreme)
    if x.dtype in dtypes.FLOATS:
        reached = reached | isnan(x)
    places = broadcast_to(along(x.shape, (axis,), dtypes.int32, x.device), shape=x.shape)
    return cummax_(where(reached, places, 0), axis=axis)


def _extreme_grad(g: Tensor, y: Tensor, x: Tensor, axis: int) -> tuple[Tensor]:
    return (scatter_add_(zeros_like(x), g, _places_of(x, y, axis), axis=axis),)


# fmt: off
cumsum_  = _running("cumsum", reduce_sum, np.add,
                    "The sums of all elements up to each along `axis`; integers wrap.", grad=_cumsum_grad)
cumprod_ = _running("cumprod", reduce_prod, np.multiply,
                    "The products of all elements up to each along `axis`; integers wrap.",
                    body=_doubling(mul), grad=_cumprod_grad)
cummax_  = _running("cummax", reduce_max, np.maximum,
                    "The greatest of all elements up to each along `axis`; NaN from the first NaN on.",
                    body=_doubling(maximum), grad=_extreme_grad, exact=True)
cummin_  = _running("cummin", reduce_min, np.minimum,
                    "The least of all elements up to each along `axis`; NaN from the first NaN on.",
                    body=_doubling(minimum), grad=_extreme_grad, exact=True)
# fmt: on


def cumsum(inp: Tensor, axis: int) -> Tensor:
    """Return the sums of all elements up to each, along `axis`; those of integers have 64 bits, as in NumPy.

    Examples
    --------
    >>> F.cumsum(mgb.tensor([[1.0, 2.0], [4.0, 3.0]]), axis=1)
    Tensor([[1., 3.],
            [4., 7.]], device=xpux:0)
    """
    return cumsum_(accumulated(inp), axis=normalize_axis("cumsum", axis, inp.ndim)[0])


def _extreme(name: str, best_of: Callable[..., Tensor], inp: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    (place,) = normalize_axis(name, axis, inp.ndim)
    best = best_of(inp, axis=place)
    return best, _places_of(inp, best, place)


def cummax(inp: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Return the greatest of all elements up to each, along `axis`, and where it stands.

    Returns
    -------
    values, indices : Tensor
        NaN counts as the greatest. The indices are int32: of equal elements the last, which has the gradient.

    Examples
    --------
    >>> values, places = F.cummax(mgb.tensor([1.0, 3.0, 2.0]), 0)
    >>> values.tolist(), places.tolist()
    ([1.0, 3.0, 3.0], [0, 1, 1])
    """
    return _extreme("cummax", cummax_, inp, axis)


def cummin(inp: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Return the least of all elements up to each, along `axis`, and where it stands; see `cummax`.

    Examples
    --------
    >>> values, places = F.cummin(mgb.tensor([3.0, 1.0, 2.0]), 0)
    >>> values.tolist(), places.tolist()
    ([3.0, 1.0, 1.0], [0, 1, 1])
    """
    return _extreme("cummin", cummin_, inp, axis)


# of several numbers


def _join_decayed(before: Tensors, own: Tensors) -> Tensors:
    (sum_before, decay_before), (x, decay) = before, own
    return fma(decay, sum_before, x), decay * decay_before


def _join_nothing(before: Tensors, own: Tensors) -> Tensors:
    """Join decayed sums; where nothing comes before, a decay that overflows does not count."""
    found, decay = _join_decayed(before, own)
    return where(eq(before[0], 0), own[0], found), decay


def _decayed_body(x: Tensor, decay: Tensor, axis: int) -> Tensor:
    return running(_join_nothing, (+x, decay), axis)[0]


def _decayed_infer(x: Spec, decay: Spec, axis: int) -> Spec:
    if not same_shape(x.shape, decay.shape):
        raise ShapeError(f"decayed_sum: elements of shape {x.shape}, decays of shape {decay.shape}")
    return Spec(x.shape, x.dtype)


def _decayed_grad(g: Tensor, y: Tensor, _x: Spec, decay: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    sums = _sums_after(g, decay, axis)
    return sums, sums * _before(y, zeros_like(cut_along(y, axis, 0, 1)), axis)


decayed_sum = declare(
    Op(
        "decayed_sum",
        Kind.SCAN,
        _decayed_infer,
        None,
        _decayed_grad,
        _decayed_body,
        promote=SMOOTH.promote,
        state=State((0.0, 1.0), lambda x, decay: (x, decay), _join_decayed, lambda found, _: found, factor=1),
        meaning="``y[i] = x[i] + decay[i] * y[i - 1]`` along `axis`, from 0 on. Products of neighbouring "
        "decays may be computed too: where these overflow or underflow, what steps would keep may be lost.",
    )
)


def _join_scaled(before: Tensors, own: Tensors) -> Tensors:
    """Join sums of exponentials, each divided by the greatest of them."""
    (high, sums), (x, own_sums) = before, own
    smaller = lt(high, x)
    ratio = where(eq(high, x), 1, exp(neg(abs(high - x))))
    great, small = where(smaller, own_sums, sums), where(smaller, sums, own_sums)
    return maximum(high, x), fma(small, ratio, great)


def _log_grad(g: Tensor, y: Tensor, x: Tensor, axis: int) -> tuple[Tensor]:
    """Sum from the last element on, relative to each result: these do not decrease, no ratio exceeds 1."""
    turned = reverse(y, (axis,))
    later = _before(turned, cut_along(turned, axis, 0, 1), axis)
    decay = where(eq(turned, later), 1, exp(turned - later))
    sums = reverse(decayed_sum(reverse(g, (axis,)), decay, axis=axis), (axis,))
    return (where(eq(x, -float("inf")), 0, exp(x - y)) * sums,)


logcumsumexp_ = declare(
    Op(
        "logcumsumexp",
        Kind.SCAN,
        lambda x, axis: Spec(x.shape, x.dtype),
        None,
        _log_grad,
        _doubling(logaddexp),
        promote=PRECISE.promote,
        precision=PRECISE.precision,
        state=State(
            (-float("inf"), 0.0),
            lambda x: (x, wrap(np.ones((), x.dtype), x.device)),
            _join_scaled,
            lambda high, sums: high + log(sums),
        ),
        meaning="The logarithms of the sums of ``exp(x)`` of all elements up to each along `axis`, without "
        "overflow; NaN from the first NaN on. The gradient of an element that is -infinity is 0.",
    )
)


def logcumsumexp(inp: Tensor, axis: int) -> Tensor:
    """Return the logarithms of cumulative sums of ``exp`` along `axis`, without overflow.

    Examples
    --------
    >>> F.logcumsumexp(mgb.tensor([[1.0, 2.0], [4.0, 3.0]]), axis=1)
    Tensor([[1.       , 2.3132617],
            [4.       , 4.3132615]], device=xpux:0)
    """
    x = inp if inp.dtype in dtypes.FLOATS else cast(inp, dtype=dtypes.float32)
    return logcumsumexp_(x, axis=normalize_axis("logcumsumexp", axis, x.ndim)[0])
