"""Results of traced functions that are constants: made of numbers in the body, or constant gradients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import pytest
from mgb import Parameter, Tensor, tensor
from mgb.autodiff import GradManager
from mgb.jit import partial_trace, trace, xla_trace

BODIES: dict[str, Callable[[Tensor], Any]] = {
    "beside a result": lambda x: (x * 2, tensor([1.0, 2.0])),
    "gradient of a sum": lambda x: mgb.grad(lambda t: t.sum())(x),
    "gradient of a constant": lambda x: mgb.grad(lambda t: tensor(3.0) * 2.0)(x),
    "gradient of a twofold": lambda x: mgb.value_and_grad(lambda t: (t + t).sum())(x)[1],
    "jvp": lambda x: mgb.jvp(lambda t: t + 1.0, (x,), (tensor(np.ones(2, "float32")),))[1],
    "vjp": lambda x: mgb.vjp(lambda t: t * 3.0, x)[1](tensor(np.ones(2, "float32")))[0],
    "jacobian": lambda x: mgb.jacobian(lambda t: t * 3.0)(x),
    "alone": lambda x: tensor([5.0]),
    "twice": lambda x: (lambda one: [one, one, x])(tensor([5.0])),
    "in a dict": lambda x: {"a": tensor([1]), "b": F.zeros((2,))},
}
WAYS: dict[str, Callable[..., Any]] = {
    "trace": trace,
    "run_body": trace(run_body=True),
    "never run": trace(run_body=False),
    "symbolic": trace(symbolic=True),
    "constants": trace(capture_as_const=True),
    "partial": partial_trace,
    "whole": xla_trace(backend="eager"),
}


def leaves(result: Any) -> list[Tensor]:
    if isinstance(result, dict):
        return [*result.values()]
    return list(result) if isinstance(result, list | tuple) else [result]


def values(result: Any) -> list[Any]:
    return [leaf.tolist() for leaf in leaves(result)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", BODIES)
def test_constant_results_match_eager_and_belong_to_the_caller(name: str, way: str) -> None:
    body, x = BODIES[name], tensor([0.5, 2.0])
    traced = WAYS[way](body)
    for _ in range(3):
        result = traced(x)
        assert values(result) == values(body(x))
        if name == "twice":
            assert result[0] is result[1]
        own = [leaf for leaf in leaves(result) if leaf is not x]
        own[-1] += 1
    assert values(traced(x)) == values(body(x))


@pytest.mark.parametrize("name", BODIES)
def test_constant_results_are_exported(name: str, tmp_path: Path) -> None:
    body, x = BODIES[name], tensor([0.5, 2.0])
    trace(body).export(tmp_path / "f.mgb", x)
    assert values(mgb.jit.load_compiled(tmp_path / "f.mgb")(x)) == values(body(x))


@pytest.mark.parametrize("clears", [False, True])
def test_functions_that_return_gradients_are_exported_and_dumped(clears: bool, tmp_path: Path) -> None:
    weight = Parameter([3.0, 4.0])

    def body(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with GradManager().attach([x, weight]) as manager:
            loss = (x * x * weight).sum()
            manager.backward(loss)
        result = loss, x.grad, weight.grad
        weight.grad = None
        if clears:
            x.grad = None
        return result

    x = tensor([1.0, 2.0])
    trace(body).export(tmp_path / "f.mgb", x)
    wanted = [19.0, [6.0, 16.0], [1.0, 4.0]]
    assert values(mgb.jit.load_compiled(tmp_path / "f.mgb")(x)) == wanted
    traced = trace(body, symbolic=True, capture_as_const=True)
    traced(x)
    traced.dump(tmp_path / "f.onnx")
    session = pytest.importorskip("onnxruntime").InferenceSession(tmp_path / "f.onnx")
    (name,) = (one.name for one in session.get_inputs())
    for got, want in zip(session.run(None, {name: x.numpy()}), wanted, strict=True):
        np.testing.assert_allclose(got, want)
