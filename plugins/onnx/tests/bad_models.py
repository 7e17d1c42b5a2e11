"""A small model that tests damage, and how `load` refuses it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import onnx
import pytest
from mgb.errors import FileFormatError
from mgb.jit import load
from onnx import TensorProto, helper
from onnx import helper as h

info = helper.make_tensor_value_info
FLOAT = TensorProto.FLOAT


def proto(**changes: Any) -> Any:
    """A small model: ``y = relu(x @ w)``, which a test then damages."""
    weight = onnx.numpy_helper.from_array(np.ones((3, 2), np.float32), "w")
    nodes = [h.make_node("MatMul", ["x", "w"], ["p"], name="product"), h.make_node("Relu", ["p"], ["y"])]
    graph = h.make_graph(nodes, "g", [info("x", FLOAT, [1, 3])], [info("y", FLOAT, [1, 2])], [weight])
    return h.make_model(graph, opset_imports=[h.make_opsetid("", changes.get("opset", 17))])


def refuses(model: Any, message: str, error: type[Exception] = FileFormatError) -> None:
    data = model if isinstance(model, bytes) else model.SerializeToString()
    with pytest.raises(error, match=message):
        load(io.BytesIO(data), "EAGER")
