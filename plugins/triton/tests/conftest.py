"""Registers a backend that runs the generated text by the interpreter, for these tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

HERE_IT_IS = find_spec("mgb_cuda") is not None and find_spec("mgb_triton") is not None

if HERE_IT_IS:
    from mgb.plugins import manager
    from triton_helpers import BACKEND, Plugin

    if not manager.has_plugin(BACKEND.name):
        manager.register(Plugin, name=BACKEND.name)


class Absent(pytest.Module):
    """Tests of a package that is not here."""

    def collect(self) -> list[pytest.Item]:  # type: ignore[override]
        """Nothing, with the reason."""
        pytest.skip("not installed: pip install ./plugins/cuda ./plugins/triton", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """A module that is skipped before it is imported."""
    return None if HERE_IT_IS else Absent.from_parent(parent, path=module_path)


@pytest.fixture(scope="session", autouse=True)
def found_by_other_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Announces the backend as a distribution does, so that processes that tests start find it."""
    folder = tmp_path_factory.mktemp("announced")
    info = folder / "mgb_triton_interpreted-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mgb-triton-interpreted\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[mgb.backends]\ntriton_interpreted = triton_helpers:Plugin\n")
    with pytest.MonkeyPatch.context() as patch:
        kept = os.environ.get("PYTHONPATH")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), str(HERE), *([kept] if kept else [])]))
        yield
