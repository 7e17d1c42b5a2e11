"""Arguments and results of traced functions, the lengths that a body uses, and who says whether it runs."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from mgb import errors, tensor
from mgb.autodiff import GradManager
from mgb.jit import trace
from outside import runs, thing


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_JIT_BACKEND", "EAGER")


# run_body


def test_a_variable_of_the_environment_runs_every_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_RUN_BODY", "1")
    default, refusing = trace(lambda x: x * 2.0), trace(lambda x: x * 2.0, run_body=False)
    monkeypatch.delenv("MGB_RUN_BODY")
    for function in (default, refusing, trace(lambda x: x * 2.0, imperative=True)):
        for _ in range(3):
            assert function(tensor(1.0)).item() == 2.0
        assert runs(function) == 3


def test_two_answers_to_one_question_are_refused() -> None:
    with pytest.raises(errors.TraceInputError, match="run_body=False"):
        trace(lambda x: x, run_body=True, without_host=True)


@pytest.mark.parametrize("run_body", [None, False])
def test_under_a_tape_of_the_caller_the_body_runs(run_body: bool | None) -> None:
    x = tensor([1.0, 2.0])
    square = trace(lambda x: (x * x).sum(), run_body=run_body)
    for _ in range(3):
        x.grad = None
        with GradManager().attach([x]) as manager:
            manager.backward(square(x))
        assert x.grad.tolist() == [2.0, 4.0]
    assert runs(square) == 3


# arguments and results


def test_an_array_that_ops_take_is_an_input_and_one_that_python_reads_is_guarded() -> None:
    @trace
    def scaled(x: Any, a: Any) -> Any:
        return x * a

    @trace
    def chosen(x: Any, a: Any) -> Any:
        return x * 2.0 if a[0] > 0 else x * 3.0

    for sign in (1.0, -1.0, 1.0):
        assert scaled(tensor(1.0), np.array([sign, 2.0])).tolist() == [sign, 2.0]
        assert chosen(tensor(1.0), np.array([sign, 2.0])).item() == (2.0 if sign > 0 else 3.0)
    assert runs(scaled) == 1 and runs(chosen) == 2


def test_an_object_from_outside_is_returned_as_it_is() -> None:
    traced = trace(lambda x: (x * 2.0, thing))
    assert all(traced(tensor(1.0))[1] is thing for _ in range(3)) and runs(traced) == 1


@dataclasses.dataclass
class Scaled:
    factor: float = 1.0

    @trace
    def run(self, x: Any) -> Any:
        return x * self.factor


def test_the_instance_of_a_traced_method_is_no_argument() -> None:
    scaled = Scaled()
    for factor in (1.0, 1.0, 5.0):
        scaled.factor = factor
        assert scaled.run(tensor(2.0)).item() == 2.0 * factor


class Batch(dict[str, Any]):
    factor = 1.0


def test_what_a_container_among_the_arguments_has_beside_its_elements_is_no_key() -> None:
    traced = trace(lambda batch: batch["x"] * batch.factor)
    for factor in (1.0, 1.0, 5.0):
        batch = Batch(x=tensor(2.0))
        batch.factor = factor
        assert traced(batch).item() == 2.0 * factor
    same = trace(lambda one, other: one[0] * (2 if one is other else 3))
    found = [tensor(1.0)]
    assert [same(found, found).item(), same(found, [tensor(1.0)]).item()] == [2.0, 3.0]


def test_attributes_that_a_body_gives_a_result_are_there_at_every_call() -> None:
    def named(x: Any) -> Any:
        y = x * 2.0
        y.name = "twice"
        return {"y": y}

    traced = trace(named)
    assert [traced(tensor(1.0))["y"].name for _ in range(4)] == ["twice"] * 4
    with pytest.raises(
        errors.ImpureBodyError, match=r"returns a Tensor that it gives the attribute name .*py:\d+"
    ):
        trace(named, run_body=False)(tensor(1.0))


def test_a_container_from_outside_that_is_returned_is_that_very_object() -> None:
    outside = [1]
    traced = trace(lambda x: (outside, x * len(outside)))
    for _ in range(3):
        assert traced(tensor(1.0))[0] is outside
    outside.append(9)
    assert traced(tensor(1.0))[1].item() == 2.0


# lengths


def test_lengths_are_followed_through_python() -> None:
    traced = trace(lambda x: x[: x.shape[0] // 2] * 2.0 / x.shape[1])
    for rows in (8, 10, 13, 64):
        x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
        np.testing.assert_allclose(traced(tensor(x)).numpy(), x[: rows // 2] * 2 / 3, rtol=1e-6)
    assert runs(traced) == 1
