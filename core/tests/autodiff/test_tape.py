"""The gradient tape: what it keeps, what it costs, symbolic tensors."""

from __future__ import annotations

import timeit
import weakref

import numpy as np
import pytest
from differences import RNG, float64
from mgb.autodiff import GradManager
from mgb.autodiff.tape import Tape
from mgb.ir import CONST, Spec
from mgb.ops import primitives as p
from mgb.tensor import Tensor, next_level
from mgb.tensor.apply import evaluate
from mgb.tensor.tracing import graph_of

# memory


@pytest.mark.parametrize("end", ["backward", "release"])
def test_tape_frees_everything_after_backward_or_release(no_cyclic_gc, end):
    x = Tensor([1.0])
    gm = GradManager().attach(x)
    gm.record()
    y = x * x
    alias = y._tape[gm._tape].saved[0]
    data, node, tape = weakref.ref(alias), weakref.ref(y._tape[gm._tape]), weakref.ref(gm._tape)
    del alias
    z = y * y
    gm.backward(z) if end == "backward" else gm.release()
    assert data() is None  # although y and z still live
    assert x._tape is None
    del y, z
    assert node() is None
    assert tape() is None


def test_dropped_branch_is_freed_while_recording(no_cyclic_gc):
    x = Tensor([1.0])
    gm = GradManager().attach(x)
    with gm:
        y = x * x
        node = weakref.ref(y._tape[gm._tape])
        del y
        assert node() is None


def test_values_unused_by_gradients_are_freed_early(no_cyclic_gc):
    x = Tensor([1.0, 4.0])
    gm = GradManager().attach(x)
    with gm:
        doubled = x * 2.0
        array = weakref.ref(doubled._data)
        y = doubled + x  # the gradient of a sum needs no value
        del doubled
        assert array() is None
        root = p.sqrt(y)
        kept, input_ = weakref.ref(root._data), weakref.ref(y._data)
        z = root + 1
        del y, root
        assert input_() is None  # the gradient of a root needs the result only
        assert kept() is not None
        gm.backward(z)
    assert kept() is None


def test_second_order_gradient_leaves_no_reference_cycle(no_cyclic_gc):
    x = float64([2.0])
    inner, outer = GradManager().attach(x), GradManager().attach(x)
    with outer:
        with inner:
            y = p.sqrt(x * x * x)
            arrays = [weakref.ref(y._data)]
            inner.backward(y)
        grad, x.grad = x.grad, None
        arrays.append(weakref.ref(grad._data))
        outer.backward(grad)
    del y, grad
    assert [a() for a in arrays] == [None, None]


# cost


def test_recording_an_op_is_cheap():
    x = Tensor(np.ones((2, 3)))
    tape = Tape(next_level())
    tape.watch(x, print)
    out = x * x

    def once():
        out._tape = None
        tape.record(p.mul.op, (x, x), out, {})

    cost = min(timeit.repeat(once, number=2000, repeat=5)) / 2000
    tape.close()
    assert cost < 50e-6  # about 3 us on a quiet machine


# symbolic tensors


def test_backward_is_traced_into_the_graph():
    """A graph of a function that calls `backward` holds the gradient; nothing is read while it is built."""

    def slope(x, w):
        gm = GradManager().attach(x)
        with gm:
            gm.backward(p.sqrt(x * w) * x)
        return x.grad

    graph = graph_of(slope, Spec((3,), np.dtype("float64")), Spec((1,), np.dtype("float64")))
    x, w = RNG.uniform(1, 2, 3), RNG.uniform(1, 2, 1)

    def run(node, *values):
        return node.params["value"] if node.op is CONST else evaluate(node.op, values, node.params)

    (got,) = graph.fold(run, [x, w])
    np.testing.assert_allclose(got, 1.5 * np.sqrt(x * w))
