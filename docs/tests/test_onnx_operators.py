"""The list of ONNX's operators is up to date."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent

if importlib.util.find_spec("mgb_onnx") is None:
    pytest.skip("not installed: pip install ./plugins/onnx", allow_module_level=True)


def test_operator_list_is_up_to_date() -> None:
    import onnx

    listed = re.search(r"operators of opset (\d+)", (DOCS / "onnx_operators.md").read_text())
    assert listed is not None
    if int(listed[1]) != onnx.defs.onnx_opset_version():
        pytest.skip(f"the list is of opset {listed[1]}, the onnx package here is of another one")
    run = subprocess.run(
        [sys.executable, str(DOCS / "onnx_operators.py"), "--check"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
