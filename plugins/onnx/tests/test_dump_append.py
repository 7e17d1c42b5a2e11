"""Two graphs in one file: what is said of them beside the graph is joined too, or dropped with a word."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import onnx
import pytest
from mgb.errors import (
    ArgumentError,
    DumpWarning,
    FileFormatError,
    FileVersionError,
)
from mgb.jit import load, trace
from mgb.storage.testcases import CASES, Cases
from mgb.tools.cli import main
from onnx_runtime import run_model

A, B = (np.random.default_rng(n).standard_normal((2, 3)).astype(np.float32) for n in (1, 2))


def dump(file: Path, name: str, body: Any = F.exp, **options: Any) -> None:
    """A graph from ``NAME`` to ``NAME_out``; added to `file` if there is one."""
    made = trace(body, capture_as_const=True)
    made(mgb.tensor(A))
    made.dump(file, arg_names=name, output_names=f"{name}_out", append=True, **options)


def metadata(file: Path) -> dict[str, str]:
    return {p.key: p.value for p in onnx.load(file).metadata_props}


def set_metadata(file: Path, key: str, value: str) -> None:
    model = onnx.load(file)
    del model.metadata_props[:]
    model.metadata_props.add(key=key, value=value)
    onnx.save(model, file)


def works(file: Path, a: Any = A, b: Any = B) -> dict[str, Any]:
    """Return the metadata of the file, after ``exp(a)`` and ``-b`` were computed from it, also elsewhere."""
    onnx.checker.check_model(str(file), full_check=True)
    loaded = load(file)
    for got in (loaded(a, b), run_model(str(file), a, b)):
        assert isinstance(got, tuple | list)
        np.testing.assert_allclose(np.asarray(got[0]), np.exp(a), rtol=1e-6)
        np.testing.assert_array_equal(np.asarray(got[1]), -b)
    assert isinstance(loaded(a, b), tuple)
    found: dict[str, Any] = json.loads(metadata(file).get("mgb.dump", "{}"))
    return found


# the structure


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_results_of_joined_models_are_a_tuple(first: bool, second: bool, tmp_path: Path) -> None:
    """Also when the metadata of one half were left out, or the file is not ours."""
    file = tmp_path / "f.onnx"
    dump(file, "a", enable_metadata=first)
    dump(file, "b", F.neg, enable_metadata=second)
    said = works(file)
    if first or second:
        assert (said["inputs"], said["outputs"]) == (["a", "b"], ["a_out", "b_out"])
        assert said["structure"] == "tuple"
    else:
        assert not said


@pytest.mark.parametrize(
    "body", [lambda x: {"p": x + 1, "q": x * 2}, lambda x: [x + 1, x * 2]], ids=["dict", "list"]
)
def test_containers_become_a_tuple_when_joined(body: Any, tmp_path: Path) -> None:
    file = tmp_path / "f.onnx"
    made = trace(body, capture_as_const=True)
    made(mgb.tensor(A))
    made.dump(file)
    for name in ("b", "c"):
        dump(file, name, F.neg)
    results = load(file)(A, B, A)
    assert isinstance(results, tuple)
    for got, want in zip(results, (A + 1, A * 2, -B, -A), strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)


def test_initializer_listed_as_input_is_not_an_input(tmp_path: Path) -> None:
    """Older files list their initializers as inputs."""
    file = tmp_path / "f.onnx"
    made = trace(lambda a: a + mgb.tensor(B), capture_as_const=True)
    made(mgb.tensor(A))
    made.dump(file, arg_names="a")
    model = onnx.load(file)
    (constant,) = model.graph.initializer
    model.graph.input.append(onnx.helper.make_tensor_value_info(constant.name, 1, B.shape))
    onnx.save(model, file)
    dump(file, "b")
    assert json.loads(metadata(file)["mgb.dump"])["inputs"] == ["a", "b"]
    np.testing.assert_allclose(load(file)(A, B)[0].numpy(), A + B, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("{", FileFormatError, "mgb.dump"),
        ("[1]", FileFormatError, "no version"),
        ('{"version": 1, "structure": "heap"}', FileFormatError, "not a structure"),
        ('{"version": 1, "inputs": 5}', FileFormatError, "its inputs are not names"),
        ('{"version": 99}', FileVersionError, "newer mgb"),
    ],
)
def test_corrupt_metadata_is_reported_and_the_file_is_unchanged(
    text: str, error: type[Exception], words: str, tmp_path: Path
) -> None:
    file = tmp_path / "f.onnx"
    dump(file, "a")
    set_metadata(file, "mgb.dump", text)
    before = file.read_bytes()
    with pytest.raises(error, match=words):
        dump(file, "b")
    assert file.read_bytes() == before


def test_user_info_of_both_models_is_merged_or_rejected(tmp_path: Path) -> None:
    for first, second, joined in ((None, {"n": 1}, {"n": 1}), ([2], None, [2]), ("x", "x", "x")):
        file = tmp_path / f"{joined}.onnx"
        dump(file, "a", user_info=first)
        dump(file, "b", user_info=second)
        assert json.loads(metadata(file)["mgb.dump"])["user_info"] == joined
    before = file.read_bytes()
    with pytest.raises(ArgumentError, match="has user_info already"):
        dump(file, "c", user_info="y")
    assert file.read_bytes() == before


# functions


def test_functions_of_other_domains_keep_their_opset(tmp_path: Path) -> None:
    file = tmp_path / "f.onnx"
    dump(file, "a")
    model = onnx.load(file)
    node = onnx.helper.make_node("Neg", ["x"], ["y"])
    opsets = [onnx.helper.make_opsetid("", 17)]
    model.functions.append(onnx.helper.make_function("theirs", "Minus", ["x"], ["y"], [node], opsets))
    model.opset_import.append(onnx.helper.make_opsetid("theirs", 1))
    onnx.save(model, file)
    dump(file, "b", F.neg)
    (theirs,) = [f for f in onnx.load(file).functions if f.domain == "theirs"]
    assert [(o.domain, o.version) for o in theirs.opset_import] == [("", 17)]
    works(file)


def test_different_function_of_the_same_name_is_rejected(tmp_path: Path) -> None:
    """It would be called in the place of ours."""
    file = tmp_path / "f.onnx"
    dump(file, "a", lambda x: F.log1p(F.abs(x)))
    model = onnx.load(file)
    if not model.functions:
        pytest.fail("log1p is expected to be a function")
    for function in model.functions:
        del function.metadata_props[:]
        del function.node[:]
        function.node.append(onnx.helper.make_node("Neg", list(function.input), list(function.output)))
    onnx.save(model, file)
    before = file.read_bytes()
    with pytest.raises(ArgumentError, match=r"has another function ai\.mgb:"):
        dump(file, "b", lambda x: F.log1p(F.abs(x)))
    assert file.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"\xff\xfe nothing", b"\x08\x0a"])
def test_append_to_a_non_onnx_file_is_rejected(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "f.onnx"
    file.write_bytes(content)
    with pytest.raises(FileFormatError, match="is not an ONNX file"):
        dump(file, "a")
    assert file.read_bytes() == content


# test cases


def test_cases_of_both_models_are_joined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "f.onnx"
    dump(file, "a", input_data=[{"a": A}, {"a": B}, {"a": A + B}])
    dump(file, "b", F.neg, input_data=[{"b": B}, {"b": A}])
    cases = Cases.from_text(metadata(file)[CASES])
    assert len(cases.inputs) == 3
    for case, (a, b) in enumerate([(A, B), (B, A), (A + B, B)]):
        np.testing.assert_array_equal(cases.inputs[case]["a"], a)
        np.testing.assert_array_equal(cases.inputs[case]["b"], b)
        np.testing.assert_allclose(cases.outputs[case]["a_out"], np.exp(a), rtol=1e-6)
        np.testing.assert_array_equal(cases.outputs[case]["b_out"], -b)
    assert main(["run", str(file), "--check", "--backend", "EAGER"]) == 0
    assert "3 of 3 cases passed" in capsys.readouterr().out


@pytest.mark.parametrize("first", [True, False])
def test_cases_of_one_model_only_are_dropped_with_a_warning(first: bool, tmp_path: Path) -> None:
    file = tmp_path / "f.onnx"
    dump(file, "a", input_data=[{"a": A}] if first else None)
    with pytest.warns(DumpWarning, match="are left out: give input_data in both") as told:
        dump(file, "b", F.neg, input_data=None if first else [{"b": A}])
    assert [w.filename for w in told] == [__file__]
    assert CASES not in metadata(file)
    works(file)


def test_cases_are_preserved_if_the_other_model_has_no_inputs(tmp_path: Path) -> None:
    file = tmp_path / "f.onnx"
    made = trace(lambda: F.exp(mgb.tensor(A)), capture_as_const=True)
    made()
    made.dump(file, output_names="fixed")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dump(file, "b", F.neg, input_data=[{"b": B}])
    assert main(["run", str(file), "--check", "--backend", "EAGER"]) == 0


def test_cases_with_different_tolerances_are_rejected(tmp_path: Path) -> None:
    file = tmp_path / "f.onnx"
    dump(file, "a", input_data=[{"a": A}], maxerr=1e-3)
    before = file.read_bytes()
    with pytest.raises(ArgumentError, match=r"have maxerr=0\.001.*give the same"):
        dump(file, "b", input_data=[{"b": A}])
    assert file.read_bytes() == before


def test_corrupt_cases_are_reported_and_the_file_is_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "f.onnx"
    dump(file, "a", input_data=[{"a": A}])
    set_metadata(file, CASES, "AAAA")
    before = file.read_bytes()
    with pytest.raises(FileFormatError, match=r"f\.onnx: the test cases in the file .* are damaged"):
        dump(file, "b", input_data=[{"b": A}])
    assert file.read_bytes() == before
