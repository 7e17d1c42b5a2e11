"""What `trace` promises, judged against the same function run without it."""

from __future__ import annotations

import gc
import threading
import weakref
from dataclasses import dataclass

import numpy as np
import pytest
from mgb import Tensor, dtypes, tensor
from mgb.autodiff import GradManager
from mgb.errors import (
    ForeignTensorError,
    SymbolicReadError,
    TraceError,
    TraceInputError,
    TraceMismatchError,
    TraceOutputError,
    UnknownInputError,
)
from mgb.jit import GraphOptimizationConfig, exclude_from_trace, trace

MODES = [
    {},
    {"symbolic": True},
    {"without_host": True},
    {"symbolic": True, "without_host": True},
    {"imperative": True},
    {"opt_level": 0},
    {"opt_level": 2},
]
HOSTED = [m for m in MODES if not m.get("without_host")]


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_results_equal_eager_at_every_call(mode: dict) -> None:
    def function(x, y):
        z = x * 2 + y
        return z * z - x

    traced = trace(function, **mode)
    for call in range(4):
        x, y = tensor(floats(3, 4, seed=call)), tensor(floats(4, seed=10 + call))
        np.testing.assert_allclose(traced(x, y).numpy(), function(x, y).numpy(), rtol=1e-6)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_any_nesting_of_results(mode: dict) -> None:
    @trace(**mode)
    def function(x):
        return {"a": x + 1, "b": [x * 2, (x - 1, None)]}

    for call in range(3):
        result = function(tensor([float(call)]))
        assert result["a"].item() == call + 1
        assert result["b"][0].item() == 2 * call
        assert result["b"][1][0].item() == call - 1
        assert result["b"][1][1] is None


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_tensor_outside_is_updated_at_every_call(mode: dict) -> None:
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
def test_an_argument_changed_in_place_is_the_callers(mode: dict) -> None:
    @trace(**mode)
    def bump(x):
        x += 1
        return x * 2

    for call in range(3):
        x = tensor([float(call)])
        assert bump(x).item() == 2 * (call + 1)
        assert x.item() == call + 1


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_tensor_from_outside_is_not_baked_in(mode: dict) -> None:
    scale = tensor([2.0])

    @trace(**mode)
    def function(x):
        return x * scale

    assert function(tensor([3.0])).item() == 6
    scale._reset(tensor([5.0]))
    assert function(tensor([3.0])).item() == 15
    scale._reset(tensor([7.0]))
    assert function(tensor([3.0])).item() == 21


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_new_shapes_need_no_new_record(mode: dict) -> None:
    @trace(**mode)
    def function(x):
        return x.reshape(x.shape[0] * 2, -1) * x.shape[1]

    for rows in (2, 3, 2, 5):
        x = floats(rows, 4)
        np.testing.assert_allclose(function(tensor(x)).numpy(), x.reshape(rows * 2, -1) * 4, rtol=1e-6)
    assert function.stats()["variants"] == 3
    if not mode.get("without_host"):
        assert function.stats()["records"] == 1


def test_dtype_and_device_changes_are_mismatches_in_replay_and_new_records_without_host() -> None:
    def function(x):
        return x + x

    hosted = trace(function)
    hosted(tensor([1.0]))
    with pytest.raises(TraceMismatchError, match="dtype mismatch: float32 vs int32"):
        hosted(tensor([1]))
    with pytest.raises(TraceMismatchError, match="comp_node mismatch"):
        hosted(tensor([1.0], device="cpu0"))
    assert hosted(tensor([2.0])).item() == 4
    hostless = trace(function, without_host=True)
    assert hostless(tensor([1.0])).dtype == np.float32
    assert hostless(tensor([1])).dtype == np.int32
    assert hostless.stats()["records"] == 2


MISMATCHES = [
    (lambda a, b, c: a + b + c, lambda a, b, c: a + b - c, "operator mismatch"),
    (lambda a, b, c: a + 1, lambda a, b, c: a + 2, "tensors not equals"),
    (lambda a, b, c: a + b + c, lambda a, b, c: a + b, "mismature end"),
    (lambda a, b, c: a + b, lambda a, b, c: a + b + c, "too many instructions"),
    (lambda a, b, c: (a + b) * c, lambda a, b, c: a + b + 0 * c, "operator mismatch"),
    (lambda a, b, c: (a + b) * c, lambda a, b, c: ((a + b), c * c)[1], "expect internal node, got external"),
    (lambda a, b, c: ((a + b), c * c)[1], lambda a, b, c: (a + b) * c, "expect external node, got internal"),
    (lambda a, b, c: ((a + b), (a - b)) [0] * c, lambda a, b, c: _swapped(a, b, c), "input id mismatch"),
]  # fmt: skip


def _swapped(a, b, c):
    _sum, difference = a + b, a - b
    return difference * c


@pytest.mark.parametrize("imperative", [False, True])
@pytest.mark.parametrize(("recorded", "other", "reason"), MISMATCHES, ids=[m[2] for m in MISMATCHES])
def test_a_mismatch_says_why_and_leaves_the_trace_usable(recorded, other, reason, imperative) -> None:
    body = recorded

    @trace(imperative=imperative)
    def function(a, b, c):
        return body(a, b, c)

    a, b, c = (tensor([v]) for v in (2.0, 3.0, 4.0))
    expected = recorded(a, b, c).item()
    assert function(a, b, c).item() == expected
    for _ in range(2):
        body = other
        with pytest.raises(TraceMismatchError) as caught:
            function(a, b, c)
        assert caught.value.reason == reason
        assert str(caught.value).startswith(f"trace error because {reason}")
        assert "test_trace.py:" in str(caught.value)
        body = recorded
        assert function(a, b, c).item() == expected


def test_a_value_that_was_dead_when_recorded_cannot_be_read() -> None:
    keep = []
    want = False

    @trace
    def function(x):
        y = x + 1
        if want:
            keep.append(y)
        return y * 2

    function(tensor([1.0]))
    want = True
    assert function(tensor([1.0])).item() == 4
    with pytest.raises(TraceMismatchError, match="data unreadable"):
        keep[0].numpy()


def test_values_read_in_the_body_split_the_program() -> None:
    seen = []

    @trace
    def function(x):
        y = x * 2
        seen.append(y.item())
        z = y + 1
        seen.append(float(z))
        return z * y

    for call in range(3):
        assert function(tensor(float(call))).item() == (2 * call + 1) * 2 * call
    assert seen == [0, 1, 2, 3, 4, 5]


def test_a_read_that_was_not_recorded_is_a_mismatch() -> None:
    read = False

    @trace
    def function(x):
        y = x * 2
        if read:
            y.item()
        return y + 1

    function(tensor(1.0))
    read = True
    with pytest.raises(TraceMismatchError, match="value unreadable"):
        function(tensor(1.0))
    read = False
    assert function(tensor(1.0)).item() == 3


def test_symbolic_has_no_values() -> None:
    @trace(symbolic=True)
    def function(x):
        return (x + 1).numpy()

    with pytest.raises(SymbolicReadError, match="symbolic=False"):
        function(tensor(1.0))


def test_without_host_skips_the_body_unless_it_reads() -> None:
    calls = []

    @trace(without_host=True)
    def plain(x):
        calls.append("plain")
        return x + 1

    @trace(without_host=True)
    def reads(x):
        calls.append("reads")
        positive = (x + 1).item() > 0
        return x * 2.0 if positive else (x + x) * 1.0

    for value in (1.0, 2.0, 3.0):
        assert plain(tensor(value)).item() == value + 1
        assert reads(tensor(value)).item() == value * 2
    assert calls.count("plain") == 1
    assert calls.count("reads") == 3


def test_without_host_keys_on_python_values_and_on_shared_arguments() -> None:
    @trace(without_host=True)
    def function(x, y, factor):
        return x + y * factor

    x, y = tensor([1.0]), tensor([10.0])
    assert function(x, x, 2).item() == 3
    assert function(x, y, 2).item() == 21
    assert function(x, y, 3).item() == 31
    assert function(x, x, 2).item() == 3


def test_without_host_refuses_what_only_the_body_could_supply() -> None:
    @trace(without_host=True)
    def made_inside(x):
        return x + tensor(np.ones(2, np.float32))

    with pytest.raises(UnknownInputError, match="have some unknown input tensors in trace result"):
        made_inside(tensor([1.0, 2.0]))

    @trace(without_host=True)
    def number(x):
        return float(3)

    with pytest.raises(TraceOutputError, match="return value of traced function must be tensor"):
        number(tensor(1.0))

    @trace(without_host=True)
    def excluded(x):
        with exclude_from_trace():
            return x + 1

    with pytest.raises(TraceError, match="exclude_from_trace"):
        excluded(tensor(1.0))

    @trace(without_host=True, capture_as_const=True)
    def constant(x):
        return x + tensor(np.ones(2, np.float32))

    for _ in range(2):
        np.testing.assert_array_equal(constant(tensor([1.0, 2.0])).numpy(), [2, 3])


def test_capture_as_const_compares_what_it_captured() -> None:
    scale = tensor([2.0])

    @trace(capture_as_const=True)
    def function(x):
        return x * scale

    assert function(tensor([3.0])).item() == 6
    assert function(tensor([4.0])).item() == 8
    scale._reset(tensor([5.0]))
    with pytest.raises(TraceMismatchError, match="tensors not equals"):
        function(tensor([3.0]))
    with pytest.raises(TraceInputError, match="Only support tensor type args"):
        function(3.0)


@pytest.mark.parametrize("mode", HOSTED, ids=str)
def test_exclude_from_trace(mode: dict) -> None:
    @trace(**mode)
    def function(x, i):
        x += 1
        with exclude_from_trace():
            if i % 2 == 0:
                x += 1
        return x * 1

    assert [function(tensor([1]), i).item() for i in range(5)] == [3, 2, 3, 2, 3]


def test_exclude_from_trace_sees_every_living_value_and_survives_an_exception() -> None:
    fail = False

    @trace
    def function(x):
        y = x + 1
        with exclude_from_trace():
            total = float(y.numpy().sum() + x.numpy().sum())
            if fail:
                raise KeyError("inside")
        return y * 2, total

    for value in (1.0, 2.0):
        result, total = function(tensor(value))
        assert (result.item(), total) == (2 * (value + 1), 2 * value + 1)
    fail = True
    with pytest.raises(KeyError, match="inside"):
        function(tensor(1.0))
    fail = False
    assert function(tensor(5.0))[0].item() == 12
    with exclude_from_trace():
        assert tensor(1.0).item() == 1


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_an_exception_in_any_call_leaves_the_trace_usable(mode: dict) -> None:
    fail = True

    @trace(**mode)
    def function(x):
        y = x + 1
        if fail:
            raise ValueError("mine")
        return y * 2

    with pytest.raises(ValueError, match="mine"):
        function(tensor(1.0))
    fail = False
    assert function(tensor(1.0)).item() == 4
    if not mode.get("without_host"):
        for call in range(6):
            fail = call % 2 == 0
            if fail:
                with pytest.raises(ValueError, match="mine"):
                    function(tensor(1.0))
            else:
                assert function(tensor(float(call))).item() == 2 * (call + 1)


@pytest.mark.parametrize("mode", HOSTED, ids=str)
def test_what_was_done_before_an_exception_stands(mode: dict) -> None:
    weight = tensor([1.0])
    fail = False

    @trace(**mode)
    def function(x):
        nonlocal weight
        weight += x
        if fail:
            raise ValueError
        return weight * 1

    function(tensor([1.0]))
    fail = True
    with pytest.raises(ValueError):
        function(tensor([2.0]))
    assert weight.item() == 4
    fail = False
    assert function(tensor([1.0])).item() == 5


def test_nested_traces_are_part_of_the_outer_one() -> None:
    @trace
    def inner(x):
        return x * 2

    @trace
    def outer(x):
        return inner(x) + inner(x + 1)

    for value in (1.0, 2.0, 3.0):
        assert outer(tensor(value)).item() == 4 * value + 2
    assert inner.stats()["calls"] == 0
    assert outer.stats()["programs"] == 1


def test_a_method_has_a_record_for_each_instance() -> None:
    class Scale:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @trace
        def apply(self, x):
            """Multiply."""
            return x * self.factor

    two, three = Scale(2.0), Scale(3.0)
    for _ in range(3):
        assert two.apply(tensor(5.0)).item() == 10
        assert three.apply(tensor(5.0)).item() == 15
    assert Scale(4.0).apply(tensor(5.0)).item() == 20
    assert Scale.apply.__doc__ == "Multiply."
    assert two.apply.stats()["records"] == 1
    gone = weakref.ref(two)
    del two
    gc.collect()
    assert gone() is None


def test_a_method_of_instances_without_weak_references_is_refused() -> None:
    class Bare:
        __slots__ = ()

        @trace
        def apply(self, x):
            return x

    with pytest.raises(TraceInputError, match="'__weakref__': add it"):
        Bare().apply(tensor(1.0))


def test_a_tensor_of_an_unfinished_trace_is_refused_elsewhere() -> None:
    kept = []
    wait, done = threading.Event(), threading.Event()

    @trace(symbolic=True)
    def slow(x):
        kept.append(x + 1)
        wait.set()
        done.wait(10)
        return x * 2

    @trace
    def other(x):
        return x + kept[0]

    worker = threading.Thread(target=slow, args=(tensor(1.0),))
    worker.start()
    wait.wait(10)
    with pytest.raises(ForeignTensorError):
        other(tensor(1.0))
    done.set()
    worker.join()
    assert other(tensor(1.0)).item() == 3


def test_threads_call_independently() -> None:
    @trace
    def function(x, y):
        z = x * y
        for _ in range(10):
            z = z + x
        return z

    wrong = []

    def work(seed: int) -> None:
        for call in range(20):
            rows = 1 + (seed + call) % 3
            x, y = floats(rows, 8, seed=seed), floats(rows, 8, seed=call)
            if not np.allclose(function(tensor(x), tensor(y)).numpy(), x * y + 10 * x, rtol=1e-4, atol=1e-5):
                wrong.append((seed, call))

    threads = [threading.Thread(target=work, args=(s,)) for s in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong
    assert function.stats()["records"] == 1


def test_every_spelling_of_the_decorator() -> None:
    def function(x):
        return x + 1

    for spelled in (trace(function), trace(symbolic=True)(function), trace(function, symbolic=True)):
        assert spelled(tensor(1.0)).item() == 2
        assert spelled.__wrapped__ is function
        assert spelled.__name__ == "function"


def test_options_it_does_not_have_are_refused() -> None:
    with pytest.raises(TraceInputError, match="no option 'speed'"):
        trace(lambda x: x, speed=3)
    assert trace(lambda x: x, profiling=False) is not None
    config = GraphOptimizationConfig()
    assert repr(config) == (
        "GraphOptimizationConfig { jit_fuse_dimshuffle = UNSET, jit_fuse_reduce = UNSET }"
    )


def test_memory_of_a_call_is_freed_without_the_collector() -> None:
    gc.disable()
    try:

        @trace
        def function(x):
            y = x + 1
            references.append(weakref.ref(y))
            return y * 2

        references: list = []
        for _ in range(3):
            function(tensor(floats(8)))
        assert all(r() is None for r in references)
    finally:
        gc.enable()


def test_a_dry_run_changes_nothing() -> None:
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
def test_tensors_that_share_an_array_at_first_may_part(mode: dict) -> None:
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
def test_assigning_the_whole_of_a_tensor_is_an_update(mode: dict) -> None:
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


def test_a_result_made_by_the_constructor_is_the_callers() -> None:
    @trace(without_host=True)
    def doubled(x):
        return Tensor(x * 2)

    results = [doubled(tensor(float(call))) for call in range(3)]
    assert [r.item() for r in results] == [0, 2, 4]


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_arguments_may_be_returned_as_they_are(mode: dict) -> None:
    @trace(**mode)
    def both(x, y):
        return y, {"x": x}

    for call in range(3):
        first, second = both(tensor(float(call)), tensor(-1.0))
        assert (first.item(), second["x"].item()) == (-1, call)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_tensor_kept_elsewhere_than_in_the_result_is_new_at_every_call(mode: dict) -> None:
    class State:
        mean = tensor(0.0)

    kept = []

    @trace(**mode)
    def step(x):
        State.mean = State.mean * 0.5 + x
        kept.append(x * 3)
        return State.mean + 1

    mean = 0.0
    for call in range(4):
        mean = mean * 0.5 + call
        assert step(tensor(float(call))).item() == mean + 1
        assert State.mean.item() == mean
        assert kept[-1].item() == 3 * call


def test_a_body_that_reads_may_do_what_only_python_can() -> None:
    @trace(without_host=True)
    def function(x):
        scale = tensor(2.0 * x.item())
        return x * scale, scale.item()

    for call in range(3):
        result, scale = function(tensor(float(call)))
        assert (result.item(), scale) == (2.0 * call * call, 2.0 * call)


@pytest.mark.parametrize("mode", [{}, {"symbolic": True}, {"without_host": True}], ids=str)
@pytest.mark.parametrize("dtype", [d.name for d in dtypes.DTYPES if d != np.bool_])
def test_constants_of_every_dtype(dtype: str, mode: dict) -> None:
    traced = trace(lambda x: (x + x) * x + 1, **mode)
    for call in (1, 2, 3):
        result = traced(tensor([call, call + 1], dtype=dtype))
        assert result.dtype == dtypes.as_dtype(dtype)
        expected = [2 * x * x + 1 for x in (call, call + 1)]
        np.testing.assert_array_equal(result.numpy().astype(float), expected)


def test_a_value_of_an_argument_that_python_looks_at_is_never_frozen() -> None:
    @trace(without_host=True)
    def scaled(x, factor):
        return x * factor.item()

    assert scaled(tensor(3.0), tensor(2.0)).item() == 6
    assert scaled(tensor(4.0), tensor(2.0)).item() == 8
    with pytest.raises(TraceMismatchError, match="tensors not equals"):
        scaled(tensor(3.0), tensor(5.0))


def test_without_host_keys_on_the_values_of_arrays_and_numpy_scalars() -> None:
    calls = []

    @trace(without_host=True)
    def function(x, offset, factor):
        calls.append(factor)
        return x * factor + offset

    offset = np.zeros(2, np.float32)
    for call in range(3):
        result = function(tensor([1.0, 2.0]), offset, np.float32(2))
        np.testing.assert_array_equal(result.numpy(), [2 + call, 4 + call])
        result = function(tensor([1.0, 2.0]), offset, np.float32(2))
        np.testing.assert_array_equal(result.numpy(), [2 + call, 4 + call])
        offset += 1
    assert len(calls) == 3


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_arrays_and_lists_are_operands(mode: dict) -> None:
    row = floats(4)

    @trace(**mode)
    def function(x, y):
        return (x + row) * [1.0, 2.0, 3.0, 4.0] - np.float32(2) * y

    for call in range(3):
        x, y = floats(3, 4, seed=call), floats(4, seed=call + 9)
        expected = (x + row) * np.arange(1, 5) - 2 * y
        np.testing.assert_allclose(function(tensor(x), tensor(y)).numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("imperative", [False, True])
def test_none_is_no_operand_in_replay_either(imperative: bool) -> None:
    values = [np.ones(2, np.float32), None]
    traced = trace(lambda x: x + values[0], imperative=imperative)
    traced(tensor([1.0, 2.0]))
    values[0] = None
    with pytest.raises(TypeError, match="the operand is None"):
        traced(tensor([1.0, 2.0]))


def test_a_method_of_an_instance_without_a_hash() -> None:
    @dataclass
    class Scale:
        factor: float

        @trace
        def apply(self, x):
            return x * self.factor

    double, triple = Scale(2.0), Scale(3.0)
    for call in range(3):
        assert double.apply(tensor(float(call))).item() == 2 * call
        assert triple.apply(tensor(float(call))).item() == 3 * call
    reference = weakref.ref(double)
    del double
    assert reference() is None


def test_a_value_that_nobody_kept_is_no_argument_of_a_replay() -> None:
    lost: list[Tensor] = []

    @trace
    def loses(x: Tensor, keep: bool) -> Tensor:
        y = x + 1.0
        if keep:
            lost.append(y)
        return y * 2.0

    triple = trace(lambda x: x * 3.0)
    x = tensor(floats(3))
    for keep in (False, True):
        loses(x, keep)
        triple(x)
    with pytest.raises(TraceMismatchError, match="data unreadable"):
        triple(lost[0])


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
def test_an_old_value_is_returned_while_its_owner_moves_on(mode: dict) -> None:
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


def test_without_host_sees_a_tensor_that_was_given_another_shape() -> None:
    scale, count = tensor(floats(4)), []

    @trace(without_host=True)
    def function(x: Tensor) -> Tensor:
        count.append(1)
        return x * scale + 1.0

    x = tensor(floats(3, 4))
    for shape in ((4,), (4,), (3, 4), (3, 4), (4,)):
        for value in (floats(*shape), floats(*shape, seed=1)):
            scale._reset(tensor(value))
            np.testing.assert_allclose(function(x).numpy(), x.numpy() * value + 1, rtol=1e-6)
    assert len(count) == 2


def test_without_host_updates_in_place() -> None:
    weights = [tensor(floats(n)) for n in (20_000, 20_001, 30_000)]

    @trace(without_host=True)
    def function() -> None:
        for weight in weights:
            weight.__imul__(0.5)

    function()
    function()
    places = [w._data.ctypes.data for w in weights]
    wanted = [w.numpy() * 0.5 for w in weights]
    function()
    assert [w._data.ctypes.data for w in weights] == places
    for weight, value in zip(weights, wanted, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("detached", [True, False])
@pytest.mark.parametrize("argument", [True, False])
def test_a_grad_that_is_a_value_from_outside_is_bound_at_every_call(
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
def test_a_tensor_reset_to_a_value_from_outside_has_it_at_every_call(mode: dict) -> None:
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
def test_two_tensors_from_outside_change_places_at_every_call(mode: dict) -> None:
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


@pytest.mark.parametrize("keep", ["_reset", "grad"])
def test_without_host_refuses_to_keep_what_only_the_body_could_make(keep: str) -> None:
    last = tensor([0.0])

    @trace(without_host=True)
    def step(x):
        made = tensor(np.ones(1, np.float32))
        if keep == "grad":
            last.grad = made
        else:
            last._reset(made)
        return x * 2.0

    with pytest.raises(UnknownInputError, match="have some unknown input tensors in trace result"):
        step(tensor([1.0]))
