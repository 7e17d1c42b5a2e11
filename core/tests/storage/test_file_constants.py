"""Files hold the values that Tensors from outside have when they are written, not those of the call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mgb
import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb.errors import ExportError
from mgb.jit import load_compiled, trace
from mgb.tensor import Tensor, tensor

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def by_onnxruntime(path: Path) -> np.ndarray:
    onnxruntime = pytest.importorskip("onnxruntime", reason="dumped files are judged by onnxruntime")
    session = onnxruntime.InferenceSession(path.read_bytes())
    return session.run(None, {session.get_inputs()[0].name: X})[0]


def by_load(path: Path) -> np.ndarray:
    return load_compiled(path)(tensor(X)).numpy()


def dumped(function: Any, path: Path) -> np.ndarray:
    pytest.importorskip("mgb_onnx", reason="not installed: pip install ./plugins/onnx")
    function.dump(path)
    return by_onnxruntime(path)


def exported(function: Any, path: Path) -> np.ndarray:
    function.export(path)
    return by_load(path)


written = pytest.mark.parametrize("write", [dumped, exported])


@written
@pytest.mark.parametrize(
    "options", [{}, {"symbolic": True}, {"without_host": True}, {"record_only": True}], ids=str
)
def test_file_has_the_values_after_load_state_dict(
    write: Callable[..., Any], options: dict[str, Any], tmp_path: Path
) -> None:
    mgb.random.seed(3)
    model, other = M.Linear(4, 2), M.Linear(4, 2)
    function = trace(lambda x: F.relu(model(x)), capture_as_const=True, **options)
    function(tensor(X))
    model.load_state_dict(other.state_dict())
    weight, bias = (t.numpy().astype("float64") for t in (other.weight, other.bias))
    want = np.maximum(X.astype("float64") @ weight.T + bias, 0)
    np.testing.assert_allclose(write(function, tmp_path / "f"), want, rtol=1e-5, atol=1e-6)
    model.weight[...] = 0.0
    want = np.maximum(np.zeros((3, 2)) + bias, 0)
    np.testing.assert_allclose(write(function, tmp_path / "f"), want, rtol=1e-5, atol=1e-6)


@written
def test_file_with_a_tensor_used_twice_and_a_deleted_one(write: Callable[..., Any], tmp_path: Path) -> None:
    p, gone = tensor([2.0, 3.0, 4.0, 5.0]), [tensor([1.0])]

    def body(x: Tensor) -> Tensor:
        return x * p + p.reshape(1, 4) * 10.0 + (gone[0] if gone else 0.0)

    function = trace(body, capture_as_const=True)
    function(tensor(X))
    p += 1.0
    gone.clear()
    want = X * [3, 4, 5, 6] + [30, 40, 50, 60] + 1.0
    np.testing.assert_allclose(write(function, tmp_path / "f"), want, rtol=1e-6)


@written
def test_changed_shape_is_rejected_before_writing_the_file(write: Callable[..., Any], tmp_path: Path) -> None:
    p = tensor([2.0])
    function = trace(lambda x: x * p, capture_as_const=True)
    function(tensor(X))
    (tmp_path / "f").write_bytes(b"as it was")
    p._reset(tensor(np.ones(4, np.float32)))
    with pytest.raises(
        ExportError, match=r"was float32\[1\] .* is float32\[4\] now: call the function again"
    ):
        write(function, tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == b"as it was"
