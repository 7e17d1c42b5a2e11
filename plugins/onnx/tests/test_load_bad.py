"""Files that are truncated, damaged, hostile or of a newer version: an error that names the place."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bad_models import proto, refuses
from mgb.errors import (
    FileFormatError,
    FileVersionError,
    LoadedFunctionError,
    LoadLimitError,
    UnsupportedError,
)
from mgb.jit import LoadLimits, load
from onnx import TensorProto, helper
from onnx import helper as h
from onnx_models import calling, loop, model, our_function, residual_network

# damage


@pytest.mark.parametrize("data", [b"", b"\0", b"a text", b"\x08\x07", bytes(range(256)), b"PK\x03\x04" * 9])
def test_non_onnx_data_is_rejected(data: bytes) -> None:
    refuses(data, "not an ONNX|truncated|neither its ending nor", FileFormatError)


def test_text_mode_file_object_is_rejected() -> None:
    with pytest.raises(FileFormatError, match="mode 'rb'"):
        load(io.StringIO("text"))  # type: ignore[arg-type]


@pytest.mark.parametrize("file", [5, None, [], "a\0b"], ids=repr)
def test_invalid_file_argument_is_rejected(file: Any) -> None:
    with pytest.raises(FileFormatError, match=r"is not a file: give a path|is not a path"):
        load(file)


def test_missing_file_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.onnx")


@pytest.mark.parametrize("cut", range(1, 20))
def test_truncated_file_is_rejected(cut: int) -> None:
    data = residual_network()
    refuses(data[: len(data) * cut // 20], "truncated|not an ONNX|nothing|no graph|does not say")


def _shape(model: Any) -> None:
    model.graph.initializer[0].dims[0] = 1 << 50


def _negative(model: Any) -> None:
    model.graph.initializer[0].dims[0] = -3


def _short(model: Any) -> None:
    tensor = model.graph.initializer[0]
    tensor.raw_data = tensor.raw_data[:-1]


def _fields(model: Any) -> None:
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.float_data.extend([1.0] * 5)


def _dtype(model: Any) -> None:
    model.graph.initializer[0].data_type = 99


def _missing(model: Any) -> None:
    model.graph.node[0].input[1] = "v"


def _unsorted(model: Any) -> None:
    nodes = [model.graph.node[1], model.graph.node[0]]
    copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def _cycle(model: Any) -> None:
    model.graph.node[0].input[0] = "y"


def _twice(model: Any) -> None:
    model.graph.node[1].output[0] = "p"


def _no_output(model: Any) -> None:
    model.graph.output[0].name = "z"


def _nameless_output(model: Any) -> None:
    model.graph.node[-1].output[0] = model.graph.output[0].name = ""


def _two_weights(model: Any) -> None:
    model.graph.initializer.append(model.graph.initializer[0])


def _two_inputs(model: Any) -> None:
    model.graph.input.append(model.graph.input[0])


def _two_attributes(model: Any) -> None:
    for _ in range(2):
        model.graph.node[0].attribute.add(name="axis", i=1, type=onnx.AttributeProto.INT)


def _unknown_attribute(model: Any) -> None:
    model.graph.node[0].attribute.add(name="axis", i=1, type=onnx.AttributeProto.INT)


def _typeless_attribute(model: Any) -> None:
    model.graph.node[0].attribute.add(name="axis")


def _too_many(model: Any) -> None:
    model.graph.node[1].input.extend(["x", "x"])
    model.graph.node[1].input[0] = "w"
    model.graph.node[1].input[1] = "w"
    model.graph.node[1].input[2] = "w"


def _no_opset(model: Any) -> None:
    del model.opset_import[:]


DAMAGE = [
    (_shape, "initializer 'w': 24 bytes"),
    (_negative, "negative length"),
    (_short, "23 bytes for float32"),
    (_fields, "5 elements for float32"),
    (_dtype, "99 is not a type"),
    (_missing, "'product'.*nothing before it makes its input 'v'"),
    (_unsorted, "nothing before it makes its input 'p'"),
    (_cycle, "nothing before it makes its input 'y'"),
    (_twice, "'p' has a value already"),
    (_no_output, "nothing makes its output 'z'"),
    (_nameless_output, "output 0 has no name"),
    (_two_weights, "two initializers have one name"),
    (_two_inputs, "two inputs have one name"),
    (_two_attributes, "'axis' is given twice"),
    (_unknown_attribute, "MatMul has no attribute 'axis'"),
    (_typeless_attribute, "its type is not one of ONNX's"),
    (_too_many, "3 inputs, Relu takes 1"),
    (_no_opset, "does not say the opset"),
]


@pytest.mark.parametrize("damage, message", DAMAGE, ids=[d.__name__ for d, _ in DAMAGE])
def test_corrupt_model_error_names_the_location(damage: Callable[[Any], None], message: str) -> None:
    model = proto()
    damage(model)
    refuses(model, message)


def test_unsupported_types_are_reported() -> None:
    model = proto()
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    refuses(model, "'x'.*STRING", UnsupportedError)


# other times


def test_newer_opset_is_rejected() -> None:
    newest = onnx.defs.onnx_opset_version()
    refuses(proto(opset=newest + 1), f"opset {newest + 1}.*knows up to {newest}", FileVersionError)


def test_older_opset_is_converted() -> None:
    result = load(io.BytesIO(proto(opset=9).SerializeToString()), "EAGER")(np.ones((1, 3), np.float32))
    np.testing.assert_array_equal(result.numpy(), [[3, 3]])


def test_newer_dump_format_is_rejected() -> None:
    model = proto()
    model.metadata_props.add(key="mgb.dump", value=json.dumps({"version": 2}))
    refuses(model, "newer mgb", FileVersionError)


@pytest.mark.parametrize("text", ["{", "3", '{"version": "x"}', "[" * 100000])
def test_invalid_metadata_json_is_rejected(text: str) -> None:
    model = proto()
    model.metadata_props.add(key="mgb.dump", value=text)
    refuses(model, "mgb.dump")


# hostility


def test_recursive_function_is_rejected() -> None:
    again = h.make_node("f", ["x0"], ["y"], domain="ai.mgb")
    function = h.make_function("ai.mgb", "f", ["x0"], ["y"], [again], [h.make_opsetid("ai.mgb", 1)])
    refuses(calling("f", function), "the function calls itself")


def test_exponential_function_expansion_is_rejected() -> None:
    """40 functions that each call the one before twice."""
    functions = []
    for i in range(40):
        name = f"f{i - 1}" if i else "Neg"
        domain = "ai.mgb" if i else ""
        nodes = [
            h.make_node(name, ["x0"], ["a"], domain=domain),
            h.make_node(name, ["a"], ["y"], domain=domain),
        ]
        functions.append(h.make_function("ai.mgb", f"f{i}", ["x0"], ["y"], nodes, [h.make_opsetid("", 17)]))
    model = onnx.load_from_string(calling("f39", functions[-1]))
    model.functions.extend(functions[:-1])
    refuses(model, "nodes and ops", LoadLimitError)


def test_metadata_can_name_only_declared_ops() -> None:
    """The metadata cannot name anything but a declared op: what it names otherwise is not looked up."""
    own = {"op": "__import__", "params": {}}
    data = calling("f", our_function("f", own, [h.make_node("Neg", ["x0"], ["y"])]))
    np.testing.assert_array_equal(load(io.BytesIO(data), "EAGER")(np.ones(2, np.float32)).numpy(), [-1, -1])


def external(folder: Path, location: str, **entries: str) -> Path:
    """A model whose weight is in the file `location`."""
    model = proto()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_weights_may_be_in_an_external_file(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"\0" * 8 + np.full((3, 2), 2, np.float32).tobytes())
    path = external(tmp_path, "weights.bin", offset="8", length="24")
    np.testing.assert_array_equal(load(path, "EAGER")(np.ones((1, 3), np.float32)).numpy(), [[6, 6]])
    with pytest.raises(FileFormatError, match="load the model by its path"):
        load(io.BytesIO(path.read_bytes()))


@pytest.mark.parametrize("location", ["/etc/passwd", "../secret", "a/../../secret", "link", "", ".", "none"])
def test_external_file_outside_the_folder_is_rejected(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    (folder / "a").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"\0" * 24)
    os.symlink(tmp_path / "secret", folder / "link")
    with pytest.raises(FileFormatError, match=r"not a file below|is not there"):
        load(external(folder, location))


@pytest.mark.parametrize(
    "entries",
    [
        {"offset": "-1"},
        {"offset": "20"},
        {"length": "25"},
        {"offset": "x"},
        {"length": "23"},
        {"length": "-1"},
    ],
)
def test_external_range_outside_the_file_is_rejected(tmp_path: Path, entries: dict[str, str]) -> None:
    (tmp_path / "weights.bin").write_bytes(b"\0" * 24)
    with pytest.raises(FileFormatError, match="initializer 'w'"):
        load(external(tmp_path, "weights.bin", **entries))


def test_sparse_weight_with_a_huge_shape_is_rejected() -> None:
    model = proto()
    sparse = model.graph.sparse_initializer.add()
    sparse.values.CopyFrom(onnx.numpy_helper.from_array(np.ones(1, np.float32), "s"))
    sparse.indices.CopyFrom(onnx.numpy_helper.from_array(np.zeros(1, np.int64), "i"))
    sparse.dims.extend([1 << 40, 1 << 20])
    refuses(model, "sparse initializer 's'", LoadLimitError)


def test_error_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "damaged.onnx"
    path.write_bytes(b"\x08\x07garbage")
    with pytest.raises(FileFormatError, match=r"damaged\.onnx: this is not an ONNX file"):
        load(path)


def test_loop_iterations_of_a_run_count_against_one_limit() -> None:
    function = load(io.BytesIO(loop()), limits=LoadLimits(nodes=2000))
    x = np.ones(3, np.float32)
    assert function(x, np.array(300))[0].numpy().tolist() == [301] * 3  # 900 nodes in the body
    with pytest.raises(LoadLimitError, match="and 2000 are allowed"):
        function(x, np.array(700))


def test_deeply_nested_functions_raise_a_limit_error() -> None:
    opset, value = h.make_opsetid("", 17), helper.make_tensor_value_info
    calls = [h.make_node(f"f{n - 1}", ["a"], ["b"], domain="own") if n else None for n in range(2000)]
    bodies = [call or h.make_node("Neg", ["a"], ["b"]) for call in calls]
    imports = [opset, h.make_opsetid("own", 1)]
    functions = [
        h.make_function("own", f"f{n}", ["a"], ["b"], [body], imports) for n, body in enumerate(bodies)
    ]
    ends = [value("x", TensorProto.FLOAT, [2])], [value("y", TensorProto.FLOAT, [2])]
    graph = h.make_graph([h.make_node("f1999", ["x"], ["y"], domain="own")], "g", *ends)
    file = h.make_model(graph, functions=functions, opset_imports=imports)
    with pytest.raises(LoadLimitError, match="depth"):
        load(io.BytesIO(file.SerializeToString()))


@pytest.mark.parametrize("location", ["d\0x", "d" * 300, "circle"])
def test_invalid_external_location_is_rejected(tmp_path: Path, location: str) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(FileFormatError, match=r"cannot be the name|is not there|is not a file"):
        load(external(tmp_path, location))


def test_invalid_values_error_names_the_node_at_every_call() -> None:
    """Also in a call that is compiled by then."""
    node = h.make_node("Gather", ["x", "i"], ["y"], name="picked")
    value = helper.make_tensor_value_info
    ends = (
        [value("x", TensorProto.FLOAT, [3]), value("i", TensorProto.INT64, [2])],
        [value("y", TensorProto.FLOAT, [2])],
    )
    function = load(io.BytesIO(model([node], *ends)), "EAGER")
    x = np.array([1, 2, 3], np.float32)
    for _ in range(3):
        assert function(x, np.array([2, 0])).numpy().tolist() == [3, 1]
        with pytest.raises(LoadedFunctionError, match=r"'picked' \(Gather\)"):
            function(x, np.array([7, 0]))


def test_attribute_errors_of_the_onnx_package_name_the_node() -> None:
    """It spells the operator out by others, and finds no type in an empty list."""
    node = h.make_node("RotaryEmbedding", ["x", "a", "a"], ["y"], name="spelt")
    node.attribute.add(name="interleaved", type=onnx.AttributeProto.INTS)
    value = helper.make_tensor_value_info
    shapes = {"x": [1, 2, 3, 4], "a": [1, 3, 2]}
    inputs = [value(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    data = model([node], inputs, [value("y", TensorProto.FLOAT, None)], opset=23)
    with pytest.raises(LoadedFunctionError, match="'spelt'"):
        load(io.BytesIO(data), "EAGER")(*(np.ones(s, np.float32) for s in shapes.values()))


def test_too_many_axes_error_names_the_node() -> None:
    node = h.make_node("Expand", ["x", "shape"], ["y"], name="wide")
    value = helper.make_tensor_value_info
    ends = [value("x", TensorProto.FLOAT, [2])], [value("y", TensorProto.FLOAT, None)]
    data = model([node], *ends, {"shape": np.ones(60, np.int64)})
    with pytest.raises(LoadedFunctionError, match="'wide'"):
        load(io.BytesIO(data), "EAGER")(np.ones(2, np.float32))
