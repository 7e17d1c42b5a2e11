"""``MGB_DEBUG``: what is printed at each level, when it is read, and that nothing is printed without it."""

from __future__ import annotations

import io
import logging
import re
import sys

import mgb.functional as F
import numpy as np
import pytest
from mgb import Tensor, tensor
from mgb.errors import TraceError, VariableError
from mgb.jit import trace

LOGGER = logging.getLogger("mgb.debug")


@pytest.fixture(autouse=True)
def fresh_logger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_JIT_BACKEND", "eager")
    monkeypatch.setattr(LOGGER, "handlers", [])
    monkeypatch.setattr(LOGGER, "propagate", True)


def ones(*shape: int) -> Tensor:
    return tensor(np.ones(shape, np.float32))


def step(x: Tensor) -> Tensor:
    return F.exp(F.matmul(x, x.T)) + 1.0


def printed(capsys: pytest.CaptureFixture[str], *rows: int, **options: object) -> list[str]:
    """The lines of calls with so many rows each; unless told otherwise, nothing is fused."""
    traced = trace(step, **{"opt_level": 2, **options})
    for n in rows:
        traced(ones(n, 3))
    out, err = capsys.readouterr()
    assert not out
    return err.splitlines()


@pytest.mark.parametrize("value", ["", "0", " 0 "])
def test_nothing_is_printed_without_mgb_debug(
    value: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MGB_DEBUG", value)
    assert printed(capsys, 2, 2, 3) == []
    assert LOGGER.handlers == []


@pytest.mark.parametrize("options", [{}, {"without_host": True}], ids=["replay", "without_host"])
def test_level_1_prints_one_line_per_call(
    options: dict[str, bool], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MGB_DEBUG", "1")
    lines = printed(capsys, 2, 2, 2, 5, 5, **options)
    assert [line.split(":")[0] for line in lines] == [f"step call {n}" for n in range(1, 6)]
    assert "recorded" in lines[0]
    assert "1 program of" in lines[2] and "compiled" not in lines[2] and "recorded" not in lines[2]
    assert ["again because" in line for line in lines] == [False, False, False, True, False]
    assert sum("compiled in" in line for line in lines) == 2


def test_level_2_prints_one_line_per_step(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MGB_DEBUG", "2")
    lines = printed(capsys, 2, 2)
    steps = [line for line in lines if line.startswith("  step ")]
    (product,) = [line for line in steps if "matmul by library" in line]
    assert "64 B" in product and "GB/s" in product and product.endswith(("% of copy", "in cache"))
    (view,) = [line for line in steps if "transpose" in line]
    assert "GB/s" not in view
    assert not any("recorded: graph" in line for line in lines)


def test_level_3_shows_graphs_and_fused_groups_on_compilation(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MGB_DEBUG", "3")
    text = "\n".join(printed(capsys, 2, 2, 2, opt_level=3))
    for part in ("step compiled", "recorded: graph(", "simplified: graph(", "fused by eager: graph("):
        assert text.count(part) >= 1, part
    assert text.count("recorded: graph(") == 1
    assert "def run(arrays)" not in text


def test_level_4_shows_kernel_sources(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mgb_cpu_llvm")
    monkeypatch.setenv("MGB_DEBUG", "4")
    monkeypatch.setenv("MGB_JIT_BACKEND", "cpu_llvm")
    text = "\n".join(printed(capsys, 2, 2, opt_level=3))
    kernels = [k.text for p in _programs(step, 2) for k in p.kernels if k is not None]
    assert kernels and all(source in text for source in kernels)
    assert "def run(arrays)" in text


def _programs(function, rows: int) -> tuple:
    traced = trace(function)
    for _ in range(2):
        traced(ones(rows, 3))
    return traced.variants()[0].programs


def test_debug_level_is_read_at_the_first_call_of_a_function(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MGB_DEBUG", "1")
    early, late = trace(step), trace(step)
    early(ones(2, 3))
    monkeypatch.delenv("MGB_DEBUG")
    late(ones(2, 3))
    early(ones(2, 3))
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == [
        "step call 1", "step call 2"
    ]  # fmt: skip


def test_mgb_debug_does_not_enable_profiles(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MGB_DEBUG", "2")
    traced = trace(step)
    for _ in range(3):
        traced(ones(2, 3))
    with pytest.raises(TraceError):
        traced.get_profile()


def test_profiling_works_together_with_mgb_debug(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MGB_DEBUG", "1")
    traced = trace(step, profiling=True, without_host=True)
    for _ in range(4):
        traced(ones(2, 3))
    assert traced.get_profile()["calls"] == 2
    assert len(capsys.readouterr().err.splitlines()) == 4


def test_user_log_handlers_are_used(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MGB_DEBUG", "1")
    text = io.StringIO()
    LOGGER.addHandler(logging.StreamHandler(text))
    assert printed(capsys, 2, 2) == []
    assert text.getvalue().count("step call") == 2


def test_terminal_output_uses_rich(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.logging import RichHandler

    monkeypatch.setenv("MGB_DEBUG", "1")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(printed(capsys, 2, 2)))
    assert isinstance(LOGGER.handlers[0], RichHandler)
    assert "step call 1" in text


@pytest.mark.parametrize("value", ["5", "-1", "yes", "1.0"])
def test_invalid_debug_level_raises(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_DEBUG", value)
    traced = trace(step)
    with pytest.raises(VariableError, match="set it to 0, 1, 2, 3 or 4"):
        traced(ones(2, 3))
    monkeypatch.delenv("MGB_DEBUG")
    traced(ones(2, 3))
