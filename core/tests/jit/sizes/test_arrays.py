"""NumPy's arrays among the arguments: their lengths are followed as those of Tensors, none is frozen."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import mgb
import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb import Tensor, optimizer, tensor
from mgb.autodiff import GradManager
from mgb.jit import trace

Array = np.ndarray[Any, Any]

WEIGHT = np.random.default_rng(0).normal(size=(6, 6)).astype(np.float32)
WEIGHTS = tensor(WEIGHT)
ROWS = (4, 4, 5, 9, 3, 5)


def rows(count: int, seed: int) -> Array:
    return np.random.default_rng([count, seed]).normal(size=(count, 6)).astype(np.float32)


def flipped(x: Array) -> Array:
    return x[::-1, ::-1]


def added(x: Array) -> Any:
    y = WEIGHTS[0] * 1.0
    y += x
    return y


class Scale:
    """What an operator gives this is what the user gave it."""

    __array_ufunc__ = None

    def __mul__(self, other: Any) -> Any:
        return other

    __rmul__ = __eq__ = __mul__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


#: What the body does with an array, and what NumPy gives.
FOLLOWED: dict[str, tuple[Callable[..., Any], Callable[[Array], Any]]] = {
    "product": (lambda x: x @ WEIGHTS, lambda x: x @ WEIGHT),
    "operator": (lambda x: x * WEIGHTS[0] - 1.0, lambda x: x * WEIGHT[0] - 1),
    "NumPy's function": (lambda x: np.add(x, WEIGHTS[0]), lambda x: x + WEIGHT[0]),
    "Tensor": (lambda x: tensor(x) * 2.0, lambda x: x * 2),
    "shape": (lambda x: F.zeros(x.shape) + x, lambda x: x),
    "length": (lambda x: WEIGHTS[0] * x / x.shape[0], lambda x: WEIGHT[0] * x / len(x)),
    "flip": (lambda x: F.flip(x), flipped),
    "joined": (lambda x: F.concat([F.flip(x), WEIGHTS]), lambda x: np.concatenate([flipped(x), WEIGHT])),
    "sum": (lambda x: F.sum(x, axis=1), lambda x: x.sum(axis=1)),
    "reshape": (lambda x: F.reshape(x, (-1,)), lambda x: x.reshape(-1)),
    "expand": (lambda x: F.expand_dims(x, 1), lambda x: x[:, None]),
    "roll": (lambda x: F.roll(x, 1, axis=0), lambda x: np.roll(x, 1, axis=0)),
    "repeat": (lambda x: F.repeat(x, 2), lambda x: x.repeat(2)),
    "by a function": (lambda x: operator.add(x, WEIGHTS[0]), lambda x: x + WEIGHT[0]),
    "by divmod": (lambda x: divmod(x, WEIGHTS[0])[0], lambda x: x // WEIGHT[0]),
    "compared": (lambda x: (x > WEIGHTS[0]) * 1.0, lambda x: x > WEIGHT[0]),
    "added to": (added, lambda x: x + WEIGHT[0]),
    "size": (lambda x: WEIGHTS[0] * x / x.size, lambda x: WEIGHT[0] * x / x.size),
    "partial": (lambda x: functools.partial(F.flip, axis=0)(x), lambda x: x[::-1]),
    "argmax": (lambda x: F.argmax(x, axis=1), lambda x: x.argmax(axis=1)),
}  # fmt: skip
#: The same for what NumPy reads.
READ: dict[str, tuple[Callable[..., Any], Callable[[Array], Any]]] = {
    "transposed": (lambda x: WEIGHTS[0, 0] * x.T, lambda x: WEIGHT[0, 0] * x.T),
    "Tensor of a view": (lambda x: tensor(x.T) * 2.0, lambda x: x.T * 2),
    "op on a view": (lambda x: F.exp(x.T), lambda x: np.exp(x.T)),
    "product of a view": (lambda x: x.T[:, :3] @ WEIGHTS[:3], lambda x: x.T[:, :3] @ WEIGHT[:3]),
    "part": (lambda x: WEIGHTS[0] * x[1:], lambda x: WEIGHT[0] * x[1:]),
    "reshaped": (lambda x: WEIGHTS[0, 0] * x.reshape(-1), lambda x: WEIGHT[0, 0] * x.reshape(-1)),
    "both": (lambda x: WEIGHTS[0] * x * float(x.sum()), lambda x: WEIGHT[0] * x * float(x.sum())),
    "partial": (lambda x: functools.partial(F.flip, x)(axis=0), lambda x: x[::-1]),
    "reduced": (lambda x: functools.reduce(F.add, [x, WEIGHTS[0], x]), lambda x: x + WEIGHT[0] + x),
    "by map": (lambda x: next(map(F.flip, [x])), flipped),
}


def serves(body: Callable[..., Any], truth: Callable[[Array], Any], **options: Any) -> dict[str, Any]:
    """Call it with arrays of several lengths, twice with each; what it says of itself."""
    traced = trace(body, **options)
    for seed, count in enumerate(ROWS):
        x = rows(count, seed)
        wanted, found = truth(x), traced(x).numpy()
        assert found.shape == wanted.shape, count
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    stats: dict[str, Any] = traced.stats()
    return stats


@pytest.mark.parametrize("name", FOLLOWED)
def test_array_arguments_of_new_lengths_do_not_retrace(name: str) -> None:
    assert serves(*FOLLOWED[name])["body_runs"] == 2


@pytest.mark.parametrize("name", FOLLOWED)
def test_array_arguments_of_new_lengths_share_programs_with_run_body(name: str) -> None:
    stats = serves(*FOLLOWED[name], run_body=True)
    assert stats["records"] == len(set(ROWS)) and stats["programs"] <= 2


@pytest.mark.parametrize("options", [{}, {"run_body": True}], ids=str)
def test_tensor_and_array_arguments_are_separate_specializations(options: dict[str, Any]) -> None:
    traced = trace(lambda x, y: F.exp(x) * y + 1.0, **options)
    kinds = [(tensor, tensor), (np.asarray, np.asarray), (tensor, np.asarray), (np.asarray, tensor)]
    for count in (4, 4, 6):
        for seed, (one, other) in enumerate(kinds):
            x, y = rows(count, seed), rows(count, seed + 9)
            np.testing.assert_allclose(traced(one(x), other(y)).numpy(), np.exp(x) * y + 1, rtol=1e-5)
    assert traced.stats()["records"] == 2 * len(kinds)


@pytest.mark.parametrize("name", READ)
def test_views_and_contents_of_array_arguments_are_never_stale(name: str) -> None:
    serves(*READ[name])


def test_arguments_that_are_views_are_guarded_separately() -> None:
    """NumPy knows of a view of a view only whose memory it is."""
    traced = trace(lambda x, y: WEIGHTS[0, 0] * x.reshape(-1) + y.T.reshape(-1))
    for seed in (0, 0, 1, 1):
        both = np.stack([rows(4, seed), rows(4, 0)])
        wanted = WEIGHT[0, 0] * both[0].reshape(-1) + both[1].T.reshape(-1)
        np.testing.assert_allclose(traced(both[0], both[1]).numpy(), wanted, rtol=1e-5)
    assert traced.stats()["body_runs"] == 2


@pytest.mark.parametrize(
    "body",
    [lambda x: Scale() * x, lambda x: x * Scale(), lambda x: Scale() == x, lambda x: x + x, lambda x: -x],
    ids=["left", "right", "compared", "sum", "sign"],
)
def test_third_party_operators_receive_the_original_array(body: Callable[[Array], Any]) -> None:
    traced = trace(lambda x: (body(x), WEIGHTS * 2.0))
    for count in ROWS:
        x = rows(count, 0)
        found, wanted = traced(x)[0], body(x)
        assert type(found) is np.ndarray and (found is x) == (wanted is x)
        np.testing.assert_array_equal(found, wanted)


def test_array_argument_passed_through_keeps_its_identity() -> None:
    identity = M.Identity()

    @trace
    def same(x: Array) -> Any:
        y = identity(x)
        return y is x, type(y) is np.ndarray, WEIGHTS * 2.0

    for count in ROWS:
        assert same(rows(count, 0))[:2] == (True, True)


def network(**options: Any) -> tuple[Any, Callable[..., Any]]:
    """A small classifier, with its traced step."""
    mgb.random.seed(3)
    net = M.Sequential(M.Linear(6, 5), M.LayerNorm(5), M.ReLU(), M.Linear(5, 4))
    adam, manager = optimizer.Adam(net.parameters(), lr=1e-2), GradManager().attach(net.parameters())

    def step(x: Any, label: Any) -> Tensor:
        with manager:
            loss = F.nn.cross_entropy(net(x), label)
            manager.backward(loss)
        adam.step().clear_grad()
        return loss

    return net, trace(step, **options)


def batch(size: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng([size, seed])
    return rng.normal(size=(size, 6)), rng.integers(0, 4, size)


def test_training_on_arrays_matches_training_on_tensors() -> None:
    (one, step), (other, truth) = network(), network(run_body=True)
    for seed, size in enumerate([8, 8, 12, 3, 64, 6, 8, 33]):
        x, label = batch(size, seed)
        wanted = truth(tensor(x), tensor(label)).numpy()
        np.testing.assert_allclose(step(x, label).numpy(), wanted, rtol=1e-4, atol=1e-5)
    for mine, its in zip(one.parameters(), other.parameters(), strict=True):
        np.testing.assert_allclose(mine.numpy(), its.numpy(), rtol=1e-3, atol=1e-4)


class Branches(M.Module):
    """Modules in a Module that hands its input on."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = M.Linear(6, 4), M.Linear(6, 4)

    def forward(self, x: Any) -> Tensor:
        return F.relu(self.one(x)) + self.other(x)


def test_array_batches_for_nested_modules_do_not_retrace() -> None:
    net = Branches()
    traced = trace(lambda x: net(x) * 2.0)
    for seed in range(20):
        x = rows(4 + seed // 4, seed)
        hidden = [x @ part.weight.numpy().T + part.bias.numpy() for part in (net.one, net.other)]
        wanted = 2 * (np.maximum(hidden[0], 0) + hidden[1])
        np.testing.assert_allclose(traced(x).numpy(), wanted, rtol=1e-4, atol=1e-5)
    assert traced.stats()["body_runs"] == 2


def test_new_batch_sizes_do_not_retrace_and_variants_are_bounded() -> None:
    _, step = network()
    for seed in range(20):
        step(*batch(16, seed))
    assert step.stats()["body_runs"] == 2
    for size in range(40, 340, 4):
        step(*batch(size, 0))
    stats = step.stats()
    assert stats["records"] <= 2 and len(stats["reasons"]) <= 1 and len(step.variants()) <= 256


@pytest.mark.parametrize("options", [{}, {"run_body": True}, {"run_body": False}])
def test_trace_of_one_array_passed_twice_is_not_used_for_two_arrays(options: dict[str, Any]) -> None:
    def body(a: Any, b: Any) -> Any:
        return tensor(1.0) * a + b, a.shape

    base = np.arange(12.0).reshape(3, 4)
    traced = trace(body, **options)
    for a, b in [
        (base, base),
        (base[:, 1:2], base),
        (base, base.copy()),
        (base[:, :1], base),
        (base, base + 1),
    ]:
        result, shape = traced(a, b)
        expected, expected_shape = body(a, b)
        assert result.tolist() == expected.tolist() and shape == expected_shape
