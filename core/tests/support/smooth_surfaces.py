"""Functions of several numbers, each beside the same one in the digits of mpmath, as `smooth_functions` has.

Both are given a vector, ours as a Tensor and theirs as a list, and give one number or a list of them. The
points are where formulas divide by what may be 0, where the extreme is a tie, and where exponentials vanish.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import mgb
import mgb.functional as F
import mpmath as mp
import numpy as np
from mgb.ops import activations, elementwise, primitives

Points = tuple[tuple[float, ...], ...]


class Surface(NamedTuple):
    """A function of a vector, the same in mpmath, and the vectors."""

    ours: Callable[[Any], Any]
    theirs: Callable[[list[Any]], Any]
    points: Points


ANY = ((0.3, -1.2, 0.8, 2.1), (1.1, 0.4, -0.7, 0.2))
TIED = (*ANY, (0.5, 0.5, 0.5, 0.5), (0.0, 0.0, 0.0, 0.0), (1.0, -0.0, 0.0, 1.0))
ZEROS = (
    *ANY,
    (0.0, 2.0, 3.0, 5.0),
    (2.0, 0.0, 3.0, 0.0),
    (0.0, -0.0, 0.0, 3.0),
    (0.0, 0.0, 0.0, 0.0),
    (1e-200, 2.0, 1e-200, 1.0),
    (2.0, 3.0, 1.0, 0.0),
)
APART = (*TIED, (800.0, 0.0, -800.0, 1.0), (0.0, 700.0, 700.0, 3.0))
PLANE = ((0.3, -1.2), (1.1, 0.4), (0.5, 0.5), (0.0, 0.0), (-2.0, -2.0), (30.0, 29.0))


def _lse(xs: Sequence[Any]) -> Any:
    return mp.log(mp.fsum(mp.exp(x) for x in xs))


def _mean(xs: Sequence[Any]) -> Any:
    return mp.fsum(xs) / len(xs)


def _var(xs: Sequence[Any]) -> Any:
    return _mean([(x - _mean(xs)) ** 2 for x in xs])


def _norm(p: int) -> Callable[[list[Any]], Any]:
    return lambda xs: mp.fsum(abs(x) ** p for x in xs) ** (mp.mpf(1) / p)


def _softmax(xs: Sequence[Any]) -> list[Any]:
    return [mp.exp(x) / mp.fsum(mp.exp(y) for y in xs) for x in xs]


def _log_softmax(xs: Sequence[Any]) -> list[Any]:
    return [x - _lse(xs) for x in xs]


def _running(fold: Callable[[Sequence[Any]], Any]) -> Callable[[list[Any]], list[Any]]:
    return lambda xs: [fold(xs[: i + 1]) for i in range(len(xs))]


def _normalized(xs: list[Any]) -> list[Any]:
    scale = mp.sqrt(_var(xs) + mp.mpf(1e-5))
    return [(x - _mean(xs)) / scale for x in xs]


def _scaled(xs: list[Any]) -> list[Any]:
    scale = mp.sqrt(_mean([x * x for x in xs]) + mp.mpf(1e-5))
    return [x / scale for x in xs]


def _two(word: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda x: word(x[0], x[1])


def _square(xs: list[Any]) -> Any:
    return mp.matrix([xs[:2], xs[2:]])


def _flat(a: Any) -> list[Any]:
    return [a[i, j] for i in range(a.rows) for j in range(a.cols)]


def _inverse(a: Any) -> Any:
    (p, q, r, s), d = _flat(a), a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0]
    return mp.matrix([[s / d, -q / d], [-r / d, p / d]])


def _det(a: Any) -> Any:
    return a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0]


def _matrix(x: Any) -> Any:
    return x.reshape(2, 2)


def _ridged(a: Any) -> Any:
    return a @ a.T + mgb.tensor(np.eye(2) * 2, dtype="float64")


def _ridged_too(a: Any) -> Any:
    return a * a.T + 2 * mp.eye(2)


def _cholesky(a: Any) -> list[Any]:
    first = mp.sqrt(a[0, 0])
    return [first, mp.mpf(0), a[1, 0] / first, mp.sqrt(a[1, 1] - a[1, 0] ** 2 / a[0, 0])]


def _eigenvalues(a: Any) -> list[Any]:
    middle, rest = (a[0, 0] + a[1, 1]) / 2, mp.sqrt((a[0, 0] - a[1, 1]) ** 2 / 4 + a[0, 1] * a[1, 0])
    return [middle - rest, middle + rest]


def _holed(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`function` of the vector whose second element has become NaN."""
    hole = np.array([False, True, False, False])
    return lambda x: function(F.where(mgb.tensor(hole), mgb.tensor(np.nan, dtype="float64"), x))


def _solid(fold: Callable[[Sequence[Any]], Any]) -> Callable[[list[Any]], Any]:
    return lambda xs: fold([xs[0], *xs[2:]])


def _binary() -> dict[str, Surface]:
    log2 = mp.log(2)
    positive = ((0.3, 1.2), (2.5, -0.7), (1.0, 1.0), (0.7, 0.0), (1.0, 0.0), (1.3, 2.0), (1.0, 2.0))
    return {
        "multiply": Surface(_two(np.multiply), lambda x: x[0] * x[1], PLANE),
        "divide": Surface(_two(np.divide), lambda x: x[0] / x[1], ((0.3, -1.2), (0.0, 2.0), (2.0, 2.0))),
        "power": Surface(_two(np.power), lambda x: x[0] ** x[1], positive),
        "float_power": Surface(_two(np.float_power), lambda x: x[0] ** x[1], positive),
        "logaddexp": Surface(_two(F.logaddexp), _lse, (*PLANE, (800.0, 0.0), (-5.0, 800.0))),
        "logaddexp2": Surface(
            _two(np.logaddexp2), lambda x: _lse([x[0] * log2, x[1] * log2]) / log2, PLANE
        ),
        "share of exponentials": Surface(_two(elementwise.exp_share), lambda x: _softmax(x)[0], PLANE),
        "hypot": Surface(_two(F.hypot), lambda x: mp.sqrt(x[0] ** 2 + x[1] ** 2),
                         ((0.3, -1.2), (2.0, 2.0), (0.0, 2.0), (-3.0, 0.0))),
        "atan2": Surface(_two(F.atan2), lambda x: mp.atan2(x[0], x[1]),
                         ((0.3, -1.2), (2.0, 2.0), (0.0, 2.0), (3.0, 0.0), (-2.0, 2.0))),
        "gated": Surface(
            _two(activations.gated), lambda x: x[0] / (1 + mp.exp(-x[1])), (*PLANE, (2.0, 800.0))
        ),
        "lerp": Surface(lambda x: elementwise.lerp(x[0], x[1], x[2]),
                        lambda x: x[0] + x[2] * (x[1] - x[0]), ((0.3, -1.2, 0.2), (2.0, 2.0, 0.5))),
        "fma": Surface(lambda x: primitives.fma(x[0], x[1], x[2]), lambda x: x[0] * x[1] + x[2],
                       ((0.3, -1.2, 0.2), (0.0, 0.0, 0.5))),
        "prelu": Surface(lambda x: F.prelu(x[:1], x[1:]).sum(), lambda x: x[0] if x[0] > 0 else x[0] * x[1],
                         ((-0.3, 0.2), (0.4, 0.2), (-2.0, 0.0))),
        "copysign": Surface(_two(F.copysign), lambda x: abs(x[0]) * mp.sign(x[1]),
                            ((0.3, -1.2), (-2.0, 1.0))),
        "fmod": Surface(_two(np.fmod), lambda x: x[0] - x[1] * int(x[0] / x[1]), ((3.3, 1.2), (-2.0, 0.7))),
        "huber_loss of both": Surface(
            lambda x: F.loss.huber_loss(x[:2], x[2:], reduction="none"),
            lambda x: [(x[0] - x[2]) ** 2 / 2, (x[1] - x[3]) ** 2 / 2],
            ((0.3, 0.8, 0.3, 0.8), (0.3, 0.8, 0.1, 0.9)),
        ),
        "kl_div": Surface(
            lambda x: F.loss.kl_div(x[:1], x[1:], reduction="sum"),
            lambda x: x[1] * (mp.log(x[1]) - x[0]), ((0.0, 1.0), (-2.0, 0.4)),
        ),
    }  # fmt: skip


def _folds() -> dict[str, Surface]:
    return {
        "prod": Surface(F.prod, mp.fprod, ZEROS),
        "prod along both axes": Surface(lambda x: F.prod(_matrix(x), (0, 1)), mp.fprod, ZEROS),
        "prod along columns": Surface(
            lambda x: F.prod(_matrix(x), 0), lambda x: [x[0] * x[2], x[1] * x[3]], ZEROS
        ),
        "nanprod": Surface(_holed(np.nanprod), _solid(mp.fprod), ZEROS),
        "cumprod": Surface(lambda x: F.cumprod(x, 0), _running(mp.fprod), ZEROS),
        "multiply.reduce": Surface(np.multiply.reduce, mp.fprod, ZEROS),
        "cumsum of squares": Surface(
            lambda x: F.cumsum(x * x, 0), _running(lambda xs: mp.fsum(x * x for x in xs)), TIED
        ),
        "mean of cubes": Surface(lambda x: F.mean(x**3), lambda xs: _mean([x**3 for x in xs]), TIED),
        "logsumexp": Surface(lambda x: F.logsumexp(x, 0), _lse, APART),
        "logcumsumexp": Surface(lambda x: F.logcumsumexp(x, 0), _running(_lse), APART),
        "logaddexp.reduce": Surface(np.logaddexp.reduce, _lse, APART),
        "softmax": Surface(lambda x: F.softmax(x, 0), _softmax, APART),
        "log_softmax": Surface(lambda x: F.log_softmax(x, 0), _log_softmax, APART),
        "cross_entropy": Surface(
            lambda x: F.cross_entropy(x.reshape(1, 4), mgb.tensor([2])), lambda x: _lse(x) - x[2], APART
        ),
        "var": Surface(F.var, _var, TIED),
        "nanvar": Surface(_holed(np.nanvar), _solid(_var), TIED),
        "std": Surface(F.std, lambda xs: mp.sqrt(_var(xs)), ANY),
        "nanstd": Surface(_holed(np.nanstd), _solid(lambda xs: mp.sqrt(_var(xs))), ANY),
        "norm": Surface(F.norm, _norm(2), (*ANY, (0.0, 0.0, 1.0, 0.0))),
        "norm of order 4": Surface(lambda x: F.norm(x, 4), _norm(4), (*ANY, (0.0, 0.0, 1.0, 0.0))),
        "norm of order 2 of matrices": Surface(
            lambda x: np.linalg.norm(_matrix(x)), _norm(2), (*ANY, (0.0, 0.0, 1.0, 0.0))
        ),
        "normalize": Surface(
            lambda x: F.normalize(x), lambda xs: [x / _norm(2)(xs) for x in xs], (*ANY, (0.0, 0.0, 1.0, 0.0))
        ),
        "layer_norm": Surface(
            lambda x: F.layer_norm(x.reshape(1, 4), (4,), affine=False, eps=1e-5), _normalized, TIED
        ),
        "rms_norm": Surface(lambda x: F.nn.rms_norm(x.reshape(1, 4), (4,), eps=1e-5), _scaled, TIED),
        "batch_norm": Surface(
            lambda x: F.batch_norm(x.reshape(4, 1, 1, 1), training=True, eps=1e-5), _normalized, TIED
        ),
        "group_norm": Surface(
            lambda x: F.nn.group_norm(x.reshape(1, 4, 1, 1), 1, affine=False, eps=1e-5), _normalized, TIED
        ),
        "max": Surface(lambda x: F.max(x * x), lambda xs: max(x * x for x in xs), ANY),
        "sort": Surface(lambda x: F.sort(x * x)[0], lambda xs: sorted(x * x for x in xs), ANY),
        "polyval": Surface(
            lambda x: np.polyval(x[:3], x[3]), lambda x: x[0] * x[3] ** 2 + x[1] * x[3] + x[2], ZEROS
        ),
        "vander": Surface(
            lambda x: np.vander(x[:2], 4), lambda x: [x[0]**3, x[0]**2, x[0], mp.mpf(1),
                                                     x[1]**3, x[1]**2, x[1], mp.mpf(1)], ZEROS
        ),
    }  # fmt: skip


def _matrices() -> dict[str, Surface]:
    singular: Points = (*ANY, (1.0, 2.0, 2.0, 4.0), (0.0, 0.0, 0.0, 0.0))
    return {
        "det": Surface(lambda x: np.linalg.det(_matrix(x)), lambda x: _det(_square(x)), ANY),
        "slogdet": Surface(
            lambda x: np.linalg.slogdet(_matrix(x))[1], lambda x: mp.log(abs(_det(_square(x)))), ANY
        ),
        "inv": Surface(lambda x: np.linalg.inv(_matrix(x)), lambda x: _flat(_inverse(_square(x))), ANY),
        "solve": Surface(
            lambda x: np.linalg.solve(_matrix(x), x[:2]),
            lambda x: _flat(_inverse(_square(x)) * mp.matrix(x[:2])), ANY,
        ),
        "pinv": Surface(lambda x: np.linalg.pinv(_matrix(x)), lambda x: _flat(_inverse(_square(x))), ANY),
        "lstsq": Surface(
            lambda x: np.linalg.lstsq(_matrix(x), x[:2])[0],
            lambda x: _flat(_inverse(_square(x)) * mp.matrix(x[:2])), ANY,
        ),
        "cholesky": Surface(
            lambda x: np.linalg.cholesky(_ridged(_matrix(x))), lambda x: _cholesky(_ridged_too(_square(x))),
            (*ANY, (0.0, 0.0, 0.0, 0.0)),
        ),
        "eigvalsh": Surface(
            lambda x: np.linalg.eigvalsh(_ridged(_matrix(x))),
            lambda x: _eigenvalues(_ridged_too(_square(x))), ANY,
        ),
        "singular values": Surface(
            lambda x: np.linalg.svd(_matrix(x), compute_uv=False),
            lambda x: [mp.sqrt(e) for e in _eigenvalues(_square(x) * _square(x).T)][::-1], ANY,
        ),
        "matrix_power": Surface(
            lambda x: np.linalg.matrix_power(_matrix(x), 3), lambda x: _flat(_square(x) ** 3), singular
        ),
        "matmul": Surface(
            lambda x: _matrix(x) @ _matrix(x).T, lambda x: _flat(_square(x) * _square(x).T), singular
        ),
    }  # fmt: skip


SURFACES: dict[str, Surface] = {**_binary(), **_folds(), **_matrices()}
