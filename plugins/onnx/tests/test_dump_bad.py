"""`trace.dump`: what it refuses, with the file as it was."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import mgb
import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from dump_samples import A, B, add, numbers, traced
from mgb.errors import (
    ArgumentError,
    ExportError,
)
from mgb.jit import trace
from mgb.optimizer import SGD
from mgb.tensor import Tensor

# what is refused


def test_trace_without_capture_as_const_is_rejected() -> None:
    plain = trace(add)
    plain(A, B)
    with pytest.raises(ExportError, match="you must specify capture_as_const=True at __init__ to use dump"):
        plain.dump(io.BytesIO())
    with pytest.raises(ExportError, match="call it once"):
        trace(add, capture_as_const=True).dump(io.BytesIO())


def test_function_without_results_is_rejected() -> None:
    with pytest.raises(ExportError, match="without return values cannot be dumped"):
        traced(lambda a: None, A).dump(io.BytesIO())


def test_outputs_other_than_flat_tensor_containers_are_rejected() -> None:
    with pytest.raises(ExportError, match="Unsupport outputs type"):
        traced(lambda a: [a + 1, [a + 2]], A).dump(io.BytesIO())
    with pytest.raises(ExportError, match="give strings"):
        traced(lambda a: {1: a + 1}, A).dump(io.BytesIO())
    with pytest.raises(ExportError, match="Only support return tensors"):
        traced(lambda a: [a + 1, None], A).dump(io.BytesIO())
    with pytest.raises(ExportError, match=r"Only support return tensors .* got int"):
        traced(lambda a: 3, A).dump(io.BytesIO())


def test_batch_norm_in_training_mode_is_rejected() -> None:
    net = M.BatchNorm2d(3)
    made = trace(lambda x: net(x), capture_as_const=True, record_only=True)
    made(numbers(2, 3, 4, 4))
    with pytest.raises(ExportError, match=r"can not dump BatchNorm\dd in training mode"):
        made.dump(io.BytesIO())
    net.eval()
    made = trace(lambda x: net(x), record_only=True)
    made(numbers(2, 3, 4, 4))
    made.dump(io.BytesIO())
    for always_the_same in (M.BatchNorm2d(3, freeze=True), M.BatchNorm2d(3, track_running_stats=False)):
        traced(lambda x, net=always_the_same: net(x), numbers(2, 3, 4, 4)).dump(io.BytesIO())


def test_training_step_is_rejected() -> None:
    net = M.Linear(3, 1)
    gm = mgb.autodiff.GradManager().attach(net.parameters())
    optimizer = SGD(net.parameters(), lr=0.1)

    def step(x: Tensor) -> Tensor:
        with gm:
            loss = F.mean(net(x))
            gm.backward(loss)
        optimizer.step().clear_grad()
        return loss

    with pytest.raises(ExportError, match="new values or gradients"):
        traced(step, A).dump(io.BytesIO())


def test_random_numbers_are_rejected() -> None:
    """A file would give the same ones at every call."""
    with pytest.raises(ExportError, match="draws random numbers"):
        traced(lambda a: F.dropout(a, 0.5, training=True), A).dump(io.BytesIO())


def test_body_that_reads_tensor_values_is_rejected() -> None:
    def body(a: Tensor) -> Tensor:
        return a * float(F.sum(a).numpy())

    with pytest.raises(
        ExportError, match=r"body of body runs at each call, .*test_dump_bad.py.*: reads the value"
    ):
        traced(body, A).dump(io.BytesIO())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"enable_nchw44": True}, "keep images in NCHW"),
        ({"enable_chwn4": True}, "keep images in NCHW"),
        ({"enable_fuse_preprocess": True}, "record the preprocessing"),
        ({"resize_input": True}, "resize them before"),
        ({"compat_older_version": "8.14"}, "of one version of their format"),
        ({"dump_format": "FBS_V2"}, "ONNX only"),
        ({"model_version": 1}, "model_version"),
        ({"keep_var_name": 3}, "0 .none., 1 .outputs. or 2 .all."),
        ({"enable_io16xc32": True, "enable_ioc16": True}, "exclude each other"),
        ({"enable_ioc16": True, "optimize_for_inference": False}, "needs optimize_for_inference=True"),
        ({"enable_ioc16": True, "no_change_graph": True}, "no_change_graph=False"),
        ({"input_data": "#rand(0,1)", "enable_metadata": False}, "enable_metadata=True"),
        ({"append": True}, "give its path"),
        ({"optimise": True}, "no option 'optimise'"),
        ({"append": np.ones(2)}, "append=.*give True or False"),
        ({"no_assert": "no"}, "no_assert='no'\\): give True or False"),
        ({"keep_var_name": np.ones(2)}, "keep_var_name="),
        ({"maxerr": "x"}, "maxerr='x'.*a number from 0 on"),
        ({"maxerr": -1}, "a number from 0 on"),
        ({"maxerr": float("nan")}, "a number from 0 on"),
        ({"repeat": "x"}, "repeat='x'.*a whole number from 1 on"),
        ({"repeat": 0}, "a whole number from 1 on"),
        ({"repeat": True}, "a whole number from 1 on"),
        ({"strip_info_file": 5}, "strip_info_file=5: give a path"),
        ({"strip_info_file": ""}, "strip_info_file='': give a path"),
        ({"user_info": {"a": {1, 2}}}, "user_info cannot be written as JSON"),
        ({"user_info": float("inf")}, "user_info cannot be written as JSON"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        traced(add, A, B).dump(io.BytesIO(), **options)


@pytest.mark.parametrize(
    "file", [5, None, "", b"f.onnx", "a\0b", "/", io.StringIO()], ids=lambda file: type(file).__name__
)
def test_invalid_file_argument_is_rejected(file: Any) -> None:
    with pytest.raises(ArgumentError, match="give a path, or a binary file open for writing"):
        traced(add, A, B).dump(file)


def test_deeply_nested_user_info_is_rejected() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ArgumentError, match="user_info cannot be written as JSON"):
        traced(add, A, B).dump(io.BytesIO(), user_info=deep)


def test_rejected_dump_changes_neither_file(tmp_path: Path) -> None:
    for name in ("f.onnx", "info.json"):
        (tmp_path / name).write_text("old")
    with pytest.raises(ArgumentError):
        traced(add, A, B).dump(
            tmp_path / "f.onnx", strip_info_file=tmp_path / "info.json", user_info=object()
        )
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"f.onnx": "old", "info.json": "old"}
