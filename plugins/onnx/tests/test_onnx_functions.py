"""Functions in ONNX files, ours and others, and what no operator is there for."""

from __future__ import annotations

import mgb
import numpy as np
import onnx
import pytest
from mgb.errors import (
    FileFormatError,
    LoadedFunctionError,
    UnsupportedError,
)
from onnx import helper as h
from onnx_models import FLOAT, RNG, calling, info, loaded, model, normal, our_function


def test_mgb_function_is_loaded_as_its_op() -> None:
    """Its body here is another one, so the result tells which was run."""
    own = {"op": "leaky_relu", "params": {"negative_slope": 0.25}}
    function = loaded(calling("f", our_function("f", own, [h.make_node("Neg", ["x0"], ["y"])])))
    np.testing.assert_array_equal(function(np.array([-4, 4], np.float32)).numpy(), [-1, 4])


def test_function_of_an_unknown_op_uses_its_body() -> None:
    own = {"op": "of_the_future", "params": {}}
    function = loaded(calling("f", our_function("f", own, [h.make_node("Neg", ["x0"], ["y"])])))
    np.testing.assert_array_equal(function(np.array([-4, 4], np.float32)).numpy(), [4, -4])


@pytest.mark.parametrize("own", ["{", "[]", '{"op": 3}', '{"op": "add", "params": {}}'])
def test_function_with_invalid_op_metadata_is_rejected(own: str) -> None:
    with pytest.raises(FileFormatError, match=r"function ai\.mgb:f|add does not take 1 inputs"):
        loaded(calling("f", our_function("f", own, [h.make_node("Neg", ["x0"], ["y"])])))


def test_unknown_op_parameters_are_rejected() -> None:
    own = {"op": "leaky_relu", "params": {"slope": 1}}
    with pytest.raises(FileFormatError, match=r"node 0.*parameters \['slope'\]"):
        loaded(calling("f", our_function("f", own, [h.make_node("Neg", ["x0"], ["y"])])))


def test_invalid_parameter_value_error_names_the_node() -> None:
    own = {"op": "reshape", "params": {"shape": "text"}}
    function = loaded(calling("f", our_function("f", own, [h.make_node("Neg", ["x0"], ["y"])])))
    with pytest.raises(LoadedFunctionError, match="node 0"):
        function(np.zeros(2, np.float32))


def test_model_functions_support_attribute_defaults() -> None:
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


def test_unsupported_operators_are_reported_with_their_nodes() -> None:
    nodes = [
        h.make_node("TfIdfVectorizer", ["x"], ["a"], name="first", max_gram_length=1),
        h.make_node("Fused", ["a"], ["y"], name="second", domain="com.vendor"),
    ]
    data = model(nodes, [info("x", FLOAT, [2])], [info("y", FLOAT, None)], domains=["com.vendor"])
    with pytest.raises(UnsupportedError, match=r"'first'.*TfIdfVectorizer.*'second'.*com\.vendor"):
        loaded(data)


def test_failing_node_is_named_in_the_error() -> None:
    nodes = [h.make_node("MatMul", ["x", "x"], ["y"], name="product")]
    function = loaded(model(nodes, [info("x", FLOAT, ["a", "b"])], [info("y", FLOAT, None)]))
    with pytest.raises(LoadedFunctionError, match=r"'product' \(MatMul\).*do not multiply"):
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
