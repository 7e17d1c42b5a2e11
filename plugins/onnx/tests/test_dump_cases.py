"""Test cases inside a file, and ``mgb run``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import onnx
import pytest
from mgb.errors import ArgumentError, FileFormatError
from mgb.jit import trace
from mgb.storage.testcases import CASES, Cases
from mgb.tensor import Tensor
from mgb.tools.cli import main

X = np.random.default_rng(5).standard_normal((4, 3)).astype(np.float32)
Y = np.arange(4, dtype=np.int32)


def function(x: Tensor, y: Tensor) -> Tensor:
    return F.sigmoid(x) * y.reshape(4, 1)


def dumped(tmp_path: Path, **options: Any) -> str:
    file = str(tmp_path / "f.onnx")
    made = trace(function, capture_as_const=True)
    made(mgb.tensor(X), mgb.tensor(Y))
    made.dump(file, arg_names=["x", "y"], output_names="z", **options)
    return file


def cases_of(file: str) -> Cases:
    return Cases.from_text({p.key: p.value for p in onnx.load(file).metadata_props}[CASES])


def truth(x: Any, y: Any) -> Any:
    return y.reshape(4, 1) / (1 + np.exp(-x.astype(np.float64)))


def save(tmp_path: Path) -> str:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    return f"x:{tmp_path}/x.npy;y:{tmp_path}/y.npy"


def test_input_data_from_files_lists_mappings_and_random_numbers(tmp_path: Path) -> None:
    text = save(tmp_path)
    (tmp_path / "list.txt").write_text(f"{text}\n\n{text}\n")
    given = [
        text,
        f"@{tmp_path}/list.txt",
        {"x": X, "y": Y},
        [X, Y],
        "x:#rand(0,1);y:#rand(0,9,4)",
        "#rand(2,3)",
    ]
    cases = cases_of(dumped(tmp_path, input_data=given))
    assert len(cases.inputs) == 7
    for inputs, outputs in zip(cases.inputs, cases.outputs):
        assert {n: (a.dtype, a.shape) for n, a in inputs.items()} == {
            "x": (np.float32, (4, 3)), "y": (np.int32, (4,)),
        }  # fmt: skip
        np.testing.assert_allclose(outputs["z"], truth(inputs["x"], inputs["y"]), rtol=1e-6)
    np.testing.assert_array_equal(cases.inputs[0]["x"], X)
    assert cases.inputs[5]["x"].min() >= 0 and cases.inputs[6]["y"].min() >= 2


def test_input_data_is_repeated_and_transformed(tmp_path: Path) -> None:
    text = save(tmp_path)
    half = {"x": X[:2], "y": Y[:2]}
    cases = cases_of(dumped(tmp_path, input_data=[half], repeat=2))
    np.testing.assert_array_equal(cases.inputs[0]["x"], np.concatenate([X[:2], X[:2]]))
    for transform in ("data * 2", lambda data: data * 2):
        cases = cases_of(dumped(tmp_path, input_data=text, input_transform=transform))
        np.testing.assert_array_equal(cases.inputs[0]["x"], 2 * X)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("x:nothing.npy;y:#rand(0,1)", "nothing.npy"),
        ("x:#rand(0,1)", "has no array for the input 'y'"),
        ("q:#rand(0,1)", "the inputs are x, y"),
        ({"q": X}, "the inputs are x, y"),
        ({"x": X[:2], "y": Y}, r"has shape \(2, 3\), the file takes \(4, 3\)"),
        ({"x": X, "y": Y + 0.5}, "is float64, the file takes int32"),
        ("#rand(a,b)", "it is #rand"),
        ("@nothing.txt", "nothing.txt"),
        ("@a\0b", "null"),
        (5, "has the case 5: a case is a text"),
        (X, "a case is a text"),
        ([X], "gives 1 arrays; the inputs are x, y"),
        ([X, Y, X], "gives 3 arrays; the inputs are x, y"),
        ([X, [[1], [1, 2]]], "for 'y' is not an array"),
        ({"x": [[1], [1, 2]], "y": Y}, "for 'x' is not an array"),
        ({"x": X, "y": None}, "for 'y'"),
        ({"x": X.astype(np.float64) * 1e300, "y": Y}, "numbers that float32 cannot hold"),
        ({"x": X, "y": Y.astype(np.int64) + 2**40}, "numbers that int32 cannot hold"),
        ("x:#rand(0,1);x:#rand(0,1)", "is given twice"),
        ("#rand(0,inf)", "low and high are numbers of float32"),
        ("#rand(nan,1)", "low and high are numbers of float32"),
        ("#rand(0,1e300)", "low and high are numbers of float32"),
        ("#rand(5,1)", "low is not above high"),
        ("#rand(1)", "it is #rand"),
        ("x:#rand(0,1);y:#rand(0,5000000000)", "low and high are numbers of int32"),
        ("#rand(0,1,99999999999)", "the input has shape"),
        ("#rand(0,1,-1)", "the input has shape"),
        ("x:#rand(0,1,4,3,9);y:#rand(0,1)", "the input has 2 axes"),
    ],
)
def test_mismatched_input_data_is_rejected(given: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "f.onnx").write_text("old")
    with pytest.raises(FileFormatError, match=message):
        dumped(tmp_path, input_data=[given])
    assert (tmp_path / "f.onnx").read_text() == "old"


@pytest.mark.parametrize("given", [5, 0.5, True, X, object(), iter([1])], ids=lambda g: type(g).__name__)
def test_invalid_input_data_argument_is_rejected(given: Any, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"input_data is .*: give a text"):
        dumped(tmp_path, input_data=given)


def test_files_without_a_single_array_are_rejected(tmp_path: Path) -> None:
    np.savez(tmp_path / "both.npz", X, Y)
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "list.txt").write_bytes(b"\xff\xfe\xff")
    for given, message in (
        (f"x:{tmp_path}/both.npz;y:#rand(0,1)", "holds several arrays"),
        (f"x:{tmp_path}/empty.npy;y:#rand(0,1)", "No data left"),
        (f"x:{tmp_path};y:#rand(0,1)", "Is a directory"),
        (f"@{tmp_path}/list.txt", "decode"),
    ):
        with pytest.raises(FileFormatError, match=message):
            dumped(tmp_path, input_data=[given])


@pytest.mark.parametrize(
    ("transform", "error", "message"),
    [
        ("data +", ArgumentError, "give a function, or an expression"),
        (5, ArgumentError, "give a function, or an expression"),
        ("a\0b", ArgumentError, "give a function, or an expression"),
        ("nothing", FileFormatError, "NameError"),
        ("1 / 0", FileFormatError, "fails on .*ZeroDivisionError"),
        (lambda data: [[1], [1, 2]], FileFormatError, "ValueError"),
        (lambda data: None, FileFormatError, "has shape"),
    ],
)
def test_invalid_transforms_are_rejected(
    transform: Any, error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        dumped(tmp_path, input_data=save(tmp_path), input_transform=transform)


def test_corrupt_cases_are_reported() -> None:
    text = Cases(({"x": X},), ({"z": X},)).text()
    for bad in ("?", text[: len(text) // 2], text[:-8] + "AAAAAAAA"):
        with pytest.raises(FileFormatError, match="are damaged"):
            Cases.from_text(bad)


# mgb run


def test_run_checks_the_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = dumped(tmp_path, input_data=[{"x": X, "y": Y}, "#rand(0,5)"])
    assert main(["run", file, "--check", "--backend", "EAGER"]) == 0
    assert "2 of 2 cases passed" in capsys.readouterr().out


def test_run_reports_which_output_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = dumped(tmp_path, input_data=[{"x": X, "y": Y}])
    model = onnx.load(file)
    node = next(n for n in model.graph.node if n.op_type == "Sigmoid")
    node.op_type = "Tanh"
    onnx.save(model, file)
    assert main(["run", file, "--check", "--backend", "EAGER"]) == 1
    captured = capsys.readouterr()
    assert "z differs by" in captured.err and "0 of 1 cases passed" in captured.out


def test_run_supports_silent_and_no_assert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = dumped(tmp_path, input_data=[{"x": X, "y": Y}], silent=True)
    assert main(["run", file, "--check", "--backend", "EAGER"]) == 0
    assert capsys.readouterr().out.splitlines() == ["1 of 1 cases passed"]
    file = dumped(tmp_path, input_data=[{"x": X, "y": Y}], no_assert=True, maxerr=0)
    assert main(["run", file, "--check", "--backend", "EAGER"]) == 0
    assert "case 0: ran" in capsys.readouterr().out


def test_run_reads_and_writes_arrays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path)
    file = dumped(tmp_path)
    given = [f"--input={name}={tmp_path}/{name}.npy" for name in "xy"]
    assert main(["run", file, *given, "--output", str(tmp_path / "out"), "--backend", "EAGER"]) == 0
    assert "z: float32[4, 3]" in capsys.readouterr().out
    np.testing.assert_allclose(np.load(tmp_path / "out" / "z.npy"), truth(X, Y), rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--check"], "the file has no test cases"),
        ([], "the input 'x' is missing"),
        (["--input", "x=nothing.npy"], "nothing.npy"),
    ],
)
def test_run_reports_missing_cases_inputs_and_files(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", dumped(tmp_path), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_run_rejects_missing_or_invalid_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(tmp_path / "nothing.onnx")]) == 2
    (tmp_path / "bad.onnx").write_bytes(b"\xff\xff\xff")
    assert main(["run", str(tmp_path / "bad.onnx")]) == 2
    assert "mgb run:" in capsys.readouterr().err


def test_random_input_of_length_1_fits_a_scalar(tmp_path: Path) -> None:
    @trace(symbolic=True, capture_as_const=True)
    def double(x):
        return x * 2

    double(Tensor(1.0))
    double.dump(tmp_path / "number.onnx", input_data=["#rand(0, 255, 1)", "#rand(0, 255)"])
    cases = cases_of(tmp_path / "number.onnx")
    assert [inputs["arg_0"].shape for inputs in cases.inputs] == [(), ()]
    with pytest.raises(FileFormatError, match="the input has 0 axes"):
        double.dump(tmp_path / "wrong.onnx", input_data=["#rand(0, 255, 2)"])
