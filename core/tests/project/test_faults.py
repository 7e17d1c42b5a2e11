"""The table of planted faults fits the code: `.ci/faults.py` plants them, and is run now and then."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / ".ci"))
faults = pytest.importorskip("faults")
sys.path.pop(0)

#: The fewest rows, and the fewest parts of the compiler that they are in.
ROWS, PARTS = 60, 10


@pytest.mark.parametrize("fault", faults.table(), ids=lambda fault: fault.name)
def test_fault_text_occurs_once_in_its_file(fault: faults.Fault) -> None:
    planted = fault.planted((ROOT / fault.file).read_text())
    compile(planted, fault.file, "exec")
    for test in fault.tests:
        path, *names = test.split("::")
        assert (ROOT / path).exists(), test
        assert all(name in (ROOT / path).read_text() or "conformance" in path for name in names), test


def test_faults_cover_the_parts_of_the_compiler() -> None:
    counts = Counter(fault.part for fault in faults.table())
    assert counts.total() >= ROWS and len(counts) >= PARTS, counts
