"""The cases of stale results under the observer that walks names, in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parents[2] / "support" / "stale_cases.py"


@pytest.mark.parametrize("mode", ["trace", "run_body=False", "symbolic", "partial_trace", "xla_trace"])
def test_no_case_is_stale(mode: str) -> None:
    environment = {**os.environ, "MGB_OBSERVER": "names", "MGB_JIT_BACKEND": "EAGER"}
    command = [sys.executable, str(CASES), mode]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    *each, last = done.stdout.strip().splitlines()
    assert not [line for line in each if line.startswith(("stale", "error"))]
    counted = re.fullmatch(rf"{re.escape(mode)}: (\d+) cases, .*", last)
    assert counted is not None and int(counted[1]) >= 300


def test_default_observer_is_the_one_with_hooks() -> None:
    if "MGB_OBSERVER" not in os.environ:
        from mgb.jit import environment

        assert environment.Observer.__module__ == "mgb.jit.environment.observer"
