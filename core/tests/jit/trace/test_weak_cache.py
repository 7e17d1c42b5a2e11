"""What traced functions keep of Modules and Optimizers: nothing longer than these are used elsewhere."""

from __future__ import annotations

import copy
import gc
import pickle
import random
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from mgb import Tensor, tensor
from mgb import module as M
from mgb import optimizer as O
from mgb.autodiff import GradManager
from mgb.jit import partial_trace, trace, xla_trace
from mgb.jit.weak_cache import WeakCache

KINDS: dict[str, Callable[..., Any]] = {
    "trace": lambda f: trace(f, backend="eager"),
    "symbolic": lambda f: trace(f, symbolic=True, backend="eager"),
    "run_body": lambda f: trace(f, run_body=True, backend="eager"),
    "xla_trace": lambda f: xla_trace(f, backend="eager"),
    "partial_trace": lambda f: partial_trace(f, backend="eager"),
}
X = np.linspace(0, 1, 8, dtype=np.float32).reshape(2, 4)


def network() -> M.Module:
    return M.Sequential(M.Linear(4, 3), M.ReLU())


def call(net: M.Module, x: Tensor) -> Tensor:
    return net(x)


def in_a_list(nets: list[M.Module], x: Tensor) -> Tensor:
    return nets[1](nets[0](x))


def reading(net: M.Module, x: Tensor) -> Tensor:
    y = net(x)
    return y * tensor(float(y.sum()))


def step(net: M.Module, opt: O.Optimizer, x: Tensor) -> Tensor:
    manager = GradManager().attach(net.parameters())
    with manager:
        loss = net(x).sum()
        manager.backward(loss)
    opt.step().clear_grad()
    return loss


def arguments_for(function: Callable[..., Any]) -> tuple[Any, ...]:
    net = network()
    if function is step:
        return net, O.Adam(net.parameters(), 0.1), tensor(X)
    if function is in_a_list:
        return [M.Linear(4, 4), net], tensor(X)
    return net, tensor(X)


def alive(references: list[weakref.ref[Any]]) -> int:
    gc.collect()
    return sum(reference() is not None for reference in references)


@pytest.mark.parametrize(
    ("kind", "function"),
    [(kind, function) for kind in KINDS for function in (call, in_a_list, step)]
    + [("trace", reading), ("run_body", reading)],
)
def test_dropped_networks_are_freed(kind: str, function: Callable[..., Any]) -> None:
    traced = KINDS[kind](function)
    networks, parameters = [], []
    for _ in range(6):  # fewer than are kept, so that none goes because it is old
        arguments = arguments_for(function)
        net = arguments[0][1] if function is in_a_list else arguments[0]
        for _ in range(3):
            traced(*arguments)
        networks.append(weakref.ref(net))
        parameters.append(weakref.ref(net[0].weight))
        del net, arguments
    assert alive(networks) <= 1
    assert alive(parameters) <= 1
    assert len(traced.variants()) <= 1


@pytest.mark.parametrize("kind", ["trace", "xla_trace", "partial_trace"])
def test_networks_in_use_keep_their_cache_entries(kind: str) -> None:
    traced = KINDS[kind](call)
    networks = [network() for _ in range(12)]
    for _ in range(3):
        for net in networks:
            np.testing.assert_allclose(traced(net, tensor(X)).numpy(), net(tensor(X)).numpy(), rtol=1e-6)
        gc.collect()
    assert traced.stats()["records"] == len(networks)
    assert len(traced.variants()) == len(networks)


def test_dropped_optimizers_are_freed_while_their_network_lives() -> None:
    traced = xla_trace(step, backend="eager")
    net, optimizers = network(), []
    for _ in range(8):
        opt = O.Adam(net.parameters(), 0.1)
        traced(net, opt, tensor(X))
        optimizers.append(weakref.ref(opt))
        del opt
    assert alive(optimizers) <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_dropped_function_is_freed_while_its_network_lives(kind: str) -> None:
    net, functions = network(), []
    for _ in range(4):
        traced = KINDS[kind](lambda net, x: net(x))
        traced(net, tensor(X))
        traced(net, tensor(X))
        functions.append(weakref.ref(traced))
        del traced
    assert alive(functions) == 0
    held = vars(net).get("_kept_calls")
    assert not held


@pytest.mark.parametrize("kind", ["trace", "xla_trace", "partial_trace"])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copied_network_gets_its_own_record(kind: str, duplicate: Callable[[Any], Any]) -> None:
    traced, net = KINDS[kind](call), network()
    expected = traced(net, tensor(X)).numpy()
    other = duplicate(net)
    other[0].weight *= 2.0
    np.testing.assert_array_equal(traced(net, tensor(X)).numpy(), expected)
    np.testing.assert_allclose(traced(other, tensor(X)).numpy(), other(tensor(X)).numpy(), rtol=1e-6)
    assert list(net.state_dict()) == list(other.state_dict())
    assert traced.stats()["records"] == 2


def test_backward_is_compiled_after_its_function_is_collected() -> None:
    net = network()
    manager = GradManager().attach(net.parameters())
    with manager:
        loss = partial_trace(call, backend="eager")(net, tensor(X)).sum()
        gc.collect()
        manager.backward(loss)
    compiled = net[0].weight.grad.numpy()
    net[0].weight.grad = None
    with manager:
        manager.backward(net(tensor(X)).sum())
    np.testing.assert_allclose(compiled, net[0].weight.grad.numpy(), rtol=1e-6)


@pytest.mark.parametrize("kind", ["trace", "xla_trace", "partial_trace"])
def test_shallow_copies_do_not_keep_the_originals_alive(kind: str) -> None:
    traced, copies, originals = KINDS[kind](call), [], []
    for _ in range(6):
        net = network()
        traced(net, tensor(X))
        copies.append(copy.copy(net))
        originals.append(weakref.ref(net))
        del net
    assert alive(originals) <= 1
    for other in copies:
        np.testing.assert_allclose(traced(other, tensor(X)).numpy(), other(tensor(X)).numpy(), rtol=1e-6)


@pytest.mark.parametrize("kind", ["trace", "xla_trace", "partial_trace"])
def test_last_of_two_networks_is_freed_while_the_first_lives(kind: str) -> None:
    traced, teacher, students = KINDS[kind](in_a_list), M.Linear(4, 4), []
    for _ in range(6):
        student = network()
        traced([teacher, student], tensor(X))
        students.append(weakref.ref(student))
        del student
    assert alive(students) <= 1


@pytest.mark.parametrize("kind", ["trace", "xla_trace"])
def test_call_does_not_change_the_pickle_of_a_network(kind: str) -> None:
    net = network()
    opt = O.Adam(net.parameters(), 0.1)
    before = pickle.dumps(net)
    KINDS[kind](call)(net, tensor(X))
    assert pickle.dumps(net) == before
    KINDS[kind](step)(net, opt, tensor(X))
    assert b"Holdings" not in pickle.dumps((net, opt))


@dataclass
class Scaled(M.Module):
    """Without a hash, and equal to others."""

    factor: float

    def __post_init__(self) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class Hashed(Scaled):
    """All are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hashed)

    def __hash__(self) -> int:
        return 1


@pytest.mark.parametrize("kind", ["trace", "xla_trace", "partial_trace"])
@pytest.mark.parametrize("module", [Scaled, Hashed])
def test_modules_are_distinguished_by_identity_not_equality(kind: str, module: type[Scaled]) -> None:
    traced = KINDS[kind](call)
    modules = [module(2.0), module(3.0), module(2.0)]
    for _ in range(3):
        for net in modules:
            np.testing.assert_allclose(traced(net, tensor(X)).numpy(), net.factor * X, rtol=1e-6)
    assert traced.stats()["records"] == len(modules)


def test_weak_cache_is_thread_safe() -> None:
    kept: WeakCache[Any] = WeakCache()
    errors: list[BaseException] = []
    ends = time.monotonic() + 1.0

    def work(number: int) -> None:
        rng, living = random.Random(number), []
        while time.monotonic() < ends and not errors:
            owner = network() if rng.random() < 0.5 else object()
            try:
                kept.keep(rng.randint(0, 40), [owner], [owner], 8)
                kept.values()
            except Exception as error:
                errors.append(error)
            living = [*living, owner][-rng.randint(1, 8) :]
            if rng.random() < 0.02:
                gc.collect(0)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert errors == []
    assert len(kept) <= 8 + len(threads)


class Own(np.ndarray):
    pass


def _read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


ARRAYS: dict[str, Any] = {
    "plain": lambda: np.arange(6.0),
    "in columns": lambda: np.asfortranarray(np.ones((2, 3))),
    "read-only": lambda: _read_only(np.arange(3)),
    "masked": lambda: np.ma.array([1.0, 2.0], mask=[0, 1]),
    "matrix": lambda: np.matrix([[1.0, 2.0]]),
    "own class": lambda: np.zeros(2).view(Own),
    "records": lambda: np.rec.array([(1.0, 2)], dtype="f4,i4"),
}


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("name", ARRAYS)
def test_array_created_in_the_body_is_new_at_each_call(name: str) -> None:
    make = ARRAYS[name]
    traced = trace(lambda x: (x * 2, make()))
    results = [traced(tensor([1.0]))[1] for _ in range(4)]
    want = make()
    for n, got in enumerate(results):
        assert type(got) is type(want) and repr(got) == repr(want)
        assert got.flags.writeable == want.flags.writeable
        assert got.flags.f_contiguous == want.flags.f_contiguous
        assert not any(np.shares_memory(got, other) for other in results[:n])


def test_old_generation_garbage_is_not_treated_as_a_stored_tensor() -> None:
    def double(x: Any) -> Any:
        holder: list[Any] = [x * 2]
        holder.append(holder)
        for _ in range(100):
            _ = [object()]
        return holder[0] + 1

    traced = trace(double, run_body=False)
    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(1, 1, 1 << 30)  # what lives through two collections is old
    try:
        assert traced(tensor([1.0])).numpy() == 3
    finally:
        gc.set_threshold(*before)
    assert traced(tensor([2.0])).numpy() == 5
    assert traced.stats()["body_runs"] == 1
