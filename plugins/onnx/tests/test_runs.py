"""``mgb run``: outputs of every kind, and files and arguments that nobody wrote in good faith."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb.errors import FileFormatError
from mgb.storage.serialization import save
from mgb.storage.testcases import CASES, Cases
from mgb.tools.cli import main
from onnx.helper import (
    make_graph,
    make_model,
    make_node,
    make_opsetid,
    make_tensor_sequence_value_info,
    make_tensor_value_info,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def written(path: Path, nodes: list[Any], outputs: list[Any], cases: str | None = None) -> str:
    """A model of one input `x`."""
    graph = make_graph(nodes, "g", [make_tensor_value_info("x", 1, [2, 3])], outputs)
    model = make_model(graph, opset_imports=[make_opsetid("", 21)], ir_version=10)
    if cases is not None:
        model.metadata_props.add(key=CASES, value=cases)
    onnx.save(model, path)
    return str(path)


def doubled(path: Path, names: tuple[str, ...] = ("y",), cases: str | None = None) -> str:
    """Output k of it is ``x * 2**(k + 1)``."""
    nodes, before = [], "x"
    for name in names:
        nodes.append(make_node("Add", [before, before], [name]))
        before = name
    return written(path, nodes, [make_tensor_value_info(n, 1, [2, 3]) for n in names], cases)


def split(path: Path, cases: str | None = None) -> str:
    """A model whose output is a sequence."""
    node = make_node("SplitToSequence", ["x"], ["parts"], axis=0)
    return written(path, [node], [make_tensor_sequence_value_info("parts", 1, None)], cases)


def run(*arguments: Any) -> int:
    return main(["run", *map(str, arguments), "--backend", "EAGER"])


@pytest.fixture
def given_x(tmp_path: Path) -> str:
    np.save(tmp_path / "x.npy", X)
    return f"--input=x={tmp_path}/x.npy"


# outputs


def test_sequences_are_printed_and_saved(
    tmp_path: Path, given_x: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(split(tmp_path / "f.onnx"), given_x, "--output", tmp_path / "out") == 0
    assert "parts: [float32[1, 3], float32[1, 3]]" in capsys.readouterr().out
    with np.load(tmp_path / "out" / "parts.npz") as saved:
        np.testing.assert_array_equal(np.concatenate([saved["0"], saved["1"]]), X)


def test_array_case_for_a_sequence_output_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = Cases(({"x": X},), ({"parts": X},)).text()
    assert run(split(tmp_path / "f.onnx", cases), "--check") == 1
    assert "parts is a sequence, expected float32[2, 3]" in capsys.readouterr().err


@pytest.mark.parametrize("names", [("a/b", "a_b"), ("a/b", "a%2Fb", "a\\b"), ("..", "."), ("a\0b", "ab")])
def test_output_names_never_share_a_file(names: tuple[str, ...], tmp_path: Path, given_x: str) -> None:
    folder = tmp_path / "out"
    assert run(doubled(tmp_path / "f.onnx", names), given_x, "--output", folder) == 0
    files = sorted(folder.iterdir())
    assert len(files) == len(names) and all(f.suffix == ".npy" for f in files)
    saved = sorted(float(np.load(f)[0, 1]) for f in files)
    assert saved == [2.0 ** (k + 1) for k in range(len(names))]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f.onnx", "out", "x.npy"]


def test_output_folder_that_is_a_file_is_rejected(
    tmp_path: Path, given_x: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = doubled(tmp_path / "f.onnx")
    (tmp_path / "out").write_text("mine")
    for folder in (tmp_path / "out", tmp_path / "out" / "deeper"):
        assert run(file, given_x, "--output", folder) == 2
        assert "give a folder that can be written to" in capsys.readouterr().err
    assert (tmp_path / "out").read_text() == "mine"


# inputs


@pytest.mark.parametrize(
    "content",
    [b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f4', ", b"PK\x03\x04", b"\x80\x04."],
    ids=["empty", "head", "torn", "zip", "pickle"],
)
def test_input_file_without_an_array_is_rejected(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    assert run(doubled(tmp_path / "f.onnx"), f"--input=x={tmp_path}/x.npy") == 2
    assert "mgb run: --input x=" in (text := capsys.readouterr().err) and "numpy.save" in text


def test_input_file_with_too_much_data_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = doubled(tmp_path / "f.onnx")
    np.savez(tmp_path / "x.npz", X, X)
    assert run(file, f"--input=x={tmp_path}/x.npz") == 2
    assert "the file holds several arrays" in capsys.readouterr().err
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 1), }" % (1 << 60)  # noqa: UP031
    with open(tmp_path / "x.npy", "wb") as out:
        out.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
    assert run(file, f"--input=x={tmp_path}/x.npy") == 2
    assert "mgb run: --input x=" in capsys.readouterr().err


def test_conflicting_arguments_are_rejected(
    tmp_path: Path, given_x: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = doubled(tmp_path / "f.onnx")
    for arguments, words in (
        ([given_x, given_x], "'x' is given twice"),
        (["--input=x.npy"], "give NAME=FILE"),
        (["--check", given_x], "leave --input and --output out"),
        (["--check", "--output", tmp_path / "out"], "leave --input and --output out"),
        ([given_x.replace("=x=", "=self=")], "no input 'self'"),
    ):
        assert run(file, *arguments) == 2
        assert words in capsys.readouterr().err


# test cases inside a file


def text_of(content: Any) -> str:
    buffer = io.BytesIO()
    save(content, buffer)
    return base64.b64encode(buffer.getvalue()).decode()


SETTINGS = {"maxerr": 1e-4, "silent": False, "check": True}

HOSTILE = {
    "no dict": [1],
    "an array": {"cases": X, **SETTINGS},
    "no pairs": {"cases": [[{"x": X}]], **SETTINGS},
    "no names": {"cases": [[{1: X}, {"y": X}]], **SETTINGS},
    "no arrays": {"cases": [[{"x": 5}, {"y": X}]], **SETTINGS},
    "nothing": {"cases": [[None, None]], **SETTINGS},
    "texts": {"cases": ["ab"], **SETTINGS},
    "a huge bound": {"cases": [], "maxerr": 10**400, "silent": False, "check": True},
    "no bound": {"cases": [], "maxerr": [], "silent": False, "check": True},
    "no settings": {"cases": []},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_malicious_cases_are_reported_as_damaged(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(doubled(tmp_path / "f.onnx", cases=text_of(HOSTILE[name])), "--check") == 2
    assert "are damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("case", "status", "words"),
    [
        (({"x": X}, {"z": X}), 1, "z is no output of the model, expected float32[2, 3]"),
        (({"x": X}, {"y": X.astype(np.int8)}), 1, "y is float32[2, 3], expected int8[2, 3]"),
        (({"x": X, "self": X}, {}), 2, "the model has no input 'self'"),
        (({}, {}), 2, "the input 'x' is missing"),
        (({"x": X[:1]}, {}), 2, "axis 0 has length 2"),
    ],
)
def test_cases_that_do_not_match_the_model_are_reported(
    case: Any, status: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = text_of({"cases": [list(case)], **SETTINGS})
    assert run(doubled(tmp_path / "f.onnx", cases=text), "--check") == status
    assert words in capsys.readouterr().err


NESTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just(X),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150)
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("cases", *SETTINGS), NESTS)) | NESTS)
def test_nested_case_content_is_read_or_rejected(content: Any) -> None:
    try:
        cases = Cases.from_text(text_of(content))
    except FileFormatError:
        return
    assert all(isinstance(a, np.ndarray) for case in cases.inputs for a in case.values())


@settings(max_examples=150)
@given(st.data())
def test_corrupt_case_strings_are_rejected(data: st.DataObject) -> None:
    text = text_of({"cases": [[{"x": X}, {"y": X}]], **SETTINGS})
    at = data.draw(st.integers(0, len(text) - 1))
    torn = text[:at] + data.draw(st.characters()) + text[at + data.draw(st.integers(0, 3)) :]
    try:
        Cases.from_text(torn)
    except FileFormatError:
        return
    assert torn == text
