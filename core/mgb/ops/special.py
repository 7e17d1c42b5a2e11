"""Bodies of the error function and its relatives, for backends without fast versions of their own.

Polynomials are minimax fits by the Remez exchange (``docs/minimax.py``).
"""

from __future__ import annotations

from collections.abc import Callable

from .. import dtypes
from ..tensor import Tensor
from .exponential import exp_wide, log, times_exponential
from .floats import Body, at_most, flip_sign, magnitude, polynomial, sign_bit, upper_half, widen_halves
from .primitives import cast, fma, lt, neg, sqrt, where

INF = float("inf")

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
# (a + 2) * exp(a**2) * erfc(a) in t = (a - 2) / (a + 2), for all a >= 0 where erfc(a) is not 0
ERFC = {
    dtypes.float32: (
        1.0215827, -0.6871607, 0.27947176, -0.036441807, -0.021505665, 0.0064760703, 0.0030624412,
        -0.0008326979, -0.00059258356, 4.7647172e-05, 6.985752e-05,
    ),
    dtypes.float64: (
        1.021582705242023, -0.6871606844138106, 0.27947209255605276, -0.036442231506867595,
        -0.021510661889365554, 0.006479185067261135, 0.003090612056293338, -0.0008372960533073199,
        -0.0006630734690159641, 3.4371338206617965e-05, 0.00014447047233907218, 3.414953561541818e-05,
        -2.1694812070462052e-05, -1.6123584464748146e-05, -1.1306591559762266e-06, 3.6510288945804834e-06,
        2.015224303341518e-06, -1.0599218404280595e-08, -5.957179485641829e-07, -3.1087654681790783e-07,
        2.7284545984448935e-08, 1.0291924796332407e-07, 3.33710598844229e-08, -9.871116088582618e-09,
        -7.886716399392516e-09, -1.2115495924908007e-09,
    ),
}  # fmt: skip
# (a + c) * exp(a**2 / 2) * Phi(-a), c = NORMAL_CENTRE, in (a - c) / (a + c): ERFC again, of a / sqrt(2)
NORMAL = {
    dtypes.float32: (
        0.72236806, -0.48589614, 0.19761616, -0.025764005, -0.015204325, 0.004550206, 0.002149962,
        -0.00051401317, -0.00037215173, -3.1846033e-05,
    ),
    dtypes.float64: tuple(0.5**0.5 * c for c in ERFC[dtypes.float64]),
}  # fmt: skip
NORMAL_CENTRE = 8**0.5
#: The normal distribution function is 0 below the negative.
NORMAL_HIGHEST = {dtypes.float32: 14.5, dtypes.float64: 38.9}
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
    (4.0, 3.25, (
        3.0838856104922203, 1.0052589676941597, 0.005370914553602613, -0.0037512085075981426,
        0.002491442095511213, -0.0016882755553095533, 0.000953289390648344, -0.00035503752826152984,
        2.4031010524971557e-05, 6.828489774106207e-05, -4.731771599073663e-05,
        1.2475150771148675e-05, 2.921897751135391e-06, -4.013576943025812e-06,
        1.5054583400956966e-06, 1.7948265207819654e-08, -2.7774778398191523e-07,
        9.087681761746976e-08, 3.228866354400837e-09,
    )),
)  # fmt: skip
# divided by sqrt(w), in 1 / sqrt(w)
ERFINV_FAR: Pieces = (
    (8.0, 0.1875, (
        0.9724970078810196, -0.20079705249924504, -0.046969783817586964, 0.822699579166225,
        -1.3492563645452504, 2.340019356280783, -6.249311752852497, 22.973153194189496,
        -15.885150553059662, 1108.0027102192635, 9033.230489745863, 63973.37707151493,
        -252675.4199244738, -6886222.626417677, -20255327.237605747, 320609904.1924865,
        1227957339.1425116, -7103947428.009016,
    )),
    (INF, 0.08, (
        0.9922888954995561, -0.152979675188032, -0.45971921125744525, 2.0561144269366824,
        -6.509599324047177, 32.18235281841484, -203.67852906054452, 1457.2197222928685,
        -11388.506815486737, 94894.69139176744, -814436.3791981367, 7380112.195235779,
        -82647373.85997461, 802049123.4723513, -1108936230.6115363, 10249021871.247345,
        -1937934370234.0354, 19888541203495.336,
    )),
)  # fmt: skip
# in float32: in w up to ERFINV_END, then in sqrt(w), each minus the number in front
ERFINV_SINGLE = (1.5, (
    1.2520639, 0.25036246, 0.0008796953, -0.0020923105, 0.00017778004, 2.3241071e-05, -5.4253082e-06,
    -2.8331383e-08, 1.1941442e-07, -1.5002149e-08, 6.377566e-10,
))  # fmt: skip
ERFINV_SINGLE_FAR = (3.299999952316284, (
    3.1341615, 1.0057685, 0.004843969, -0.0032824087, 0.0020994435, -0.001472047, 0.00085290096,
    -0.0002485107,
))  # fmt: skip
ERFINV_END = 6.25


def _minus_square(a: Tensor) -> tuple[Tensor, Tensor]:
    """Two terms whose sum is ``-a**2`` to nearly twice the digits: the first is exact."""
    leading = upper_half(a)
    return neg(leading * leading), (leading - a) * (leading + a)


def _erfc_of_magnitude(a: Tensor) -> Tensor:
    """``erfc(a)`` for a float64 ``a >= 0``: ``exp(-a**2)`` times a factor that falls slowly.

    The map of all magnitudes to an interval is that of Shepherd and Laframboise (1981).
    """
    a = at_most(a, ERFC_HIGHEST[a.dtype])
    inverse = 1 / (a + 2)
    rest = fma(neg(inverse), a, fma(-2, inverse, 1))  # of the division and of the sum, relative to `inverse`
    t = fma(-4 * inverse, rest, fma(-4, inverse, 1))
    square, square_rest = _minus_square(a)
    return times_exponential(polynomial(t, ERFC[a.dtype]) * inverse, square, square_rest + rest)


def normal_tail(a: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The normal distribution next to ``-a``, ``a >= 0``, by two parts: a ratio and a factor.

    Returns
    -------
    ratio : Tensor
        ``(a + NORMAL_CENTRE) * exp(a**2 / 2) * Phi(-a)``, `Phi` being the distribution function.
    damped : callable
        A Tensor times ``exp(-a**2 / 2)``.
    """
    square, rest = _minus_square(a)
    ratio = polynomial(fma(2, a / (a + NORMAL_CENTRE), -1), NORMAL[a.dtype])
    return ratio, lambda x: times_exponential(x, 0.5 * square, 0.5 * rest)


def _erf_near_zero(a: Tensor) -> Tensor:
    return fma(a, polynomial(a * a, ERF[a.dtype]), a)


def _erf_far(a: Tensor) -> Tensor:
    if a.dtype == dtypes.float32:
        return 1 - polynomial(at_most(a, ERF_HIGHEST) - ERF_CENTRE, ERF_REST)
    return 1 - _erfc_of_magnitude(a)


def _erfc_single(x: Tensor) -> Tensor:
    """Through double precision: the square is exact, and no error counts."""
    a = at_most(magnitude(cast(x, dtype=dtypes.float64)), ERFC_HIGHEST[x.dtype])
    inverse = 1 / (a + 2)
    y = exp_wide(neg(a * a)) * (polynomial((a - 2) * inverse, ERFC[x.dtype]) * inverse)
    return cast(where(lt(x, 0), 2 - y, y), dtype=dtypes.float32)


@widen_halves
def erfc(x: Tensor) -> Tensor:
    """Within 1 ULP in float32, 3 in float64, in the tail too, where ``1 - erf(x)`` has no digits left."""
    if x.dtype == dtypes.float32:
        return _erfc_single(x)
    a = magnitude(x)
    y = where(lt(a, 1), polynomial(a - 1, ERFC_NEAR), _erfc_of_magnitude(a))
    return where(lt(x, 0), 2 - y, y)


@widen_halves
def erf(x: Tensor) -> Tensor:
    """Within 2 ULP: a polynomial up to 1, then another one in float32, ``1 - erfc`` in float64."""
    a = magnitude(x)
    return flip_sign(where(lt(a, 1), _erf_near_zero(a), _erf_far(a)), sign_bit(x))


def _erfinv_ratio(w: Tensor) -> Tensor:
    """``erfinv(x) / x`` from ``w = -log(1 - x**2)``: pieces after Giles (2010), fitted anew."""
    s = sqrt(w)
    u = 1 / s
    ratio = s
    for end, centre, coefficients in reversed(ERFINV_FAR):
        ratio = where(lt(s, end), s * polynomial(u - centre, coefficients), ratio)
    for end, centre, coefficients in ERFINV_MIDDLE:
        ratio = where(lt(s, end), polynomial(s - centre, coefficients), ratio)
    for end, centre, coefficients in ERFINV_NEAR:
        ratio = where(lt(w, end), polynomial(w - centre, coefficients), ratio)
    return ratio


def _in_double(function: Body) -> Body:
    """`function` knows float64 only; give it other floats as that."""

    def widened(x: Tensor) -> Tensor:
        return cast(function(cast(x, dtype=dtypes.float64)), dtype=x.dtype)

    widened.__doc__ = function.__doc__
    return widened


def _erfinv_ratio_single(w: Tensor) -> Tensor:
    """The same in float32, where `w` is at most 17."""
    (centre, near), (far_centre, far) = ERFINV_SINGLE, ERFINV_SINGLE_FAR
    inner = where(lt(w, ERFINV_END), polynomial(w - centre, near), polynomial(sqrt(w) - far_centre, far))
    return where(lt(w, INF), inner, w)


@widen_halves
def erfinv(x: Tensor) -> Tensor:
    """Within 3 ULP in float32, 2 in float64."""
    ratio = _erfinv_ratio_single if x.dtype == dtypes.float32 else _erfinv_ratio
    return x * ratio(neg(log((1 - x) * (1 + x))))


@_in_double
def erfcinv(y: Tensor) -> Tensor:
    """Within 1 ULP in float32, 8 in float64, down to the smallest `y`."""
    return (1 - y) * _erfinv_ratio(neg(log(y * (2 - y))))
