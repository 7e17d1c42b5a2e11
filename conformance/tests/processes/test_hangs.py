"""Backends that hang: the run ends with a report, whatever the machine code holds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = """
import threading, time, ctypes
import numpy as np
from mgb.backends import Backend, Kernel
from mgb.backends.eager_backend import EagerBackend
from mgb.backends.plugins import hookimpl, manager
from mgb_conformance import {tier}

class Sleepy(EagerBackend):
    name = "sleepy"

    def compile(self, graph):
        honest = EagerBackend.compile(self, graph)
        def run(*arrays, out):
            {hang}
            honest.run(*arrays, out=out)
        return Kernel(run, honest.source)

class Plugin:
    @hookimpl
    def mgb_backend(self, name):
        return Sleepy() if name == "sleepy" else None

manager.register(Plugin(), name="sleepy")
MGB_BACKEND = "sleepy"
"""

#: What a kernel does, the tier that is tried, the test that hangs, and what is said of it.
HANGS = {
    "in a thread": (
        "time.sleep(3600)",
        "TestContract",
        "test_kernel_writes_only_its_outputs",
        "the backend hangs: run took more than 5.0 s, of",
    ),
    "in a pool of the test's own": (
        "if 'Pool' in threading.current_thread().name: time.sleep(3600)",
        "TestThreads",
        "test_eight_threads_run_one_kernel[100]",
        "of backend sleepy has not ended in 30.0 s\nat run of",
    ),
    "holding Python's lock": (
        "ctypes.PyDLL(None).sleep(3600)",
        "TestContract",
        "test_kernel_writes_only_its_outputs",
        "of backend sleepy has not ended in 30.0 s\nat run of",
    ),
    "in a thread that the process waits for": (
        "t = threading.Thread(target=time.sleep, args=(3600,), daemon=False); t.start(); t.join()",
        "TestContract",
        "test_kernel_writes_only_its_outputs",
        "HANG: the process, where a kernel hung before, of backend sleepy has not ended in 5.0 s",
    ),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[subprocess.Popen[str], Path]]:
    """A run of the suite for each, all at once: most of the time they wait."""
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--mgb-report=found"]
    limits = ["--mgb-timeout=5", "--mgb-hang-seconds=30"]
    found = {}
    for where, (hang, tier, *_) in HANGS.items():
        folder = tmp_path_factory.mktemp("hang")
        (folder / "test_sleepy.py").write_text(MODULE.format(hang=hang, tier=tier))
        pipe = subprocess.PIPE
        run = subprocess.Popen(
            [*words, *limits], cwd=folder, stdout=pipe, stderr=subprocess.STDOUT, text=True
        )
        found[where] = run, folder
    return found


@pytest.mark.parametrize("where", HANGS)
def test_hang_ends_the_run_with_a_report(
    runs: dict[str, tuple[subprocess.Popen[str], Path]], where: str
) -> None:
    run, folder = runs[where]
    *_, test, said = HANGS[where]
    told, _ = run.communicate(timeout=300)
    assert run.returncode != 0
    assert said in told and test in told and "float32[" in told, (
        "the test, its backend or its graph is not named"
    )
    if "has not ended in 30" in said:
        assert "in run\n" in told.partition("most recent call first")[2], "the stacks are not printed"
    tests = json.loads((folder / "found" / "conformance.json").read_text())["tests"]
    assert [t["id"].partition("::")[2] for t in tests if t["outcome"] == "failed"] == [test]
    assert tests[-1]["id"].endswith(test), "the wedged process went on"
