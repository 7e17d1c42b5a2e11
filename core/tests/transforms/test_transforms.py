"""Transforms of functions, judged by JAX's of the same function in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import pytest
from mgb.autodiff import GradManager
from mgb.errors import ConversionError, TransformError
from mgb.jit import trace
from transform_functions import FORWARD, FUNCTIONS, W, X

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

#: A transform by the module of transforms, of a function from (3, 3).
TRANSFORMS: dict[str, Callable[[Any, Any], Callable[[Any], Any]]] = {
    "grad": lambda t, f: t.grad(lambda x: f(x).sum()),
    "vjp": lambda t, f: lambda x: t.vjp(f, x)[1](f(x))[0],
    "jvp": lambda t, f: lambda x: t.jvp(f, (x,), (x * 0.5,))[1],
    "grad of grad": lambda t, f: t.grad(lambda x: (t.grad(lambda y: (f(y) ** 2).sum())(x) * x).sum()),
    "jacrev": lambda t, f: t.jacrev(f),
    "jacfwd": lambda t, f: t.jacfwd(f),
    "hessian": lambda t, f: t.hessian(lambda x: (f(x) ** 2).sum()),
    "vmap": lambda t, f: lambda x: t.vmap(f, in_axes=2, out_axes=-1)(x[:, :, None] * np.array([1.0, 0.9])),
    "vmap of grad": lambda t, f: lambda x: t.vmap(t.grad(lambda y: f(y).sum()))(x * np.ones((2, 1, 1))),
    "jacobian of vmap": lambda t, f: lambda x: t.jacrev(t.vmap(f))(x[None]),
    "jvp of vjp": lambda t, f: lambda x: t.jvp(lambda y: t.vjp(f, y)[1](f(x))[0], (x,), (x * 0.5,))[1],
}
#: Those of which nothing is pulled back.
FORWARD_MODE = {"jvp", "jacfwd", "vmap"}
QUICK = {"prod", "sort", "gram", "pairs by argmax", "convolution by both"}
CASES = [
    pytest.param(f, t, id=f"{t} of {f}", marks=() if f in QUICK else pytest.mark.slow)
    for f in FUNCTIONS for t in TRANSFORMS if f not in FORWARD or t in FORWARD_MODE
]  # fmt: skip


def double(array: Any) -> mgb.Tensor:
    return mgb.tensor(np.asarray(array), dtype="float64")


class Jax:
    """JAX's transforms under the names of ours."""

    def __getattr__(self, name: str) -> Any:
        return getattr(jax, name)


@pytest.mark.parametrize(("name", "transform"), CASES)
def test_transforms_match_jax(name: str, transform: str) -> None:
    """Eagerly and in a trace, at values of X and at others."""
    function = FUNCTIONS[name]
    ours = TRANSFORMS[transform](mgb, lambda x: function(np, x))
    theirs = TRANSFORMS[transform](Jax(), lambda x: function(jnp, x))
    traced = trace(ours)
    for array in (X, X[::-1] * 0.9):
        with jax.enable_x64(True):
            wanted = np.asarray(theirs(jnp.asarray(array)))
        for found in (ours(double(array)), traced(double(array))):
            np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-8, atol=1e-10)


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


def test_gradients_reach_captured_parameters_through_vmap() -> None:
    p = mgb.Parameter(W, dtype="float64")
    with GradManager().attach([p]) as gm:
        gm.backward((mgb.vmap(lambda row: np.sin(row @ p))(double(X)) ** 2).sum())
    s = X @ W
    np.testing.assert_allclose(p.grad.numpy(), X.T @ (2 * np.sin(s) * np.cos(s)), rtol=1e-9)


def test_value_and_grad_with_nested_arguments_argnums_and_aux() -> None:
    both = mgb.value_and_grad(lambda d, k: ((d["a"] * k).sum(), k), argnums=(0, 1), has_aux=True)
    (value, aux), (d, k) = both({"a": double(X)}, double(2.0))
    assert value.item() == pytest.approx(2 * X.sum()) and aux.item() == 2
    np.testing.assert_array_equal(d["a"].numpy(), np.full((3, 3), 2.0))
    assert k.item() == pytest.approx(X.sum())


def test_vjp_pullback_can_be_called_twice() -> None:
    _, pullback = mgb.vjp(np.sin, double(X))
    for g in (1.0, 3.0):
        np.testing.assert_allclose(pullback(double(np.full((3, 3), g)))[0].numpy(), g * np.cos(X))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x if x.sum() > 0 else -x, "functional.where"),
        (lambda x: x + mgb.random.normal(size=(3,)), "changes a Tensor from outside"),
    ],
)
def test_vmap_rejects_unsupported_functions(function: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(TransformError, match=message):
        mgb.vmap(function)(double(X))


@pytest.mark.parametrize("function", [
    lambda x: mgb.tensor(np.array([x[0], x[1]])).sum(),
    lambda x: mgb.tensor(np.mean([x[0], x[1]])),
    lambda x: mgb.tensor([x[0], x[1]]).sum(),
])  # fmt: skip
def test_grad_raises_when_an_implicit_array_drops_gradients(function: Callable[[Any], Any]) -> None:
    x = mgb.tensor([1.0, 2.0])
    with pytest.raises((TransformError, ConversionError), match="no gradient comes: join Tensors by"):
        mgb.grad(function)(x)
    assert mgb.grad(lambda x: mgb.tensor(x.numpy()).sum())(x).tolist() == [0.0, 0.0]
    assert mgb.grad(lambda x: np.stack([x[0], x[1]]).sum())(x).tolist() == [1.0, 1.0]


def test_grad_rejects_non_scalar_output() -> None:
    with pytest.raises(TransformError, match="jacobian"):
        mgb.grad(np.sin)(double(X))


def test_vmap_node_count_is_independent_of_batch_size() -> None:
    """As many nodes for 7 elements as for 2."""

    def loss(x: Any, w: Any, label: Any) -> Any:
        rows = F.max_pool2d(F.relu(F.conv2d(x[None], w)), 2).reshape(-1, 4)
        return (rows[label] ** 2).sum()

    counts = []
    for size in (2, 7):
        traced = trace(mgb.vmap(mgb.grad(loss, argnums=1), in_axes=(0, None, 0)))
        rng = np.random.default_rng(size)
        x, labels = rng.normal(size=(size, 1, 5, 5)), np.arange(size) % 3
        w = rng.normal(size=(3, 1, 2, 2))
        found = traced(double(x), double(w), mgb.tensor(labels, dtype="int32"))
        one = [mgb.grad(loss, argnums=1)(double(a), double(w), int(i)).numpy() for a, i in zip(x, labels)]
        np.testing.assert_allclose(found.numpy(), one, rtol=1e-9)
        counts.append(len(traced.graph.nodes))
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    "nest", [lambda w: [w, [w * 2]], lambda w: {"a": w, "b": (w,)}, lambda w: (w, w + 1)]
)
def test_nested_arguments_of_grad_do_not_rerun_the_body(nest: Any) -> None:
    """The nest that `grad` hands to a function is made in the call, and is nothing outside."""
    outside: list[Any] = []

    def loss(params: Any) -> Any:
        first, second = params.values() if isinstance(params, dict) else params
        return ((second[0] if isinstance(second, list | tuple) else second) * first).sum()

    def step(w):
        return mgb.grad(loss)(nest(w))

    def keeping(w):
        outside.append([w * 2])
        return mgb.grad(lambda params: (params[0] * outside[-1][0]).sum())([w])

    w = mgb.tensor([1.0, 2.0])
    traced, kept = trace(step), trace(keeping)
    for _ in range(3):
        got, want = traced(w), step(w)
        first = next(iter(got.values())) if isinstance(got, dict) else got[0]
        wanted = next(iter(want.values())) if isinstance(want, dict) else want[0]
        np.testing.assert_allclose(first.numpy(), wanted.numpy())
        np.testing.assert_allclose(kept(w)[0].numpy(), [2.0, 4.0])
    assert traced.stats()["body_runs"] == 1
    assert kept.stats()["body_runs"] == 3 == len(outside)
