"""Each level is a valid module, and the loops by element and by vectors agree with NumPy."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch_mlir", reason="MLIR is not installed: pip install torch-mlir==20261001")
pytest.importorskip("mgb_mlir", reason="the plugin is not installed: pip install ./plugins/mlir")

from mgb_mlir import levels, passes, toolchain
from mgb_native.frame import Frame
from mlir_cases import CASES, case, check
from mlir_helpers import BACKEND, call, run_loops


@pytest.mark.parametrize("name", CASES)
def test_vector_code_matches_numpy(name: str) -> None:
    graph, arrays, wanted = case(name)
    check(call(BACKEND.compile(graph), graph, arrays), wanted)


@pytest.mark.parametrize("name", CASES)
def test_scalar_loops_match_numpy(name: str) -> None:
    graph, arrays, wanted = case(name)
    check(run_loops(graph, arrays), wanted)


def test_each_level_contains_its_dialect() -> None:
    graph, _, _ = case("row softmax")
    said = {
        "loops": ("scf.for", "memref.load"), "vector": ("vector.load", "vector.reduction"),
        "llvm": ("llvm.func", "llvm.br"),
    }  # fmt: skip
    assert list(said) == list(levels.LEVELS)
    for level, parts in said.items():
        text = levels.lower(Frame(graph), level)
        assert all(part in text for part in parts), level
    assert "vector" not in levels.lower(Frame(graph), "loops")
    with pytest.raises(ValueError, match="loops, vector, llvm"):
        levels.lower(Frame(graph), "assembly")


def test_source_shows_the_requested_level(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, _, _ = case("compare")
    assert "vector.store" in BACKEND.compile(graph).source
    monkeypatch.setenv("MGB_MLIR_STOP", "Loops")
    assert "memref.load" in BACKEND.compile(graph).source
    monkeypatch.setenv("MGB_MLIR_STOP", "llvm")
    assert "llvm.func" in BACKEND.compile(graph).source
    monkeypatch.setenv("MGB_MLIR_STOP", "assembly")
    text = BACKEND.compile(graph).source
    assert "assembly is not a level; set it to one of loops, vector" in text and "vector.store" in text


def test_failed_level_is_reported_above_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(frame: Frame) -> str:
        raise passes.LoweringError("the pass convert-to-llvm failed\nin a folder")

    monkeypatch.setitem(levels.LEVELS, "llvm", refused)
    monkeypatch.setenv("MGB_MLIR_STOP", "llvm")
    reason, text = BACKEND.compile(case("compare")[0]).source.split("\n", 1)
    assert reason == "// MGB_MLIR_STOP=llvm cannot be shown: the pass convert-to-llvm failed in a folder"
    assert "vector.store" in text


@pytest.mark.parametrize("failing", ["ownership-based-buffer-deallocation", "no-such-pass"])
def test_failing_pass_saves_the_module_before_and_after(
    failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "TO_LLVM", (*passes.TO_LLVM[:3], failing, *passes.TO_LLVM[3:]))
    graph, _, _ = case("compare")
    with pytest.raises(passes.LoweringError, match=f"the pass {failing} failed") as caught:
        BACKEND.compile(graph)
    folder = Path(str(caught.value).split(" in ")[1].split(" have ")[0])
    for name in ("before.mlir", "after.mlir"):
        text = (folder / name).read_text()
        assert "cond_br" in text and "scf.for" not in text


def test_module_rejected_by_llvm_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "TO_LLVM", tuple(p for p in passes.TO_LLVM if p != "convert-to-llvm"))
    graph, _, _ = case("compare")
    with pytest.raises(passes.LoweringError, match="LLVM does not take the module in") as caught:
        BACKEND.compile(graph)
    assert "memref" in Path(str(caught.value).split(" in ")[1].split(": ")[0]).read_text()


def test_invalid_module_is_saved() -> None:
    with pytest.raises(passes.LoweringError, match="is not valid") as caught:
        passes.parse("module { func.func @f() { } }")
    assert "@f" in Path(str(caught.value).split(" in ")[1].split(" is not")[0]).read_text()


def test_untested_wheel_version_is_checked_with_a_sample(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named, asked for a sample, and used where that passes; else the version that does is named."""
    graph, arrays, wanted = case("broadcast")
    monkeypatch.setattr(toolchain, "version_of", lambda name: "20991231")
    toolchain.check.cache_clear()
    try:
        with caplog.at_level("WARNING", logger="mgb.mlir"):
            check(call(BACKEND.compile(graph), graph, arrays), wanted)
        assert "20991231" in caplog.text and toolchain.TESTED in caplog.text
        toolchain.check.cache_clear()
        monkeypatch.setattr(toolchain, "_SAMPLE", "module { no.such_op }")
        with pytest.raises(passes.LoweringError, match=f"torch-mlir=={toolchain.TESTED}"):
            BACKEND.compile(graph)
    finally:
        toolchain.check.cache_clear()
