"""Threads that call the same traced functions with changing shapes; every result is checked by NumPy."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable

import mgb.functional as F
import numpy as np
import pytest
from mgb import tensor
from mgb.autodiff import GradManager
from mgb.jit import trace

THREADS = 8
WEIGHT = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)

Check = Callable[[np.random.Generator], None]


def close(got, expected) -> None:
    np.testing.assert_allclose(got.numpy(), expected, rtol=2e-4, atol=2e-5)


def floats(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def softmax_check() -> Check:
    """A record that grows a variant for each shape; the body runs."""

    @trace(backend="cpu_numba")
    def softmax(x, y):
        e = F.exp(x * y - (x * y).max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True), e.sum()

    def check(random: np.random.Generator) -> None:
        shape = int(random.integers(1, 40)), int(random.integers(1, 12))
        x, y = floats(random, *shape), floats(random, *shape)
        product = x.astype(np.float64) * y
        e = np.exp(product - product.max(axis=1, keepdims=True))
        got, total = softmax(tensor(x), tensor(y))
        close(got, e / e.sum(axis=1, keepdims=True))
        close(total, e.sum())

    return check


def dense_check() -> Check:
    """A call that skips the body, with a Tensor from outside and Python values in its key."""
    weight = tensor(WEIGHT)

    @trace(without_host=True, backend="cpu_numba")
    def dense(x, scale, more):
        return {"y": F.tanh(x @ weight * scale + more["shift"]), "sum": x.sum(axis=0)}

    def check(random: np.random.Generator) -> None:
        x, scale = floats(random, int(random.integers(1, 20)), 16), float(random.integers(1, 4))
        got = dense(tensor(x), scale, more={"shift": tensor(0.5) if scale == 3 else 0.5})
        close(got["y"], np.tanh(x.astype(np.float64) @ WEIGHT * scale + 0.5))
        close(got["sum"], x.astype(np.float64).sum(axis=0))

    return check


def masked_check() -> Check:
    """Shapes as Tensors, and shapes that depend on values: the program splits."""

    @trace(symbolic_shape=True, backend="cpu_numba")
    def masked(x, k):
        y = x.reshape(x.shape[0] * x.shape[1]) * 2.0
        largest, _ = F.topk(y + 1.0, k, descending=True)
        return y[y > 1.0] + 1.0, largest, y.sum() / y.shape[0]

    def check(random: np.random.Generator) -> None:
        x = floats(random, int(random.integers(1, 4)), int(random.integers(4, 7)))
        k = int(random.integers(1, 4))
        large, largest, mean = masked(tensor(x), tensor(k))
        y = x.ravel().astype(np.float64) * 2
        close(large, y[y > 1] + 1)
        close(largest, np.sort(y)[::-1][:k] + 1)
        close(mean, y.mean())

    return check


def step_check() -> Check:
    """A whole training step, whose parameters are arguments that it updates in place."""

    @trace(backend="cpu_numba")
    def step(w, velocity, x, target):
        with GradManager().attach([w]) as manager:
            loss = ((x @ w - target) ** 2).mean()
            manager.backward(loss)
        velocity *= 0.5
        velocity += w.grad
        w -= 0.1 * velocity
        w.grad = None
        return loss

    def check(random: np.random.Generator) -> None:
        rows = int(random.integers(1, 10))
        w, velocity = tensor(WEIGHT), tensor(np.zeros_like(WEIGHT))
        exact, moving = WEIGHT.astype(np.float64), np.zeros(WEIGHT.shape)
        for _ in range(3):
            x, target = floats(random, rows, 16), floats(random, rows, 8)
            error = x @ exact - target
            moving = moving * 0.5 + 2 * x.T.astype(np.float64) @ error / error.size
            loss = step(w, velocity, tensor(x), tensor(target))
            close(loss, (error**2).mean())
            exact = exact - 0.1 * moving
            close(w, exact)

    return check


def run(seconds: float) -> dict[str, int]:
    """Let the threads call all four for so long; what one of them raises is raised here."""
    checks = [make() for make in (softmax_check, dense_check, masked_check, step_check)]
    stop = time.monotonic() + seconds
    failures: list[BaseException] = []
    calls = [0] * THREADS
    together = threading.Barrier(THREADS)

    def work(number: int) -> None:
        random = np.random.default_rng(number)
        together.wait(60)
        try:
            while time.monotonic() < stop and not failures:
                checks[int(random.integers(len(checks)))](random)
                calls[number] += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(THREADS)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # the more often they change places, the more there is to find
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(seconds + 300)
    finally:
        sys.setswitchinterval(interval)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if failures:
        raise failures[0]
    return {"least": min(calls), "all": sum(calls)}


@pytest.mark.parametrize("seconds", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_threads_call_traced_functions_with_changing_shapes(seconds: int) -> None:
    calls = run(seconds)
    assert calls["least"] > 0, calls


def test_backend_is_loaded_once_by_concurrent_threads() -> None:
    code = """
import sys, threading
from mgb import plugins
sys.setswitchinterval(1e-6)
together, found = threading.Barrier(8), []
def work():
    together.wait(30)
    found.append(plugins.load_backend("cpu_numba"))
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert len(found) == 8 and len(set(map(id, found))) == 1
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
