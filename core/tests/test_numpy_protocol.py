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
from mgb.ops.numpy_protocol import FUNCTIONS
from mgb.tracing import graph_of

X = np.random.default_rng(0).uniform(0.5, 2, (3, 4)).astype(np.float32)
Y = np.random.default_rng(1).uniform(0.5, 2, (3, 4)).astype(np.float32)
ROW = np.array([[3, 0, 1, 2]] * 3)

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


CALLS: dict[Callable[..., Any], tuple[tuple[Any, ...], dict[str, Any]]] = {
    np.sum: ((X,), {"axis": 1}),
    np.prod: ((X, 0), {}),
    np.min: ((X,), {"axis": 1, "keepdims": True}),
    np.max: ((X,), {}),
    np.mean: ((X, (0, 1)), {}),
    np.var: ((X,), {"axis": 0}),
    np.std: ((X,), {}),
    np.any: ((X > 1,), {"axis": 0}),
    np.all: ((X > 1,), {"axis": 0}),
    np.argmax: ((X, 1), {}),
    np.argmin: ((X,), {}),
    np.sort: ((X,), {"axis": 0}),
    np.argsort: ((X,), {}),
    np.cumsum: ((X,), {}),
    np.linalg.norm: ((X,), {"axis": 1}),
    np.round: ((X, 1), {}),
    np.around: ((X,), {}),
    np.clip: ((X, 0.7, 1.5), {}),
    np.where: ((X > 1, X, 0.0), {}),
    np.dot: ((X, Y.T), {}),
    np.reshape: ((X, (4, -1)), {}),
    np.ravel: ((X,), {}),
    np.transpose: ((X,), {"axes": (1, 0)}),
    np.swapaxes: ((X, 0, 1), {}),
    np.moveaxis: ((X, 0, -1), {}),
    np.expand_dims: ((X, (0, 2)), {}),
    np.squeeze: ((X[:1],), {"axis": 0}),
    np.broadcast_to: ((X, (2, 3, 4)), {}),
    np.concatenate: (([X, Y],), {"axis": 1}),
    np.stack: (([X, Y], -1), {}),
    np.split: ((X, 2), {"axis": 1}),
    np.repeat: ((X, 2), {"axis": 1}),
    np.tile: ((X, (2, 1, 2)), {}),
    np.flip: ((X, 0), {}),
    np.roll: ((X, (1, -2), (0, 1)), {}),
    np.take: ((X, [2, 0]), {"axis": 1}),
    np.take_along_axis: ((X, ROW, 1), {}),
    np.nonzero: ((np.floor(X),), {}),
    np.tril: ((X, 1), {}),
    np.triu: ((X, 1), {}),
    np.diag: ((X,), {"k": 1}),
    np.zeros_like: ((X,), {}),
    np.ones_like: ((X,), {"dtype": "int32"}),
    np.full_like: ((X, 3.0), {}),
    np.copy: ((X,), {}),
    np.shape: ((X,), {}),
    np.ndim: ((X,), {}),
    np.size: ((X,), {}),
    np.array_equal: ((X, X), {}),
    np.allclose: ((X, Y), {}),
}


def tensors(value: Any) -> Any:
    if isinstance(value, list):
        return [tensors(v) for v in value]
    return Tensor(value) if isinstance(value, np.ndarray) else value


def test_every_function_is_tried() -> None:
    assert set(CALLS) == set(FUNCTIONS)


@pytest.mark.parametrize("function", CALLS, ids=lambda f: f.__name__)
def test_functions(function: Callable[..., Any]) -> None:
    args, kwargs = CALLS[function]
    got, want = function(*(tensors(a) for a in args), **kwargs), function(*args, **kwargs)
    parts = zip(got, want, strict=True) if isinstance(want, list | tuple) else [(got, want)]
    for g, w in parts:
        assert isinstance(g, Tensor) == isinstance(w, np.ndarray | np.generic)
        np.testing.assert_allclose(g.numpy() if isinstance(g, Tensor) else g, w, rtol=1e-5)


def test_they_are_traced_and_differentiated() -> None:
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
        (lambda t: np.gcd(t, 2), "np.gcd"),
        (lambda t: np.add.reduce(t), "np.add.reduce"),
        (lambda t: np.add(t, 1, where=X > 1), "np.add with where"),
        (lambda t: np.linalg.svd(t), "np.svd"),
    ],
)
def test_what_is_missing_says_what_to_do(call: Callable[[Any], Any], name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name} does not take a Tensor: .*\.numpy\(\)"):
        call(Tensor(X))


def test_out() -> None:
    t = Tensor(X)
    out = Tensor(Y)
    assert np.add(t, 1.0, out=out) is out
    np.testing.assert_array_equal(out.numpy(), X + 1)
    array = X.copy()
    with pytest.raises(TypeError, match="cannot be written into an array"):
        array += t


def test_numpy_scalars_and_arrays_give_way() -> None:
    t = Tensor(X)
    for got in (np.float32(2) * t, np.full(4, 2.0) * t, F.mul([[2.0]], t)):
        assert isinstance(got, Tensor)
        np.testing.assert_array_equal(got.numpy(), 2 * X)
