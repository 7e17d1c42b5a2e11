"""Transforms of functions, judged by JAX's of the same function in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import pytest
from mgb.autodiff import GradManager
from mgb.errors import TransformError
from mgb.jit import trace

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

X = np.random.default_rng(3).uniform(0.2, 1.4, (3, 3))
W = np.random.default_rng(4).normal(size=(3, 2))
BINARY = "add subtract multiply divide power arctan2 maximum minimum hypot".split()
UNARY = (
    "sin cos tan tanh sinh cosh exp expm1 exp2 log log1p log2 log10 sqrt cbrt square abs "
    "negative arctan arcsinh"
)

#: A function of NumPy's or JAX's module `m` and an array of shape (3, 3).
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    **{n: lambda m, x, n=n: getattr(m, n)(x) for n in UNARY.split()},
    **{n: lambda m, x, n=n: getattr(m, n)(x, x[1] * 0.7 + 0.3) for n in BINARY},
    **{n: lambda m, x, n=n: getattr(m, n)(x * x, axis=1) for n in "sum mean prod max min var std".split()},
    **{f"{n} of all": lambda m, x, n=n: getattr(m, n)(m.sin(x)) for n in "sum mean prod max min".split()},
    "cumsum": lambda m, x: m.cumsum(x * x, axis=1),
    "sort": lambda m, x: m.sort(x * x, axis=0),
    "where": lambda m, x: m.where(x > 0.8, x * x, m.sin(x)),
    "clip": lambda m, x: m.clip(x * x, 0.3, 0.9),
    "matmul": lambda m, x: m.matmul(x, W),
    "gram": lambda m, x: x @ x.T,
    "vector": lambda m, x: x @ x[0],
    "dot": lambda m, x: m.dot(x[0], x[1]),
    "transpose": lambda m, x: m.transpose(x * x) * x,
    "reshape": lambda m, x: m.reshape(x * x, (9,))[1:7],
    "concatenate": lambda m, x: m.concatenate([x, m.sin(x)], axis=1),
    "stack": lambda m, x: m.stack([x, m.exp(x)], axis=1),
    "flip": lambda m, x: x[::-1] * x,
    "pick": lambda m, x: (x * x)[:, 1],
    "gather": lambda m, x: (x * x)[np.array([2, 0, 2])],
    "outer": lambda m, x: x[:, None, :] * x[None, :, :],
    "softmax": lambda m, x: m.exp(x - x.max(1)[:, None]) / m.exp(x - x.max(1)[:, None]).sum(1)[:, None],
    "logsumexp": lambda m, x: m.log(m.exp(x).sum(axis=1)),
    "norm": lambda m, x: m.sqrt((x * x).sum(axis=1)),
    "mlp": lambda m, x: m.tanh(x @ W) @ W.T,
}  # fmt: skip

#: A transform by the module of transforms, of a function from (3, 3).
TRANSFORMS: dict[str, Callable[[Any, Any], Callable[[Any], Any]]] = {
    "grad": lambda t, f: t.grad(lambda x: f(x).sum()),
    "grad of grad": lambda t, f: t.grad(lambda x: (t.grad(lambda y: (f(y) ** 2).sum())(x) * x).sum()),
    "jacrev": lambda t, f: t.jacrev(f),
    "jacfwd": lambda t, f: t.jacfwd(f),
    "hessian": lambda t, f: t.hessian(lambda x: (f(x) ** 2).sum()),
    "vmap": lambda t, f: lambda x: t.vmap(f, in_axes=2, out_axes=-1)(x[:, :, None] * np.array([1.0, 0.9])),
    "vmap of grad": lambda t, f: lambda x: t.vmap(t.grad(lambda y: f(y).sum()))(x * np.ones((2, 1, 1))),
    "jacobian of vmap": lambda t, f: lambda x: t.jacrev(t.vmap(f))(x[None]),
    "jvp of vjp": lambda t, f: lambda x: t.jvp(lambda y: t.vjp(f, y)[1](f(x))[0], (x,), (x * 0.5,))[1],
}
QUICK = {"prod", "sort", "gram", "softmax"}
CASES = [
    pytest.param(f, t, id=f"{t} of {f}", marks=() if f in QUICK else pytest.mark.slow)
    for f in FUNCTIONS for t in TRANSFORMS
]  # fmt: skip


def double(array: Any) -> mgb.Tensor:
    return mgb.tensor(np.asarray(array), dtype="float64")


class Jax:
    """JAX's transforms under the names of ours."""

    def __getattr__(self, name: str) -> Any:
        return getattr(jax, name)


@pytest.mark.parametrize(("name", "transform"), CASES)
def test_as_jax(name: str, transform: str) -> None:
    function = FUNCTIONS[name]
    with jax.enable_x64(True):
        wanted = TRANSFORMS[transform](Jax(), lambda x: function(jnp, x))(jnp.asarray(X))
        wanted = np.asarray(wanted)
    found = TRANSFORMS[transform](mgb, lambda x: function(np, x))(double(X))
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9, atol=1e-11)


def test_per_sample_gradients_are_one_program() -> None:
    w, x, y = double(W), double(X), double(X[:, :2])

    def loss(w: Any, x: Any, y: Any) -> Any:
        return ((np.tanh(x @ w) - y) ** 2).sum()

    traced = trace(mgb.vmap(mgb.grad(loss), in_axes=(None, 0, 0)))
    for _ in range(3):
        found = traced(w, x, y)
    h = 1 - np.tanh(X @ W) ** 2
    wanted = X[:, :, None] * (2 * (np.tanh(X @ W) - X[:, :2]) * h)[:, None, :]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9)
    assert traced.stats()["programs"] == 1


def test_gradients_of_what_the_function_reads_outside() -> None:
    p = mgb.Parameter(W, dtype="float64")
    with GradManager().attach([p]) as gm:
        gm.backward((mgb.vmap(lambda row: np.sin(row @ p))(double(X)) ** 2).sum())
    s = X @ W
    np.testing.assert_allclose(p.grad.numpy(), X.T @ (2 * np.sin(s) * np.cos(s)), rtol=1e-9)


def test_structures_argnums_and_aux() -> None:
    both = mgb.value_and_grad(lambda d, k: ((d["a"] * k).sum(), k), argnums=(0, 1), has_aux=True)
    (value, aux), (d, k) = both({"a": double(X)}, double(2.0))
    assert value.item() == pytest.approx(2 * X.sum()) and aux.item() == 2
    np.testing.assert_array_equal(d["a"].numpy(), np.full((3, 3), 2.0))
    assert k.item() == pytest.approx(X.sum())


def test_a_pullback_serves_twice() -> None:
    _, pullback = mgb.vjp(np.sin, double(X))
    for g in (1.0, 3.0):
        np.testing.assert_allclose(pullback(double(np.full((3, 3), g)))[0].numpy(), g * np.cos(X))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x if x.sum() > 0 else -x, "functional.where"),
        (lambda x: x + mgb.random.normal(size=(3,)), "outside under vmap"),
    ],
)
def test_what_vmap_refuses(function: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(TransformError, match=message):
        mgb.vmap(function)(double(X))


def test_grad_wants_one_number() -> None:
    with pytest.raises(TransformError, match="jacobian"):
        mgb.grad(np.sin)(double(X))


def test_convolutions_and_pools_go_one_by_one() -> None:
    x, w = double(np.arange(32.0).reshape(2, 1, 1, 4, 4)), double(np.ones((1, 1, 3, 3)))
    found = mgb.vmap(lambda a: F.max_pool2d(F.conv2d(a, w), 2))(x)
    np.testing.assert_array_equal(found.numpy().ravel(), [90.0, 234.0])
