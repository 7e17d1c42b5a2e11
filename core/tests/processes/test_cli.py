"""The command `mgb`, in processes of its own."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mgb.backends.plugins import EXTRAS, installed
from mgb.tools.cli import main

SOFTMAX = Path(__file__).parent.parent.parent.parent / "examples" / "softmax.py"


def mgb(*arguments: str, status: int = 0, **environment: str) -> str:
    """What the command prints, on both streams."""
    done = subprocess.run(
        [sys.executable, "-m", "mgb", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "COLUMNS": "200", **environment},
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("backend", ["eager", "cpu_llvm"])
def test_explain_prints_every_stage(backend: str) -> None:
    text = mgb("explain", f"{SOFTMAX}:softmax", MGB_JIT_BACKEND=backend)
    for stage in ("recorded", "simplified", "summary", "step 0", "memory", "program"):
        assert re.search(rf"^{stage}", text, re.MULTILINE), stage
    assert f"backend {backend}; 1 fused groups, 0 ops run eagerly" in text
    assert "reduce_sum" in text


def test_explain_reports_why_an_op_runs_eagerly(tmp_path: Path) -> None:
    path = tmp_path / "sorted.py"
    path.write_text("import mgb.functional as F\ndef f(x):\n    return F.argsort(x * 2 + 1)[1] * 2 + 1\n")
    text = mgb("explain", f"{path}:f", "--shapes", "f32[8,8]", MGB_JIT_BACKEND="cpu_llvm")
    assert "eager, argsort is of kind opaque" in text
    assert "ends at add: argsort reads it" in text


def test_explain_reports_missing_file_function_or_shapes(tmp_path: Path) -> None:
    assert "is not FILE:FUNCTION" in mgb("explain", "nowhere.py:f", status=2)
    assert "has no function 'nothing'" in mgb("explain", f"{SOFTMAX}:nothing", status=2)
    path = tmp_path / "plain.py"
    path.write_text("def f(x):\n    return x + 1\n")
    assert "--shapes" in mgb("explain", f"{path}:f", status=2)


def test_backends_lists_installed_ones_and_install_commands() -> None:
    text = mgb("backends")
    assert re.search(r"eager .* runs", text)
    for name in set(EXTRAS) - set(installed()):
        assert f'pip install "mgb[{EXTRAS[name]}]"' in text


def test_env_lists_every_variable() -> None:
    text = mgb("env", MGB_JIT_BACKEND="EAGER")
    assert "MGB_JIT_BACKEND=EAGER" in text
    assert "MGB_CACHE_DIR" in text


def test_cache_info_and_clear(tmp_path: Path) -> None:
    folder = str(tmp_path / "cache")
    mgb("explain", f"{SOFTMAX}:softmax", MGB_JIT_BACKEND="cpu_llvm", MGB_CACHE_DIR=folder)
    files = [p for p in Path(folder).rglob("*") if p.is_file()]
    assert files
    mgb("cache", "info", MGB_CACHE_DIR=folder)
    mgb("cache", "clear", MGB_CACHE_DIR=folder)
    assert not [p for p in Path(folder).rglob("*") if p.is_file() and p.stat().st_size and p in files]


@pytest.mark.parametrize("backend", ["eager", "cpu_llvm"])
def test_demo_agrees_with_eager(backend: str) -> None:
    text = mgb("demo", "--quick", MGB_JIT_BACKEND=backend)
    assert f"backend {backend}" in text
    assert "loss curves agree" in text


def test_unknown_backend_is_reported_in_one_line() -> None:
    text = mgb("demo", "--quick", status=2, MGB_JIT_BACKEND="NVRCT")
    assert "mgb demo: MGB_JIT_BACKEND='NVRCT': no backend is called 'nvrct'; did you mean 'nvrtc'?" in text
    assert "Traceback" not in text


def test_closed_pipe_is_not_an_error() -> None:
    command = f"{sys.executable} -m mgb explain {SOFTMAX}:softmax | head -n 2"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "" and done.stdout.startswith("the call\n")


@pytest.mark.parametrize("columns", [50, 200])
@pytest.mark.parametrize("command", ["backends", "env", "doctor", "profile"])
def test_output_fits_the_terminal_width(command: str, columns: int) -> None:
    arguments = [f"{SOFTMAX}:softmax", "--calls", "3"] if command == "profile" else []
    environment = {**os.environ, "COLUMNS": str(columns), "MGB_JIT_BACKEND": "eager"}
    full = [sys.executable, "-m", "mgb", command, *arguments]
    text = subprocess.run(full, capture_output=True, text=True, env=environment, check=False).stdout
    words = max(map(len, text.split()))
    assert max(map(len, text.splitlines())) <= max(columns, words + 20)
    if command == "profile":
        assert "median" in text and ("GFLOP/s" in text) == (columns == 200)
    if command == "backends" and columns == 200:
        (line,) = [line for line in text.splitlines() if line.startswith("│ eager")]
        assert "runs, and serves cpu" in line


def test_shapes_may_be_given_as_separate_arguments(tmp_path: Path) -> None:
    path = tmp_path / "two.py"
    path.write_text("def f(x, y):\n    return x @ y + 1\n")
    for shapes in (["f32[4,8]", "f32[8,2]"], ["f32[4,8] f32[8,2]"]):
        assert "float32[4,2]" in mgb("explain", f"{path}:f", "--shapes", *shapes, MGB_JIT_BACKEND="eager")


def test_profile_prints_a_table_and_writes_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    text = mgb("profile", f"{SOFTMAX}:softmax", "--calls", "3", "--save", str(path), MGB_JIT_BACKEND="eager")
    assert "softmax: 2 calls" in text and "of copy" in text
    assert '"traceEvents"' in path.read_text()
    for calls in ("0", "-3"):
        text = mgb("profile", f"{SOFTMAX}:softmax", "--calls", calls, status=2)
        assert f"--calls {calls}: give 1 or more" in text
    assert "is not FILE:FUNCTION" in mgb("profile", "nowhere.py:f", status=2)


@pytest.mark.parametrize(
    ("words", "module", "said"),
    [
        (["bench"], "mgb_bench", 'the benchmarks are not installed: pip install "mgb[bench]"'),
        (["reduce", "a.py:f", "--backend", "x"], "mgb_conformance",
         'the reducer is not installed: pip install "mgb[test]"'),
    ],
)  # fmt: skip
def test_missing_package_is_reported_with_install_command(
    words: list[str],
    module: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == module else find(name))
    assert main(words) == 2
    assert capsys.readouterr().err == f"mgb {words[0]}: {said}\n"
