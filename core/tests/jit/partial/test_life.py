"""The life of a partially traced function: what it notes, keeps alive, leaves alone and tells of itself."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref

import mgb.functional as F
import mgb.module as M
import numpy as np
from arrays import floats
from mgb import Parameter, Tensor, tensor
from mgb.autodiff import GradManager
from mgb.jit import partial_trace, trace
from mgb.tensor import active_trace


class Block(M.Module):
    """A module with a traced method and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.factor = M.Linear(4, 4), 1.0

    @partial_trace
    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.linear(x)) * self.factor


def test_manager_inside_the_body_and_its_callbacks_are_compiled() -> None:
    w = Parameter([2.0, 3.0])

    def function(x):
        with GradManager().attach(w, lambda _, grad: grad * 10.0) as inner:
            loss = (w * w * x).sum()
            inner.backward(loss)
        return loss * 1.0

    compiled = partial_trace(function)
    for x in (1.0, 2.0):
        w.grad = None
        assert compiled(tensor([x, x])).item() == 13 * x
        assert w.grad.tolist() == [40 * x, 60 * x]


def test_outer_callbacks_get_the_complete_gradient_once_per_step() -> None:
    w = Parameter([2.0])
    seen = []

    def clip(_: Tensor, grad: Tensor) -> Tensor:
        seen.append(grad.item())
        return F.minimum(grad, 1.0)

    manager = GradManager().attach(w, clip)
    times = partial_trace(lambda x: x * w)
    for _ in range(2):
        w.grad = None
        with manager:
            manager.backward(times(tensor([3.0])) + times(tensor([4.0])) + w)
        assert w.grad.item() == 1
    assert seen == [8, 8]


def test_partial_trace_inside_a_trace_is_inlined() -> None:
    w = Parameter(floats(3))
    part = partial_trace(lambda x: F.exp(x * w))

    @trace(without_host=True)
    def step(x):
        with GradManager().attach(w) as manager:
            y = part(x)
            manager.backward(y)
        return y

    x = floats(3, seed=1)
    for _ in range(2):
        w.grad = None
        y = step(tensor(x))
        np.testing.assert_allclose(w.grad.numpy(), y.numpy() * x, rtol=1e-5)
    assert part.stats()["calls"] == 0


def test_body_runs_once_per_specialization() -> None:
    @partial_trace
    def function(x, factor, *, shift=0.0):
        return x * factor + shift

    for _ in range(2):
        for shape in ((2,), (3,)):
            assert function(tensor(np.ones(shape, np.float32)), 2, shift=1.0).tolist() == [3.0] * shape[0]
        assert function(tensor([1.0, 1.0]), 3).tolist() == [3.0, 3.0]
    assert function.stats()["records"] == 3
    assert "argument 0 of function has shape (3,), recorded were (2,)" in function.stats()["reasons"]


def test_captured_tensors_stay_live() -> None:
    w = tensor([1.0])

    @partial_trace(capture_as_const=True)
    def function(x):
        return x * w + tensor(np.float32(10))

    assert function(tensor([2.0])).item() == 12
    w[...] = 3.0
    assert function(tensor([2.0])).item() == 16


def test_only_values_needed_for_the_gradient_are_saved() -> None:
    w = Parameter(floats(8, 8))

    @partial_trace
    def function(x):
        return (F.gelu(F.tanh(x @ w) * 2.0) + 1.0).sum()

    x = tensor(floats(4, 8))
    function(x)
    with GradManager().attach(w) as manager:
        y = function(x)
        (call,) = (output.inputs[0] for output in y._tape.values())
        (saved,) = call.pull.args
        assert sorted(a.shape for a in saved) == [(4, 8), (4, 8)]  # x, and x @ w or tanh of it
        assert any(a is x._data for a in saved)
        assert not any(a is b for a, b in itertools.combinations(saved, 2))
        manager.backward(y)
    assert [len(v.segments[0].outputs) for v in function.variants()] == [1, 2]


def test_saved_values_are_freed_after_backward(no_cyclic_gc: None) -> None:
    w = Parameter(floats(64, 64))
    function = partial_trace(lambda x: F.relu(x @ w).sum())
    for _ in range(2):
        with GradManager().attach(w) as manager:
            y = function(tensor(floats(64, 64)))
            (output,) = y._tape.values()
            call = weakref.ref(output.inputs[0])
            manager.backward(y)
        del output
        assert call() is None
    gc.collect()


def test_recording_does_not_affect_managers_of_other_threads() -> None:
    w = Parameter([2.0, 3.0])
    recording, noted = threading.Event(), threading.Event()

    def train() -> None:
        with GradManager().attach(w) as manager:
            recording.set()
            noted.wait(60)
            manager.backward(w * w)

    other = threading.Thread(target=train)

    def meet(phase: str, info: dict[str, int]) -> None:
        """The garbage collector calls it in the body, which has no part in that."""
        if active_trace() is not None and not recording.is_set():
            other.start()
            recording.wait(60)

    @partial_trace
    def function(x):
        y = x * w
        for part in [[[n]] for n in range(100)]:
            y = y + 0.0 * part[0][0]
        return y + w

    gc.callbacks.append(meet)
    often = gc.get_threshold()
    gc.set_threshold(1)
    try:
        assert function(tensor([1.0, 1.0])).tolist() == [4, 6]
    finally:
        gc.set_threshold(*often)
        gc.callbacks.remove(meet)
    assert recording.is_set()
    noted.set()
    other.join()
    assert w.grad.tolist() == [4, 6]


def test_method_is_traced_per_instance_without_keeping_it_alive() -> None:
    block = Block()
    x = tensor(np.ones((2, 4), np.float32))
    y = block(x)
    with GradManager().attach(block.parameters()) as manager:
        manager.backward(block(x))
    block.factor = 2.0
    np.testing.assert_allclose(block(x).numpy(), y.numpy() * 2, rtol=1e-6)
    assert block.forward.stats()["reasons"] == [
        "other tensors want gradients of forward than before",
        "`Block.factor` is 2.0, it was 1.0",
    ]
    assert Block().forward.stats()["records"] == 0
    dead = weakref.ref(block)
    del block, manager
    gc.collect()
    assert dead() is None


def test_explain_shows_forward_and_backward_programs() -> None:
    w = Parameter(floats(4, 4))
    function = partial_trace(lambda x: F.exp(x @ w))
    x = tensor(floats(2, 4))
    assert function.explain(x).endswith("no gradient is wanted")
    with GradManager().attach(w):
        text = function.explain(x)
    forward, _, back = text.partition("the way back")
    assert "exp(" in forward and "transpose_a" not in forward
    assert "transpose_a=True" in back
    assert function.stats()["records"] == 0 and w.grad is None
