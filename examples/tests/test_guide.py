"""Every sample of the guide runs and does what the guide says."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mgb.backends.plugins import installed

GUIDE = Path(__file__).parent.parent / "guide"


def run(name: str, *arguments: str, **environment: str) -> str:
    """The standard output of a sample, in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(GUIDE / name), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def dynamic_losses() -> list[float]:
    """Return the losses of the eager loop, which others are compared with."""
    return losses(run("dynamic_training.py"))


def losses(output: str) -> list[float]:
    return [float(v) for v in re.findall(r"loss (\d+\.\d+)", output)]


def test_tracing_changes_no_loss_of_the_training_loop() -> None:
    dynamic, traced = dynamic_losses(), losses(run("trace_training.py"))
    assert len(dynamic) == len(traced) == 2
    assert dynamic == pytest.approx(traced, rel=1e-4)
    assert dynamic[1] < dynamic[0]


def test_partial_tracing_changes_no_loss_of_the_training_loop() -> None:
    dynamic, traced = dynamic_losses(), losses(run("partial_training.py"))
    assert dynamic == pytest.approx(traced, rel=1e-4)


def test_partial_tracing_of_a_data_dependent_step() -> None:
    *epochs, compiled = run("partial_dynamic.py").splitlines()
    first, *_, last = [int(v) for line in epochs for v in re.findall(r"(\d+) right", line)]
    assert last > 4 * first
    assert compiled == "compiled 2 programs for 40 calls"


@pytest.mark.skipif("xla" not in installed(), reason='needs XLA: pip install "mgb[xla]"')
@pytest.mark.parametrize("sample", ["xla_training.py", "xla_partial.py"])
def test_xla_changes_no_loss_of_the_training_loop(sample: str) -> None:
    assert dynamic_losses() == pytest.approx(losses(run(sample)), rel=1e-4)


@pytest.mark.skipif("xla" not in installed(), reason='needs XLA: pip install "mgb[xla]"')
def test_xla_softmax_sample_runs() -> None:
    assert run("xla_softmax.py", "2").count("Tensor(") == 2  # it compares the two itself


def test_symbolic_sample_runs() -> None:
    assert 0 < losses(run("symbolic.py"))[0] < 2.4


def test_capture_as_const_sample_runs() -> None:
    assert run("capture_as_const.py") == "(64, 10) 64.000\n"


def test_exclude_from_trace_prints_what_the_guide_prints() -> None:
    assert run("exclude_from_trace.py").splitlines() == [
        "Tensor([3], dtype=int32, device=xpux:0)",
        "Tensor([2], dtype=int32, device=xpux:0)",
        "Tensor([3], dtype=int32, device=xpux:0)",
    ]


def test_static_graph_sample_runs() -> None:
    assert 1 < float(run("static_graph.py")) < 4


@pytest.mark.parametrize("backend", ["EAGER", "cpu_llvm"])
def test_opt_level_3_trains_with_the_named_backend(backend: str) -> None:
    first, last, *used = run("opt_level.py", MGB_JIT_BACKEND=backend).split()
    assert float(last) < float(first)
    assert used == [backend.lower()]
