"""Without Halide, the error names the package to install, and schedules can be read."""

from __future__ import annotations

import subprocess
import sys

import pytest

ABSENT = """
import sys
sys.modules["halide"] = None
from mgb_halide import HalideBackend
from mgb_halide.schedule import parse
assert parse("task=4096").task == 4096
print(HalideBackend().probe())
"""


def test_missing_halide_message_names_the_install_command() -> None:
    pytest.importorskip("mgb_halide", reason="the plugin is not installed: pip install ./plugins/halide")
    run = subprocess.run([sys.executable, "-c", ABSENT], capture_output=True, text=True)
    assert run.stdout.strip() == "Halide is not installed; python -m pip install halide", run.stderr
