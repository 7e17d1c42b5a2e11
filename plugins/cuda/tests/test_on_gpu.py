"""The demo and the samples of the guide on a GPU, by each backend that compiles for GPUs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mgb.backends.plugins import import_backend
from mgb.errors import MgbError
from mgb_cuda.testing import host

EXAMPLES = Path(__file__).parents[3] / "examples"
BACKENDS = ("nvrtc", "triton")

#: Runs a program with a GPU as the default device.
RUN = """
import runpy, sys
{before}
import mgb
mgb.set_default_device("gpu0")
sys.path.insert(0, sys.argv[1])
sys.argv[:] = sys.argv[2:]
{run}
"""
SAMPLE = "runpy.run_path(sys.argv[0], run_name='__main__')"
DEMO = "from mgb.tools.cli import main\nsys.exit(main(sys.argv))"

#: A GPU that is none: the text of NVRTC is run by the host, on arrays of the stand-in for CuPy.
STANDIN = f"""
sys.path.insert(0, {str(Path(__file__).parents[2] / "nvrtc" / "tests")!r})
from mgb_conformance import standin
standin.install(1)
from mgb.backends.plugins import manager
from nvrtc_as_gpu import BACKEND, Plugin
manager.register(Plugin, name=BACKEND.name)
"""


def problem(name: str) -> str | None:
    """Why a backend cannot run here."""
    try:
        return import_backend(name).probe()
    except MgbError as error:
        return str(error)


def each(**standin: Any) -> list[Any]:
    """The backends on a GPU, and the stand-in, with marks that say when they run."""
    here = [
        pytest.param(
            name, "", id=name, marks=[pytest.mark.gpu, pytest.mark.skipif(why is not None, reason=str(why))]
        )
        for name in BACKENDS
        for why in [problem(name)]
    ]
    absent = pytest.mark.skipif(host.missing() is not None, reason=str(host.missing()))
    marks = [absent, *standin.get("marks", ())]
    return [*here, pytest.param("nvrtc_as_gpu", STANDIN, id="stand-in", marks=marks)]


def output(name: str, before: str, run: str, *arguments: str) -> str:
    """Run a program whose traced functions this backend compiles for a GPU and return its output."""
    command = [sys.executable, "-c", RUN.format(before=before, run=run), str(EXAMPLES / "guide"), *arguments]
    environment = os.environ | {"MGB_JIT_BACKEND": f"{name},eager"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def sample(name: str, before: str, file: str) -> str:
    return output(name, before, SAMPLE, str(EXAMPLES / "guide" / file))


def losses(text: str) -> list[float]:
    return [float(v) for v in re.findall(r"loss (\d+\.\d+)", text)]


@pytest.mark.parametrize(("name", "before"), each())
class TestSamples:
    @pytest.mark.parametrize("file", ["trace_training.py", "partial_training.py"])
    def test_compiled_training_has_the_same_losses_as_eager(self, name: str, before: str, file: str) -> None:
        wanted, found = (losses(sample(name, before, f)) for f in ("dynamic_training.py", file))
        assert len(wanted) == len(found) == 2 and wanted[1] < wanted[0]
        assert found == pytest.approx(wanted, rel=1e-4)

    def test_data_dependent_training_step(self, name: str, before: str) -> None:
        *epochs, compiled = sample(name, before, "partial_dynamic.py").splitlines()
        first, *_, last = [int(v) for line in epochs for v in re.findall(r"(\d+) right", line)]
        assert last > 4 * first
        assert compiled == "compiled 2 programs for 40 calls"

    def test_symbolic_and_static_graph_samples(self, name: str, before: str) -> None:
        assert 0 < losses(sample(name, before, "symbolic.py"))[0] < 2.4
        assert 1 < float(sample(name, before, "static_graph.py")) < 4

    def test_capture_as_const_and_exclude_from_trace_samples(self, name: str, before: str) -> None:
        assert sample(name, before, "capture_as_const.py") == "(64, 10) 64.000\n"
        values = re.findall(
            r"Tensor\(\[(\d)\], dtype=int32, device=gpu0:0\)", sample(name, before, "exclude_from_trace.py")
        )
        assert values == ["3", "2", "3"]

    def test_named_backend_compiles(self, name: str, before: str) -> None:
        first, last, *used = sample(name, before, "opt_level.py").split()
        assert float(last) < float(first)
        assert used == [name]

    def test_explain_names_the_backend(self, name: str, before: str) -> None:
        run = "from mgb.tools.cli import main\nsys.exit(main(sys.argv))"
        text = output(name, before, run, "explain", f"{EXAMPLES / 'softmax.py'}:softmax")
        assert name in text


@pytest.mark.parametrize(("name", "before"), each(marks=[pytest.mark.slow]))
def test_demo_runs_and_names_the_backend(name: str, before: str) -> None:
    quick = ["--quick"] if before else []
    assert name in output(name, before, DEMO, "demo", *quick).lower()
