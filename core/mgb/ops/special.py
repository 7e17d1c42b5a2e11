"""Bodies of the error function and its relatives, for backends without fast versions of their own.

Polynomials are minimax fits by the Remez exchange, made for these ranges in 50 digits.
"""

from __future__ import annotations

from .. import dtypes
from ..tensor import Tensor
from .exponential import exponential, log
from .floats import flip_sign, magnitude, polynomial, sign_bit, upper_half, widen_halves
from .primitives import lt, minimum, neg, sqrt, where

INF = float("inf")

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
# (1 + 2 * a) * exp(a**2) * erfc(a) in t = (a - K) / (a + K), for all a >= 0 where erfc(a) is not 0
ERFC = {
    dtypes.float32: (
        1.253008, -0.13562112, -0.047562383, 0.12964542, -0.11927162, 0.06830594, -0.023787752,
        0.0025298267, 0.0019504149, -0.0007416197, -0.00018306369, 3.5204717e-05,
    ),
    dtypes.float64: (
        1.2329951186255526, -0.13962111684056253, 0.01537965210261965, 0.06809705425469541,
        -0.10103906603629931, 0.09373283499825215, -0.06633036581232464, 0.03716751553906464,
        -0.0161977340565966, 0.005031969963891831, -0.0007577732969334774, -0.00019925661888746038,
        0.00015062171608862859, -2.4399469388040556e-05, -1.1222173171440744e-05, 5.7102649526019365e-06,
        2.941714613024095e-07, -8.260671013948598e-07, 7.405255734336107e-08, 1.1040842486334856e-07,
        -1.740049188142753e-08, -1.408448651720868e-08, 1.645373223347652e-09, 1.1889797517043747e-09,
    ),
}  # fmt: skip
#: That K.
ERFC_CENTRE = {dtypes.float32: 3.0, dtypes.float64: 4.0}
#: erfc is 0 above.
ERFC_HIGHEST = {dtypes.float32: 10.2, dtypes.float64: 27.5}

# erfinv(x) / x, which depends on w = -log(1 - x**2) only. Rows: up to which end, centre, coefficients.
# in w
ERFINV_NEAR = {
    dtypes.float32: (
        (5.0, 2.5, (
            1.5014094, 0.24664073, -0.0041777077, -0.0012537077, 0.00021860223, -4.3967334e-06,
            -3.5288647e-06, 3.4372354e-07, 2.8535055e-08,
        )),
    ),
    dtypes.float64: (
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
    ),
}  # fmt: skip
# in sqrt(w)
ERFINV_MIDDLE = {
    dtypes.float32: (
        (4.0, 3.0, (
            2.832977, 1.0016742, 0.009434909, -0.007624751, 0.0057657883, -0.0036619923, 0.0012940293,
            8.825693e-05, -0.00016335017,
        )),
    ),
    dtypes.float64: (
        (4.0, 3.25, (
            3.0838856104922203, 1.0052589676941597, 0.005370914553602613, -0.0037512085075981426,
            0.002491442095511213, -0.0016882755553095533, 0.000953289390648344, -0.00035503752826152984,
            2.4031010524971557e-05, 6.828489774106207e-05, -4.731771599073663e-05,
            1.2475150771148675e-05, 2.921897751135391e-06, -4.013576943025812e-06,
            1.5054583400956966e-06, 1.7948265207819654e-08, -2.7774778398191523e-07,
            9.087681761746976e-08, 3.228866354400837e-09,
        )),
    ),
}  # fmt: skip
# divided by sqrt(w), in 1 / sqrt(w)
ERFINV_FAR = {
    dtypes.float32: (
        (INF, 0.0, (
            1.0002842, -0.025957512, -1.2565573, 5.225358, -16.31699, 40.190834, -61.75838, 42.71127,
        )),
    ),
    dtypes.float64: (
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
    ),
}  # fmt: skip


def _erfc_of_magnitude(a: Tensor) -> Tensor:
    """``erfc(a)`` for ``a >= 0``: an exponential of twice the digits, times what varies slowly.

    The map of all magnitudes to an interval is that of Shepherd and Laframboise (1981).
    """
    a = minimum(a, ERFC_HIGHEST[a.dtype])
    centre = ERFC_CENTRE[a.dtype]
    slow = polynomial((a - centre) / (a + centre), ERFC[a.dtype]) / (1 + 2 * a)
    leading = upper_half(a)
    return exponential(neg(leading * leading), (leading - a) * (leading + a)) * slow


def _erf_near_zero(a: Tensor) -> Tensor:
    return a + a * polynomial(a * a, ERF[a.dtype])


@widen_halves
def erfc(x: Tensor) -> Tensor:
    """Within 3 ULP in the tail too, where ``1 - erf(x)`` has no digits left."""
    a = magnitude(x)
    tail = _erfc_of_magnitude(a)
    far = where(lt(x, 0), 2 - tail, tail)
    return where(lt(a, 0.5), 1 - flip_sign(_erf_near_zero(a), sign_bit(x)), far)


@widen_halves
def erf(x: Tensor) -> Tensor:
    """Within 1 ULP: a polynomial up to 1, then ``1 - erfc``."""
    a = magnitude(x)
    return flip_sign(where(lt(a, 1), _erf_near_zero(a), 1 - _erfc_of_magnitude(a)), sign_bit(x))


def _erfinv_ratio(w: Tensor) -> Tensor:
    """``erfinv(x) / x`` from ``w = -log(1 - x**2)``: pieces after Giles (2010), fitted anew."""
    s = sqrt(w)
    u = 1 / s
    ratio = s
    for end, centre, coefficients in reversed(ERFINV_FAR[w.dtype]):
        ratio = where(lt(s, end), s * polynomial(u - centre, coefficients), ratio)
    for end, centre, coefficients in ERFINV_MIDDLE[w.dtype]:
        ratio = where(lt(s, end), polynomial(s - centre, coefficients), ratio)
    for end, centre, coefficients in ERFINV_NEAR[w.dtype]:
        ratio = where(lt(w, end), polynomial(w - centre, coefficients), ratio)
    return ratio


@widen_halves
def erfinv(x: Tensor) -> Tensor:
    """Within 4 ULP."""
    return x * _erfinv_ratio(neg(log((1 - x) * (1 + x))))


@widen_halves
def erfcinv(y: Tensor) -> Tensor:
    """Within 8 ULP, down to the smallest `y`."""
    return (1 - y) * _erfinv_ratio(neg(log(y * (2 - y))))
