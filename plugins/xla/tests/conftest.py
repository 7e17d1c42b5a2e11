"""The skip where JAX is absent, and the way to `xla_helpers`."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from mgb.backends.plugins import import_backend
from mgb.errors import BackendError

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


def missing() -> str | None:
    """Why the backend cannot run here."""
    try:
        return import_backend("xla").probe()
    except BackendError as error:
        return str(error)


class Absent(pytest.Module):
    """Tests of a package that is not here."""

    def collect(self) -> list[pytest.Item]:  # type: ignore[override]
        """Nothing, with the reason."""
        pytest.skip("not installed: pip install ./plugins/xla", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """A module that is skipped before it is imported."""
    return Absent.from_parent(parent, path=module_path) if find_spec("mgb_xla") is None else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip all where the toolchain is absent."""
    reason = missing()
    if reason is None:
        return
    here = f"{HERE}{os.sep}"
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.skip(reason=reason))
