"""The example of a communicator passes the suite, found as an installed distribution is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent.parent


def installed_in(folder: Path) -> dict[str, str]:
    """An environment in which the example is installed."""
    (metadata := folder / "mgb_communicator_files-0.1.0.dist-info").mkdir()
    (metadata / "METADATA").write_text("Name: mgb-communicator-files\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[mgb.communicators]\nfiles = mgb_communicator_files:communicator\n"
    )
    paths = [str(folder), str(HERE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


@pytest.mark.parametrize(
    "chosen",
    [
        ("-k", "(TestChannels and 2) or dtype or interrupted"),
        pytest.param(("-m", "slow or not slow"), marks=pytest.mark.slow),
    ],
    ids=["some", "all"],
)
def test_files_communicator_passes_the_conformance_suite(chosen: tuple[str, str], tmp_path: Path) -> None:
    command = [sys.executable, *"-m pytest -q --pyargs mgb_conformance --mgb-communicator files".split()]
    result = subprocess.run(
        [*command, "-p", "no:cacheprovider", *chosen],
        env=installed_in(tmp_path), cwd=tmp_path, text=True, capture_output=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    ran = re.search(r"(\d+) passed", result.stdout)
    assert ran and int(ran[1]) >= 14, result.stdout
