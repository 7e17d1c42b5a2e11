"""What a body reads outside is watched: it is recorded again when that has changed, and only then."""

from __future__ import annotations

import json
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import mgb
import mgb.functional as F
import mgb.module as M
import mgb.optimizer as optim
import numpy as np
import pytest
from mgb import Parameter, tensor
from mgb.autodiff import GradManager
from mgb.errors import ConversionError
from mgb.jit import trace
from outside import Thing, reasons, runs, thing

small = np.ones(8)


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_JIT_BACKEND", "EAGER")
    monkeypatch.setattr(thing, "number", 2.0)
    small[0] = 1.0


def test_alternating_external_value_is_recorded_only_twice() -> None:
    traced = trace(lambda x: x * thing.number)
    for n in range(6):
        thing.number = float(n % 2)
        assert traced(tensor(1.0)).item() == n % 2
    assert runs(traced) == 2


def test_module_mode_is_guarded_and_learning_rate_is_live() -> None:
    weight = Parameter(np.ones(2, np.float32))
    manager, optimizer = GradManager().attach([weight]), optim.SGD([weight], lr=1.0)
    drop = M.Dropout(0.5)

    @trace
    def step(x: Any) -> Any:
        with manager:
            manager.backward((drop(x) * 0.0 + weight).sum())
            optimizer.step().clear_grad()

    for rate in (1.0, 2.0, 4.0):
        optimizer.param_groups[0]["lr"] = rate
        step(tensor([1.0, 1.0]))
    assert weight.tolist() == [-6.0, -6.0] and runs(step) == 1
    for _ in range(2):
        drop.eval()
        step(tensor([1.0, 1.0]))
        drop.train()
        step(tensor([1.0, 1.0]))
    assert runs(step) == 2


def test_skipped_calls_draw_random_numbers() -> None:
    traced = trace(lambda x: x + mgb.random.normal(size=(3,)))
    seen = {tuple(traced(tensor(0.0)).tolist()) for _ in range(4)}
    assert len(seen) == 4 and runs(traced) == 1


def test_numpy_array_slice_is_guarded() -> None:
    traced, array = trace(lambda x: x * small[:2]), small
    for first in (1.0, 1.0, 4.0, 4.0):
        array[0] = first
        assert traced(tensor(2.0)).tolist() == [2 * first, 2.0]
    assert runs(traced) == 2


class Gone:
    """What a proxy stands for as long as it lives."""


def test_dead_weakref_proxy_can_be_compared_by_identity() -> None:
    owners = [Gone()]
    proxy = weakref.proxy(owners[0])
    other = proxy

    @trace
    def compares(x: Any) -> Any:
        found = proxy is other
        owners.clear()
        return x * (2.0 if found else 3.0)

    assert [compares(tensor(1.0)).item() for _ in range(3)] == [2.0, 2.0, 2.0]


zero = np.zeros(1)


def divides(x: Any) -> Any:
    return x * float(np.isinf(np.ones(1) / zero)[0])


def averages_nothing(x: Any) -> Any:
    return x * float(np.isnan(np.mean(zero[1:])))


def counted(function: Callable[[Any], Any], action: Any) -> list[int]:
    """How many warnings are shown at each call."""
    found = []
    for number in range(6):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(action)
            assert function(tensor(2.0 + number)).item() == 2.0 + number
        found.append(len(caught))
    return found


@pytest.mark.parametrize("body", [divides, averages_nothing])
def test_warnings_are_issued_at_each_call_as_in_eager(body: Callable[[Any], Any]) -> None:
    expected = counted(body, "always")
    assert all(expected)
    assert counted(trace(body), "always") == expected


def test_warning_turned_into_an_error_is_raised_at_each_call() -> None:
    traced = trace(divides)
    for _ in range(6):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(RuntimeWarning, match="divide by zero"):
                traced(tensor(1.0))


def test_body_is_skipped_after_its_once_only_warning() -> None:
    traced = trace(divides)
    globals().pop("__warningregistry__", None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("once")
        for _ in range(5):
            traced(tensor(1.0))
    assert len(caught) == 1
    assert runs(traced) == 2
    assert "gives a warning" in reasons(traced)


class Scaled:
    """Its methods are traced each for itself."""

    def __init__(self, by: float) -> None:
        self.by = by

    @trace
    def times(self, x: Any) -> Any:
        return x * self.by

    @trace
    def twice(self, x: Any) -> Any:
        return self.times(x) + self.times(x)


class Shifted(Scaled):
    """It calls the traced method that it overrides."""

    @trace
    def times(self, x: Any) -> Any:
        return super().times(x) + 1.0


def test_nested_traced_method_is_inlined_and_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    scaled, shifted = Scaled(3.0), Shifted(3.0)
    for _ in range(3):
        assert scaled.twice(tensor(1.0)).item() == 6.0 and shifted.times(tensor(1.0)).item() == 4.0
    assert runs(scaled.twice) == runs(shifted.times) == 1
    monkeypatch.setattr(Scaled, "times", trace(lambda self, x: x * 7.0))
    assert scaled.twice(tensor(1.0)).item() == 14.0 and shifted.times(tensor(1.0)).item() == 8.0


class Numbered(M.Module):
    """A Module that asks its dict by numbers, which is none for names of Parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.masks = {3: tensor(2.0)}

    def forward(self, x: Any) -> Any:
        return x * self.masks[3]


def test_module_dict_of_tensors_with_integer_keys_is_guarded() -> None:
    module = Numbered()
    traced = trace(lambda x: module(x))
    assert [traced(tensor(2.0)).item() for _ in range(3)] == [4.0] * 3
    assert runs(traced) == 1
    module.masks[3] = tensor(5.0)
    assert traced(tensor(2.0)).item() == 10.0


MEMORY = np.zeros((2, 2))
ROWS = np.zeros(2, "f4,i4")
ROW = ROWS[1]
CALLED: list[Any] = []


def _through_parts(x: Any) -> Any:
    np.split(MEMORY, 2)[0][0, 0] += 1
    list(MEMORY)[1][0] += 1
    max(list(MEMORY), key=len)[1] += 1
    return x


def _through_bytes(x: Any) -> Any:
    memoryview(MEMORY)[0, 0] = memoryview(MEMORY)[0, 0] + 1
    return x


def _through_a_row(x: Any) -> Any:
    ROWS[1]["f0"] += 1
    return x * float(ROW["f0"]) + ROW["f1"]


def _through_what_is_called(x: Any) -> Any:
    json.loads("[1, {}]", parse_int=CALLED.append, object_hook=CALLED.append)
    return x


@pytest.mark.parametrize("body", [_through_parts, _through_bytes, _through_a_row, _through_what_is_called])
def test_indirect_writes_are_repeated_at_each_call(body: Any) -> None:
    seen = []
    for function in (body, trace(body)):
        MEMORY[...], CALLED[:], results = 0, [], []
        ROWS["f0"] = 0
        for _ in range(4):
            results.append(function(tensor([1.0])).item())
        seen.append((results, MEMORY.tolist(), ROWS.tolist(), len(CALLED)))
    assert seen[0] == seen[1]


def test_structured_array_row_is_read_at_each_call() -> None:
    traced = trace(lambda x: x * float(ROW["f0"]))
    for value in (1.0, 2.0, 2.0, 3.0):
        ROWS[1] = (value, 0)
        assert traced(tensor([1.0])).item() == value


KINDS_OF_OBJECTS: dict[str, Callable[[int], Any]] = {
    "namespace": lambda n: SimpleNamespace(n=n),
    "list": lambda n: [n],
    "set": lambda n: {n},
    "deque": lambda n: deque([n]),
    "bytearray": lambda n: bytearray([n]),
    "array": lambda n: np.array([n]),
    "equal array": lambda n: np.array([7]),
    "instance": lambda n: Thing(),
}


@pytest.mark.parametrize("name", KINDS_OF_OBJECTS)
def test_returned_external_object_is_the_current_one(name: str) -> None:
    there = SimpleNamespace(part=None)
    traced = trace(lambda x: (x * 2, there.part, {"in": there.part}))
    for n in (0, 1, 2, 3):
        there.part = KINDS_OF_OBJECTS[name](n)
        for _ in range(2):
            _, part, held = traced(tensor([1.0]))
            assert part is held["in"] is there.part


def test_user_hook_called_by_an_mgb_layer_is_detected() -> None:
    seen: list[float] = []
    space: dict[str, Any] = {"seen": seen}
    exec("def without_source(layer, given, made): seen.append(1.0)", space)
    layers = M.Sequential(M.Identity())
    layers.register_forward_hook(space["without_source"])
    traced = trace(lambda x: layers(x) * 2.0)
    assert [traced(tensor(1.0)).item() for _ in range(3)] == [2.0] * 3
    assert len(seen) == 3


def test_op_error_names_the_callers_array_type() -> None:
    with pytest.raises(ConversionError, match="cannot make a Tensor of ndarray"):
        trace(lambda x: F.exp(x))(np.array([object()]))


@pytest.mark.parametrize("function", [F.relu, F.gelu, F.silu, F.mish, F.erfinv, F.logaddexp])
@pytest.mark.parametrize("count, options", [(0, {}), (5, {}), (1, {"approximate": "none"})])
def test_wrong_call_signature_error_names_the_function(
    function: Any, count: int, options: dict[str, Any]
) -> None:
    with pytest.raises(TypeError, match=rf"^{function.__name__}\(\) "):
        function(*[tensor(1.0)] * count, **options)


def test_too_many_arguments_error_is_the_same_as_in_eager() -> None:
    def wrong(x: Any) -> Any:
        return F.celu(x, 1.0, 2, 3)  # type: ignore[call-arg]

    with pytest.raises(TypeError) as plain:
        wrong(tensor(1.0))
    with pytest.raises(TypeError) as traced:
        trace(wrong)(tensor(1.0))
    assert str(traced.value) == str(plain.value) and "celu" in str(plain.value)


class Doubled(Parameter):
    def __radd__(self, other: Any) -> Any:
        return other + Parameter(self) * thing.number


def test_overridden_parameter_operators_in_mgb_layers_are_detected() -> None:
    layer = M.Linear(2, 2)
    layer.bias = Doubled(np.ones(2, np.float32))
    traced, x = trace(lambda x: layer(x)), tensor(np.ones((1, 2), np.float32))
    for number in (2.0, 3.0):
        thing.number = number
        np.testing.assert_allclose(traced(x).numpy(), layer(x).numpy())
