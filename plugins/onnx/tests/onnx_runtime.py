"""Running a model in ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from mgb_onnx.values import DTYPE_OF, NUMBER_OF

onnxruntime = pytest.importorskip(
    "onnxruntime", reason="ONNX Runtime is not installed: pip install onnxruntime"
)

Array = np.ndarray[Any, Any]


def run_model(model: Any, *arrays: Array) -> list[Array]:
    """The outputs of an ``onnx.ModelProto``, or of a file, in ONNX Runtime on the CPU."""
    proto = onnx.load(model) if isinstance(model, str) else model
    narrow = _widen_outputs(proto)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    make = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type
    feeds = {
        i.name: make(np.ascontiguousarray(a).reshape(a.shape), NUMBER_OF[a.dtype])
        for i, a in zip(session.get_inputs(), arrays, strict=True)
    }
    found = session.run_with_ort_values([o.name for o in session.get_outputs()], feeds)
    return [v.numpy() if n is None else v.numpy().astype(n) for n, v in zip(narrow, found)]


def _widen_outputs(proto: Any) -> list[Any]:
    """Let narrow floats that NumPy lacks, and ONNX Runtime does not give, leave in float32; their dtypes."""
    found = [DTYPE_OF[o.type.tensor_type.elem_type] for o in proto.graph.output]
    narrow = [None if d.isbuiltin == 1 else d for d in found]
    for output, dtype in zip(proto.graph.output, narrow):
        if dtype is not None:
            wide = f"{output.name} in float32"
            proto.graph.node.append(onnx.helper.make_node("Cast", [output.name], [wide], to=1))
            output.name, output.type.tensor_type.elem_type = wide, 1
    return narrow
