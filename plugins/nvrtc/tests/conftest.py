"""Registers a backend that runs the generated CUDA C++ on the host, for these tests and what they start."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from mgb.plugins import manager  # noqa: E402
from nvrtc_helpers import BACKEND, Plugin  # noqa: E402

if not manager.has_plugin(BACKEND.name):
    manager.register(Plugin, name=BACKEND.name)


@pytest.fixture(scope="session", autouse=True)
def found_by_other_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Announces the backend as a distribution does, so that processes that tests start find it."""
    folder = tmp_path_factory.mktemp("announced")
    info = folder / "mgb_nvrtc_on_host-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mgb-nvrtc-on-host\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[mgb.backends]\nnvrtc_on_host = nvrtc_helpers:Plugin\n")
    with pytest.MonkeyPatch.context() as patch:
        kept = os.environ.get("PYTHONPATH")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), str(HERE), *([kept] if kept else [])]))
        yield
