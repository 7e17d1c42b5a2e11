"""Skips all where the package is not installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest


class Absent(pytest.Module):
    """Tests of a package that is not here."""

    def collect(self) -> list[pytest.Item]:  # type: ignore[override]
        """Nothing, with the reason."""
        pytest.skip("not installed: pip install ./plugins/cuda", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """A module that is skipped before it is imported."""
    return Absent.from_parent(parent, path=module_path) if find_spec("mgb_cuda") is None else None
