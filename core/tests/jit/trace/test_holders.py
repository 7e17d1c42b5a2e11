"""Classes of a stranger's that hold Tensors, and derive from nothing of ours, are traced as ours are."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from mgb import Parameter, Tensor, tensor
from mgb.autodiff import GradManager
from mgb.errors import UnknownInputError
from mgb.jit import partial_trace, trace, xla_trace
from mgb.module import Linear, Module
from mgb.optimizer import SGD
from mgb.tensor.holding import Holder, parts_within

KINDS: dict[str, Callable[..., Any]] = {
    "trace": lambda f: trace(f, backend="eager"),
    "run_body=False": lambda f: trace(f, run_body=False, backend="eager"),
    "run_body=True": lambda f: trace(f, run_body=True, backend="eager"),
    "xla_trace": lambda f: xla_trace(f, backend="eager"),
    "partial_trace": lambda f: partial_trace(f, backend="eager"),
}
SKIPPING = [kind for kind in KINDS if kind != "run_body=True"]
WHOLE_STEPS = [kind for kind in SKIPPING if kind != "partial_trace"]
RNG = np.random.default_rng(7)
X = RNG.normal(size=(3, 4))

#: How often the classes below were asked what is in them, and what decides.
ASKED: Counter[str] = Counter()


class Dense:
    """A layer: all that decides is named, so it counts no changes."""

    __revision__ = None

    def __init__(self, weight: Any) -> None:
        self.weight = Parameter(weight, dtype="float32")
        self.doubles = False

    def __parts__(self) -> Iterator[tuple[str, Any]]:
        ASKED["parts"] += 1
        yield "weight", self.weight

    def __decides__(self) -> list[str]:
        ASKED["decides"] += 1
        return ["weight", "doubles"]

    def __call__(self, x: Tensor) -> Tensor:
        y = F.matmul(x, self.weight)
        return y * 2 if self.doubles else y


class Chain:
    """A network of layers in a place that it does not show; so it counts the changes."""

    __slots__ = ("__revision__", "__weakref__", "_layers")

    def __init__(self, *layers: Any) -> None:
        self._layers, self.__revision__ = layers, 0

    def __parts__(self) -> Iterator[tuple[str, Any]]:
        ASKED["parts"] += 1
        yield from ((f"layers.{place}", layer) for place, layer in enumerate(self._layers))

    def __decides__(self) -> tuple[str, ...]:
        ASKED["decides"] += 1
        return ()

    def replace(self, place: int, layer: Any) -> None:
        layers = list(self._layers)
        layers[place] = layer
        self._layers, self.__revision__ = tuple(layers), self.__revision__ + 1

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self._layers:
            x = layer(x)
        return x


class Momentum:
    """An optimizer. Others may be equal to it, so it has no hash."""

    __revision__ = None

    def __init__(self, params: list[Parameter], rate: float) -> None:
        self.groups = [{"params": params, "rate": rate}]
        self.velocity = {str(place): Tensor(np.zeros(p.shape, np.float32)) for place, p in enumerate(params)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Momentum) and self.groups == other.groups

    def __parts__(self) -> Iterator[tuple[str, Any]]:
        ASKED["parts"] += 1
        yield from ((f"params.{place}", param) for place, param in enumerate(self.groups[0]["params"]))
        yield from ((f"velocity.{place}", one) for place, one in self.velocity.items())

    def __decides__(self) -> Iterator[Any]:
        ASKED["decides"] += 1
        yield "velocity"
        yield "groups", 0, "params"

    def step(self) -> None:
        (group,) = self.groups
        for place, param in enumerate(group["params"]):
            one = self.velocity[str(place)]
            one *= 0.5
            one += param.grad
            param -= group["rate"] * one
            param.grad = None


def loss_of(net: Any, x: Tensor) -> Tensor:
    y = net(x)
    return (y * y).sum()


def step(net: Any, opt: Any, x: Tensor) -> Tensor:
    with GradManager().attach([layer.weight for layer in net._layers]) as manager:
        loss = loss_of(net, x)
        manager.backward(loss)
    opt.step()
    return loss


def weights() -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=(4, 5)), rng.normal(size=(5, 2))]


def made(rate: float = 0.001) -> tuple[Chain, Momentum]:
    layers = [Dense(w) for w in weights()]
    return Chain(*layers), Momentum([layer.weight for layer in layers], rate)


class Truth:
    """The same training in NumPy, in float64, with gradients by hand."""

    def __init__(self) -> None:
        self.weights = [np.float64(np.float32(w)) for w in weights()]
        self.velocity = [np.zeros_like(w) for w in self.weights]

    def loss(self, factor: float = 1.0) -> float:
        return float(np.sum((factor * X @ self.weights[0] @ self.weights[1]) ** 2))

    def step(self, rate: float) -> float:
        loss, (first, second) = self.loss(), self.weights
        hidden = X @ first
        back = 2 * hidden @ second
        grads = [X.T @ back @ second.T, hidden.T @ back]
        for place, grad in enumerate(grads):
            self.velocity[place] = 0.5 * self.velocity[place] + grad
            self.weights[place] = self.weights[place] - rate * self.velocity[place]
        return loss


def check(net: Any, truth: Truth) -> None:
    found = [part.numpy() for _, part in parts_within(net) if isinstance(part, Tensor)]
    for ours, theirs in zip(found, truth.weights, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


# training


@pytest.mark.parametrize("kind", WHOLE_STEPS)
def test_training_step_of_third_party_module_and_optimizer(kind: str) -> None:
    (net, opt), truth, traced, x = made(), Truth(), KINDS[kind](step), tensor(X.astype(np.float32))
    for rate in [0.001] * 4 + [0.002, 0.0005, 0.003, 0.001]:
        opt.groups[0]["rate"] = rate
        np.testing.assert_allclose(traced(net, opt, x).numpy(), truth.step(rate), rtol=1e-4)
        check(net, truth)
    counts = traced.stats()
    assert counts["records"] <= 3  # the number is followed once it has changed
    assert counts["body_runs"] == counts["records"]


def test_partial_trace_of_third_party_module() -> None:
    (net, opt), truth, traced, x = made(), Truth(), KINDS["partial_trace"](loss_of), tensor(np.float32(X))
    for _ in range(5):
        with GradManager().attach(opt.groups[0]["params"]) as manager:
            loss = traced(net, x)
            manager.backward(loss)
        opt.step()
        np.testing.assert_allclose(loss.numpy(), truth.step(0.001), rtol=1e-4)
        check(net, truth)
    assert traced.stats()["body_runs"] == 1


def test_external_parameter_updates_are_seen_without_retrace() -> None:
    traced, x = KINDS["xla_trace"](loss_of), tensor(np.float32(X))
    net, truth = made()[0], Truth()
    for scale in (1.0, 2.0, 0.5):
        for layer in net._layers:
            layer.weight *= scale
        truth.weights = [scale * w for w in truth.weights]
        np.testing.assert_allclose(traced(net, x).numpy(), truth.loss(), rtol=1e-4)
    assert traced.stats()["body_runs"] == 1


# staleness


def another_flag(net: Chain, truth: Truth) -> None:
    net._layers[0].doubles = True
    truth.weights[0] = 2 * truth.weights[0]


def another_weight(net: Chain, truth: Truth) -> None:
    net._layers[1].weight = Parameter(np.ones((5, 2), np.float32))
    truth.weights[1] = np.ones((5, 2))


def another_layer(net: Chain, truth: Truth) -> None:
    net.replace(1, Dense(np.full((5, 2), 0.5)))
    truth.weights[1] = np.full((5, 2), 0.5)


@pytest.mark.parametrize("kind", SKIPPING)
@pytest.mark.parametrize("change", [another_flag, another_weight, another_layer])
def test_changed_flag_weight_or_layer_retraces(kind: str, change: Callable[[Chain, Truth], None]) -> None:
    (net, _), truth, traced, x = made(), Truth(), KINDS[kind](loss_of), tensor(np.float32(X))
    for _ in range(3):
        np.testing.assert_allclose(traced(net, x).numpy(), truth.loss(), rtol=1e-4)
    change(net, truth)
    for _ in range(3):
        np.testing.assert_allclose(traced(net, x).numpy(), truth.loss(), rtol=1e-4)
    assert traced.stats()["records"] <= 2


@pytest.mark.parametrize("kind", KINDS)
def test_two_modules_of_one_class_give_their_own_results(kind: str) -> None:
    traced, x = KINDS[kind](loss_of), tensor(np.float32(X))
    one, other, truth = made()[0], made()[0], Truth()
    another_layer(other, changed := Truth())
    for _ in range(3):
        np.testing.assert_allclose(traced(one, x).numpy(), truth.loss(), rtol=1e-4)
        np.testing.assert_allclose(traced(other, x).numpy(), changed.loss(), rtol=1e-4)


def test_equal_optimizers_are_distinguished_by_identity() -> None:
    traced, x = KINDS["xla_trace"](step), tensor(np.float32(X))
    for _ in range(2):
        (net, opt), truth = made(), Truth()
        for _ in range(3):
            traced(net, opt, x)
            truth.step(0.001)
        check(net, truth)


# together with ours


class Both(Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner
        self.last = Linear(2, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.inner(x))


@pytest.mark.parametrize("kind", SKIPPING)
def test_third_party_layer_inside_an_mgb_module(kind: str) -> None:
    (chain, _), truth, traced, x = made(), Truth(), KINDS[kind](loss_of), tensor(np.float32(X))
    net = Both(chain)
    net.last.weight[...] = np.eye(2, dtype=np.float32)
    for change in (None, another_flag, another_weight, another_layer):
        if change is not None:
            change(chain, truth)
        for _ in range(2):
            np.testing.assert_allclose(traced(net, x).numpy(), truth.loss(), rtol=1e-4)


def test_mgb_optimizer_trains_third_party_module() -> None:
    (net, _), truth, traced, x = made(), Truth(), KINDS["xla_trace"](step), tensor(np.float32(X))
    params = [part for _, part in parts_within(net) if isinstance(part, Tensor)]
    opt = SGD(params, lr=0.001, momentum=0.5)
    for _ in range(4):
        traced(net, opt, x)
        for param in params:
            param.grad = None
        truth.step(0.001)
        check(net, truth)
    assert traced.stats()["records"] <= 2  # the first one finds no gradients


# what it costs, and how long it is kept


@pytest.mark.parametrize("kind", WHOLE_STEPS)
def test_steady_calls_do_not_query_module_parts(kind: str) -> None:
    (net, opt), traced, x = made(), KINDS[kind](step), tensor(np.float32(X))
    for _ in range(3):
        traced(net, opt, x)
    before, runs = ASKED.copy(), traced.stats()["body_runs"]
    for _ in range(5):
        traced(net, opt, x)
    assert before == ASKED
    assert traced.stats()["body_runs"] == runs


@pytest.mark.parametrize("kind", SKIPPING)
def test_dropped_module_is_freed(kind: str) -> None:
    traced, x, gone = KINDS[kind](loss_of), tensor(np.float32(X)), []
    for _ in range(5):
        net = made()[0]
        traced(net, x)
        traced(net, x)
        gone.append(weakref.ref(net))
        gone.append(weakref.ref(net._layers[0].weight))
        del net
    gc.collect()
    assert sum(one() is not None for one in gone) <= 2
    assert len(traced.variants()) <= 1


def test_tracing_does_not_modify_third_party_objects() -> None:
    layer, x = Dense(weights()[0]), tensor(np.float32(X))
    before = set(vars(layer)), pickle.dumps(layer)
    traced = KINDS["xla_trace"](loss_of)
    for _ in range(3):
        traced(layer, x)
    assert (set(vars(layer)), pickle.dumps(layer)) == before
    np.testing.assert_allclose(traced(copy.deepcopy(layer), x).numpy(), traced(layer, x).numpy(), rtol=1e-6)


# the protocol


def test_isinstance_recognizes_the_holder_protocol() -> None:
    assert all(isinstance(one, Holder) for one in (*made(), Linear(2, 2), GradManager()))
    assert issubclass(SGD, Holder)

    class Silent:
        def __parts__(self) -> Iterator[tuple[str, Any]]:
            raise AssertionError("it is no holder")

    assert not isinstance(Silent(), Holder)
    assert not isinstance(Silent, Holder)


def test_parts_within_yields_each_part_once_by_name() -> None:
    net = Both(made()[0])
    net.again = [net.last, net.inner]
    found = dict(parts_within(net))
    assert [name for name, part in found.items() if isinstance(part, Tensor)] == [
        "again.0.weight",
        "again.1.layers.0.weight",
        "again.1.layers.1.weight",
    ]


def test_object_with_undeclared_tensors_is_rejected() -> None:
    class Plain:
        def __init__(self) -> None:
            self.weight = Parameter(weights()[0].astype(np.float32))

    with pytest.raises(UnknownInputError, match="neither an argument"):
        KINDS["xla_trace"](lambda plain, x: F.matmul(x, plain.weight))(Plain(), tensor(np.float32(X)))
