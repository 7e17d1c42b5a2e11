"""Calls that skip the body, where what it looks at beside its arguments changes; judged against the body."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import mgb.module as M
import numpy as np
import pytest
from mgb import Parameter, Tensor, tensor
from mgb.autodiff import GradManager
from mgb.errors import DumpStateError, ImpureBodyError
from mgb.jit import load_compiled, partial_trace, trace, xla_trace
from mgb.optimizer import SGD

WRAPS: dict[str, Callable[[Any], Any]] = {
    "trace": trace,
    "xla_trace": lambda f: xla_trace(f, backend="eager"),
    "partial_trace": partial_trace,
}


@pytest.fixture(params=list(WRAPS))
def wrap(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """Decorators whose later calls skip the body."""
    return WRAPS[request.param]


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def linear(seed: int) -> M.Linear:
    layer = M.Linear(3, 3)
    layer.weight = Parameter(floats(3, 3, seed=seed))
    return layer


class Model(M.Module):
    """`body(self, x)` is its call; `state` are its other attributes."""

    def __init__(self, body: Callable[[Any, Tensor], Tensor], **state: Any) -> None:
        super().__init__()
        self.__dict__.update(state, body=body)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self, x)


def count(model: Any, x: Tensor) -> Tensor:
    model.calls += 1
    return x * model.calls


def count_in_a_list(model: Any, x: Tensor) -> Tensor:
    model.calls[0] += 1
    return x * model.calls[0]


def alternate(model: Any, x: Tensor) -> Tensor:
    model.on = not model.on
    return x * 2.0 if model.on else x * 3.0


def begin(model: Any, x: Tensor) -> Tensor:
    if model.width is None:
        model.width = x.shape[0]
        return x * 100.0
    return x * model.width


def note_shape(model: Any, x: Tensor) -> Tensor:
    model.shape = (x.shape[0], 7)
    return x * 2.0


CHANGES_ITSELF: dict[str, tuple[Any, dict[str, Any]]] = {
    "counter": (count, {"calls": 0}),
    "counter in a list": (count_in_a_list, {"calls": [0]}),
    "flag": (alternate, {"on": True}),
    "first call": (begin, {"width": None}),
    "equal value": (note_shape, {"shape": None}),
}


@pytest.mark.parametrize("name", CHANGES_ITSELF)
def test_module_changed_by_its_own_body_matches_eager_or_raises(wrap: Any, name: str) -> None:
    body, state = CHANGES_ITSELF[name]
    plain, traced = (
        Model(body, **{k: list(v) if isinstance(v, list) else v for k, v in state.items()}) for _ in range(2)
    )
    call = wrap(lambda x, model: model(x))
    if wrap is not trace:
        with pytest.raises(ImpureBodyError, match=r"test_surroundings\.py"):
            call(tensor(floats(3)), traced)
        return
    for n in range(5):
        x = floats(3, seed=n)
        np.testing.assert_allclose(call(tensor(x), traced).numpy(), plain(tensor(x)).numpy(), rtol=1e-6)
        for attribute in state:
            assert vars(traced)[attribute] == vars(plain)[attribute]


def test_body_that_toggles_training_mode_matches_eager_or_raises(wrap: Any) -> None:
    model = Model(lambda self, x: x * 2.0 if self.training else x * 3.0)

    @wrap
    def both(x: Tensor, model: M.Module) -> Tensor:
        model.eval()
        y = model(x)
        model.train()
        return y + model(x)

    for n in range(4):
        x = floats(3, seed=n)
        if wrap is not trace and n == 0:
            try:
                both(tensor(x), model)
            except ImpureBodyError as error:
                assert "training" in str(error)
                return
        np.testing.assert_allclose(both(tensor(x), model).numpy(), 5 * x, rtol=1e-6)


def hook(model: Any) -> None:
    model.first.register_forward_hook(lambda module, inputs, output: output * 2.0)


def swap_items(model: Any) -> None:
    layers = model.layers
    one, two = layers.pop("one"), layers.pop("two")
    layers.update(two=one, one=two)


def rename_items(model: Any) -> None:
    one, two = model.layers.values()
    model.layers.clear()
    model.layers.update(two=one, one=two)  # the same values in the same order


CHANGES: dict[str, Callable[[Any], None]] = {
    "hook": hook,
    "swapped items": swap_items,
    "renamed items": rename_items,
    "another dict": lambda model: setattr(model, "layers", dict(zip(("two", "one"), model.layers.values()))),
    "item of a list": lambda model: model.scales.__setitem__(0, 7.0),
    "another function": lambda model: setattr(model, "function", np.negative),
    "another tuple": lambda model: setattr(model, "shape", (3, 2)),
    "another array": lambda model: setattr(model, "number", np.float32(5.0)),
    "another set": lambda model: model.options.add("double"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_module_change_between_calls_is_detected(wrap: Any, change: Callable[[Any], None]) -> None:
    def body(self: Any, x: Tensor) -> Tensor:
        y = self.layers["one"](self.first(x)) * self.scales[0]
        y = -y if self.function is np.negative else y
        y = y * 2.0 if "double" in self.options else y
        return y.reshape(self.shape) * float(self.number)

    model = Model(
        body,
        first=linear(0),
        layers={"one": linear(1), "two": linear(2)},
        scales=[1.0],
        function=np.positive,
        shape=(2, 3),
        number=np.float32(1.0),
        options={"none"},
    )
    call = wrap(lambda x, model: model(x))
    x = tensor(floats(2, 3))
    call(x, model)
    before = model(x).numpy()
    change(model)
    after = model(x).numpy()
    assert before.shape != after.shape or not np.allclose(before, after)
    for _ in range(2):
        np.testing.assert_allclose(call(x, model).numpy(), after, rtol=1e-5)


class Trainer:
    """What a traced step is a method of, and no Module."""

    def __init__(self, seed: int, lr: float) -> None:
        self.net = linear(seed)
        self.optimizer = SGD(self.net.parameters(), lr=lr)

    def step(self, x: Tensor) -> Tensor:
        with GradManager().attach(self.net.parameters()) as manager:
            loss = (self.net(x) ** 2.0).mean()
            manager.backward(loss)
            self.optimizer.step().clear_grad()
        return loss


def test_traced_method_detects_a_replaced_network_on_self(wrap: Any) -> None:
    class Traced(Trainer):
        step = wrap(Trainer.step)

    plain, traced = Trainer(0, 0.1), Traced(0, 0.1)
    for n in range(6):
        x = floats(2, 3, seed=n)
        assert traced.step(tensor(x)).item() == pytest.approx(plain.step(tensor(x)).item(), rel=1e-5)
        if n == 2:
            for trainer in (plain, traced):
                Trainer.__init__(trainer, 5, 0.01)


def test_traced_forward_guards_mode_and_does_not_leak_the_module(wrap: Any) -> None:
    class Net(M.Module):
        @wrap
        def forward(self, x: Tensor) -> Tensor:
            return x * 2.0 if self.training else x * 3.0

    net, x = Net(), tensor([1.0])
    found = [net.train(mode)(x).item() for mode in (True, False, True, False)]
    assert found == [2.0, 3.0, 2.0, 3.0]
    gone = weakref.ref(net)
    del net
    gc.collect()
    assert gone() is None


def test_set_and_bytearray_arguments_are_guarded_by_value(wrap: Any) -> None:
    call = wrap(lambda x, names, data: x * len(names) * data[0])
    names, data = {"a"}, bytearray(b"\x01")
    assert call(tensor([1.0]), names, data).item() == 1.0
    names.add("b")
    assert call(tensor([1.0]), names, data).item() == 2.0
    data[0] = 3
    assert call(tensor([1.0]), names, data).item() == 6.0


@pytest.mark.parametrize("make", [trace, xla_trace], ids=lambda make: make.__name__)
def test_export_uses_the_current_module_parameters(make: Any, tmp_path: Any) -> None:
    network, x = linear(0), floats(2, 3)
    options = {"symbolic": True} if make is trace else {"backend": "eager"}
    predict = make(lambda x: network(x), capture_as_const=True, **options)
    predict(tensor(x))
    network.weight = Parameter(floats(3, 3, seed=1))
    predict.export(tmp_path / "new.mgb")
    wanted = x @ floats(3, 3, seed=1).T + network.bias.numpy()
    np.testing.assert_allclose(load_compiled(tmp_path / "new.mgb")(tensor(x)).numpy(), wanted, rtol=1e-5)


@pytest.mark.parametrize("change", ["layer", "item"])
def test_export_rejects_a_network_with_a_replaced_layer(change: str, tmp_path: Any) -> None:
    model = Model(lambda self, x: self.layers[0](self.first(x)), first=linear(0), layers=[linear(1)])
    predict = trace(lambda x: model(x), symbolic=True, capture_as_const=True)
    predict(tensor(floats(2, 3)))
    if change == "layer":
        model.first = linear(5)
    else:
        model.layers[0] = linear(5)
    with pytest.raises(DumpStateError, match="make a new trace"):
        predict.export(tmp_path / "old.mgb")
    assert not (tmp_path / "old.mgb").exists()


watched = tensor([1.0, 2.0])


def test_rebound_global_or_closure_tensor_triggers_a_retrace(
    wrap: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if wrap is WRAPS["xla_trace"]:
        pytest.skip("xla_trace takes no Tensor that is no argument, unless it is constant")
    local = tensor([10.0, 20.0])

    @wrap
    def of_global(x: Tensor) -> Tensor:
        return (lambda y: y * watched)(x)

    @wrap
    def of_cell(x: Tensor) -> Tensor:
        return x * local

    one = tensor([1.0, 1.0])
    for function, expected in ((of_global, [1.0, 2.0]), (of_cell, [10.0, 20.0])):
        assert function(one).tolist() == function(one).tolist() == expected
    assert of_global.stats()["records"] == of_cell.stats()["records"] == 1
    monkeypatch.setitem(globals(), "watched", tensor([3.0, 4.0]))
    local = tensor([30.0, 40.0])
    for function, expected in ((of_global, [3.0, 4.0]), (of_cell, [30.0, 40.0])):
        assert function(one).tolist() == function(one).tolist() == expected
    assert of_global.stats()["records"] == of_cell.stats()["records"] == 2
    watched[...] = tensor([5.0, 6.0])  # in place: live anyway
    assert of_global(one).tolist() == [5.0, 6.0] and of_global.stats()["records"] == 2


def test_global_named_like_an_attribute_is_not_guarded(wrap: Callable[[Any], Any]) -> None:
    class Net(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = Parameter([2.0])

        def forward(self, x: Tensor) -> Tensor:
            return x * self.weight

    @wrap
    def call(x: Tensor, *, net: Net) -> Tensor:
        return net(x) + net.weight

    net = Net()
    try:
        for value in (1.0, 2.0, 3.0):
            globals()["weight"] = tensor([value])
            assert call(tensor([value]), net=net).tolist() == [2 * value + 2]
    finally:
        del globals()["weight"]
    assert call.stats()["records"] == 1


def test_nonlocal_bound_to_an_argument_is_rebound_at_every_call() -> None:
    current = tensor([0.0])

    @trace
    def step(x: Tensor) -> Tensor:
        nonlocal current
        before, current = current, x
        return x - before

    assert [step(tensor([v])).item() for v in (1.0, 3.0, 6.0, 10.0)] == [1.0, 2.0, 3.0, 4.0]


LATER: Tensor | None = None


def test_none_replaced_by_a_tensor_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    around: Tensor | None = None

    class Runner:
        def __init__(self) -> None:
            self.w: Tensor | None = None

        @trace
        def method(self, x: Tensor) -> Tensor:
            return x * 1.0 if self.w is None else x + self.w

    @trace
    def by_global(x: Tensor) -> Tensor:
        return x * 1.0 if LATER is None else x + LATER

    @trace
    def by_cell(x: Tensor) -> Tensor:
        return x * 1.0 if around is None else x + around

    runner, x, two = Runner(), tensor([1.0]), tensor([2.0])
    functions = [runner.method, by_global, by_cell]
    for expected in (1.0, 3.0, 1.0):
        around = runner.w = two if expected == 3.0 else None
        monkeypatch.setitem(globals(), "LATER", around)
        for function in functions:
            assert [function(x).item() for _ in range(3)] == [expected] * 3
    assert by_global.stats()["records"] == by_cell.stats()["records"] <= 3
