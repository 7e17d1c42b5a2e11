"""A contraction of four tensors in the order that opt_einsum finds; `trace` compiles it."""

import mgb
import numpy as np
from mgb.jit import trace
from opt_einsum import contract_expression

FORMULA = "ij,jk,kl,lm->im"
rng = np.random.default_rng(0)
arrays = [rng.standard_normal(shape, np.float32) for shape in ((4, 50), (50, 60), (60, 40), (40, 3))]
tensors = list(map(mgb.tensor, arrays))

contract = contract_expression(FORMULA, *(array.shape for array in arrays))  # finds the order once
expected = contract(*tensors)  # finds the functions of the library that Tensors are of
np.testing.assert_allclose(expected, np.einsum(FORMULA, *arrays, optimize=True), rtol=1e-4, atol=1e-4)

traced = trace(contract)
for _ in range(3):
    found = traced(*tensors)
np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
stats = traced.stats()
print(f"{stats['calls']} calls, {stats['body_runs']} run of the body, {stats['programs']} program")
