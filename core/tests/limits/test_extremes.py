"""Functions at the edges of what can be traced: very deep, very wide, empty, and without any op."""

from __future__ import annotations

import gc
import sys
import weakref

import mgb.functional as F
import numpy as np
import pytest
from mgb import Parameter, plugins, tensor
from mgb.autodiff import GradManager
from mgb.errors import ShapeError
from mgb.jit import trace

MODES = [
    {},
    {"symbolic": True},
    {"without_host": True},
    {"symbolic": True, "without_host": True},
    {"imperative": True},
    {"opt_level": 0},
]
BACKENDS = [name for name in ("eager", "cpu_llvm") if name in plugins.installed()]


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    monkeypatch.setenv("MGB_JIT_BACKEND", "eager")


@pytest.mark.parametrize("mode", [{}, {"symbolic": True, "without_host": True}, {"opt_level": 0}], ids=str)
def test_chain_of_3000_ops(mode, monkeypatch):
    monkeypatch.setenv("MGB_VERIFY", "1")

    @trace(**mode)
    def chain(x):
        for i in range(1000):
            x = F.relu(x * 0.5) + float(i)
        return x

    expected = np.float32(1.0)
    for i in range(1000):
        expected = np.maximum(expected * np.float32(0.5), np.float32(0)) + np.float32(i)
    for _ in range(3):
        np.testing.assert_allclose(chain(tensor(np.ones(2))).numpy(), expected, rtol=1e-6)
    assert "relu" in str(chain.graph) and len(chain.graph.nodes) >= 3000
    assert chain.graph.key


def test_gradient_of_a_chain_of_3000_ops():
    weight = Parameter([1.0])
    manager = GradManager().attach([weight])

    @trace
    def step(x):
        with manager:
            y = weight
            for _ in range(1500):
                y = y * 0.999 + x
            manager.backward(y.sum())
        return y

    for _ in range(2):
        step(tensor([0.001]))
        np.testing.assert_allclose(weight.grad.numpy(), [0.999**1500], rtol=1e-3)
        weight.grad = None


def test_graph_of_10000_nodes():
    @trace(symbolic=True)
    def wide(x):
        parts = [x + float(i) for i in range(3400)]
        total = parts[0]
        for part in parts[1:]:
            total = total + part * 2.0
        return total

    for value in (0.0, 1.0):
        expected = value + sum(2.0 * (value + i) for i in range(1, 3400))
        np.testing.assert_allclose(wide(tensor([value])).numpy(), [expected], rtol=1e-4)
    assert len(wide.graph.nodes) > 10_000


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_empty_arrays(mode, backend):
    def function(x, y):
        z = F.exp(x * 2.0) + y
        joined = F.concat([z, z - y], axis=0)
        reduced = z.sum(), z.sum(axis=0), z.max(axis=1)
        return z, *reduced, F.matmul(z, z.reshape(3, 0)), joined.reshape(-1, 6), z[:, 1:]

    traced = trace(function, backend=backend, **mode)
    x, y = tensor(np.zeros((0, 3))), tensor(np.ones(3))
    for _ in range(3):
        for got, want in zip(traced(x, y), function(x, y)):
            assert got.shape == want.shape and got.dtype == want.dtype
            np.testing.assert_array_equal(got.numpy(), want.numpy())
    full = np.ones((2, 3), np.float32)
    again = trace(lambda x, y: F.exp(x * 2.0) + y, backend=backend, **mode)
    for rows in (0, 2, 0):
        got = again(tensor(full[:rows]), y).numpy()
        np.testing.assert_allclose(got, np.exp(full[:rows] * 2) + 1, rtol=1e-6)


def test_empty_mean_is_nan_and_empty_max_raises():
    nothing = tensor(np.zeros((0, 3)))
    assert np.isnan(nothing.mean().item())
    assert nothing.sum().item() == 0 and nothing.prod().item() == 1
    for greatest in (nothing.max, nothing.min):
        with pytest.raises(ShapeError, match="of an empty array"):
            greatest()


# functions that compute nothing


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_function_without_ops(mode):
    nothing = trace(lambda x: None, **mode)
    same = trace(lambda x: x, **mode)
    for value in (1.0, 2.0, 3.0):
        x = tensor([value])
        assert nothing(x) is None
        assert same(x).item() == value and x.item() == value


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_argument_returned_next_to_a_result(mode):
    @trace(**mode)
    def function(x, y):
        return x, x + y, [y, x]

    for value in (1.0, 2.0, 3.0):
        x, y = tensor([value]), tensor([10.0])
        first, total, (second, again) = function(x, y)
        assert (first.item(), total.item(), second.item(), again.item()) == (value, value + 10, 10, value)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_same_tensor_returned_twice(mode):
    @trace(**mode)
    def function(x):
        y = x * 2.0
        return y, y, {"again": y}

    for value in (1.0, 2.0, 3.0):
        first, second, rest = function(tensor([value]))
        assert first.item() == second.item() == rest["again"].item() == 2 * value


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_constant_results(mode):
    @trace(**mode)
    def function(x):
        return F.zeros((2,)) + 3.0, F.arange(3)

    for _ in range(3):
        threes, counted = function(tensor([1.0]))
        assert threes.tolist() == [3, 3] and counted.tolist() == [0, 1, 2]


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_updated_parameter_as_result(mode):
    weight = Parameter([1.0])

    @trace(**mode)
    def function(x):
        nonlocal weight
        old = weight * 1.0
        weight += x
        return weight, old

    for call in range(3):
        now, old = function(tensor([1.0]))
        assert (old.item(), now.item(), weight.item()) == (call + 1, call + 2, call + 2)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_tensors_by_keyword_and_in_containers(mode):
    @trace(**mode)
    def function(xs, *, scale, extra=None):
        total = xs[0]
        for x in xs[1:]:
            total = total + x
        total = total * scale["by"]
        return total if extra is None else total + extra

    for value in (1.0, 2.0, 3.0):
        xs, by = [tensor([value]), tensor([2.0]), tensor([3.0])], {"by": tensor([10.0])}
        assert function(xs, scale=by).item() == (value + 5) * 10
    if "without_host" in mode:  # a call of its own for each kind of call
        assert function(xs[:2], scale=by, extra=tensor([1.0])).item() == 51
        assert function(xs[:2], scale=by).item() == 50


# memory


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_deleted_trace_frees_its_memory(mode, backend):
    weight = Parameter(np.ones(1000, np.float32))

    def make():
        def function(x):
            nonlocal weight
            weight += x
            return weight.sum() * 2.0

        return trace(function, backend=backend, **mode)

    traced = make()
    for _ in range(3):
        traced(tensor(np.ones(1000)))
    body = weakref.ref(traced.__wrapped__)
    variants = [weakref.ref(v) for v in traced.variants()]
    programs = [weakref.ref(p) for v in traced.variants() for p in v.programs]
    assert programs or mode in ({"imperative": True},)
    del traced
    gc.collect()
    assert body() is None
    assert not any(r() for r in variants + programs)
    assert weight.numpy()[0] == 4


def test_deleted_traces_do_not_leak_memory():
    def blocks_after(times: int) -> int:
        for _ in range(times):
            traced = trace(lambda x: (x * 2.0 + 1.0).sum(), symbolic=True)
            traced(tensor(np.ones(100)))
            del traced
        gc.collect()
        return sys.getallocatedblocks()

    # Python's own caches and free lists fill once, by some 100 blocks; a leak grows in every round
    rounds = [blocks_after(100) for _ in range(6)]
    assert min(np.diff(rounds)) < 50  # half a block for each
