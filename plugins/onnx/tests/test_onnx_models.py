"""Foreign ONNX models as functions: their inputs and results, and shapes that depend on values."""

from __future__ import annotations

import io
from typing import Any

import mgb
import numpy as np
import pytest
from mgb.errors import (
    ArgumentError,
    FileFormatError,
    TraceMismatchError,
)
from mgb.jit import load_outputs, trace
from onnx import TensorProto
from onnx import helper as h
from onnx_models import FLOAT, INT64, RNG, branches, info, loaded, loop, model, normal, simple


def test_inputs_are_passed_by_position_or_name_and_described() -> None:
    function = loaded(simple())
    a, b = normal(2, 3), normal(2, 3)
    want = np.maximum(a + b, 0)
    for result in (function(a, b), function(a, b=b), function(b=mgb.Tensor(b), a=a), function(a.tolist(), b)):
        np.testing.assert_array_equal(result.numpy(), want)
    assert [str(s) for s in function.inputs] == ["a: float32[n,3]", "b: float32[n,3]"]
    assert [str(s) for s in load_outputs(io.BytesIO(simple()))] == ["y: float32[n,3]"]
    assert "relu" in function.explain(a, b)
    assert function.graph is not None and function.stats()["calls"] == 4


@pytest.mark.parametrize(
    "args, kwargs, message",
    [
        ((normal(2, 3),), {}, "'b' is missing"),
        ((normal(2, 3),) * 3, {}, "3 inputs are given"),
        ((normal(2, 3),), {"c": normal(2, 3)}, "no input 'c'"),
        ((normal(2, 3),), {"a": normal(2, 3)}, "'a' is given twice"),
        ((normal(2, 3), normal(2, 4)), {}, "axis 1 has length 3"),
        ((normal(2, 3), normal(4, 3)), {}, "'n' is 2 in 'a'"),
        ((normal(2, 3), normal(3)), {}, "it has 2 axes"),
        ((normal(2, 3), np.zeros((2, 3))), {}, "got float64; convert it with .astype"),
        ((normal(2, 3), "text"), {}, "cannot make a Tensor"),
        ((normal(2, 3), None), {}, "got None"),
    ],
)
def test_wrong_inputs_are_rejected(args: Any, kwargs: Any, message: str) -> None:
    function = loaded(simple())
    with pytest.raises(ArgumentError, match=message):
        function(*args, **kwargs)
    assert function(normal(2, 3), normal(2, 3)).shape == (2, 3)


def test_any_value_in_the_graph_can_be_an_output() -> None:
    a, b = normal(2, 3), normal(2, 3)
    total, out = loaded(simple(), outputs=["s", "y"])(a, b)
    np.testing.assert_array_equal(total.numpy(), a + b)
    np.testing.assert_array_equal(out.numpy(), np.maximum(a + b, 0))
    with pytest.raises(FileFormatError, match="nothing in the graph is called 'q'"):
        loaded(simple(), outputs=["q"])


def test_results_have_the_dtypes_of_the_file() -> None:
    nodes = [h.make_node("Shape", ["x"], ["shape"]), h.make_node("ArgMax", ["x"], ["at"], axis=1)]
    nodes.append(h.make_node("Add", ["x", "x"], ["y"]))
    outputs = [info("shape", INT64, None), info("at", INT64, None), info("y", TensorProto.DOUBLE, None)]
    data = model(nodes, [info("x", TensorProto.DOUBLE, [2, 3])], outputs)
    x = RNG.normal(size=(2, 3))
    for _ in range(2):
        shape, at, y = loaded(data)(x)
    assert (shape.dtype, at.dtype, y.dtype) == (np.int64, np.int64, np.float64)
    np.testing.assert_array_equal(shape.numpy(), [2, 3])
    np.testing.assert_array_equal(y.numpy(), x + x)


def test_results_do_not_share_memory_with_the_weights() -> None:
    data = model(
        [h.make_node("Identity", ["w"], ["y"])], [], [info("y", FLOAT, [3])], {"w": np.ones(3, "f4")}
    )
    function = loaded(data)
    first = function()
    first += 1
    np.testing.assert_array_equal(function().numpy(), np.ones(3))


def test_loaded_model_can_be_traced() -> None:
    function, x = loaded(simple()), normal(2, 3)

    @trace(without_host=True, backend="EAGER")
    def outer(a: mgb.Tensor) -> mgb.Tensor:
        return function(a, a) * 2

    for _ in range(3):
        np.testing.assert_allclose(outer(mgb.Tensor(x)).numpy(), 2 * np.maximum(2 * x, 0), 1e-6)


# shapes and control that depend on data


def test_shapes_may_depend_on_values() -> None:
    nodes = [h.make_node("NonZero", ["x"], ["at"]), h.make_node("Transpose", ["at"], ["y"])]
    function = loaded(model(nodes, [info("x", FLOAT, ["n"])], [info("y", INT64, None)]))
    for row in ([1, 0, 2], [0, 0, 3], [1, 1, 1], [1, 0, 0, 0], [1, 0, 2]):
        x = np.array(row, np.float32)
        np.testing.assert_array_equal(function(x).numpy(), np.argwhere(x))


def test_branch_may_depend_on_a_value() -> None:
    function, x = loaded(branches()), np.array([1, 2, 3], np.float32)
    for condition in (True, False, True, False, False, True):
        want = x + x if condition else x * x
        np.testing.assert_array_equal(function(x, np.array(condition)).numpy(), want)


def test_loop_iteration_count_may_depend_on_a_value() -> None:
    function, x = loaded(loop()), np.array([1, 2, 3], np.float32)
    for turns in (2, 5, 2, 3, 5):
        y, rows = function(x, np.array(turns))
        np.testing.assert_array_equal(y.numpy(), x * (turns + 1))
        np.testing.assert_array_equal(rows.numpy(), np.outer(np.arange(2, turns + 2), x))


def test_traced_model_with_branches_raises_for_another_branch() -> None:
    function = loaded(branches())

    @trace(run_body=True, backend="EAGER")
    def outer(x: mgb.Tensor, c: mgb.Tensor) -> mgb.Tensor:
        return function(x, c) + 1

    x, condition = mgb.Tensor([1.0, 2, 3]), mgb.Tensor(True)
    for _ in range(3):
        np.testing.assert_array_equal(outer(x, condition).numpy(), [3, 5, 7])
    with pytest.raises(TraceMismatchError):
        outer(x, mgb.Tensor(False))
