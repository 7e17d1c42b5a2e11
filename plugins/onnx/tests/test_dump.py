"""`trace.dump`: names, options, and what it returns and writes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import mgb
import mgb.functional as F
import mgb.module as M
import numpy as np
import onnx
import pytest
from dump_samples import A, B, add, metadata, traced
from mgb.errors import (
    ArgumentError,
    FileFormatError,
)
from mgb.jit import trace
from mgb.tensor import Tensor
from onnx_runtime import run_model

# names and what is returned


def test_dump_returns_counts_and_names(tmp_path: Path) -> None:
    file = tmp_path / "add.onnx"
    info = traced(add, A, B).dump(file)
    assert (info.nr_opr, info.inputs, info.outputs, info.params) == (3, ["arg_0", "arg_1"], ["ADD"], [])
    assert info.tot_bytes == file.stat().st_size and info.tensor_value_bytes == 0
    again = traced(add, A, B).dump(io.BytesIO())
    assert again.content_hash == info.content_hash
    assert traced(F.sub, A, B).dump(io.BytesIO()).content_hash != info.content_hash


def test_names_are_assigned_in_order(tmp_path: Path) -> None:
    file = str(tmp_path / "f.onnx")
    made = traced(lambda a, b, *, scale, flag: [a + b, (a + b) * scale, a + a], A, B, scale=B, flag=True)
    info = made.dump(file, arg_names=["left", None], output_names=None)
    assert info.inputs == ["left", "arg_1", "scale"]
    assert info.outputs == ["ADD", "MUL", "ADD[1]"]
    got = run_model(file, A.numpy(), B.numpy(), B.numpy())
    np.testing.assert_allclose(got[1], ((A + B) * B).numpy(), rtol=1e-6)
    assert metadata(file)["structure"] == "list"


def test_single_name_may_be_a_string() -> None:
    info = traced(F.exp, A).dump(io.BytesIO(), arg_names="x", output_names="y")
    assert (info.inputs, info.outputs) == (["x"], ["y"])


def test_dict_outputs_are_named_by_sorted_keys(tmp_path: Path) -> None:
    file = str(tmp_path / "f.onnx")
    made = traced(lambda a: {"z": a + 1, "b": a * 2}, A)
    assert made.dump(file).outputs == ["b", "z"]
    np.testing.assert_allclose(run_model(file, A.numpy())[0], 2 * A.numpy())
    with pytest.raises(ArgumentError, match="already in dict format"):
        made.dump(file, output_names=["p", "q"])


def test_unused_argument_stays_an_input() -> None:
    assert traced(lambda a, b: a * 2, A, B).dump(io.BytesIO()).inputs == ["arg_0", "arg_1"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"arg_names": ["a"]}, "wrong number of arg_names, should be 2 values"),
        ({"output_names": ["a", "b"]}, "wrong number of output_names, should be 1 values"),
        ({"arg_names": ["a", "a"]}, "'a' is given twice"),
        ({"arg_names": ["a", ""]}, "'' is not a name"),
        ({"arg_names": ["a", 3]}, "3 is not a name"),
    ],
)
def test_wrong_names_are_rejected(names: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        traced(add, A, B).dump(io.BytesIO(), **names)


def test_keep_name_options_control_stored_names(tmp_path: Path) -> None:
    file = str(tmp_path / "f.onnx")
    net = M.Linear(3, 4)
    made = traced(lambda x: F.exp(net(x)), A)
    made.dump(file, keep_var_name=2, keep_opr_name=True, keep_param_name=True, keep_opr_priority=True)
    model = onnx.load(file)
    assert [t.name for t in model.graph.initializer] == ["weight", "bias"]
    nodes = {n.op_type: n for n in model.graph.node}
    assert nodes["MatMul"].output[0] == nodes["MatMul"].name == "MATMUL"
    assert "test_dump.py" in nodes["Exp"].doc_string
    priorities = [{p.key: p.value for p in n.metadata_props}["mgb.priority"] for n in model.graph.node]
    assert list(map(int, priorities)) == sorted(map(int, priorities))
    made.dump(file, keep_var_name=0)
    assert onnx.load(file).graph.output[0].name == "output"
    assert not any(n.name or n.doc_string for n in onnx.load(file).graph.node)


# metadata


def test_metadata_contains_user_info_and_structure(tmp_path: Path) -> None:
    file = str(tmp_path / "f.onnx")
    info = {"classes": ["cat", "dog"], "mean": 0.5, "none": None}
    traced(add, A, B).dump(file, user_info=info)
    names = {"inputs": ["arg_0", "arg_1"], "outputs": ["ADD"]}
    assert metadata(file) == {"version": 1, **names, "structure": "tensor", "user_info": info}
    traced(add, A, B).dump(file, enable_metadata=False)
    assert not onnx.load(file).metadata_props


def test_user_info_rejects_non_json_values() -> None:
    for bad in (object(), {"x": {1, 2}}, float("nan")):
        with pytest.raises(ArgumentError, match="user_info cannot be written as JSON"):
            traced(add, A, B).dump(io.BytesIO(), user_info=bad)


def test_strip_info_is_written_and_merged(tmp_path: Path) -> None:
    file = tmp_path / "strip.json"
    traced(add, A, B).dump(io.BytesIO(), strip_info_file=file)
    assert json.loads(file.read_text()) == {"oprs": ["add"], "dtypes": ["float32"]}
    traced(F.exp, A).dump(io.BytesIO(), strip_info_file=file, append_json=True)
    assert json.loads(file.read_text())["oprs"] == ["add", "exp"]
    file.write_text("{")
    with pytest.raises(ArgumentError, match="not what dump wrote"):
        traced(F.exp, A).dump(io.BytesIO(), strip_info_file=file, append_json=True)


def test_disabled_options_are_accepted() -> None:
    traced(add, A, B).dump(io.BytesIO(), enable_nchw44=False, dump_format="ONNX", resize_input=False)


# files


def test_failed_dump_leaves_the_old_file_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "f.onnx"
    file.write_bytes(b"old")
    with pytest.raises(ArgumentError):
        traced(add, A, B).dump(file, user_info=object())
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        traced(add, A, B).dump(file)
    assert file.read_bytes() == b"old" and list(tmp_path.iterdir()) == [file]


def test_file_object_gets_the_same_bytes(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    traced(add, A, B).dump(buffer)
    traced(add, A, B).dump(tmp_path / "f.onnx")
    assert buffer.getvalue() == (tmp_path / "f.onnx").read_bytes()


def test_append_adds_a_second_graph_to_the_file(tmp_path: Path) -> None:
    file = str(tmp_path / "f.onnx")
    traced(lambda a: F.log1p(F.abs(a)), A).dump(file, arg_names="a", output_names="p")
    traced(lambda a: F.log1p(F.exp(a) + 1), A).dump(file, arg_names="b", output_names="q", append=True)
    onnx.checker.check_model(file, full_check=True)
    p, q = run_model(file, A.numpy(), B.numpy())
    np.testing.assert_allclose(p, np.log1p(np.abs(A.numpy())), rtol=1e-6)
    np.testing.assert_allclose(q, np.log1p(np.exp(B.numpy()) + 1), rtol=1e-6)
    assert metadata(file)["outputs"] == ["p", "q"] and metadata(file)["structure"] == "tuple"
    with pytest.raises(ArgumentError, match="already: give other arg_names"):
        traced(F.exp, A).dump(file, arg_names="a", append=True)
    model = onnx.load(file)
    model.opset_import[0].version = 13
    onnx.save(model, tmp_path / "old.onnx")
    with pytest.raises(ArgumentError, match="is of opset 13"):
        traced(F.exp, A).dump(tmp_path / "old.onnx", arg_names="c", append=True)
    (tmp_path / "g.onnx").write_bytes(b"\xff\xfe nothing")
    with pytest.raises(FileFormatError, match="is not an ONNX file"):
        traced(F.exp, A).dump(tmp_path / "g.onnx", append=True)


# what was recorded


def test_methods_record_only_and_without_host_traces_are_dumped() -> None:
    class Scaler:
        def __init__(self) -> None:
            self.by = mgb.tensor([2.0, 3.0, 4.0])

        @trace(capture_as_const=True)
        def scale(self, x: Tensor) -> Tensor:
            return x * self.by

    scaler = Scaler()
    scaler.scale(A)
    assert scaler.scale.dump(io.BytesIO()).inputs == ["arg_0"]
    for options in (
        {"record_only": True},
        {"capture_as_const": True, "without_host": True},
        {"symbolic": True},
    ):
        made = trace(add, **{"capture_as_const": True, **options})
        made(A, B)
        assert made.dump(io.BytesIO()).nr_opr == 3


def test_dump_uses_the_opt_level_of_the_trace() -> None:
    """``log(exp a / exp b)`` keeps its three words at level 0."""

    def body(a: Tensor) -> Tensor:
        return (a + 0) * 1 + a * 0

    counts = []
    for level in (0, 2):
        made = trace(body, capture_as_const=True, opt_level=level)
        made(A)
        counts.append(made.dump(io.BytesIO()).nr_opr)
    assert counts[1] < counts[0]


def test_duplicate_names_are_rejected(tmp_path: Path) -> None:
    path, x = tmp_path / "model.onnx", Tensor(np.arange(3, dtype="float32"))

    factor = Tensor([2.0, 3.0, 4.0])
    scaled = trace(lambda a: a * factor, capture_as_const=True)
    scaled(x)
    scaled.dump(path, arg_names="a", output_names="y")
    before = path.read_bytes()
    inner = [t.name for t in onnx.load(path).graph.initializer]
    shifted = trace(lambda w: w + 1.0, capture_as_const=True)
    shifted(x)
    for name in [*inner, "a", "y"]:
        with pytest.raises(ArgumentError, match="already"):
            shifted.dump(path, arg_names=name, output_names="z", append=True)
    with pytest.raises(ArgumentError, match="'x' is the name of an input and of an output"):
        shifted.dump(path, arg_names="x", output_names="x")
    with pytest.raises(ArgumentError, match="give a list of names, not 5"):
        shifted.dump(path, arg_names=5)
    with pytest.raises(ArgumentError, match="strip_info_file"):
        (tmp_path / "notes.json").write_text("notes")
        shifted.dump(path, strip_info_file=tmp_path / "notes.json", append_json=True)
    assert inner and path.read_bytes() == before
