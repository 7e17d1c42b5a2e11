"""Foreign ONNX models that several tests read."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from mgb.jit import load
from onnx import TensorProto, helper
from onnx import helper as h

RNG = np.random.default_rng(3)
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
info = helper.make_tensor_value_info


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    weights: dict[str, np.ndarray] | None = None,
    functions: Sequence[Any] = (),
    opset: int = 17,
    domains: Sequence[str] = (),
) -> bytes:
    """A serialized model."""
    given = [onnx.numpy_helper.from_array(a, n) for n, a in (weights or {}).items()]
    graph = h.make_graph(nodes, "graph", inputs, outputs, given)
    opsets = [h.make_opsetid("", opset), *(h.make_opsetid(d, 1) for d in domains)]
    return h.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10).SerializeToString()


def loaded(data: bytes, **options: Any) -> Any:
    return load(io.BytesIO(data), options.pop("backend", "EAGER"), **options)


def runtime(data: bytes, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Run the model in ONNX Runtime."""
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, feed)


def agrees(data: bytes, rtol: float = 1e-4, atol: float = 1e-5, **feed: np.ndarray) -> None:
    """Recorded, replayed and in ONNX Runtime, the results are the same."""
    wanted = runtime(data, feed)
    function = loaded(data)
    for _ in range(2):
        results = function(**feed)
        results = results if isinstance(results, tuple) else (results,)
        assert len(results) == len(wanted)
        for got, want in zip(results, wanted):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got.numpy(), want, rtol, atol)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


# networks


def residual_network() -> bytes:
    nodes, weights, channels = [], {}, 3

    def conv(x: str, y: str, outputs: int, kernel: int, stride: int) -> None:
        nonlocal channels
        weights[f"{y}_w"] = normal(outputs, channels, kernel, kernel) * 0.3
        pad = [kernel // 2] * 4
        nodes.append(
            h.make_node(
                "Conv", [x, f"{y}_w"], [f"{y}_c"], kernel_shape=[kernel] * 2, pads=pad, strides=[stride] * 2
            )
        )
        for name, value in (("s", 1 + 0.1 * normal(outputs)), ("b", normal(outputs)), ("m", normal(outputs))):
            weights[f"{y}_{name}"] = value
        weights[f"{y}_v"] = np.abs(normal(outputs)) + 0.5
        nodes.append(h.make_node("BatchNormalization", [f"{y}_c", *(f"{y}_{n}" for n in "sbmv")], [y]))
        channels = outputs

    conv("x", "a", 8, 7, 2)
    nodes.append(h.make_node("Relu", ["a"], ["ar"]))
    nodes.append(
        h.make_node("MaxPool", ["ar"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    )
    conv("p", "b", 8, 3, 1)
    nodes.append(h.make_node("Add", ["b", "p"], ["s"]))
    nodes.append(h.make_node("Relu", ["s"], ["r"]))
    nodes.append(h.make_node("GlobalAveragePool", ["r"], ["g"]))
    nodes.append(h.make_node("Flatten", ["g"], ["f"]))
    weights["fc"], weights["fb"] = normal(10, 8), normal(10)
    nodes.append(h.make_node("Gemm", ["f", "fc", "fb"], ["y"], transB=1))
    return model(nodes, [info("x", FLOAT, ["batch", 3, 32, 32])], [info("y", FLOAT, ["batch", 10])], weights)


def attention_block() -> bytes:
    """With the shape arithmetic that exporters write: Shape, Gather, Concat, Reshape."""
    weights = {n: normal(32, 32) * 0.2 for n in ("wq", "wk", "wv", "wo")}
    weights |= {"zero": np.array(0), "one": np.array(1), "heads": np.array([4]), "width": np.array([8])}
    weights |= {"axis0": np.array([0]), "gain": 1 + normal(32) * 0.1, "shift": normal(32)}
    weights |= {"scale": np.float32(8**-0.5), "minus": np.float32(-1e9), "all": np.array([32])}
    nodes = [
        h.make_node("Shape", ["x"], ["shape"]),
        h.make_node("Gather", ["shape", "zero"], ["n"]),
        h.make_node("Gather", ["shape", "one"], ["t"]),
        h.make_node("Unsqueeze", ["n", "axis0"], ["n1"]),
        h.make_node("Unsqueeze", ["t", "axis0"], ["t1"]),
        h.make_node("Concat", ["n1", "t1", "heads", "width"], ["split"], axis=0),
        h.make_node("Concat", ["n1", "t1", "all"], ["joined"], axis=0),
        h.make_node("Range", ["zero", "t", "one"], ["places"]),
        h.make_node("Unsqueeze", ["places", "axis0"], ["row"]),
        h.make_node("Transpose", ["row"], ["column"]),
        h.make_node("Greater", ["row", "column"], ["later"]),
        h.make_node("LayerNormalization", ["x", "gain", "shift"], ["z"], axis=-1),
    ]
    for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            h.make_node("MatMul", ["z", f"w{name}"], [f"{name}0"]),
            h.make_node("Reshape", [f"{name}0", "split"], [f"{name}1"]),
            h.make_node("Transpose", [f"{name}1"], [name], perm=perm),
        ]
    nodes += [
        h.make_node("MatMul", ["q", "k"], ["scores"]),
        h.make_node("Mul", ["scores", "scale"], ["scaled"]),
        h.make_node("Where", ["later", "minus", "scaled"], ["masked"]),
        h.make_node("Softmax", ["masked"], ["weights"], axis=-1),
        h.make_node("MatMul", ["weights", "v"], ["mixed"]),
        h.make_node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        h.make_node("Reshape", ["back", "joined"], ["flat"]),
        h.make_node("MatMul", ["flat", "wo"], ["out"]),
        h.make_node("Add", ["x", "out"], ["y"]),
    ]
    shape = ["batch", "time", 32]
    return model(nodes, [info("x", FLOAT, shape)], [info("y", FLOAT, shape)], weights)


def recurrent(kind: str, gates: int, direction: str) -> bytes:
    count = 2 if direction == "bidirectional" else 1
    weights = {
        "w": normal(count, gates * 6, 5) * 0.4,
        "r": normal(count, gates * 6, 6) * 0.4,
        "b": normal(count, 2 * gates * 6) * 0.4,
    }
    names = ["y", "h", "c"] if kind == "LSTM" else ["y", "h"]
    node = h.make_node(kind, ["x", "w", "r", "b", "lengths"], names, hidden_size=6, direction=direction)
    inputs = [info("x", FLOAT, [7, 3, 5]), info("lengths", TensorProto.INT32, [3])]
    return model([node], inputs, [info(n, FLOAT, None) for n in names], weights)


# calling


def simple() -> bytes:
    nodes = [h.make_node("Add", ["a", "b"], ["s"]), h.make_node("Relu", ["s"], ["y"])]
    inputs = [info("a", FLOAT, ["n", 3]), info("b", FLOAT, ["n", 3])]
    return model(nodes, inputs, [info("y", FLOAT, ["n", 3])])


def branches() -> bytes:
    yes = h.make_graph([h.make_node("Add", ["x", "x"], ["a"])], "yes", [], [info("a", FLOAT, None)])
    no = h.make_graph([h.make_node("Mul", ["x", "x"], ["b"])], "no", [], [info("b", FLOAT, None)])
    node = h.make_node("If", ["c"], ["y"], then_branch=yes, else_branch=no)
    return model([node], [info("x", FLOAT, [3]), info("c", BOOL, [])], [info("y", FLOAT, None)])


def loop() -> bytes:
    inputs = [info("i", INT64, []), info("c", BOOL, []), info("a", FLOAT, None)]
    outputs = [info("c2", BOOL, []), info("a2", FLOAT, None), info("row", FLOAT, None)]
    body = [h.make_node("Identity", ["c"], ["c2"]), h.make_node("Add", ["a", "x"], ["a2"])]
    body.append(h.make_node("Identity", ["a2"], ["row"]))
    node = h.make_node(
        "Loop", ["n", "", "x"], ["y", "rows"], body=h.make_graph(body, "body", inputs, outputs)
    )
    inputs = [info("x", FLOAT, [3]), info("n", INT64, [])]
    return model([node], inputs, [info("y", FLOAT, None), info("rows", FLOAT, None)])


# functions


def our_function(name: str, own: Any, nodes: Sequence[Any]) -> Any:
    proto = h.make_function("ai.mgb", name, ["x0"], ["y"], nodes, [h.make_opsetid("", 17)])
    proto.metadata_props.add(key="mgb.op", value=own if isinstance(own, str) else json.dumps(own))
    return proto


def calling(name: str, function: Any) -> bytes:
    node = h.make_node(name, ["x"], ["y"], domain="ai.mgb")
    tensors = [info("x", FLOAT, ["n"])], [info("y", FLOAT, ["n"])]
    return model([node], *tensors, functions=[function], domains=["ai.mgb"])
