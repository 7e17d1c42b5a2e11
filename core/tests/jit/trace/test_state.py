"""Tensors outside of a traced function that a call changes, judged against the same function without it."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from arrays import floats
from mgb import Tensor, tensor
from mgb.autodiff import GradManager
from mgb.jit import trace

MODES = [
    {},
    {"run_body": True},
    {"symbolic": True},
    {"without_host": True},
    {"imperative": True},
    {"run_body": True, "opt_level": 2},
]
HOSTED = [m for m in MODES if not m.get("without_host")]


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_free_variable_tensor_is_updated_at_every_call(mode: dict) -> None:
    weight = tensor(np.zeros(3, np.float32))

    @trace(**mode)
    def step(x):
        nonlocal weight
        weight -= 0.5 * x
        return weight * 1.0

    for call in range(1, 5):
        result = step(tensor([1.0, 2.0, 4.0]))
        expected = -0.5 * call * np.array([1.0, 2.0, 4.0])
        np.testing.assert_allclose(weight.numpy(), expected)
        np.testing.assert_allclose(result.numpy(), expected)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_in_place_change_of_argument_reaches_the_caller(mode: dict) -> None:
    @trace(**mode)
    def bump(x):
        x += 1
        return x * 2

    for call in range(3):
        x = tensor([float(call)])
        assert bump(x).item() == 2 * (call + 1)
        assert x.item() == call + 1


@pytest.mark.parametrize("mode", HOSTED, ids=str)
def test_memory_of_a_call_is_freed_without_garbage_collection(mode: dict) -> None:
    gc.disable()
    try:

        @trace(**mode)
        def function(x):
            y = x + 1
            references.append(weakref.ref(y))
            return y * 2

        references: list = []
        for _ in range(3):
            x = tensor(floats(8))
            references.append(weakref.ref(x))
            function(x)
            del x
        assert all(r() is None for r in references)
    finally:
        gc.enable()


def test_dry_run_has_no_side_effects() -> None:
    weight = tensor([1.0])

    @trace
    def step(x):
        nonlocal weight
        weight -= x
        return weight * 2

    step.dry_run(tensor([3.0]))
    assert weight.item() == 1
    assert step.stats()["records"] == 0
    assert step(tensor([3.0])).item() == -4
    step.dry_run(tensor([3.0]))
    assert weight.item() == -2


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_tensors_sharing_an_array_can_be_updated_separately(mode: dict) -> None:
    weight = tensor([1.0, 2.0])
    start = weight.detach()

    @trace(**mode)
    def moved(x):
        nonlocal weight
        weight -= x
        return weight - start

    for call in range(1, 4):
        np.testing.assert_array_equal(moved(tensor([1.0, 2.0])).numpy(), [-call, -2 * call])


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_full_slice_assignment_updates_the_tensor(mode: dict) -> None:
    weight, last = tensor([1.0, 2.0]), tensor([0.0, 0.0])
    weight[...] = np.array([3.0, 4.0], np.float32)  # no constant of the program text from here on

    @trace(**mode)
    def step(x):
        result = weight * x
        last[...] = x
        weight[...] = np.array([5.0, 6.0], np.float32)
        return result

    for call in range(4):
        x = tensor([float(call), 1.0])
        expected = np.array([5.0, 6.0] if call else [3.0, 4.0]) * [call, 1]
        np.testing.assert_array_equal(step(x).numpy(), expected)
        np.testing.assert_array_equal(last.numpy(), x.numpy())


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_arguments_can_be_returned_unchanged(mode: dict) -> None:
    @trace(**mode)
    def both(x, y):
        return y, {"x": x}

    for call in range(3):
        first, second = both(tensor(float(call)), tensor(-1.0))
        assert (first.item(), second["x"].item()) == (-1, call)


@pytest.mark.parametrize("imperative", [False, True])
def test_gradients_in_a_replay_see_numbers_outer_tapes_and_rebinding(imperative: bool) -> None:
    x = tensor(floats(5))

    @trace(imperative=imperative)
    def second_order(scale: Tensor) -> Tensor:
        x.grad = None
        with GradManager().attach(x) as outer:
            with GradManager().attach(x) as inner:
                y = 3.0 * x * x * scale  # of a number, a tensor, and one that is rebound below
                inner.backward((y * x).sum())
            first = x.grad
            x.grad = None
            outer.backward(first.sum())
        second, x.grad = x.grad, None
        x.__iadd__(1.0)
        return second

    for call in range(3):
        at = x.numpy().copy()
        got = second_order(tensor(np.float32(call + 1))).numpy()
        np.testing.assert_allclose(got, 18 * (call + 1) * at, rtol=1e-5)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_detached_old_value_survives_an_in_place_update(mode: dict) -> None:
    """It is wanted after the call, so that it cannot be overwritten."""
    x = tensor(floats(150, 150))

    @trace(**mode)
    def function() -> Tensor:
        old = x.detach()
        x.__imul__(2.0)
        return old

    for _ in range(4):
        before = x.numpy().copy()
        result = function()
        np.testing.assert_array_equal(result.numpy(), before)
        np.testing.assert_array_equal(x.numpy(), before * 2)
        del result


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("detached", [True, False])
@pytest.mark.parametrize("argument", [True, False])
def test_grad_set_to_an_external_tensor_is_rebound_at_every_call(
    argument: bool, detached: bool, mode: dict
) -> None:
    last, outside = tensor([0.0]), tensor([0.0])

    @trace(**mode)
    def step(x):
        source = x if argument else outside
        last.grad = source.detach() if detached else source
        return source * 2.0

    for call in range(4):
        x = tensor([float(call)])
        outside._reset(x)
        last.grad = None
        assert step(x).item() == 2 * call
        assert last.grad.item() == call
        assert detached is (last.grad is not (x if argument else outside))
        last.grad += 1  # of the Tensor itself, which is no copy
        assert (x if argument else outside).item() == call + (not detached)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_reset_to_an_external_tensor_is_applied_at_every_call(mode: dict) -> None:
    last, older, outside = tensor([0.0]), tensor([0.0]), tensor([0.0])

    @trace(**mode)
    def step(x):
        before = last * 1.0
        older._reset(last)
        last._reset(x)
        x.grad._reset(outside.detach())
        return before + last * 10.0

    for call in range(1, 5):
        x = tensor([float(call)])
        x.grad = tensor([-1.0])
        outside._reset(tensor([100.0 * call]))
        assert step(x).item() == call - 1 + 10 * call
        assert (older.item(), last.item(), x.grad.item()) == (call - 1, call, 100 * call)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_two_free_variable_tensors_are_swapped_at_every_call(mode: dict) -> None:
    a, b = tensor([1.0]), tensor([2.0])

    @trace(**mode)
    def swap():
        old = a.detach()
        a._reset(b)
        b._reset(old)
        return a - b

    for call in range(4):
        assert swap().item() == (-1) ** call
        assert (a.item(), b.item()) == ((2, 1) if call % 2 == 0 else (1, 2))
