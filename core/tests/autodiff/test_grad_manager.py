"""GradManager: what it promises, nesting, groups, threads."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest
from differences import RNG, float64, gradients
from mgb.autodiff import Function, GradManager
from mgb.autodiff.tape import any_open
from mgb.errors import NoGradientError, TapeError
from mgb.ir import Kind, Op
from mgb.ops import primitives as p
from mgb.ops import reduce
from mgb.tensor import Tensor
from mgb.tensor.apply import apply

# what GradManager promises


def test_grad_accumulates_in_place_and_stays_none_without_dependency():
    x, other = Tensor([1.0, 2.0]), Tensor([3.0])
    gm = GradManager().attach([x, other])
    with gm:
        gm.backward(x * x)
    first = x.grad
    with gm:
        gm.backward(x * 3)
    assert x.grad is first
    np.testing.assert_array_equal(x.grad.numpy(), [5, 7])
    assert other.grad is None


def test_equal_gradients_are_distinct_tensors():
    a, b = Tensor([1.0]), Tensor([2.0])
    gm = GradManager().attach([a, b])
    with gm:
        gm.backward(a + b)
    a.grad *= 10
    np.testing.assert_array_equal(b.grad.numpy(), [1])


def test_backward_of_several_outputs_with_and_without_dy():
    x = Tensor([1.0, 2.0])
    gm = GradManager().attach(x)
    with gm:
        gm.backward([x * 2, x * x], [Tensor([1.0, 10.0]), Tensor([100.0, 1000.0])])
    np.testing.assert_array_equal(x.grad.numpy(), [202, 4020])
    x.grad = None
    with gm:
        y = x * 2
        gm.backward([y, y, x])
    np.testing.assert_array_equal(x.grad.numpy(), [5, 5])


def test_backward_scales_gradient_by_dy():
    (dx,) = gradients(lambda x: x * x, np.array([1.0, 2.0]), dy=float64([10, 100]))
    np.testing.assert_array_equal(dx.numpy(), [20, 400])


def test_backward_of_unattached_or_no_output_does_nothing():
    x = Tensor([1.0])
    gm = GradManager().attach(x)
    with gm:
        gm.backward(Tensor([1.0]) * 2)
    with gm:
        gm.backward()
    assert x.grad is None


def test_backward_rejects_mismatched_numbers_of_y_and_dy():
    x = Tensor([1.0])
    gm = GradManager().attach(x)
    gm.record()
    with pytest.raises(ValueError, match="2 tensors and 1 gradients"):
        gm.backward([x, x], [x])
    with pytest.raises(TapeError):  # released all the same
        gm.backward(x)


@pytest.mark.parametrize("after", ["nothing", "backward", "release", "exit"])
def test_backward_without_history_raises(after):
    x = Tensor([1.0])
    gm = GradManager().attach(x)
    if after != "nothing":
        gm.record()
        {"backward": gm.backward, "release": gm.release, "exit": gm.__exit__}[after]()
    with pytest.raises(RuntimeError, match=r"no computation history\. did you forget"):
        gm.backward(x)


def test_record_twice_raises():
    gm = GradManager()
    with gm, pytest.raises(RuntimeError, match="already recording"):
        gm.record()
    with gm:
        pass


@pytest.mark.parametrize("thing", [1.0, np.ones(2), Tensor([1]), Tensor([True]), [Tensor([1.0]), "x"]])
def test_only_float_tensors_can_be_attached(thing):
    with pytest.raises(AssertionError) as info:
        GradManager().attach(thing)
    assert isinstance(info.value, TapeError)


def test_only_recorded_ops_contribute_to_the_gradient():
    x = Tensor([2.0])
    gm = GradManager().attach(x)
    y = x * 5
    with gm:
        gm.backward(y * x)
    np.testing.assert_array_equal(x.grad.numpy(), [10])


def test_attach_while_recording():
    x, w = Tensor([2.0]), Tensor([3.0])
    gm = GradManager().attach(w)
    with gm:
        middle = w * x
        gm.attach([x, middle])
        gm.backward(middle * x)
    np.testing.assert_array_equal(x.grad.numpy(), [6])  # only the second product
    np.testing.assert_array_equal(middle.grad.numpy(), [2])
    np.testing.assert_array_equal(w.grad.numpy(), [4])  # passed on through the attached intermediate


def test_attached_tensors_are_weakly_referenced():
    x, y = Tensor([1.0]), Tensor([2.0])
    gm = GradManager().attach([x, y])
    assert [t is x or t is y for t in gm.attached_tensors()] == [True, True]
    del y
    assert len(gm.attached_tensors()) == 1
    with gm:
        gm.backward(x * 2)
    np.testing.assert_array_equal(x.grad.numpy(), [2])


def test_backward_skips_collected_leaf():
    x, y = Tensor([1.0]), Tensor([2.0])
    gm = GradManager().attach([x, y])
    with gm:
        z = x * y
        del y
        gm.backward(z)
    np.testing.assert_array_equal(x.grad.numpy(), [2])


def test_callbacks_run_in_order_and_replace_the_gradient():
    x = Tensor([1.0])
    seen = []

    def note(name, scale):
        def callback(tensor, grad):
            seen.append((name, tensor is x, grad.item()))
            return grad * scale

        return callback

    gm = GradManager().attach(x, [note("first", 2), note("second", 3)]).attach(x, note("third", 5))
    with gm:
        gm.backward(x * 7)
    assert seen == [("first", True, 7.0), ("second", True, 14.0), ("third", True, 42.0)]
    assert x.grad.item() == 210.0


def test_callback_returning_none_drops_the_gradient():
    x = Tensor([1.0])
    gm = GradManager().attach(x, lambda tensor, grad: None)
    with gm:
        gm.backward(x * 7)
    assert x.grad is None


def test_callback_runs_as_soon_as_the_gradient_is_complete():
    """The gradient of the last layer is handed over before the earlier layer's backward begins."""
    order = []
    weights = [Tensor([2.0]), Tensor([3.0]), Tensor([4.0])]
    gm = GradManager()
    for i, w in enumerate(weights):
        gm.attach(w, lambda tensor, grad, i=i: order.append(("weight", i)) or grad)

    class Layer(Function):
        def __init__(self, i):
            self.i = i

        def forward(self, x, w):
            self.x, self.w = x, w
            return x * w

        def backward(self, g):
            order.append(("layer", self.i))
            return g * self.w, g * self.x

    with gm:
        x = Tensor([1.0])
        for i, w in enumerate(weights):
            x = Layer(i)(x, w)
        gm.backward(x)
    assert order == [(what, i) for i in (2, 1, 0) for what in ("layer", "weight")]


def test_callback_waits_for_all_uses_of_a_weight():
    calls = []
    w = Tensor([3.0])
    gm = GradManager().attach(w, lambda tensor, grad: calls.append(grad.item()) or grad)
    with gm:
        gm.backward((w * 2) * w + w)
    assert calls == [13.0]


def test_in_place_operators_are_differentiated_to_the_original_leaf():
    x = Tensor([3.0])
    gm = GradManager().attach(x)
    with gm:
        y = x * x
        x += 1
        x *= 2
        gm.backward(y + x)
    np.testing.assert_array_equal(x.numpy(), [8])
    np.testing.assert_array_equal(x.grad.numpy(), [8])  # 2 * 3 from y, 2 from x


def test_rebinding_a_tensor_does_not_change_saved_operands():
    x, w = Tensor([3.0]), Tensor([5.0])
    gm = GradManager().attach(w)
    with gm:
        y = x * w
        x._reset(Tensor([100.0]))
        gm.backward(y)
    np.testing.assert_array_equal(w.grad.numpy(), [3])


def test_detach_stops_the_gradient():
    x = Tensor([3.0])
    gm = GradManager().attach(x)
    with gm:
        gm.backward(x.detach() * x)
    np.testing.assert_array_equal(x.grad.numpy(), [3])


def test_integers_carry_no_gradient():
    x = Tensor([1.5])
    gm = GradManager().attach(x)
    with gm:
        n = p.cast(x, dtype=np.dtype("int32"))
        assert not n._tape
        gm.backward(n * x)
    np.testing.assert_array_equal(x.grad.numpy(), [1])


def test_op_without_gradient_rule_raises():
    op = Op("nameless", Kind.OPAQUE, lambda x: x, eager=lambda x: x)
    with GradManager().attach(x := Tensor([1.0])), pytest.raises(NoGradientError, match="nameless"):
        apply(op, x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_gradient_has_the_dtype_of_its_tensor(dtype):
    x, w = Tensor([1.0, 2.0], dtype=dtype), Tensor([3.0, 4.0], dtype="float32")
    gm = GradManager().attach(x)
    with gm:
        gm.backward(x * w)
    assert x.grad.dtype == x.dtype
    np.testing.assert_array_equal(x.grad.numpy().astype(float), [3, 4])


# nesting, groups, threads


def test_second_and_third_derivative():
    x = float64([2.0, 3.0])
    managers = [GradManager().attach(x) for _ in range(3)]
    with managers[0], managers[1], managers[2]:
        y = x * x * x * x
        for manager in reversed(managers):
            manager.backward(y)
            y, x.grad = x.grad, None
    np.testing.assert_allclose(y.numpy(), 24 * np.array([2.0, 3.0]))


def test_hessian_vector_product_with_broadcasting_and_sums():
    a, v = RNG.normal(size=(3, 3)), RNG.normal(size=3)
    x = float64(RNG.normal(size=3))

    def slope(row):
        return reduce.reduce_sum(float64(a) * row, axis=(1,)) * reduce.reduce_sum(row * row, axis=(0,))

    def first(array):
        (dx,) = gradients(slope, array)
        return dx.numpy()

    inner, outer = GradManager().attach(x), GradManager().attach(x)
    with outer:
        with inner:
            inner.backward(slope(x))
        grad, x.grad = x.grad, None
        outer.backward(grad, float64(v))
    step = 1e-6
    want = [(first(x.numpy() + step * e) - first(x.numpy() - step * e)) @ v / (2 * step) for e in np.eye(3)]
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-6)


def test_inner_manager_does_not_record_the_outer_backward():
    x = float64([3.0])
    inner, outer = GradManager().attach(x), GradManager().attach(x)
    with outer, inner:
        outer.backward(x * x)
        grad, x.grad = x.grad, None
        inner.backward(grad)
    assert x.grad is None


def test_outer_manager_records_the_inner_backward():
    x = float64([3.0])
    inner, outer = GradManager().attach(x), GradManager().attach(x)
    with outer, inner:
        inner.backward(x * x)
        grad, x.grad = x.grad, None
        outer.backward(grad)
    np.testing.assert_array_equal(x.grad.numpy(), [2])


def test_inner_manager_still_records_after_an_outer_backward():
    x, w = float64([3.0]), float64([5.0])
    inner, outer = GradManager().attach(w), GradManager().attach(x)
    with outer, inner:
        outer.backward(x * x)
        inner.backward(w * x)
    np.testing.assert_array_equal(w.grad.numpy(), [3])


def test_grouped_managers_record_forward_but_not_each_others_backward():
    x, w = float64([3.0]), float64([5.0])
    one, two, three = GradManager().attach(x), GradManager().attach(w), GradManager().attach(x)
    with one | two | three:
        y = x * w * w
        one.backward(y)
        np.testing.assert_array_equal(x.grad.numpy(), [25])
        grad, x.grad = x.grad, None
        two.backward(grad)
        assert w.grad is None
        three.backward(y)
    np.testing.assert_array_equal(x.grad.numpy(), [25])
    assert not any_open()


def test_outer_manager_differentiates_gradients_of_a_group():
    x, w = float64([3.0]), float64([5.0])
    outer = GradManager().attach(x)
    one, two = GradManager().attach(x), GradManager().attach(w)
    with outer:
        with two | (one | GradManager()):
            y = x * x * w
            one.backward(y)
            two.backward(y)
        total, x.grad = x.grad + w.grad, None
        outer.backward(total)
    np.testing.assert_array_equal(x.grad.numpy(), [2 * 5 + 2 * 3])


def test_manager_group_starts_all_or_none():
    one, two = GradManager(), GradManager()
    with two, pytest.raises(TapeError, match="already recording"), one | two:
        pass
    with one:
        pass
    with pytest.raises(TypeError):
        one | 3


def test_threads_are_independent():
    results = {}

    def work(k):
        x = float64([float(k)])
        gm = GradManager().attach(x)
        for _ in range(50):
            with gm:
                gm.backward(x * x)
        results[k] = (x.grad.item(), any_open())

    with GradManager():
        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert any_open()
    assert results == {k: (100.0 * k, False) for k in range(4)}


def test_manager_is_not_in_a_reference_cycle(no_cyclic_gc):
    x, y = Tensor([1.0]), Tensor([2.0])
    manager = GradManager().attach([x, y])
    gone = weakref.ref(manager)
    del y
    assert [t is x for t in manager.attached_tensors()] == [True] and len(manager._attached) == 1
    del manager
    assert gone() is None
    assert gc.collect() == 0
    del x  # and its end finds nobody to tell
