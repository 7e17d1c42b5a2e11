"""NumPy's functions on Tensors give Tensors, through mgb's ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from mgb import Tensor
from mgb.autodiff import GradManager
from mgb.ir import Spec
from mgb.tensor.tracing import graph_of

X = np.random.default_rng(0).uniform(0.5, 2, (3, 4)).astype(np.float32)
Y = np.random.default_rng(1).uniform(0.5, 2, (3, 4)).astype(np.float32)

UNARY = """negative positive absolute sign sqrt square exp expm1 log log1p log2 log10 sin cos tan
    arctan sinh cosh tanh arcsinh
    floor ceil trunc rint isnan isinf isfinite logical_not reciprocal cbrt exp2 signbit""".split()
BINARY = """add subtract multiply divide floor_divide remainder fmod power maximum minimum arctan2 hypot
    logaddexp copysign less less_equal greater greater_equal equal not_equal logical_and logical_or
    logical_xor""".split()


@pytest.mark.parametrize("name", UNARY)
def test_unary_ufuncs(name: str) -> None:
    ufunc = getattr(np, name)
    got = ufunc(Tensor(X))
    assert isinstance(got, Tensor)
    np.testing.assert_allclose(got.numpy(), ufunc(X), rtol=1e-6)


@pytest.mark.parametrize("name", BINARY)
def test_binary_ufuncs_with_an_array_on_either_side(name: str) -> None:
    ufunc = getattr(np, name)
    for got in (ufunc(Tensor(X), Tensor(Y)), ufunc(X, Tensor(Y)), ufunc(Tensor(X), Y)):
        assert isinstance(got, Tensor)
        np.testing.assert_allclose(got.numpy(), ufunc(X, Y), rtol=1e-6)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"])
def test_integer_ufuncs(name: str) -> None:
    ufunc, i, j = getattr(np, name), np.array([12, 5], np.int32), np.array([3, 1], np.int32)
    np.testing.assert_array_equal(ufunc(Tensor(i), Tensor(j)).numpy(), ufunc(i, j))
    np.testing.assert_array_equal(np.invert(Tensor(i)).numpy(), ~i)


def test_numpy_functions_are_traced_and_differentiated() -> None:
    graph = graph_of(lambda x: np.sum(np.tanh(x) * Y), Spec((3, 4), np.dtype("float32")))
    assert [n.op.name for n in graph.nodes if n.inputs] == ["tanh", "mul", "reduce_sum", "reshape"]
    x = Tensor(X)
    with GradManager().attach(x) as manager:
        manager.backward(np.sum(np.exp(x)))
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), np.exp(X), rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda t: np.subtract.reduce(t), "np.subtract.reduce"),
        (lambda t: np.subtract.reduceat(t, [0, 1]), "np.subtract.reduceat"),
        (lambda t: np.sum(t, where=X > 1), "np.sum with where"),
        (lambda t: np.add.reduce(t, where=X > 1), "np.add.reduce with where"),
        (lambda t: np.max(t, out=X), "np.max with out"),
        (lambda t: np.sort(t, kind="stable", order="x"), "np.sort with order"),
        (lambda t: t.std(where=X > 1), "std with where"),
        (lambda t: np.add(t, 1, where=X > 1), "np.add with where"),
        (lambda t: np.packbits(t), "np.packbits"),
    ],
)
def test_unsupported_call_error_suggests_numpy_conversion(call: Callable[[Any], Any], name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name} does not take a Tensor: .*\.numpy\(\)"):
        call(Tensor(X))


def test_out_argument_is_written_and_returned() -> None:
    t = Tensor(X)
    out = Tensor(Y)
    assert np.add(t, 1.0, out=out) is out
    np.testing.assert_array_equal(out.numpy(), X + 1)
    array = X.copy()
    with pytest.raises(TypeError, match="cannot be written into an array"):
        array += t


def test_out_argument_without_other_references() -> None:
    x = Tensor(X)
    np.testing.assert_array_equal(np.add(x, 1, out=F.zeros((3, 4))).numpy(), X + 1)
    product = np.matmul(x, x.T, out=F.zeros((3, 3)))
    np.testing.assert_allclose(product.numpy(), X @ X.T, rtol=1e-6)
    np.testing.assert_array_equal(np.add(x[1], 1, out=x[0]).numpy(), X[1] + 1)
    np.testing.assert_array_equal(x.numpy(), X)


def test_integer_out_argument_keeps_its_dtype() -> None:
    out = Tensor([5])
    assert np.add(out, Tensor([2**32 + 1], dtype="int64"), out=out) is out
    want = np.array([5], np.int32)
    np.add(want, np.array([2**32 + 1]), out=want, casting="same_kind")
    assert (out.dtype, out.tolist()) == (want.dtype, want.tolist())


def test_operators_with_numpy_operands_return_tensors() -> None:
    t = Tensor(X)
    for got in (np.float32(2) * t, np.full(4, 2.0) * t, F.mul([[2.0]], t)):
        assert isinstance(got, Tensor)
        np.testing.assert_array_equal(got.numpy(), 2 * X)
