"""Bodies of the error function and its relatives, for backends without fast versions of their own.

Polynomials are minimax fits by the Remez exchange (``docs/minimax.py``).
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from ...ir import dtypes
from ...tensor import Tensor
from ..primitives import cast, fma, lt, neg, sqrt, where
from .exponential import (
    LN2,
    LOG2_E,
    VANISHING,
    exp_wide,
    expm1_reduced,
    log,
    times_exponential,
    vanish,
    vanishing_end,
)
from .floats import (
    Body,
    at_most,
    fast_two_sum,
    flip_sign,
    magnitude,
    polynomial,
    round_scaled,
    sign_bit,
    upper_half,
    widen_halves,
)

INF = float("inf")

#: A value as an unevaluated sum.
Terms = tuple[Tensor, Tensor]
#: Up to which end, centre, coefficients.
Pieces = tuple[tuple[float, float, tuple[float, ...]], ...]

# erf(x) / x - 1 in x**2, for |x| <= 1
ERF = {
    dtypes.float32: (
        0.12837917, -0.37612626, 0.11283598, -0.026854359, 0.0051893517, -0.0008019043, 7.882572e-05,
    ),
    dtypes.float64: (
        0.1283791670955126, -0.3761263890318375, 0.11283791670954879, -0.026866170645076834,
        0.0052239776248177525, -0.0008548326980781054, 0.00012055331108377209, -1.4925595156988234e-05,
        1.6460998233720993e-06, -1.6350283829301064e-07, 1.4659548463901979e-08, -1.1371850391940292e-09,
        5.955288376924515e-11,
    ),
}  # fmt: skip
# 1 - erf(a) in a - ERF_CENTRE, for a in [1, ERF_HIGHEST]: it needs no more digits than 1 has
ERF_REST = (
    0.00049023423, -0.0025916246, 0.006388529, -0.009635869, 0.009745146, -0.006711638, 0.0029213221,
    -0.00047339342, -0.000343208, 0.00029589518, -7.662316e-05, -2.3716382e-05, 1.712478e-05,
    -1.6264234e-07, -1.0657018e-06,
)  # fmt: skip
ERF_CENTRE, ERF_HIGHEST = 2.465, 3.93
# erfc(a) in a - 1, for a in [0, 1]
ERFC_NEAR = (
    0.15729920705028513, -0.41510749742059444, 0.41510749742063036, -0.13836916580501576,
    -0.0691845828532356, 0.06918458372770422, -0.004612296604719109, -0.015154650863496788,
    0.0047773978971049035, 0.0018866746715490558, -0.0012217498870586677, -7.497995870940299e-05,
    0.00021874382154000356, 6.414321108915875e-06, 1.5399935620992704e-06, 2.3839878794415306e-05,
    1.1146377682620028e-05, 1.7397509830071314e-06, 5.5086531488597597e-08,
)  # fmt: skip
# m, and (a + 2) * exp(a**2) * erfc(a) in (a - 2) / (a + 2) - m, for all a >= 0 (float64: 1) where erfc(a) is
# not 0
ERFC: dict[Any, tuple[float, tuple[float, ...]]] = {
    dtypes.float32: (0.0, (
        1.0215827, -0.6871607, 0.27947176, -0.036441807, -0.021505665, 0.0064760703, 0.0030624412,
        -0.0008326979, -0.00059258356, 4.7647172e-05, 6.985752e-05,
    )),
    dtypes.float64: (0.4375, (
        0.7707249824838277, -0.46932560718248484, 0.21366322612697028, -0.05809989708362781,
        -0.002322544997347701, 0.008891660313661216, -0.0016369474713550135, -0.0014956230864998912,
        0.0005367161630329437, 0.000343989335665217, -0.00015041898500255197, -0.00010834601586113548,
        3.8943530743366305e-05, 4.183412611026291e-05, -6.981269577414616e-06, -1.7257039994495204e-05,
        -1.5362156678849163e-06, 6.442905216338647e-06, 2.73519253183954e-06, -1.3251914936740313e-06,
        -1.40656422290441e-06, -3.461295564781648e-07,
    )),
}  # fmt: skip
# c, m, and (a + c) * exp(a**2 / 2) * Phi(-a) in a / (a + c) - m, for all a >= 0 where Phi(-a) is not 0
NORMAL: dict[Any, tuple[float, float, tuple[float, ...]]] = {
    dtypes.float32: (3.125, 0.484375, (
        0.7501074, -1.0818815, 1.0344473, -0.50463736, -0.1052868, 0.2549604, 0.0127074225, -0.13751216,
        -0.016338097, 0.05107718,
    )),
    dtypes.float64: (3.5, 0.40625, (
        0.8623329395520679, -1.3930012618512875, 1.5355691190865248, -1.0114775413118517,
        0.15673512249845223, 0.3063639280680375, -0.14016999120564233, -0.1311623854995104,
        0.06903601732737903, 0.08241842122558055, -0.021799496358372826, -0.05859543508360092,
        -0.009007983855033869, 0.03591687300580326, 0.025649649013001177, -0.011056081125880989,
        -0.0267892280062778, -0.010922465206677867, 0.01426766895808665, 0.02306586942645423,
        0.0019055297814630282, -0.022969206598202424, -0.006895875944217027, 0.012926567862787584,
    )),
}  # fmt: skip
#: The normal distribution function is 0 below the negative.
NORMAL_HIGHEST = {dtypes.float32: 14.4, dtypes.float64: 38.6}
#: erfc is 0 above.
ERFC_HIGHEST = {dtypes.float32: 10.2, dtypes.float64: 27.5}

# erfinv(x) / x, which depends on w = -log(1 - x**2) only.
# in w
ERFINV_NEAR: Pieces = (
    (6.25, 3.125, (
        1.6536545626831027, 0.24015818242558826, -0.006033670871427754, -0.0007407025341539538,
        0.00018673420802425644, -1.388252339579396e-05, -1.3654691844342248e-06,
        4.2347881908048203e-07, -2.9070382775617228e-08, -4.11266197971343e-09,
        1.051218398821114e-09, -5.414238919390627e-11, -1.2976958412031824e-11,
        2.6303543784262234e-12, -8.117006119570023e-14, -3.998974705063355e-14,
        6.594696707600029e-15, -4.286889795976136e-17, -1.3003881269673339e-16,
        1.5759993955610207e-17, 1.14440017136916e-18, -3.575579031596534e-19,
        -1.0088641344916357e-21, 3.3758801597426964e-21,
    )),
)  # fmt: skip
# in sqrt(w)
ERFINV_MIDDLE: Pieces = (
    (4.0, 3.171875, (
        3.0053844217676815, 1.0043459918872242, 0.006349948204840621, -0.004642385025833791,
        0.0032441616032446883, -0.002180921688586327, 0.001148436183617909, -0.00035220039089488834,
        -3.789054549981283e-05, 0.00010901770042093608, -5.6253086370928616e-05, 7.56693961113872e-06,
        7.790260351563398e-06, -5.558335177144158e-06, 1.2925795964300702e-06, 4.173175507886701e-07,
        -4.410063698070588e-07, 1.1615412049970623e-07, 2.4662359851018278e-08, -1.618702488993647e-08,
    )),
    (7.0, 5.359375, (
        5.212956393679788, 1.0101300631263281, -0.00031977509903755464, -0.00012751752247294252,
        4.801108662158255e-05, -1.2129934680024125e-05, 2.6641448864765463e-06, -5.438246415502102e-07,
        1.0682415675805304e-07, -2.1316714518504058e-08, 4.98583058242757e-09, -1.679552833172384e-09,
        7.911339851757028e-10, -4.089937461246739e-10, 1.9276588681174644e-10, -7.684552066250966e-11,
        2.7637996199552823e-11, -9.265245169729804e-12, 1.660025327511115e-12, 5.526057926831266e-13,
        -3.735563149878531e-13, 5.910587153824269e-14,
    )),
)  # fmt: skip
# in sqrt(w), for what is nearer to 1 than a float64
ERFINV_FAR: Pieces = (
    (13.0, 9.84375, (
        9.733417768517596, 1.0060803028362786, -0.0003586203664832786, 1.899354059894628e-05,
        -6.132721888625955e-07, -4.305797838057321e-08, 1.3085779825189355e-08, -2.0622015278279686e-09,
        2.715744822072869e-10, -3.284226187625407e-11, 3.7767085445367786e-12, -4.1975484985191773e-13,
        4.5623646773067e-14, -4.904438130995821e-15, 5.062813052885639e-16, -4.7655760848806507e-17,
        5.407310552198627e-18, -8.227413666056792e-19, 6.808128631979112e-20,
    )),
    (INF, 20.25, (
        20.178638048598987, 1.0023087132676718, -8.409770023274317e-05, 3.1707509612638187e-06,
        -1.202780607487036e-07, 4.508142311973083e-09, -1.638265149526555e-10, 5.607123676767067e-12,
        -1.699329547066012e-13, 3.716352591467939e-15, 2.3573804923014718e-17, -1.0416879360466684e-17,
        9.09947958260869e-19, -6.237504323026522e-20, 4.402626524761251e-21, -2.7648335918162958e-22,
        7.522593030119305e-24, -2.449570749078144e-25, 8.662311741582703e-26, -5.322157057590003e-27,
    )),
)  # fmt: skip
# in float32: in w
ERFINV_SINGLE: Pieces = ((6.25, 1.5, (
    1.2520639, 0.25036246, 0.0008796953, -0.0020923105, 0.00017778004, 2.3241071e-05, -5.4253082e-06,
    -2.8331383e-08, 1.1941442e-07, -1.5002149e-08, 6.377566e-10,
)),)  # fmt: skip
# in sqrt(w)
ERFINV_SINGLE_FAR: Pieces = ((INF, 3.299999952316284, (
    3.1341615, 1.0057685, 0.004843969, -0.0032824087, 0.0020994435, -0.001472047, 0.00085290096,
    -0.0002485107,
)),)  # fmt: skip
#: Pieces in w, and in sqrt(w), for every argument of `erfinv`.
ERFINV = {
    dtypes.float32: (ERFINV_SINGLE, ERFINV_SINGLE_FAR),
    dtypes.float64: (ERFINV_NEAR, ERFINV_MIDDLE),
}


def _minus_square(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return two terms whose sum is ``-a**2`` to nearly twice the digits: the first is exact."""
    leading = upper_half(a)
    return neg(leading * leading), (leading - a) * (leading + a)


def _erfc_of_magnitude(a: Tensor) -> Tensor:
    """Return ``erfc(a)`` for a float64 ``a >= 1``: ``exp(-a**2)`` times a factor that falls slowly.

    The map of all magnitudes to an interval is that of Shepherd and Laframboise (1981).
    """
    a = at_most(a, ERFC_HIGHEST[a.dtype])
    inverse = 1 / (a + 2)
    rest = fma(neg(inverse), a, fma(-2, inverse, 1))  # of the division and of the sum, relative to `inverse`
    middle, (constant, *slopes) = ERFC[a.dtype]
    s = fma(-4 * inverse, rest, fma(-4, inverse, 1 - middle))
    square, square_rest = _minus_square(a)
    slope = s * polynomial(s, slopes)
    ratio = constant + slope
    factor = ratio * inverse
    low = fma(slope - (ratio - constant), inverse, fma(ratio, inverse, neg(factor)))
    return times_exponential(factor, low, square, square_rest + rest)


def normal_ratio(a: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the normal distribution function `Phi` of ``-a``, ``a >= 0``, without its exponential.

    Returns
    -------
    part, part_low : Tensor
        Two terms of ``a / (a + c)``, `c` being the first entry of `NORMAL`.
    ratio, ratio_low : Tensor
        Two terms of ``(a + c) * exp(a**2 / 2) * Phi(-a)``.
    """
    centre, middle, coefficients = NORMAL[a.dtype]
    whole = a + centre
    part = a / whole
    rest = fma(neg(part), a - (whole - centre), fma(neg(part), whole, a))  # of the sum and the division
    part_low = rest * fma(-1 / centre, part, 1 / centre)
    s = (part - middle) + part_low
    slope = s * polynomial(s, coefficients[1:])
    ratio = coefficients[0] + slope
    return part, part_low, ratio, slope - (ratio - coefficients[0])


def normal_magnitude(x: Tensor) -> Tensor:
    """Return ``|x|``, or where the normal distribution of ``-|x|`` is 0 one whose `damped` is 0 too."""
    a = magnitude(x)
    beyond = (-2 * vanishing_end(x.dtype)) ** 0.5
    return where(lt(NORMAL_HIGHEST[x.dtype], a), beyond, a)


def damped(x: Tensor, low: Tensor | float, a: Tensor) -> Tensor:
    """Return ``(x + low) * exp(-a**2 / 2)`` for a `normal_magnitude` `a`, squared in twice the digits."""
    high_digits, low_digits = LN2[a.dtype]
    square, rest = _minus_square(a)
    n, exponent = round_scaled(a * a, -0.5 * LOG2_E, 1, VANISHING)
    p = expm1_reduced(0.5 * (fma(n, -2 * high_digits, square) + fma(n, -2 * low_digits, rest)))
    return vanish(x + fma(x, p, fma(low, p, low)), exponent)


def _erf_near_zero(a: Tensor) -> Tensor:
    return fma(a, polynomial(a * a, ERF[a.dtype]), a)


def _erf_far(a: Tensor) -> Tensor:
    if a.dtype == dtypes.float32:
        return 1 - polynomial(at_most(a, ERF_HIGHEST) - ERF_CENTRE, ERF_REST)
    return 1 - _erfc_of_magnitude(a)


def _erfc_single(x: Tensor) -> Tensor:
    """Compute in double precision: the square is exact, and no error counts."""
    a = at_most(magnitude(cast(x, dtype=dtypes.float64)), ERFC_HIGHEST[x.dtype])
    inverse = 1 / (a + 2)
    y = exp_wide(neg(a * a)) * (polynomial((a - 2) * inverse, ERFC[x.dtype][1]) * inverse)
    return cast(where(lt(x, 0), 2 - y, y), dtype=dtypes.float32)


@widen_halves
def erfc(x: Tensor) -> Tensor:
    """Return ``1 - erf(x)``.

    Within 1 ULP in float32, 2 in float64, in the tail too, where ``1 - erf(x)`` has no digits left.
    """
    if x.dtype == dtypes.float32:
        return _erfc_single(x)
    a = magnitude(x)
    y = where(lt(a, 1), polynomial(a - 1, ERFC_NEAR), _erfc_of_magnitude(a))
    return where(lt(x, 0), 2 - y, y)


@widen_halves
def erf(x: Tensor) -> Tensor:
    """Return the error function.

    Within 2 ULP: a polynomial up to 1, then another one in float32, ``1 - erfc`` in float64.
    """
    a = magnitude(x)
    return flip_sign(where(lt(a, 1), _erf_near_zero(a), _erf_far(a)), sign_bit(x))


def _piecewise(x: Tensor, pieces: Pieces, beyond: Terms | None) -> Terms:
    """Return two terms of the polynomial of the piece in which `x` is; after the last, `beyond`."""
    for end, centre, coefficients in reversed(pieces):
        u = x - centre
        found = fast_two_sum(coefficients[0], u * polynomial(u, coefficients[1:]))
        inside = lt(x, end)
        beyond = beyond or found
        beyond = where(inside, found[0], beyond[0]), where(inside, found[1], beyond[1])
    assert beyond is not None  # there are pieces
    return beyond


def _times_erfinv_ratio(x: Tensor, low: Tensor | float, w: Tensor, pieces: tuple[Pieces, Pieces]) -> Tensor:
    """Return ``(x + low) * erfinv(v) / v`` from ``w = -log(1 - v**2)``: after Giles (2010), refitted."""
    near, far = pieces
    root = sqrt(w)
    ratio, rest = _piecewise(root, far, None)
    lost = 0.5 * fma(neg(root), root, w) / root  # by the root's rounding; the ratio falls as much short
    ratio, rest = _piecewise(w, near, (ratio, rest + lost))
    return where(lt(w, INF), fma(x, ratio, fma(x, rest, low * ratio)), x * w)


def in_double(function: Body) -> Body:
    """Wrap `function`, which knows float64 only; other floats are converted to it."""

    @wraps(function)
    def widened(x: Tensor) -> Tensor:
        return cast(function(cast(x, dtype=dtypes.float64)), dtype=x.dtype)

    return widened


@widen_halves
def erfinv(x: Tensor) -> Tensor:
    """Return the `x` with ``erf(x) == y``; within 2 ULP."""
    a = magnitude(x)
    inverse = _times_erfinv_ratio(a, 0.0, neg(log((1 - a) * (1 + a))), ERFINV[x.dtype])
    return flip_sign(inverse, sign_bit(x))


@in_double
def erfcinv(y: Tensor) -> Tensor:
    """Return the `x` with ``erfc(x) == y``.

    Within 1 ULP in float32, 2 in float64, down to the smallest `y`.
    """
    near, far = ERFINV[dtypes.float64]
    x = 1 - y
    return _times_erfinv_ratio(x, (1 - x) - y, neg(log(y * (2 - y))), (near, far + ERFINV_FAR))
