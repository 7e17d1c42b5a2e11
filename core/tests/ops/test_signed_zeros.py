"""Zeros and subnormal numbers of functions: equal by the eager rule and by the body in primitives."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from mgb import dtypes
from mgb.ops import activations as act
from mgb.ops import elementwise as el
from mgb.ops.bodies import hyperbolic as hyp
from mgb.ops.declare import op_of
from oracle import in_words, tensors


def _both(function, x):
    (t,) = tensors(x)
    return function(t).numpy(), in_words(op_of(function), t).numpy()


#: A function, arguments, and its values: odd functions keep the sign of 0, and what is negative tends to -0.
SIGNS_OF_ZEROS = [
    (el.sign, [-0.0, 0.0], [0.0, 0.0]),  # NumPy's
    (hyp.erfinv, [-0.0, 0.0], [-0.0, 0.0]),
    (hyp.erfcinv, [1.0], [0.0]),
    (act.mish, [-0.0, 0.0, -np.inf, -1e30], [-0.0, 0.0, -0.0, -0.0]),
]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(("function", "given", "wanted"), SIGNS_OF_ZEROS)
def test_zeros_have_one_sign_eagerly_and_in_words(function, given, wanted, dtype):
    with np.errstate(over="ignore"):
        x = np.array(given).astype(dtypes.as_dtype(dtype))
    for got in _both(function, x):
        assert (got == 0).all()
        assert np.signbit(got).tolist() == np.signbit(wanted).tolist()


def test_erfcinv_of_subnormal_numbers_is_finite():
    x = np.array([5e-324, 1e-310, 3e-308])
    for got in _both(hyp.erfcinv, x):
        np.testing.assert_allclose(got, _erfcinv(x), rtol=1e-15)


def _erfcinv(x):
    """By Newton's method on the logarithm of the complement, in 60 digits."""
    with mpmath.workdps(60):
        return [
            float(mpmath.findroot(lambda t, v=v: mpmath.log(mpmath.erfc(t)) - mpmath.log(v), 26.0)) for v in x
        ]
