"""Groups that fold short rows are turned for backends that say so; every value is NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from mgb import Parameter, Tensor, plugins
from mgb.autodiff import GradManager
from mgb.jit import trace
from mgb.optimizer import SGD

DEFAULT = plugins.choose_backend("cpu")

pytestmark = pytest.mark.skipif(
    not DEFAULT.traits.short_rows, reason="the default backend has no short rows turned"
)


def numbers(*shape: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def variance(x: Any, scale: Any) -> Any:
    deviation = x - x.mean(axis=-1, keepdims=True)
    return (deviation * deviation).mean(axis=-1) * 2.0, deviation * scale


def mixed(x: Any, w: Any, count: int) -> Any:
    return (x @ w).reshape(x.shape[0], w.shape[1] // count, count)


def quadratic(x: Any, mean: Any, p: Any) -> Any:
    d = (x - mean) * 0.25
    return ((d @ p) * d).sum(axis=1)


MIXTURE = [(3000, 7), (7, 96), (12, 8)]

#: By names: a function of arrays, and the shapes of these.
CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "distances of points": (lambda a, b: ((a[:, None] - b) ** 2).sum(axis=2), [(40, 3), (30, 3)]),
    "classes": (softmax, [(700, 10)]),
    "two results": (variance, [(300, 7), (7,)]),
    "pooling": (lambda x: x.reshape(4, 16, 2, 16, 2).max(axis=(2, 4)), [(4, 32, 32)]),
    "the first and the last": (lambda x: (x * 2.0).sum(axis=(0, 2)), [(20, 400, 3)]),
    "a number for each row": (lambda x, y: (x + y[:, None]).min(axis=1), [(500, 2), (500,)]),
    "a number for all": (lambda x, y: (x * y).sum(axis=1) + y, [(500, 2), (1,)]),
    "transposed": (lambda x: (np.exp(x.T)).sum(axis=1), [(5, 600)]),
    "every axis": (lambda x: (x * x).sum(), [(300, 3)]),
    "long rows": (softmax, [(300, 40)]),
    "quadratic forms": (quadratic, [(3001, 8), (8,), (8, 8)]),
    "a product and its operand": (lambda x, p: np.maximum(x @ p, 0.0) + x, [(3001, 8), (8, 8)]),
    "squares and their operands": (lambda x: abs((x * 0.25) @ (x * 0.25)) + x, [(50, 20, 20)]),
    "small matrices": (lambda a, b: a @ b, [(2000, 4, 3), (2000, 3, 5)]),
    "small matrices twice": (lambda a, b: a @ b @ a, [(2000, 3, 3), (2000, 3, 3)]),
    "classes of products": (lambda x, w: softmax(x @ w), [(700, 20), (20, 31)]),
    "the largest of few products": (lambda x, w: (x @ w).max(axis=1), [(5000, 32), (32, 3)]),
    "the largest of more": (lambda x, w: (x @ w + 1.0).max(axis=1), [(300, 31), (31, 48)]),
    "products of vectors": (
        lambda a, x, y: a - x[:, :, None] * y[:, None],
        [(3000, 8, 8), (3000, 8), (3000, 8)],
    ),
    "matrices times vectors": (lambda a, x: (a * x[:, None]).sum(axis=2), [(3000, 3, 3), (3000, 3)]),
    "distances to a few": (lambda x, c: ((x - c) ** 2).sum(axis=2) * 0.5, [(2000, 1, 5), (12, 5)]),
    "more short axes": (lambda a, x: a * x[:, None, :, None], [(2000, 3, 2, 4), (2000, 2)]),
    "products that are split": (lambda x, w, m: ((mixed(x, w, 8) - m) ** 2).sum(axis=2), MIXTURE),
    "also their rows": (lambda x, w, m: np.abs(mixed(x, w, 4) * 2.0).max(axis=2) + m[0, 0], MIXTURE),
    "in batches": (
        lambda x, w: (np.cosh((x @ w).reshape(5, 400, 1, 6, 3) * 0.1) * 2.0).sum(axis=4),
        [(5, 400, 20), (5, 20, 18)],
    ),
    "read whole, too": (
        lambda x, w, m: ((mixed(x, w, 8) ** 2).sum(axis=2), np.exp(mixed(x, w, 8) * 0.1 + m), (x @ w) ** 2),
        MIXTURE,
    ),
    "what is between": (
        lambda a, x: np.tanh((a * x[:, None]).sum(axis=2)).sum(axis=1),
        [(900, 4, 6), (900, 6)],
    ),
    "also the largest": (
        lambda a, x: a - (a * x[:, None]).max(axis=2, keepdims=True),
        [(900, 4, 6), (900, 6)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_match_numpy(name: str) -> None:
    function, shapes = CASES[name]
    arrays = [numbers(*shape) for shape in shapes]
    traced = trace(function)
    for _ in range(3):
        found = traced(*map(Tensor, arrays))
    wanted = function(*[a.astype(np.float64) for a in arrays])
    for got, value in zip(*((r if isinstance(r, tuple) else (r,)) for r in (found, wanted)), strict=True):
        assert got.shape == value.shape
        np.testing.assert_allclose(got.numpy(), value, rtol=2e-5, atol=2e-6)


def test_only_many_short_rows_are_transposed() -> None:
    for shape, turned in [((700, 10), True), ((700, 40), False), ((10, 10), False)]:
        text = str(trace(softmax).explain(Tensor(numbers(*shape))))
        assert ("short rows" in text) == turned, shape


@pytest.mark.skipif(not DEFAULT.traits.strided_outputs, reason="its kernels write row-major results")
@pytest.mark.parametrize("name", ["products of vectors", "matrices times vectors", "distances to a few"])
def test_long_axis_is_the_last_in_a_kernel(name: str) -> None:
    function, shapes = CASES[name]
    arrays = [numbers(*shape) for shape in shapes]
    text = str(trace(function).explain(*map(Tensor, arrays))).split("summary")[1]
    assert f",{shapes[0][0]}]" in text


def test_products_that_are_split_stay_in_the_kernel_that_folds_them() -> None:
    function, shapes = CASES["products that are split"]
    text = str(trace(function).explain(*(Tensor(numbers(*shape)) for shape in shapes))).split("summary")[1]
    assert (
        "1 fused groups" in text and "= dot(" in text and "f32[3000,96]" not in text.replace("float32", "f32")
    )


def test_a_product_is_turned_with_what_it_multiplies() -> None:
    function, shapes = CASES["quadratic forms"]
    text = str(trace(function).explain(*(Tensor(numbers(*shape)) for shape in shapes))).split("summary")[1]
    assert "float32[8,3001] = dot(" in text


def test_values_match_numpy_at_new_shapes() -> None:
    traced = trace(softmax)
    for shape in [(700, 10), (700, 10), (900, 10), (900, 3), (900, 70), (5, 3), (700, 10)]:
        x = numbers(*shape)
        np.testing.assert_allclose(traced(Tensor(x)).numpy(), softmax(x), rtol=2e-5, atol=1e-7)


def test_training_with_few_classes_matches_numpy() -> None:
    x, classes = numbers(400, 6), np.arange(400) % 10
    weight = Parameter(numbers(6, 10) * 0.1)
    manager, optimizer = GradManager().attach(weight), SGD(weight, lr=0.5)

    def step(x: Tensor, classes: Tensor) -> Tensor:
        with manager:
            loss = F.loss.cross_entropy(x @ weight, classes)
            manager.backward(loss)
        optimizer.step().clear_grad()
        return loss

    traced, w = trace(step), weight.numpy().astype(np.float64)
    for _ in range(4):
        loss = traced(Tensor(x), Tensor(classes.astype(np.int32)))
        chances = softmax(x @ w)
        wanted = -np.log(chances[np.arange(400), classes]).mean()
        chances[np.arange(400), classes] -= 1.0
        w -= 0.5 * x.T @ chances / 400
        np.testing.assert_allclose(loss.numpy(), wanted, rtol=1e-5)
    np.testing.assert_allclose(weight.numpy(), w, rtol=1e-4, atol=1e-6)
