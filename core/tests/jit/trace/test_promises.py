"""Arguments and results of traced functions, the lengths that a body uses, and who says whether it runs."""

from __future__ import annotations

import asyncio
import functools
import gc
import weakref
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import mgb.module as M
import numpy as np
import pytest
from mgb import Parameter, errors, tensor
from mgb.autodiff import GradManager
from mgb.jit import partial_trace, trace, xla_trace
from mgb.optimizer import SGD
from outside import runs, thing

pytestmark = pytest.mark.usefixtures("eager_backend")


# run_body


def test_mgb_run_body_variable_runs_every_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_RUN_BODY", "1")
    default, refusing = trace(lambda x: x * 2.0), trace(lambda x: x * 2.0, run_body=False)
    monkeypatch.delenv("MGB_RUN_BODY")
    for function in (default, refusing, trace(lambda x: x * 2.0, imperative=True)):
        for _ in range(3):
            assert function(tensor(1.0)).item() == 2.0
        assert runs(function) == 3


def test_conflicting_run_body_options_raise() -> None:
    with pytest.raises(errors.TraceInputError, match="run_body=False"):
        trace(lambda x: x, run_body=True, without_host=True)


@pytest.mark.parametrize("run_body", [None, False])
def test_body_runs_under_a_recording_tape_of_the_caller(run_body: bool | None) -> None:
    x = tensor([1.0, 2.0])
    square = trace(lambda x: (x * x).sum(), run_body=run_body)
    for _ in range(3):
        x.grad = None
        with GradManager().attach([x]) as manager:
            manager.backward(square(x))
        assert x.grad.tolist() == [2.0, 4.0]
    assert runs(square) == 3


# arguments and results


def test_array_arguments_are_inputs_unless_read_by_python() -> None:
    @trace
    def scaled(x: Any, a: Any) -> Any:
        return x * a

    @trace
    def chosen(x: Any, a: Any) -> Any:
        return x * 2.0 if a[0] > 0 else x * 3.0

    for sign in (1.0, -1.0, 1.0):
        assert scaled(tensor(1.0), np.array([sign, 2.0])).tolist() == [sign, 2.0]
        assert chosen(tensor(1.0), np.array([sign, 2.0])).item() == (2.0 if sign > 0 else 3.0)
    assert runs(scaled) == 2 and runs(chosen) == 2


def test_returned_external_object_keeps_its_identity() -> None:
    traced = trace(lambda x: (x * 2.0, thing))
    assert all(traced(tensor(1.0))[1] is thing for _ in range(3)) and runs(traced) == 1


class Batch(dict[str, Any]):
    factor = 1.0


def test_container_argument_attributes_and_identity_are_guarded() -> None:
    traced = trace(lambda batch: batch["x"] * batch.factor)
    for factor in (1.0, 1.0, 5.0):
        batch = Batch(x=tensor(2.0))
        batch.factor = factor
        assert traced(batch).item() == 2.0 * factor
    same = trace(lambda one, other: one[0] * (2 if one is other else 3))
    found = [tensor(1.0)]
    assert [same(found, found).item(), same(found, [tensor(1.0)]).item()] == [2.0, 3.0]


class Lazy:
    factor = 2.0

    @functools.cached_property
    def scale(self) -> float:
        return self.factor + 1.0


def test_cached_property_runs_the_body_only_until_computed() -> None:
    lazy = Lazy()
    traced = trace(lambda x: x * lazy.scale)
    assert [traced(tensor(2.0)).item() for _ in range(6)] == [6.0] * 6
    assert traced.stats()["body_runs"] == 2
    lazy.scale = 5.0
    assert traced(tensor(2.0)).item() == 10.0


def test_attributes_set_on_a_result_are_present_at_every_call() -> None:
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


# lengths


# what is one object stays one


MODES = [{}, {"run_body": True}, {"run_body": False}, {"symbolic": True}]


@pytest.mark.parametrize("options", MODES, ids=str)
def test_shared_containers_in_a_result_stay_shared(options: dict[str, Any]) -> None:
    @trace(**options)
    def several(x: Any) -> Any:
        inner, places = [x * 2.0], np.arange(2)
        whole = {"inner": inner}
        return inner, whole, [whole, places], (inner, places)

    for value in (1.0, 2.0, 3.0):
        inner, whole, pair, last = several(tensor(value))
        assert inner is whole["inner"] is last[0] and whole is pair[0] and pair[1] is last[1]
        assert inner[0].item() == 2.0 * value and pair[1].tolist() == [0, 1]
        inner.clear(), pair[1].fill(7)  # nobody else's
    assert runs(several) == (3 if options.get("run_body") else 1)


@pytest.mark.parametrize("kind", [partial_trace, xla_trace])
def test_shared_containers_stay_shared_in_partial_and_xla_trace(kind: Any) -> None:
    @kind(backend="eager")
    def twice(x: Any) -> Any:
        inner = [x * 2.0, x * 3.0]
        return inner, {"inner": inner}

    for value in (1.0, 2.0):
        one, two = twice(tensor(value))
        assert one is two["inner"] and [t.item() for t in one] == [2.0 * value, 3.0 * value]


@pytest.mark.parametrize("options", MODES[:2], ids=str)
def test_parameter_created_in_the_body_is_returned_as_parameter(options: dict[str, Any]) -> None:
    made = trace(lambda x: [Parameter(np.ones(2, np.float32)), Parameter(x * 2.0), x * 2.0], **options)
    for _ in range(3):
        assert [type(part).__name__ for part in made(tensor([1.0]))] == ["Parameter", "Parameter", "Tensor"]


def _endless() -> list[Any]:
    endless: list[Any] = [1.0]
    endless.append({"itself": endless})
    return endless


@pytest.mark.parametrize("options", MODES, ids=str)
def test_self_referential_arguments_and_results_raise(options: dict[str, Any]) -> None:
    taking = trace(lambda x, given: x * 2.0, **options)
    giving = trace(lambda x: [x * 2.0, _endless()], **options)
    for _ in range(2):
        with pytest.raises(errors.TraceInputError, match="holds itself"):
            taking(tensor(1.0), _endless())
        with pytest.raises(errors.TraceOutputError, match="holds itself"):
            giving(tensor(1.0))
    assert taking(tensor(1.0), [1.0]).item() == 2.0


# what is not run when it is called


def test_generator_and_async_functions_raise() -> None:
    def generates(x: Any) -> Any:
        yield x

    async def waits(x: Any) -> Any:
        return x

    async def both(x: Any) -> Any:
        yield x

    for function, kind in ((generates, "generator"), (waits, "async"), (both, "async generator")):
        for decorator in (trace, partial_trace, xla_trace):
            with pytest.raises(errors.TraceInputError, match=f"{function.__name__} is an? {kind} function"):
                decorator(function)
    double = trace(lambda x: x * 2.0)

    async def works() -> float:
        return float(double(tensor(2.0)).item())

    assert [asyncio.run(works()) for _ in range(2)] == [4.0, 4.0] and runs(double) == 1


# methods of what cannot be held weakly


class Affine(namedtuple("Affine", "weight bias")):
    @trace
    def apply(self, x: Any) -> Any:
        return x * self.weight + self.bias


class Power(int):
    @trace
    def apply(self, x: Any) -> Any:
        return x**self


def test_traced_methods_of_tuple_and_int_subclasses() -> None:
    for bias in (1.0, 2.0, 3.0, 4.0):
        assert Affine(tensor(2.0), bias).apply(tensor(3.0)).item() == 6.0 + bias
    assert runs(Affine.apply) == 2  # the bias is an input from the second on
    assert [Power(n).apply(tensor(2.0)).item() for n in (1, 2, 3, 2)] == [2.0, 4.0, 8.0, 4.0]


def test_method_of_class_without_weakref_slot_raises() -> None:
    class Slotted:
        __slots__ = ("factor",)

        @trace
        def apply(self, x: Any) -> Any:
            return x * self.factor

    with pytest.raises(
        errors.TraceInputError, match=r"'__weakref__': add it.*a function that takes the instance"
    ):
        _ = Slotted().apply
    one = Slotted()
    one.factor = 2.0
    scaled = trace(lambda slotted, x: x * slotted.factor)
    assert [scaled(one, tensor(3.0)).item() for _ in range(2)] == [6.0, 6.0]


# what a call leaves behind


class Sample:
    def __init__(self, data: Any) -> None:
        self.data = data


@pytest.mark.parametrize("body", [lambda batch: batch.data * 2.0, lambda batch: print(batch.data, end="")])
def test_argument_objects_are_not_kept_alive(body: Callable[..., Any]) -> None:
    traced, seen = trace(body), list[Any]()
    for value in range(6):
        batch = Sample(tensor(float(value)))
        seen += [weakref.ref(batch), weakref.ref(batch.data)]
        traced(batch)
    del batch
    gc.collect()
    assert not any(reference() is not None for reference in seen)


def test_replaced_object_is_reported_as_the_reason() -> None:
    passed = trace(lambda layer, x: layer(x))
    network, before = M.Linear(2, 2), list[Any]()
    called = trace(lambda x: network(x))
    for _ in range(2):
        passed(network, tensor([[1.0, 2.0]]))
        called(tensor([[1.0, 2.0]]))
        before.append(network)
        network = M.Linear(2, 2)
    assert passed.stats()["reasons"][0].startswith("argument 0 of <lambda> is another Linear than recorded")
    assert called.stats()["reasons"] == [
        "variable `network` of the function around it is another Linear than before"
    ]


@pytest.mark.parametrize("options", [{}, {"run_body": True}], ids=str)
def test_gradient_persists_when_the_body_raises_afterwards(options: dict[str, Any]) -> None:
    def outcomes(wrap: Callable[..., Any]) -> list[Any]:
        weight, found = Parameter(np.array([1.0, 2.0], np.float32)), list[Any]()
        manager, optimizer = GradManager().attach([weight]), SGD([weight], lr=1.0)

        @wrap
        def step(x: Any, fails: bool) -> None:
            with manager:
                manager.backward((weight * x).sum())
            if fails:
                raise KeyError("x")
            optimizer.step().clear_grad()

        for fails in (False, False, True, True, False):
            try:
                step(tensor([1.0, 3.0]), fails)
            except KeyError:
                found.append("raised")
            found.append([weight.tolist(), None if weight.grad is None else weight.grad.tolist()])
        return found

    assert outcomes(trace(**options)) == outcomes(lambda function: function)


def test_unrelated_attributes_of_sequential_are_not_guarded() -> None:
    network = M.Sequential(M.Linear(2, 2), M.ReLU())

    @trace
    def through(x: Any) -> Any:
        for layer in network:
            x = layer(x)
        return x

    for steps in range(5):
        network.steps = steps
        through(tensor([[1.0, 2.0]]))
    network.state = "done"
    through(tensor([[1.0, 2.0]]))
    assert runs(through) == 1


def test_changed_call_structure_is_reported_as_the_reason() -> None:
    total = trace(lambda *parts, **more: sum([part[0] for part in parts], 0.0))
    one = tensor(1.0)
    for parts, more in (([[one]], {}), ([[one], (one,)], {}), ([{0: one}], {"rate": 1.0})):
        assert total(*parts, **more).item() == float(len(parts))
    assert total.stats()["reasons"] == [
        "the call of <lambda> has the form ([_], tuple(_)), recorded were ([_])",
        "the call of <lambda> has the form (dict(0: _), rate=_), recorded were ([_], tuple(_)), ([_])",
    ]


def test_storing_forward_hook_can_be_added_and_removed() -> None:
    layer, seen = M.Linear(2, 2), dict[str, Any]()

    def stores(module: Any, inputs: Any) -> None:
        seen["last"] = inputs[0] * 2.0

    traced, handler = trace(lambda x: layer(x)), layer.register_forward_pre_hook(stores)
    weight, bias = layer.weight.numpy(), layer.bias.numpy()
    for call in range(12):
        x = np.array([[1.0, call]], np.float32)
        np.testing.assert_allclose(traced(tensor(x)).numpy(), x @ weight.T + bias, rtol=1e-5)
        assert seen["last"].tolist() == [[2.0, 2.0 * min(call, 3)]] or call > 7
        if call == 3:
            handler.remove()
        elif call == 7:
            layer.register_forward_pre_hook(stores)
    assert seen["last"].tolist() == [[2.0, 22.0]]
