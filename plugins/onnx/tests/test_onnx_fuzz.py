"""Mutated ONNX files: no crash, no hang, no exception that is not ours.

The long run, 20,000 files of each kind: ``pytest -m slow plugins/onnx/tests/test_onnx_fuzz.py``. One file,
again, in this folder: ``python onnx_fuzz.py KIND NUMBER 1``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzzing import faults
from onnx_fuzz import KINDS

PROGRAM = Path(__file__).with_name("onnx_fuzz.py")


def test_mutated_files_cause_no_crash_or_foreign_exception() -> None:
    assert faults(PROGRAM, "onnx", 0, 40) == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_20000_mutated_files_cause_no_crash_or_foreign_exception(kind: str) -> None:
    assert faults(PROGRAM, kind, 0, 20_000) == {}
