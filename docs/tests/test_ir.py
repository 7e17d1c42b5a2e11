"""The specification is what the code says, and the code keeps to what it says of versions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent.parent


def test_specification_is_up_to_date() -> None:
    run = subprocess.run([sys.executable, str(DOCS / "ir.py"), "--check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
