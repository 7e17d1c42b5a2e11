"""The fast backend in C, which is not installed, passes the quick part of the suite."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "backend_fast_c"
pytest.importorskip("mgb_native", reason="not installed: pip install ./plugins/native")


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler called cc: apt install gcc")
def test_fast_c_backend_passes_the_quick_conformance_tests(tmp_path: Path) -> None:
    info = tmp_path / "fast_c-1.0.dist-info"  # as pip would write it
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mgb-backend-fast-c\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mgb.backends]\nfast_c = mgb_backend_fast_c\n")
    tiers = "TestContract or TestFloor or TestLayouts or (TestReductions and float32 and not op)"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--pyargs", "mgb_conformance", "--mgb-backend", "fast_c",
         "-p", "no:cacheprovider", "-k", tiers],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(FOLDER)])},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
