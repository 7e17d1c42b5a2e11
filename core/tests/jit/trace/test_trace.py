"""What `trace` promises of results, reads and mismatches, judged against the same function without it."""

from __future__ import annotations

import numpy as np
import pytest
from arrays import floats
from mgb import Tensor, dtypes, tensor
from mgb.errors import (
    TraceInputError,
    TraceMismatchError,
)
from mgb.jit import GraphOptimizationConfig, exclude_from_trace, trace

MODES = [
    {},
    {"run_body": True},
    {"symbolic": True},
    {"run_body": True, "symbolic": True},
    {"without_host": True},
    {"imperative": True},
    {"opt_level": 0},
    {"run_body": True, "opt_level": 2},
]
HOSTED = [m for m in MODES if not m.get("without_host")]


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
def test_nested_results_are_returned(mode: dict) -> None:
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
def test_new_shapes_do_not_retrace(mode: dict) -> None:
    @trace(**mode)
    def function(x):
        return x.reshape(x.shape[0] * 2, -1) * x.shape[1]

    for rows in (2, 3, 2, 5):
        x = floats(rows, 4)
        np.testing.assert_allclose(function(tensor(x)).numpy(), x.reshape(rows * 2, -1) * 4, rtol=1e-6)
    assert function.stats()["variants"] == 3
    if not mode.get("without_host"):
        runs = mode.get("run_body") or mode.get("imperative")
        assert function.stats()["records"] == (3 if runs else 2)  # a body that runs, for each


def test_dtype_and_device_changes_mismatch_in_replay_and_retrace_otherwise() -> None:
    def function(x):
        return x + x

    hosted = trace(function, run_body=True)
    hosted(tensor([1.0]))
    with pytest.raises(TraceMismatchError, match="dtype mismatch: float32 vs int32"):
        hosted(tensor([1]))
    with pytest.raises(TraceMismatchError, match="comp_node mismatch"):
        hosted(tensor([1.0], device="cpu0"))
    assert hosted(tensor([2.0])).item() == 4
    skipping = trace(function)
    for _ in range(2):
        assert skipping(tensor([1.0])).dtype == np.float32
        assert skipping(tensor([1])).dtype == np.int32
    assert skipping.stats()["body_runs"] == skipping.stats()["records"] == 2


def test_value_dead_at_recording_can_be_read_where_it_lives_on() -> None:
    keep = []
    want = False

    @trace(run_body=True)
    def function(x):
        y = x + 1
        if want:
            keep.append(y)
        return y * 2

    function(tensor([1.0]))
    want = True
    assert function(tensor([1.0])).item() == 4
    assert keep[0].item() == 2


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


def test_unrecorded_read_is_a_mismatch() -> None:
    read = False

    @trace(run_body=True)
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


def test_capture_as_const_compares_captured_tensors() -> None:
    scale = tensor([2.0])

    @trace(run_body=True, capture_as_const=True)
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


def test_exclude_from_trace_reads_live_values_and_survives_exceptions() -> None:
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


def test_nested_traces_are_inlined_into_the_outer_one() -> None:
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


def test_text_of_a_graph_optimization_config() -> None:
    config = GraphOptimizationConfig()
    assert repr(config) == (
        "GraphOptimizationConfig { jit_fuse_dimshuffle = UNSET, jit_fuse_reduce = UNSET }"
    )


@pytest.mark.parametrize("mode", [{}, {"run_body": True}, {"symbolic": True}], ids=str)
@pytest.mark.parametrize("dtype", [d.name for d in dtypes.DTYPES if d != np.bool_])
def test_constants_of_every_dtype(dtype: str, mode: dict) -> None:
    traced = trace(lambda x: (x + x) * x + 1, **mode)
    for call in (1, 2, 3):
        result = traced(tensor([call, call + 1], dtype=dtype))
        assert result.dtype == dtypes.as_dtype(dtype)
        expected = [2 * x * x + 1 for x in (call, call + 1)]
        np.testing.assert_array_equal(result.numpy().astype(float), expected)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_arrays_and_lists_can_be_operands(mode: dict) -> None:
    row = floats(4)

    @trace(**mode)
    def function(x, y):
        return (x + row) * [1.0, 2.0, 3.0, 4.0] - np.float32(2) * y

    for call in range(3):
        x, y = floats(3, 4, seed=call), floats(4, seed=call + 9)
        expected = (x + row) * np.arange(1, 5) - 2 * y
        np.testing.assert_allclose(function(tensor(x), tensor(y)).numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("imperative", [False, True])
def test_none_operand_raises_in_replay(imperative: bool) -> None:
    values = [np.ones(2, np.float32), None]
    traced = trace(lambda x: x + values[0], run_body=True, imperative=imperative)
    traced(tensor([1.0, 2.0]))
    values[0] = None
    with pytest.raises(TypeError, match="the operand is None"):
        traced(tensor([1.0, 2.0]))


def test_value_dead_at_recording_is_an_argument_like_others() -> None:
    lost: list[Tensor] = []

    @trace(run_body=True)
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
    np.testing.assert_array_equal(triple(lost[0]).numpy(), (x.numpy() + 1) * 3)


@pytest.mark.parametrize("imperative", [False, True])
@pytest.mark.parametrize("symbolic", [False, True])
def test_value_dead_at_recording_can_be_returned(symbolic: bool, imperative: bool) -> None:
    """Where MegEngine's trace raises an error."""
    place = 1

    @trace(run_body=True, symbolic=symbolic, imperative=imperative)
    def function(a, b, c):
        results = a + b, b + c
        return results[place], {"all": [results[place]]}

    a, b, c = (tensor([float(i)]) for i in range(3))
    for place in (1, 0, 1, 0, 1):
        first, nest = function(a, b, c)
        assert first.tolist() == nest["all"][0].tolist() == ([3] if place else [1])
