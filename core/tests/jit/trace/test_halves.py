"""A compiled call gives what the first call, which is eager, gave: 16-bit floats round at each op in both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from half_scan import both, difference, dtype_of, scanned
from mgb import plugins, tensor
from mgb.jit import trace
from scipy import special

BACKEND = "cpu_llvm"
HALVES = ("float16", "bfloat16")

pytestmark = pytest.mark.skipif(BACKEND not in plugins.installed(), reason="needs mgb-cpu-llvm")


@pytest.mark.parametrize("dtype", [*HALVES, "float32"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_elementwise_ops_give_the_same_at_special_and_random_numbers(dtype: str, count: int) -> None:
    assert not scanned(dtype_of(dtype), count, 0 if dtype == "float32" else 500, BACKEND)


#: Functions of several ops, or that fold.
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: F.softmax(x, axis=1),
    "log_softmax": lambda x: F.log_softmax(x, axis=1),
    "logsumexp": lambda x: F.logsumexp(x, axis=1),
    "layer_norm": lambda x: F.layer_norm(x, (x.shape[1],), affine=False),
    "rms_norm": lambda x: F.rms_norm(x, (x.shape[1],)),
    "mean": lambda x: F.mean(x, axis=1),
    "var": lambda x: F.var(x, axis=0),
    "std": lambda x: F.std(x, axis=1),
    "sum": lambda x: F.sum(x, axis=0),
    "sum of sums": lambda x: F.sum(F.sum(x, axis=0, keepdims=True), axis=1),
    "prod": lambda x: F.prod(x, axis=0),
    "norm": lambda x: F.norm(x, axis=1),
    "cumsum": lambda x: F.cumsum(x, axis=1),
    "square loss": lambda x: F.loss.square_loss(x, x[::-1] * 2),
    "chain": lambda x: F.tanh(x * 0.5 + 0.1) * x - F.relu(x) / 3,
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_give_the_same(dtype: str, name: str) -> None:
    x = (np.random.default_rng(3).standard_normal((6, 70)) * 3).astype(dtype_of(dtype))
    ((eager, compiled),) = both(lambda x: [FUNCTIONS[name](x)], [x], BACKEND)
    assert not difference(eager, compiled, [], units=1)  # sums are added in another order


#: Functions that are computed in float32 and rounded once, and the truth of float64 numbers.
ROUNDED_ONCE: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "softmax": (FUNCTIONS["softmax"], lambda x: special.softmax(x, axis=1)),
    "log_softmax": (FUNCTIONS["log_softmax"], lambda x: special.log_softmax(x, axis=1)),
    "logsumexp": (FUNCTIONS["logsumexp"], lambda x: special.logsumexp(x, axis=1)),
    "square loss": (FUNCTIONS["square loss"], lambda x: ((x - x[::-1] * 2) ** 2).mean()),
    "cross entropy": (
        lambda x: F.loss.cross_entropy(x, [0] * 6),
        lambda x: -special.log_softmax(x, axis=1)[:, 0].mean(),
    ),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ROUNDED_ONCE)
def test_softmax_and_losses_are_right_to_the_last_digit(dtype: str, name: str) -> None:
    function, truth = ROUNDED_ONCE[name]
    x = np.random.default_rng(5).integers(-40, 40, (6, 70)).astype(dtype_of(dtype))
    expected = np.asarray(truth(x.astype(np.float64))).astype(x.dtype)
    for result in both(lambda x: [function(x)], [x], BACKEND)[0]:
        assert not difference(expected, result, [], units=1)


#: Rewrites that would leave out a rounding, and the same in NumPy.
REWRITTEN: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "cube": (lambda x: x**3.0, lambda x: (x.astype(np.float64) ** 3).astype(x.dtype)),
    "exp less 1": (lambda x: F.exp(x) - 1.0, lambda x: np.exp(x) - x.dtype.type(1)),
    "log of 1 more": (lambda x: F.log(1.0 + x), lambda x: np.log(x.dtype.type(1) + x)),
    "log of exp": (lambda x: F.log(F.exp(x)), lambda x: np.log(np.exp(x))),
    "there and back": (
        lambda x: (x * 30000.0) / 30000.0,
        lambda x: x * x.dtype.type(3e4) / x.dtype.type(3e4),
    ),
    "less itself": (lambda x: (x + 1.0) - x, lambda x: (x + x.dtype.type(1)) - x),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", REWRITTEN)
def test_no_rewrite_leaves_out_a_rounding(dtype: str, name: str) -> None:
    function, truth = REWRITTEN[name]
    x = np.abs(np.random.default_rng(4).standard_normal(300)).astype(dtype_of(dtype)) + dtype_of(dtype).type(
        0.001
    )
    ((eager, compiled),) = both(lambda x: [function(x)], [x], BACKEND)
    with np.errstate(over="ignore"):
        expected = truth(x)
    assert not difference(expected, compiled, [x], units=1 if "x" in name else 0)
    assert not difference(eager, compiled, [x], units=0)


def test_fast_math_keeps_the_digits_of_float32_in_a_kernel() -> None:
    fast = trace(lambda x: (x * 2) / 2, backend=BACKEND, fast_math=True)
    x = tensor([40000.0], dtype="float16")
    assert [fast(x).item() for _ in range(2)] == [np.inf, 40000.0]
