"""`backward` refuses what was computed before the tape began, as PyTorch does; what else it passes over."""

import pickle

import numpy as np
import pytest
from mgb import Parameter, Tensor, errors, grad, value_and_grad
from mgb import functional as F
from mgb.amp import GradScaler
from mgb.autodiff import GradManager
from mgb.jit import partial_trace, trace

MODES = [{}, {"symbolic": True}, {"run_body": True}]


@pytest.fixture
def w():
    return Parameter([2.0, 3.0])


@pytest.fixture
def gm(w):
    return GradManager().attach(w)


def computed_before(w, gm):
    loss = F.sum(w * w)
    with gm:
        gm.backward(loss)


def of_an_earlier_tape(w, gm):
    with gm:
        loss = F.sum(w * w)
    with gm:
        gm.backward(loss)


def between_record_and_release(w, gm):
    loss = F.sum(w * w)
    gm.record()
    gm.backward(loss)


def of_an_outer_tape(w, gm):
    with GradManager().attach(w):
        loss = F.sum(w * w)
        with gm:
            gm.backward(loss)


def a_constant(w, gm):
    loss = Tensor(1.0)
    with gm:
        gm.backward(loss)


def another_tensor_of_its_value(w, gm):
    loss = F.sum(w * w)
    with gm:
        gm.backward(Tensor(loss).detach())


def in_place_before(w, gm):
    loss = Tensor(0.0)
    loss += F.sum(w * w)
    with gm:
        gm.backward(loss)


def scaled(w, gm):
    loss = F.sum(w * w)
    with gm:
        GradScaler().backward(gm, loss)


def of_a_group(w, gm):
    loss = F.sum(w * w)
    with gm | GradManager().attach(w):
        gm.backward(loss)


OUTSIDE = [
    computed_before, of_an_earlier_tape, between_record_and_release, of_an_outer_tape, a_constant,
    another_tensor_of_its_value, in_place_before, of_a_group,
]  # fmt: skip


@pytest.mark.parametrize("train", OUTSIDE)
def test_backward_refuses_what_was_computed_before_the_tape_began(train, w, gm):
    with pytest.raises(errors.TapeError, match=r"backward: y was computed before .*`with` block"):
        train(w, gm)
    assert w.grad is None
    with gm:  # the manager is as it was
        gm.backward(F.sum(w * w))
    np.testing.assert_array_equal(w.grad.numpy(), [4, 6])


def test_backward_names_which_of_several_was_computed_before(w, gm):
    with pytest.raises(errors.TapeError, match=r"y\[0\] was computed before"):
        scaled(w, gm)
    before = Tensor(1.0)
    with pytest.raises(errors.TapeError, match=r"y\[1\] was computed before"), gm:
        gm.backward([w * w, before])


def an_op_on_nothing_attached(w, gm):
    return Tensor([1.0]) * 2


def a_constant_of_the_block(w, gm):
    return Tensor(1.0)


def a_detached_one(w, gm):
    return F.sum(w * w).detach()


def a_constant_changed_in_place(w, gm):
    made = BEFORE.detach()
    made += 1
    return made


def a_pickled_one(w, gm):
    return pickle.loads(pickle.dumps(F.sum(w)))


def a_list_of_them(w, gm):
    return [Tensor(1.0), Tensor([1.0]) + 1]


BEFORE = Tensor([1.0])


@pytest.mark.parametrize(
    "make",
    [an_op_on_nothing_attached, a_constant_of_the_block, a_detached_one, a_constant_changed_in_place,
     a_pickled_one, a_list_of_them],
)  # fmt: skip
def test_backward_passes_over_what_the_block_computed_of_nothing_attached(make, w, gm):
    with gm:
        gm.backward(make(w, gm))
    assert w.grad is None


def test_backward_of_an_attached_tensor_itself_gives_one(w, gm):
    with gm:
        gm.backward(w)
    np.testing.assert_array_equal(w.grad.numpy(), [1, 1])
    late = Tensor([5.0])
    with gm:
        gm.attach(late)
        gm.backward(late)
    np.testing.assert_array_equal(late.grad.numpy(), [1])


@pytest.mark.parametrize("given, named", [(3.0, "y is a Tensor or a list"), ([3.0], r"y\[0\] is no Tensor")])
def test_backward_says_what_is_no_tensor(given, named, gm):
    with pytest.raises(TypeError, match=named), gm:
        gm.backward(given)


@pytest.mark.parametrize("options", MODES)
def test_traced_loss_inside_and_outside_of_the_block(options, w, gm):
    loss = trace(lambda x: F.sum(w * w * x), **options)
    for factor in (3.0, 4.0, 5.0):
        w.grad = None
        with gm:
            gm.backward(loss(Tensor([factor])))
        np.testing.assert_array_equal(w.grad.numpy(), np.array([4.0, 6.0]) * factor)
        outside = loss(Tensor([factor]))
        with pytest.raises(errors.TapeError, match="computed before"), gm:
            gm.backward(outside)


@pytest.mark.parametrize("decorate", [*(lambda f, o=o: trace(f, **o) for o in MODES), partial_trace])
def test_traced_body_whose_block_begins_too_late(decorate, w, gm):
    def late(x):
        loss = F.sum(w * w * x)
        with gm:
            gm.backward(loss)

    def in_time(x):
        with gm:
            gm.backward(F.sum(w * w * x))

    late, in_time = decorate(late), decorate(in_time)
    for _ in range(3):
        with pytest.raises(errors.TapeError, match="computed before"):
            late(Tensor([1.0]))
        w.grad = None
        in_time(Tensor([2.0]))
        np.testing.assert_array_equal(w.grad.numpy(), [8, 12])


@pytest.mark.parametrize("options", MODES)
def test_traced_results_of_nothing_attached_are_passed_over(options, w, gm):
    for function in (trace(lambda x: x * 2, **options), trace(lambda x: Tensor(1.0), **options)):
        for _ in range(3):
            with gm:
                gm.backward(function(Tensor([1.0])))
    assert w.grad is None


@pytest.mark.parametrize("options", MODES)
def test_tensor_that_a_traced_call_changes_in_the_block_is_of_the_block(options, w, gm):
    total = Tensor([0.0])

    def add(x):
        total.__iadd__(x)

    add = trace(add, **options)
    for _ in range(3):
        with gm:
            add(Tensor([1.0]))
            gm.backward(total)
    np.testing.assert_array_equal(total.numpy(), [3])


def test_transforms_of_outer_constants_give_zeros():
    constant = Tensor(3.0)
    np.testing.assert_array_equal(grad(lambda x: constant)(Tensor([1.0, 2.0])).numpy(), [0, 0])
    value, gradient = value_and_grad(lambda x: constant)(Tensor([1.0, 2.0]))
    assert value.item() == 3
    np.testing.assert_array_equal(gradient.numpy(), [0, 0])
