"""SciPy's functions on Tensors: with SCIPY_ARRAY_API=1 it calls the functions of the array's own library."""

import os

os.environ["SCIPY_ARRAY_API"] = "1"  # is read when SciPy is imported

import mgb
import mgb.numpy as xp
from mgb.autodiff import GradManager
from scipy import integrate, optimize, special, stats

mgb.random.seed(1)
heights = mgb.random.normal(170, 8, (200,))
weights = 0.9 * (heights - 100) + mgb.random.normal(0, 5, (200,))

found = stats.pearsonr(heights, weights)
print(f"correlation {found.statistic:.2f}, {type(found.statistic).__name__} on {found.statistic.device}")
print(f"area {integrate.trapezoid(xp.sin(xp.linspace(0, xp.pi, 200)), dx=xp.pi / 199):.3f}")

scores = mgb.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
assert abs(special.softmax(scores, axis=1).sum(axis=1) - 1).max() < 1e-6

point = mgb.tensor([0.0, 0.5])  # Rosenbrock's function by SciPy, its gradient by ours
gm = GradManager().attach([point])
with gm:
    gm.backward(optimize.rosen(point))
print("gradient", point.grad.tolist(), "SciPy's", optimize.rosen_der(point).tolist())
