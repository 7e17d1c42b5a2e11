"""`partial_trace`: two compiled programs in an eager step, judged against the same step without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from arrays import floats
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb import Parameter, Tensor, random, tensor
from mgb.autodiff import Function, GradManager
from mgb.jit import partial_trace
from mgb.optimizer import SGD


def gradients(function: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray | None]:
    """Of the sum of all results of `function`, weighted by fixed numbers; None where there is none."""
    inputs = [tensor(a) for a in arrays]
    with GradManager().attach(inputs) as manager:
        results = function(*inputs)
        results = [results] if isinstance(results, Tensor) else list(results)
        manager.backward(results, [tensor(floats(*r.shape, seed=9)) for r in results])
    return [None if t.grad is None else t.grad.numpy() for t in inputs]


def check(function: Callable[..., Any], *arrays: np.ndarray) -> None:
    """Results and gradients of two calls with and without the decorator are the same."""
    compiled = partial_trace(function)
    for seed in range(2):
        inputs = [a + np.float32(seed) for a in arrays]
        for got, want in zip(gradients(compiled, *inputs), gradients(function, *inputs), strict=True):
            assert (got is None) == (want is None)
            if want is not None:
                np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)
    assert compiled.stats()["records"] == 1


class Network(M.Module):
    """Convolution, batch normalisation, dropout, linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = M.Conv2d(3, 4, 3, padding=1), M.BatchNorm2d(4)
        self.hidden, self.head = M.Linear(4 * 36, 16), M.Linear(16, 5)
        self.dropout = M.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.flatten(F.gelu(self.norm(self.conv(x))), 1)
        return self.head(self.dropout(F.relu(self.hidden(x))))


#: Element by element, moves, reductions, products: what is computed again and what is kept.
OPS: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda x, y: x * y,
    lambda x, _: F.tanh(x),
    lambda x, y: x @ F.tanh(y),
    lambda x, _: x.sum(axis=0, keepdims=True) * 0.3 + x,
    lambda x, y: F.concat([x, y], axis=0)[2:5],
    lambda x, y: F.maximum(x, y.detach()),
    lambda x, _: F.softmax(x, axis=1).transpose(1, 0),
]


class Traced(Network):
    """The same, with a traced method."""

    forward = partial_trace(Network.forward)


def trained(wrap: Callable[[Callable[..., Any]], Callable[..., Any]], kind: type = Network) -> dict[str, Any]:
    """The losses, parameters and buffers of a few steps; one batch is of another size, one in eval mode."""
    random.seed(5)
    network = kind()
    manager = GradManager().attach(network.parameters())
    optimizer = SGD(network.parameters(), lr=0.1, momentum=0.9)
    backbone = wrap(lambda model, x: model(x))
    losses = []
    for step, count in enumerate((6, 6, 4, 6, 6)):
        network.train(step != 3)
        x, label = tensor(floats(count, 3, 6, 6, seed=step)), tensor(np.arange(count) % 5)
        with manager:
            loss = F.loss.cross_entropy(backbone(network, x), label)
            manager.backward(loss)
        optimizer.step().clear_grad()
        losses.append(loss.item())
    return {"losses": np.array(losses), **{k: np.array(v) for k, v in network.state_dict().items()}}


@pytest.mark.parametrize("kind", [Network, Traced], ids=["function", "method"])
def test_training_matches_eager(kind: type) -> None:
    """Batch statistics move, dropout draws, shapes and modes change as in eager mode."""
    wrap = partial_trace if kind is Network else lambda f: f
    got, want = trained(wrap, kind), trained(lambda f: f)
    assert got.keys() == want.keys()
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("given", [(), (None,)], ids=["options", "none"])
def test_can_be_used_as_a_decorator_with_options(given: tuple[None, ...]) -> None:
    made = partial_trace(*given, backend="default")(lambda x: x * x)
    assert made(tensor([3.0])).tolist() == [9.0]
    assert partial_trace(func=lambda x: x + x)(tensor([3.0])).tolist() == [6.0]


def test_gradients_match_torch() -> None:
    torch = pytest.importorskip("torch")
    x, w, b = floats(4, 8), floats(8, 3), floats(3)

    @partial_trace
    def layer(x, w, b):
        return F.softmax(x @ w + b, axis=1) * F.sigmoid(x).sum()

    want = [torch.tensor(a, requires_grad=True) for a in (x, w, b)]
    y = torch.softmax(want[0] @ want[1] + want[2], 1) * torch.sigmoid(want[0]).sum()
    y.backward(torch.tensor(floats(4, 3, seed=9)))
    for got, t in zip(gradients(layer, x, w, b), want, strict=True):
        np.testing.assert_allclose(got, t.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_gradients_match_finite_differences(check_gradient: Callable[..., None]) -> None:
    @partial_trace
    def function(x, y):
        return F.log(F.exp(x).sum(axis=1, keepdims=True) + (F.tanh(x) @ y) ** 2)

    check_gradient(function, floats(3, 4).astype(float), floats(4, 2).astype(float))


def test_each_set_of_incoming_gradients_gets_a_backward_program() -> None:
    weights = [tensor(floats(3, seed=s)) for s in range(3)]

    @partial_trace
    def function(x, *, others):
        h = F.tanh(x * weights[0])
        return {"a": h * weights[1], "b": [F.exp(h) * weights[2], (x > 0, others[0] + 1)]}

    def run(compiled: Callable[..., Any], wanted: str) -> list[np.ndarray | None]:
        x = tensor(floats(3))
        for t in weights:
            t.grad = None
        with GradManager().attach([x, *weights]) as manager:
            out = compiled(x, others=(tensor([1.0]),))
            assert out["b"][1][0].dtype == bool and out["b"][1][1].item() == 2
            manager.backward({"a": out["a"], "b": out["b"][0], "ab": out["a"] + out["b"][0]}[wanted])
        return [None if t.grad is None else t.grad.numpy() for t in (x, *weights)]

    for wanted in ("ab", "a", "b", "ab"):
        for got, want in zip(run(function, wanted), run(function.__wrapped__, wanted), strict=True):
            assert (got is None) == (want is None), wanted
            if want is not None:
                np.testing.assert_allclose(got, want, rtol=1e-5)
    assert function.stats()["records"] == 1
    assert len(function.backward_programs) == 3
    assert function.stats()["programs"] == 4


def test_missing_gradient_does_not_produce_nan() -> None:
    @partial_trace
    def function(x):
        return x * 2.0, F.log(x) * 1.0

    x = tensor([0.0, 1.0])
    with GradManager().attach(x) as manager:
        manager.backward(function(x)[0])
    assert x.grad.tolist() == [2, 2]


def test_detach_and_custom_functions_have_eager_gradients() -> None:
    class Halved(Function):
        def forward(self, x, y):
            self.save = x * y
            return x * y, x + y

        def backward(self, first, second):
            return self.save if first is None else first * 0.5 + self.save, None

    def function(x, y):
        a, b = Halved()(x * 1.0, y)
        return a + x.detach() * x, b * F.floor(y)

    check(function, floats(5), floats(5, seed=1))
    check(lambda x, y: Halved()(x * 1.0, y)[1], floats(5), floats(5, seed=1))
    check(lambda x, y: Halved()(x * 1.0, y * x)[0], floats(5), floats(5, seed=1))


def test_arguments_and_duplicates_among_the_results() -> None:
    check(lambda x, y: (x, y * 2.0, x), floats(3), floats(3, seed=1))


def test_argument_updated_in_place_keeps_its_gradient() -> None:
    def function(x, state):
        state += x * x
        return state * x

    def run(function: Callable[..., Any]) -> tuple[Any, Any]:
        x, state = tensor([1.0, 2.0]), tensor([3.0, 4.0])
        with GradManager().attach(x) as manager:
            out = function(x, state)
            manager.backward(out + state * 10.0)
        return x.grad.tolist(), state.tolist()

    compiled = partial_trace(function)
    assert run(compiled) == run(compiled) == run(function)


def test_calls_within_one_step_save_their_values_separately() -> None:
    weight = Parameter(floats(4, 4))

    @partial_trace
    def layer(x):
        return F.tanh(x @ weight)

    def gradient(layer: Callable[..., Any]) -> np.ndarray:
        weight.grad = None
        with GradManager().attach(weight) as manager:
            x = tensor(floats(2, 4))
            for _ in range(3):
                x = layer(x) + x
            manager.backward(x)
        return weight.grad.numpy()

    for _ in range(2):
        np.testing.assert_allclose(gradient(layer), gradient(layer.__wrapped__), rtol=1e-4, atol=1e-6)
    assert layer.stats()["records"] == 2  # first `x` wants no gradient, then it does


def test_random_numbers_match_eager_and_are_shared_with_backward() -> None:
    @partial_trace
    def function(x):
        return F.dropout(x, 0.5)

    drawn = []
    for compiled in (function, function.__wrapped__):
        random.seed(1)
        for _ in range(2):
            x = tensor(np.ones(64, np.float32))
            with GradManager().attach(x) as manager:
                y = compiled(x)
                manager.backward(y)
            np.testing.assert_array_equal(x.grad.numpy(), y.numpy())
            drawn.append(y.numpy())
    np.testing.assert_array_equal(drawn[0], drawn[2])
    np.testing.assert_array_equal(drawn[1], drawn[3])
    assert (drawn[0] != drawn[1]).any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_gradients_in_16_and_64_bit_dtypes(dtype: str) -> None:
    @partial_trace
    def function(x, w):
        return (F.sigmoid(x @ w) * 2).astype("float32")

    def run(function: Callable[..., Any]) -> list[np.ndarray]:
        x, w = (tensor(floats(4, 4, seed=s)).astype(dtype) for s in range(2))
        with GradManager().attach([x, w]) as manager:
            manager.backward(function(x, w))
        assert x.grad.dtype == x.dtype
        return [t.grad.astype("float32").numpy() for t in (x, w)]

    tolerance = {"float16": 4e-3, "bfloat16": 4e-2, "float64": 1e-6}[dtype]
    for got, want in zip(run(function), run(function.__wrapped__), strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@settings(max_examples=15)
@given(st.data())
def test_random_functions_have_eager_gradients(data: st.DataObject) -> None:
    """Wherever they are cut, and whichever gradients arrive; kernels that are not fused are the truth."""
    steps = data.draw(
        st.lists(st.tuples(st.integers(0, 6), st.integers(0, 8), st.integers(0, 8)), min_size=2, max_size=7)
    )
    ends = data.draw(st.lists(st.integers(0, 8), min_size=1, max_size=3))
    arrive = data.draw(st.sets(st.sampled_from(range(len(ends))), min_size=1))

    def function(*inputs: Tensor) -> list[Tensor]:
        values = list(inputs)
        for op, a, b in steps:
            x, y = values[a % len(values)], values[b % len(values)]
            values.append(OPS[op](x, y))
        return [values[end % len(values)] * 1.0 for end in ends]

    def run(function: Callable[..., Any]) -> list[np.ndarray | None]:
        inputs = [tensor(floats(3, 3, seed=s), dtype="float64") for s in range(3)]
        with GradManager().attach(inputs[:2]) as manager:
            manager.backward([y for place, y in enumerate(function(*inputs)) if place in arrive])
        return [None if t.grad is None else t.grad.numpy() for t in inputs]

    for got, want in zip(run(partial_trace(function, backend="eager")), run(function), strict=True):
        assert (got is None) == (want is None)
        if want is not None:
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def test_returned_arguments_keep_their_identity() -> None:
    @partial_trace
    def some(x: Tensor, p: Tensor) -> tuple[Tensor, ...]:
        y = x * p
        return x, y, y, p

    for seed in range(3):
        x, p = (tensor(np.random.default_rng(seed + n).standard_normal(3)) for n in (0, 9))
        was = x.numpy().copy()
        with GradManager().attach([x, p]) as manager:
            a, b, c, d = some(x, p)
            assert a is x and b is c and d is p
            manager.backward((a * 2.0 + b * c + d * d).sum())
        np.testing.assert_allclose(x.grad.numpy(), 2.0 + 2.0 * was * p.numpy() ** 2, rtol=1e-5)
        np.testing.assert_allclose(p.grad.numpy(), 2.0 * p.numpy() + 2.0 * was**2 * p.numpy(), rtol=1e-5)
        a += 1.0
        np.testing.assert_allclose(x.numpy(), was + 1.0, rtol=1e-6)


def test_returned_argument_updated_in_place_is_differentiated_once() -> None:
    @partial_trace
    def scale(x: Tensor, p: Tensor) -> Tensor:
        x *= p
        return x

    for seed in range(3):
        q, p = (tensor(np.random.default_rng(seed + n).standard_normal(3)) for n in (0, 9))
        with GradManager().attach([q, p]) as manager:
            x = q * 1.5
            y = scale(x, p)
            assert y is x
            manager.backward((y * x).sum())  # (1.5 q p)^2
        np.testing.assert_allclose(q.grad.numpy(), 4.5 * q.numpy() * p.numpy() ** 2, rtol=1e-5)
        np.testing.assert_allclose(p.grad.numpy(), 4.5 * q.numpy() ** 2 * p.numpy(), rtol=1e-5)


@pytest.mark.parametrize("body", [lambda x, z: (x, z * 2.0), lambda x, z: (x.detach() * 3.0, z)])
def test_body_without_differentiable_ops(body: Any) -> None:
    part = partial_trace(body)
    for seed in range(3):
        x, z = tensor(np.random.default_rng(seed).standard_normal(3)), tensor([1.0, 2.0, 3.0])
        wanted, other = body(tensor(x.numpy()), z)
        with GradManager().attach(x) as manager:
            a, b = part(x, z)
            manager.backward((a.detach() * x + b.detach()).sum())
        np.testing.assert_allclose(a.numpy(), wanted.numpy(), rtol=1e-6)
        np.testing.assert_allclose(b.numpy(), other.numpy(), rtol=1e-6)
        np.testing.assert_allclose(x.grad.numpy(), wanted.numpy(), rtol=1e-6)
