"""Gradients of ops and of random programs, against finite differences in float64."""

from __future__ import annotations

import numpy as np
import pytest
from differences import A, B, check, float64, gradients, numeric
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb.autodiff import GradManager
from mgb.ops import layout, reduce
from mgb.ops import primitives as p
from mgb.ops.bodies import division

FUNCTIONS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "maximum": lambda a, b: p.maximum(a, b),
    "minimum": lambda a, b: p.minimum(a, b),
    "mod": lambda a, b: division.mod(a * 3, b),
    "where": lambda a, b: p.where(a < b, a * a, b),
    "fma": lambda a, b: p.fma(a, b, a),
    "sqrt of a product": lambda a, b: p.sqrt(a * b),
    "sum": lambda a, b: reduce.reduce_sum(a * b, axis=(1,)) * b,
    "prod": lambda a, b: reduce.reduce_prod(a * b, axis=(0,)),
    "max": lambda a, b: reduce.reduce_max(a * b, axis=(0, 1)),
    "min": lambda a, b: reduce.reduce_min(a / b, axis=(1,)),
    "layout": lambda a, b: layout.transpose(layout.reshape(a, shape=(3, 2)), axes=(1, 0)) * b,
    "concat": lambda a, b: layout.concat(a * b, b, axis=1) * layout.concat(b, a, axis=1),
    "slice": lambda a, b: layout.slice_(a * b, window=((0, 2, 1), (2, -1, -2))),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_match_finite_differences(name):
    check(FUNCTIONS[name], A, B)


SHAPES = st.lists(st.integers(1, 3), min_size=0, max_size=3).map(tuple)


@given(SHAPES, SHAPES)
@settings(max_examples=60)
def test_gradient_of_broadcast_operand_is_summed(a_shape, b_shape):
    a, b = np.ones(a_shape), np.full(b_shape, 2.0)
    try:
        size = np.broadcast(a, b).size
    except ValueError:
        return
    da, db = gradients(lambda x, y: x * y, a, b)
    np.testing.assert_array_equal(da.numpy(), np.full(a_shape, 2.0 * size / a.size))
    np.testing.assert_array_equal(db.numpy(), np.full(b_shape, size / b.size))


@given(st.lists(st.sampled_from(["+", "*", "-"]), min_size=1, max_size=12), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_gradients_of_random_graphs_with_shared_nodes(operators, random):
    """Each step combines two earlier values, so that nodes are read several times and in any order."""
    choices = [(op, random.random(), random.random()) for op in operators]

    def program(a, b):
        values = [a, b]
        for op, i, j in choices:
            x, y = values[int(i * len(values))], values[int(j * len(values))]
            values.append(x + y if op == "+" else x - y if op == "-" else x * y * 0.5)
        return values[-1]

    tensors = [float64([0.7]), float64([0.4])]
    gm = GradManager().attach(tensors)
    with gm:
        gm.backward(program(*tensors))
    for tensor, want in zip(tensors, numeric(program, np.array([0.7]), np.array([0.4])), strict=True):
        got = 0.0 if tensor.grad is None else tensor.grad.numpy()
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
