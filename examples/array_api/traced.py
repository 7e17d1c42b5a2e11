"""A function of any library's arrays, with a part of SciPy, as one program that runs without Python."""

import os

os.environ["SCIPY_ARRAY_API"] = "1"  # is read when SciPy is imported

import mgb
import numpy as np
from mgb.jit import trace
from scipy.special import logsumexp


def mixture(x, means, widths, shares):
    """The logarithm of the density of a mixture of normal distributions."""
    xp = x.__array_namespace__()
    z = (x[:, None] - means) / widths
    return logsumexp(xp.log(shares / widths) - 0.5 * z * z - 0.5 * xp.log(xp.asarray(2 * xp.pi)), axis=1)


def densities(asarray):
    """The function above on arrays of some library, and those arrays."""
    values = np.linspace(-4, 4, 9, dtype=np.float32), [-1.0, 2.0], [1.0, 0.5], [0.25, 0.75]
    return [asarray(np.array(value, np.float32)) for value in values]


traced = trace(mixture)
for _ in range(3):
    found = traced(*densities(mgb.tensor))
np.testing.assert_allclose(found.numpy(), mixture(*densities(np.asarray)), rtol=1e-5)
stats = traced.stats()
print(f"{stats['calls']} calls, {stats['body_runs']} run of the body, {stats['programs']} program")
