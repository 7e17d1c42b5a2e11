"""Calls that skip the body, where what it looks at beside its arguments changes; judged against the body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb.module as M
import numpy as np
import pytest
from arrays import floats
from mgb import Parameter, Tensor, tensor
from mgb.errors import ExportError, ImpureBodyError
from mgb.jit import load_compiled, partial_trace, trace, xla_trace

WRAPS: dict[str, Callable[[Any], Any]] = {
    "trace": trace,
    "xla_trace": lambda f: xla_trace(f, backend="eager"),
    "partial_trace": partial_trace,
}


@pytest.fixture(params=list(WRAPS))
def wrap(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """Decorators whose later calls skip the body."""
    return WRAPS[request.param]


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
    with pytest.raises(ExportError, match="make a new trace"):
        predict.export(tmp_path / "old.mgb")
    assert not (tmp_path / "old.mgb").exists()


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
