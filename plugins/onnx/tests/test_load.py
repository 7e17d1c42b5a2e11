"""Our own files read back: bit-equal, in the structure that the function returned, on several threads."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mgb
import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb.jit import load, trace
from mgb.utils.comp_graph_tools import GraphInference
from onnx import TensorProto, helper
from onnx_models import attention_block, model

RNG = np.random.default_rng(11)


def tensor(*shape: int) -> mgb.Tensor:
    return mgb.Tensor(RNG.normal(size=shape).astype(np.float32))


class Network(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = M.Conv2d(1, 4, 3, padding=1)
        self.norm = M.BatchNorm2d(4)
        self.out = M.Linear(4 * 16, 10)

    def forward(self, x: mgb.Tensor) -> mgb.Tensor:
        x = F.max_pool2d(F.gelu(self.norm(self.conv(x))), 2)
        return F.softmax(self.out(F.flatten(x, 1)), 1)


def written(function: Callable[..., Any], *inputs: mgb.Tensor, **options: Any) -> tuple[bytes, Any]:
    """The file of one call, written as it was recorded, and the call's own result."""
    traced = trace(capture_as_const=True)(function)
    result, file = traced(*inputs), io.BytesIO()
    traced.dump(file, optimize_for_inference=False, **options)
    return file.getvalue(), result


def test_network_round_trips_bit_equal() -> None:
    network, x = Network(), tensor(3, 1, 8, 8)
    network.eval()
    data, want = written(network, x, arg_names=["image"], output_names=["classes"])
    function = load(io.BytesIO(data), "EAGER")
    for _ in range(3):
        np.testing.assert_array_equal(function(image=x).numpy(), want.numpy())
    assert [str(s) for s in (*function.inputs, *function.outputs)] == [
        "image: float32[3,1,8,8]",
        "classes: float32[3,10]",
    ]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1,
        lambda x: (x + 1, x * 2),
        lambda x: [x + 1],
        lambda x: {"b": x + 1, "a": x * 2},
    ],
    ids=["tensor", "tuple", "list", "dict"],
)
def test_loaded_results_have_the_structure_of_the_function(function: Callable[..., Any]) -> None:
    x = tensor(2, 3)
    data, want = written(function, x)
    got = load(io.BytesIO(data), "EAGER")(x)
    assert type(got) is type(want)
    if isinstance(want, dict):
        assert set(got) == set(want)
        got, want = [got[k] for k in want], list(want.values())
    for g, w in zip(got, want) if isinstance(want, list | tuple) else [(got, want)]:
        np.testing.assert_array_equal(g.numpy(), w.numpy())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int64", "uint8", "bool"])
def test_dtypes_round_trip(dtype: str) -> None:
    x = mgb.Tensor(RNG.integers(0, 2, (2, 3)), dtype=dtype)
    data, want = written(lambda x: F.concat([x, x], 1), x)
    got = load(io.BytesIO(data), "EAGER")(x)
    assert got.dtype == want.dtype == x.dtype
    np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_ops_without_an_onnx_operator_round_trip() -> None:
    x = tensor(50)
    data, want = written(lambda x: F.logaddexp(F.atan2(x, 1 - x), F.expm1(x)), x)
    function = load(io.BytesIO(data), "EAGER")
    np.testing.assert_array_equal(function(x).numpy(), want.numpy())
    assert "expm1" in function.explain(x)


def test_file_is_read_by_its_path(tmp_path: Path) -> None:
    x = tensor(4)
    data, want = written(lambda x: F.exp(x), x)
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    for file in (path, str(path)):
        np.testing.assert_array_equal(load(file, "EAGER")(x).numpy(), want.numpy())


def test_graph_inference_gives_arrays_by_name() -> None:
    x, y = tensor(4), tensor(4)
    data, _ = written(
        lambda a, b: (a + b, a * b), x, y, arg_names=["a", "b"], output_names=["sum", "product"]
    )
    inference = GraphInference(io.BytesIO(data))
    for results in (inference.run(x.numpy(), y.numpy()), inference.run(x, inp_dict={"b": y})):
        assert list(results) == ["sum", "product"]
        np.testing.assert_array_equal(results["sum"], x.numpy() + y.numpy())
    only = GraphInference(io.BytesIO(data), outputs=["product"]).run(x, y)
    assert list(only) == ["product"]


def test_loaded_model_is_differentiable() -> None:
    data, _ = written(lambda x: F.tanh(x), tensor(4))
    function, x = load(io.BytesIO(data), "EAGER"), tensor(4)
    with mgb.autodiff.GradManager().attach([x]) as manager:
        manager.backward(F.sum(function(x)))
    np.testing.assert_allclose(x.grad.numpy(), 1 - np.tanh(x.numpy()) ** 2, 1e-5)


def test_threads_share_a_model() -> None:
    data = attention_block()
    function = load(io.BytesIO(data), "EAGER")
    inputs = [tensor(1 + n % 3, 3 + n % 2, 32) for n in range(6)]
    want = [load(io.BytesIO(data), "EAGER")(x).numpy() for x in inputs]
    failures: list[BaseException] = []

    def work(start: int) -> None:
        try:
            for n in range(12):
                i = (start + n) % len(inputs)
                np.testing.assert_allclose(function(inputs[i]).numpy(), want[i], 1e-5, 1e-6)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_random_numbers_are_new_at_each_call() -> None:
    node = helper.make_node("RandomUniformLike", ["x"], ["y"], low=2.0, high=3.0)
    info = helper.make_tensor_value_info
    data = model([node], [info("x", TensorProto.FLOAT, ["n"])], [info("y", TensorProto.FLOAT, ["n"])])
    function, x = load(io.BytesIO(data), "EAGER"), np.zeros(2000, np.float32)
    draws = [function(x).numpy() for _ in range(3)]
    for draw in draws:
        assert draw.min() >= 2 and draw.max() <= 3 and abs(draw.mean() - 2.5) < 0.05
    assert not np.array_equal(draws[0], draws[1]) and not np.array_equal(draws[1], draws[2])


def test_multinomial_draws_classes_by_their_weights() -> None:
    node = helper.make_node("Multinomial", ["x"], ["y"], sample_size=4000)
    info = helper.make_tensor_value_info
    data = model([node], [info("x", TensorProto.FLOAT, [1, 3])], [info("y", TensorProto.INT32, None)])
    shares = np.array([[0.2, 0.5, 0.3]], np.float32)
    drawn = load(io.BytesIO(data), "EAGER")(np.log(shares)).numpy()
    np.testing.assert_allclose(np.bincount(drawn[0], minlength=3) / 4000, shares[0], atol=0.04)
