"""Functions of one and of several numbers, each beside the same one in the digits of mpmath.

The derivatives of the second are taken by mpmath itself, so that what is right comes from neither tapes nor
floating point. Where a function has a corner, its points are not: what is right there is a convention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import mgb
import mgb.functional as F
import mpmath as mp
import numpy as np
from mgb.ops import activations


class Curve(NamedTuple):
    """A function of one number, the same in mpmath, and where it is looked at."""

    ours: Callable[[Any], Any]
    theirs: Callable[[Any], Any]
    points: tuple[float, ...]


LINE = (-1.3, -0.4, 0.0, 0.6, 2.1)
FAR = (*LINE, -6.0, 7.5, -40.0, 45.0)
UNIT = (-0.99, -0.4, 0.0, 0.3, 0.97)
HALF_LINE = (1e-3, 0.3, 1.0, 2.7, 150.0)
AROUND = (*HALF_LINE, -0.3, -1.0, -8.0)
#: Beyond the largest number whose square or exponential is finite.
HUGE = (-1e25, -800.0, 800.0, 1e25)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def _softplus(x: Any) -> Any:
    return mp.log(1 + mp.exp(x))


def _gelu_tanh(x: Any) -> Any:
    return x / 2 * (1 + mp.tanh(mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3)))


def _elu(scale: Any, alpha: Any) -> Callable[[Any], Any]:
    return lambda x: scale * (x if x > 0 else alpha * mp.expm1(x))


def _cbrt(x: Any) -> Any:
    return mp.sign(x) * abs(x) ** (mp.mpf(1) / 3)


def _fast_tanh(x: Any) -> Any:
    return x * (27 + x * x) / (27 + 9 * x * x)


def _clipped(low: float, high: float) -> Callable[[Any], Any]:
    return lambda x: min(max(x, mp.mpf(low)), mp.mpf(high))


def _huber(ratio: float, factor: float) -> Callable[[Any], Any]:
    return lambda x: factor * (x * x / 2 if abs(x) < ratio else ratio * (abs(x) - mp.mpf(ratio) / 2))


def _loss(name: str, **options: Any) -> Callable[[Any], Any]:
    return lambda x: getattr(F.loss, name)(x, x.detach() * 0, reduction="sum", **options)


def _powers() -> dict[str, Curve]:
    whole = {f"x ** {n}": Curve(lambda x, n=n: x**n, lambda x, n=n: x**n, (*LINE, 30.0)) for n in range(7)}
    floats = {
        f"x ** {n!r}": Curve(lambda x, n=n: x**n, lambda x, n=n: x ** int(n), (*LINE, 30.0))
        for n in (0.0, 1.0, 2.0, 3.0, 5.0)
    }
    held = {
        f"pow by a Tensor {n}": Curve(
            lambda x, n=n: F.pow(x, mgb.tensor(float(n), dtype="float64")), lambda x, n=n: x**n, LINE
        )
        for n in range(5)
    }
    below = {
        f"x ** {n}": Curve(lambda x, n=n: x**n, lambda x, n=n: x ** mp.mpf(n), HALF_LINE)
        for n in (-1, -2, -3, 0.5, 1.5, 2.5, -0.5)
    }
    return {**whole, **floats, **held, **below}


def _curves() -> dict[str, Curve]:
    sqrt2 = mp.sqrt(2)
    return {
        # of NumPy and MegEngine
        "abs": Curve(F.abs, abs, (-1.3, 0.6, 1e25)),
        "acos": Curve(F.acos, mp.acos, UNIT),
        "acosh": Curve(F.acosh, mp.acosh, (1.001, 1.5, 3.0, 90.0)),
        "asin": Curve(F.asin, mp.asin, UNIT),
        "asinh": Curve(F.asinh, mp.asinh, FAR),
        "atan": Curve(F.atan, mp.atan, FAR),
        "atanh": Curve(F.atanh, mp.atanh, UNIT),
        "cbrt": Curve(F.cbrt, _cbrt, AROUND),
        "cos": Curve(F.cos, mp.cos, FAR),
        "cosh": Curve(F.cosh, mp.cosh, LINE),
        "erf": Curve(F.erf, mp.erf, FAR),
        "erfc": Curve(F.erfc, mp.erfc, FAR),
        "erfinv": Curve(F.erfinv, mp.erfinv, UNIT),
        "erfcinv": Curve(F.erfcinv, lambda x: mp.erfinv(1 - x), (0.01, 0.4, 1.0, 1.3, 1.97)),
        "exp": Curve(F.exp, mp.exp, (*LINE, -800.0)),
        "exp2": Curve(F.exp2, lambda x: mp.mpf(2) ** x, LINE),
        "expm1": Curve(F.expm1, mp.expm1, (*LINE, -800.0)),
        "log": Curve(F.log, mp.log, HALF_LINE),
        "log1p": Curve(F.log1p, mp.log1p, (-0.99, 0.0, 1e-9, 3.0)),
        "log2": Curve(F.log2, lambda x: mp.log(x) / mp.log(2), HALF_LINE),
        "log10": Curve(F.log10, mp.log10, HALF_LINE),
        "rsqrt": Curve(F.rsqrt, lambda x: 1 / mp.sqrt(x), HALF_LINE),
        "sin": Curve(F.sin, mp.sin, FAR),
        "sinh": Curve(F.sinh, mp.sinh, LINE),
        "sqrt": Curve(F.sqrt, mp.sqrt, HALF_LINE),
        "square": Curve(F.square, lambda x: x * x, FAR),
        "tan": Curve(F.tan, mp.tan, LINE),
        "tanh": Curve(F.tanh, mp.tanh, (*FAR, *HUGE)),
        "sinc": Curve(np.sinc, mp.sincpi, LINE),
        "i0": Curve(np.i0, lambda x: mp.besseli(0, x), (-9.5, -1.3, -0.0, 0.0, 0.6, 1e-3, 9.5)),
        "deg2rad": Curve(np.deg2rad, lambda x: x * mp.pi / 180, LINE),
        "reciprocal": Curve(np.reciprocal, lambda x: 1 / x, AROUND),
        "1 / x": Curve(lambda x: 1 / x, lambda x: 1 / x, AROUND),
        "3 ** x": Curve(lambda x: 3**x, lambda x: mp.mpf(3) ** x, LINE),
        "1 ** x": Curve(lambda x: 1.0**x, lambda x: mp.mpf(1), LINE),
        "x ** x": Curve(lambda x: x**x, lambda x: x**x, HALF_LINE[:-1]),
        "positive": Curve(lambda x: +x * x, lambda x: x * x, LINE),
        # activations
        "celu": Curve(F.celu, _elu(1, 1), (-800.0, -1.3, 0.6, 800.0)),
        "celu of alpha 2": Curve(
            lambda x: F.celu(x, alpha=2.0), lambda x: x if x > 0 else 2 * mp.expm1(x / 2), (-1.3, 0.6)
        ),
        "elu": Curve(F.elu, _elu(1, 1), (-800.0, -1.3, 0.6, 800.0)),
        "selu": Curve(
            F.selu, _elu(activations.SELU_SCALE, activations.SELU_ALPHA), (-800.0, -1.3, 0.6, 800.0)
        ),
        "gelu": Curve(F.gelu, lambda x: x * mp.erfc(-x / sqrt2) / 2, (*FAR, *HUGE)),
        "gelu_tanh": Curve(F.gelu_tanh, _gelu_tanh, FAR),
        "hardtanh": Curve(F.hardtanh, _clipped(-1, 1), (-3.0, 0.0, 0.5, 4.0)),
        "hsigmoid": Curve(F.hsigmoid, lambda x: _clipped(0, 6)(x + 3) / 6, (-4.0, 0.0, 2.0, 4.0)),
        "hswish": Curve(F.hswish, lambda x: x * _clipped(0, 6)(x + 3) / 6, (-4.0, 0.0, 2.0, 4.0)),
        "leaky_relu": Curve(F.leaky_relu, lambda x: x if x > 0 else mp.mpf(0.01) * x, (-1.3, 0.6)),
        "logsigmoid": Curve(F.logsigmoid, lambda x: -_softplus(-x), (*FAR, *HUGE)),
        "mish": Curve(F.mish, lambda x: x * mp.tanh(_softplus(x)), (*FAR, *HUGE)),
        "relu": Curve(F.relu, lambda x: max(x, mp.mpf(0)), (-1.3, 0.6)),
        "relu6": Curve(F.relu6, _clipped(0, 6), (-1.3, 0.6, 7.0)),
        "sigmoid": Curve(F.sigmoid, _sigmoid, (*FAR, *HUGE)),
        "silu": Curve(F.silu, lambda x: x * _sigmoid(x), (*FAR, *HUGE)),
        "softplus": Curve(F.softplus, _softplus, (*FAR, *HUGE)),
        "softsign": Curve(F.softsign, lambda x: x / (1 + abs(x)), (-7.0, -0.4, 0.6, 40.0)),
        "tanhshrink": Curve(F.tanhshrink, lambda x: x - mp.tanh(x), FAR),
        "fast_tanh": Curve(activations.fast_tanh, _fast_tanh, LINE),
        # losses
        "square_loss": Curve(_loss("square_loss"), lambda x: x * x, LINE),
        "smooth_l1_loss": Curve(_loss("smooth_l1_loss"), _huber(1, 1), (-3.0, -0.4, -0.0, 0.0, 0.5, 2.0)),
        "smooth_l1_loss of beta 2": Curve(
            _loss("smooth_l1_loss", beta=2.0), _huber(2, 0.5), (-3.0, 0.0, 0.5, 1.5)
        ),
        "huber_loss": Curve(_loss("huber_loss"), _huber(1, 1), (-3.0, -0.4, -0.0, 0.0, 0.5, 2.0)),
        "huber_loss of delta 2": Curve(_loss("huber_loss", delta=2.0), _huber(2, 1), (-3.0, 0.0, 0.5, 1.5)),
        "binary_cross_entropy of logits": Curve(
            lambda x: F.loss.binary_cross_entropy(x, x.detach() * 0 + 0.3, reduction="sum"),
            lambda x: _softplus(x) - mp.mpf(0.3) * x,
            FAR,
        ),
        **_powers(),
    }


CURVES = _curves()
