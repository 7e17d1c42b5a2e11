"""`mgb reduce`: planted faults come down to graphs of a few nodes, as tests that fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mgb import dtypes
from mgb.executor import Options
from mgb.tools.cli import main
from mgb_conformance.reducer import Case, Verdict, Worker, constant, laid_out, op, smallest
from mgb_conformance.reducer.script import written

SCRIPT = Path(__file__).with_name("reducing.py")

#: By the fault: the kind of failure, what the test has to have, and at most how many elements.
FAULTS = {
    "wrong_word": ("differs", "op('tanh'", 4),
    "wrong_reduction": ("differs", "op('reduce_sum'", 24),
    "wrong_strides": ("differs", "transpose", 12),
    "wrong_dtype": ("differs", "float64", 4),
    "crash": ("ends the process: SIGKILL", "op('log'", 4),
}


def loaded(text: str, folder: Path) -> dict[str, Any]:
    """Return the definitions of a test module."""
    scope: dict[str, Any] = {"__file__": str(folder / "test_it.py")}
    exec(compile(text, "test_it.py", "exec", dont_inherit=True), scope)
    return scope


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_reduced_to_a_few_nodes(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reduce", f"{SCRIPT}:network", "--backend", fault]) == 0
    said, words, most = FAULTS[fault]
    text = (tmp_path / f"test_network_{fault}.py").read_text()
    assert said in text and words in text
    assert 1 <= text.count(" = op(") + text.count(" = constant(") <= 5, text
    module = loaded(text, tmp_path)
    assert sum(a.size for a in module["ARRAYS"]) <= most, text
    # pytest indents the message where it has rewritten the assertion, which is as modules were imported
    with pytest.raises(AssertionError, match=rf"{fault} .*of\n *graph"):
        module[f"test_{fault}_agrees_with_eager"]()


def test_agreeing_backend_writes_no_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reduce", f"{SCRIPT}:network", "--backend", "HONEST"]) == 1
    assert "HONEST agrees with EAGER" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_existing_file_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test = tmp_path / "mine.py"
    test.write_text("mine")
    words = ["reduce", f"{SCRIPT}:network", "--backend", "crash", "--output", str(test)]
    assert main(words) == 2 and test.read_text() == "mine"
    assert "is not overwritten: give --output another name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("refuses", "raises ZeroDivisionError", "refuses raises ZeroDivisionError: the toolchain fell over"),
        ("hangs", "hangs", "hangs takes more than 0.5 s"),
    ],
)
def test_failure_kinds_are_classified(name: str, kind: str, text: str) -> None:
    case = Case.of(lambda x: [op("neg", op("abs", x))], [np.ones(3, "float32")])
    with Worker(Options(backend=name), SCRIPT, seconds=0.5) as worker:
        assert worker.verdict(case) == Verdict(kind, text)
        if kind == "hangs":  # there is another process, then
            assert worker.verdict(case) == Verdict(kind, text)


def test_search_finds_the_minimal_failing_graph() -> None:
    """A fault of two ops in a row, where nothing is computed by a backend: the minimum is known."""

    def chain(x: Any, y: Any) -> list[Any]:
        for word in ("neg", "abs", "sqrt", "floor", "exp", "tanh", "abs", "sin"):
            x = op("add", op(word, x), y)
        return [op("reduce_sum", x, axis=(0,)), op("mul", x, y)]

    def fails(case: Case) -> bool:
        return any(n.op.name == "exp" and n.inputs[0].op.name == "add" for n in case.graph.nodes)

    x = np.linspace(1, 2, 30).astype("float64").reshape(5, 6)
    found = smallest(Case.of(chain, [x, x]), fails)
    assert [n.op.name for n in found.graph.nodes] == ["add", "exp"]
    assert [a.size for a in found.arrays] == [1, 1] and found.arrays[0].dtype == np.float32


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
@pytest.mark.parametrize("count", [7, 300])
def test_written_test_reproduces_graph_and_arrays(dtype: str, count: int, tmp_path: Path) -> None:
    wanted = dtypes.as_dtype(dtype)
    values = np.random.default_rng(0).standard_normal((count, 2)) * 9
    arrays = [values.astype(wanted), laid_out(values.astype(wanted), (1, count))]
    if dtype == "float32":
        arrays[0][0] = np.nan, np.inf

    def both(x: Any, y: Any) -> list[Any]:
        return [op("where", op("eq", x, y), op("cast", x, dtype=wanted), constant(1, wanted))]

    case = Case.of(both, arrays)
    case.save(tmp_path / "case")
    text = written(case, Verdict("", "said"), Options(backend="eager"), tmp_path / "test_it.py", "here")
    module = loaded(text, tmp_path)
    again = Case.of(module["graph"], module["ARRAYS"])
    assert again.graph.key == case.graph.key == Case.load(tmp_path / "case").graph.key
    for found in (again.arrays, Case.load(tmp_path / "case").arrays):
        for a, b in zip(arrays, found, strict=True):
            assert a.dtype == b.dtype and a.strides == b.strides and a.tobytes() == b.tobytes()
    module["test_eager_agrees_with_eager"]()
