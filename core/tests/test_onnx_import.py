"""Foreign ONNX models: networks against ONNX Runtime; names, shapes, branches and functions."""

from __future__ import annotations

import importlib.util
import io
import json
from collections.abc import Sequence
from typing import Any

import mgb
import numpy as np
import pytest
from mgb.errors import (
    OnnxFileError,
    OnnxInputError,
    OnnxNodeError,
    OnnxUnsupportedError,
    TraceMismatchError,
)
from mgb.jit import load, load_outputs, trace

if importlib.util.find_spec("onnx") is None:
    pytest.skip("the onnx package is not installed: pip install onnx", allow_module_level=True)

import onnx
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
    """What ONNX Runtime makes of it."""
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


@pytest.mark.parametrize("batch", [1, 4])
def test_a_residual_network_agrees_with_onnx_runtime(batch: int) -> None:
    agrees(residual_network(), x=normal(batch, 3, 32, 32))


def test_an_attention_block_agrees_with_onnx_runtime() -> None:
    agrees(attention_block(), x=normal(2, 9, 32))


@pytest.mark.parametrize("kind, gates", [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_a_recurrent_layer_agrees_with_onnx_runtime(kind: str, gates: int, direction: str) -> None:
    lengths = np.array([7, 7, 4], np.int32) if direction != "reverse" else np.array([7, 7, 7], np.int32)
    agrees(recurrent(kind, gates, direction), x=normal(7, 3, 5), lengths=lengths)


CONVOLUTIONS = [
    ("Conv", (2, 4, 9), (6, 4, 3), {"pads": [1, 0]}),
    ("Conv", (2, 4, 9, 8), (6, 2, 3, 2), {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1]}),
    ("Conv", (2, 4, 9, 8), (6, 4, 3, 2), {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
    ("Conv", (1, 2, 6, 7, 5), (3, 2, 2, 3, 2), {"pads": [1, 1, 0, 0, 1, 1], "strides": [2, 1, 1]}),
    ("ConvTranspose", (2, 4, 9), (4, 3, 3), {"strides": [2], "pads": [1, 0]}),
    ("ConvTranspose", (2, 4, 5, 6), (4, 3, 3, 2), {"group": 2, "strides": [2, 3], "output_padding": [1, 2]}),
    ("ConvTranspose", (1, 2, 4, 3, 3), (2, 3, 2, 2, 2), {"strides": [2, 1, 2], "dilations": [1, 2, 1]}),
]


@pytest.mark.parametrize("kind, x, w, attributes", CONVOLUTIONS)
def test_convolutions_over_any_axes_agree_with_onnx_runtime(
    kind: str, x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    node = h.make_node(kind, ["x", "w"], ["y"], **attributes)
    agrees(model([node], [info("x", FLOAT, x)], [info("y", FLOAT, None)], {"w": normal(*w)}), x=normal(*x))


POOLS = [
    ("MaxPool", (2, 3, 11), {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}),
    ("MaxPool", (2, 3, 9, 8), {"kernel_shape": [3, 2], "dilations": [2, 1], "pads": [1, 0, 0, 1]}),
    ("MaxPool", (1, 2, 6, 7, 5), {"kernel_shape": [2, 3, 2], "strides": [2, 2, 1]}),
    ("AveragePool", (2, 3, 9, 8), {"kernel_shape": [3, 2], "pads": [1, 0, 0, 1], "count_include_pad": 1}),
    ("AveragePool", (2, 3, 9, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ("AveragePool", (1, 2, 6, 7, 5), {"kernel_shape": [2, 3, 2], "auto_pad": "SAME_UPPER"}),
    ("LpPool", (2, 3, 9, 8), {"kernel_shape": [3, 2], "p": 3}),
]


@pytest.mark.parametrize("kind, x, attributes", POOLS)
def test_pooling_over_any_axes_agrees_with_onnx_runtime(
    kind: str, x: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    node = h.make_node(kind, ["x"], ["y"], **attributes)
    agrees(model([node], [info("x", FLOAT, x)], [info("y", FLOAT, None)]), x=normal(*x))


@pytest.mark.parametrize(
    "equation, shapes",
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("...ij,...jk", [(2, 1, 3, 4), (5, 4, 2)]),
        ("ii->i", [(4, 4)]),
        ("iji->j", [(4, 3, 4)]),
        ("i,j,k->kji", [(2,), (3,), (4,)]),
        ("ab,bc,cd->da", [(2, 3), (3, 4), (4, 5)]),
        ("ij->", [(2, 3)]),
    ],
)
def test_einsum_is_that_of_numpy(equation: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = [normal(*s) for s in shapes]
    names = [f"x{i}" for i in range(len(arrays))]
    node = h.make_node("Einsum", names, ["y"], equation=equation)
    data = model([node], [info(n, FLOAT, a.shape) for n, a in zip(names, arrays)], [info("y", FLOAT, None)])
    np.testing.assert_allclose(loaded(data)(*arrays).numpy(), np.einsum(equation, *arrays), 1e-4, 1e-5)


@pytest.mark.parametrize("base, exponent", [("int64", "int64"), ("int32", "uint8"), ("int64", "int32")])
def test_powers_of_integers_are_exact(base: str, exponent: str) -> None:
    x, y = np.meshgrid(np.arange(-9, 10), np.arange(19))
    x, y = x.astype(base), y.astype(exponent)
    types = [h.np_dtype_to_tensor_dtype(a.dtype) for a in (x, y)]
    inputs = [info(n, t, a.shape) for n, t, a in zip("xy", types, (x, y))]
    data = model([h.make_node("Pow", ["x", "y"], ["z"])], inputs, [info("z", types[0], None)])
    np.testing.assert_array_equal(loaded(data)(x, y).numpy(), np.power(x, y.astype(base)))


# calling


def simple() -> bytes:
    nodes = [h.make_node("Add", ["a", "b"], ["s"]), h.make_node("Relu", ["s"], ["y"])]
    inputs = [info("a", FLOAT, ["n", 3]), info("b", FLOAT, ["n", 3])]
    return model(nodes, inputs, [info("y", FLOAT, ["n", 3])])


def test_inputs_come_by_place_or_name_and_are_described() -> None:
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
def test_wrong_inputs_are_refused_in_words(args: Any, kwargs: Any, message: str) -> None:
    function = loaded(simple())
    with pytest.raises(OnnxInputError, match=message):
        function(*args, **kwargs)
    assert function(normal(2, 3), normal(2, 3)).shape == (2, 3)


def test_any_value_in_the_graph_can_be_an_output() -> None:
    a, b = normal(2, 3), normal(2, 3)
    total, out = loaded(simple(), outputs=["s", "y"])(a, b)
    np.testing.assert_array_equal(total.numpy(), a + b)
    np.testing.assert_array_equal(out.numpy(), np.maximum(a + b, 0))
    with pytest.raises(OnnxFileError, match="nothing in the graph is called 'q'"):
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


def test_results_share_nothing_with_the_weights() -> None:
    data = model(
        [h.make_node("Identity", ["w"], ["y"])], [], [info("y", FLOAT, [3])], {"w": np.ones(3, "f4")}
    )
    function = loaded(data)
    first = function()
    first += 1
    np.testing.assert_array_equal(function().numpy(), np.ones(3))


def test_a_loaded_model_is_part_of_a_trace_around_it() -> None:
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


def branches() -> bytes:
    yes = h.make_graph([h.make_node("Add", ["x", "x"], ["a"])], "yes", [], [info("a", FLOAT, None)])
    no = h.make_graph([h.make_node("Mul", ["x", "x"], ["b"])], "no", [], [info("b", FLOAT, None)])
    node = h.make_node("If", ["c"], ["y"], then_branch=yes, else_branch=no)
    return model([node], [info("x", FLOAT, [3]), info("c", BOOL, [])], [info("y", FLOAT, None)])


def test_a_branch_may_depend_on_a_value() -> None:
    function, x = loaded(branches()), np.array([1, 2, 3], np.float32)
    for condition in (True, False, True, False, False, True):
        want = x + x if condition else x * x
        np.testing.assert_array_equal(function(x, np.array(condition)).numpy(), want)


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


def test_the_turns_of_a_loop_may_depend_on_a_value() -> None:
    function, x = loaded(loop()), np.array([1, 2, 3], np.float32)
    for turns in (2, 5, 2, 3, 5):
        y, rows = function(x, np.array(turns))
        np.testing.assert_array_equal(y.numpy(), x * (turns + 1))
        np.testing.assert_array_equal(rows.numpy(), np.outer(np.arange(2, turns + 2), x))


def test_a_model_with_branches_is_part_of_a_trace_around_it() -> None:
    function = loaded(branches())

    @trace(without_host=True, backend="EAGER")
    def outer(x: mgb.Tensor, c: mgb.Tensor) -> mgb.Tensor:
        return function(x, c) + 1

    x, condition = mgb.Tensor([1.0, 2, 3]), mgb.Tensor(True)
    for _ in range(3):
        np.testing.assert_array_equal(outer(x, condition).numpy(), [3, 5, 7])
    with pytest.raises(TraceMismatchError):
        outer(x, mgb.Tensor(False))


# functions


def our_function(name: str, own: Any, nodes: Sequence[Any]) -> Any:
    proto = h.make_function("ai.mgb", name, ["x0"], ["y"], nodes, [h.make_opsetid("", 17)])
    proto.metadata_props.add(key="mgb.op", value=own if isinstance(own, str) else json.dumps(own))
    return proto


def calling(name: str, function: Any) -> bytes:
    node = h.make_node(name, ["x"], ["y"], domain="ai.mgb")
    tensors = [info("x", FLOAT, ["n"])], [info("y", FLOAT, ["n"])]
    return model([node], *tensors, functions=[function], domains=["ai.mgb"])


def test_a_function_of_ours_is_our_own_op() -> None:
    """Its body here is another one, so the result tells which was run."""
    own = {"op": "leaky_relu", "params": {"negative_slope": 0.25}}
    function = loaded(calling("f", our_function("f", own, [h.make_node("Neg", ["x0"], ["y"])])))
    np.testing.assert_array_equal(function(np.array([-4, 4], np.float32)).numpy(), [-1, 4])


def test_a_function_of_an_op_that_we_lack_is_its_body() -> None:
    own = {"op": "of_the_future", "params": {}}
    function = loaded(calling("f", our_function("f", own, [h.make_node("Neg", ["x0"], ["y"])])))
    np.testing.assert_array_equal(function(np.array([-4, 4], np.float32)).numpy(), [4, -4])


@pytest.mark.parametrize("own", ["{", "[]", '{"op": 3}', '{"op": "add", "params": {}}'])
def test_a_function_whose_op_makes_no_sense_is_refused(own: str) -> None:
    with pytest.raises(OnnxFileError, match=r"function ai\.mgb:f|add does not take 1 inputs"):
        loaded(calling("f", our_function("f", own, [h.make_node("Neg", ["x0"], ["y"])])))


def test_parameters_of_another_op_are_refused() -> None:
    own = {"op": "leaky_relu", "params": {"slope": 1}}
    with pytest.raises(OnnxFileError, match=r"node 0.*parameters \['slope'\]"):
        loaded(calling("f", our_function("f", own, [h.make_node("Neg", ["x0"], ["y"])])))


def test_values_that_a_parameter_cannot_have_give_an_error_that_names_the_node() -> None:
    own = {"op": "reshape", "params": {"shape": "text"}}
    function = loaded(calling("f", our_function("f", own, [h.make_node("Neg", ["x0"], ["y"])])))
    with pytest.raises(OnnxNodeError, match="node 0"):
        function(np.zeros(2, np.float32))


def test_functions_of_a_file_have_attributes_with_defaults() -> None:
    body = [h.make_node("LeakyRelu", ["x"], ["y"])]
    reference = body[0].attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    assert reference.ref_attr_name == "slope"
    function = h.make_function("local", "f", ["x"], ["y"], body, [h.make_opsetid("", 17)], [],
                               [h.make_attribute("slope", 0.5)])  # fmt: skip
    nodes = [
        h.make_node("f", ["x"], ["a"], domain="local"),
        h.make_node("f", ["x"], ["b"], domain="local", slope=0.25),
    ]
    outputs = [info("a", FLOAT, None), info("b", FLOAT, None)]
    data = model(nodes, [info("x", FLOAT, [2])], outputs, functions=[function], domains=["local"])
    a, b = loaded(data)(np.array([-4, 4], np.float32))
    np.testing.assert_array_equal(a.numpy(), [-2, 4])
    np.testing.assert_array_equal(b.numpy(), [-1, 4])


def test_every_operator_that_is_lacking_is_named_with_its_node() -> None:
    nodes = [
        h.make_node("TfIdfVectorizer", ["x"], ["a"], name="first", max_gram_length=1),
        h.make_node("Fused", ["a"], ["y"], name="second", domain="com.vendor"),
    ]
    data = model(nodes, [info("x", FLOAT, [2])], [info("y", FLOAT, None)], domains=["com.vendor"])
    with pytest.raises(OnnxUnsupportedError, match=r"'first'.*TfIdfVectorizer.*'second'.*com\.vendor"):
        loaded(data)


def test_a_node_that_cannot_be_computed_is_named() -> None:
    nodes = [h.make_node("MatMul", ["x", "x"], ["y"], name="product")]
    function = loaded(model(nodes, [info("x", FLOAT, ["a", "b"])], [info("y", FLOAT, None)]))
    with pytest.raises(OnnxNodeError, match=r"'product' \(MatMul\).*do not multiply"):
        function(normal(2, 3))
    assert function(normal(2, 2)).shape == (2, 2)


@pytest.mark.parametrize("shape", [(), (2, 3)])
@pytest.mark.parametrize("dtype", mgb.dtypes.DTYPES, ids=str)
def test_weights_of_every_dtype_are_read(dtype: np.dtype, shape: tuple[int, ...]) -> None:
    """From raw bytes and from typed fields."""
    array = RNG.integers(0, 2, shape).astype(dtype)
    raw = onnx.numpy_helper.from_array(array, "w")
    typed = h.make_tensor("w", raw.data_type, shape, np.ravel(array).tolist())
    node, output = h.make_node("Identity", ["w"], ["y"]), info("y", raw.data_type, shape)
    for weight in (raw, typed):
        graph = h.make_graph([node], "graph", [], [output], [weight])
        got = loaded(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)]).SerializeToString())()
        assert got.dtype == dtype
        np.testing.assert_array_equal(got.numpy(), array)


# what torch writes


def exported(net: Any, *inputs: Any) -> tuple[Any, list[np.ndarray]]:
    """The model that torch writes, read back, and torch's own results."""
    import torch

    file = io.BytesIO()
    torch.onnx.export(net, inputs, file, dynamo=False, opset_version=17)
    wanted = net(*inputs)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    return loaded(file.getvalue()), [w.detach().numpy() for w in wanted]


def _torch_networks() -> dict[str, Any]:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    nn = torch.nn
    torch.manual_seed(5)

    class Turns(nn.Module):  # type: ignore[misc]
        def forward(self, x):  # type: ignore[no-untyped-def]
            h = torch.zeros_like(x[0])
            for t in range(x.shape[0]):
                h = torch.tanh(h + x[t])
            return h

    class Last(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(8, 6, 2, batch_first=True, bidirectional=True)

        def forward(self, x):  # type: ignore[no-untyped-def]
            return self.lstm(x)[0][:, -1]

    class Encoder(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(10, 8)
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

        def forward(self, x):  # type: ignore[no-untyped-def]
            return self.layer(self.words(x))

    images = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(8 * 16, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 5), nn.LogSoftmax(-1),
    )  # fmt: skip
    larger = nn.Sequential(
        nn.ConvTranspose2d(3, 8, 3, 2, 1, 1), nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.GroupNorm(4, 8), nn.PixelShuffle(2), nn.InstanceNorm2d(2),
    )  # fmt: skip
    return {
        "images": (images, torch.randn(2, 3, 8, 8)),
        "larger": (larger, torch.randn(2, 3, 5, 6)),
        "encoder": (Encoder(), torch.randint(0, 10, (2, 5))),
        "lstm": (Last(), torch.randn(2, 5, 8)),
        "loop": (torch.jit.script(Turns()), torch.randn(4, 3)),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["images", "larger", "encoder", "lstm", "loop"])
def test_a_model_that_torch_exported_agrees_with_torch(name: str) -> None:
    net, x = _torch_networks()[name]
    function, wanted = exported(net.eval(), x)
    for _ in range(2):
        results = function(x.numpy())
        for got, want in zip(results if isinstance(results, tuple) else (results,), wanted, strict=True):
            np.testing.assert_allclose(got.numpy(), want, 1e-3, 1e-5)
