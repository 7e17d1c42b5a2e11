"""What tests of plugins share: those of plugins listed here are skipped whole where these are absent."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent

#: The plugins that the tests of a plugin need; those of other plugins see for themselves.
NEEDED = {"cuda": ("cuda",), "nvrtc": ("cuda", "nvrtc"), "triton": ("cuda", "triton"), "onnx": ("onnx",)}

pytest.register_assert_rewrite("mgb_cuda.testing")


class Absent(pytest.Module):
    """Tests of a package that is not here."""

    needed: tuple[str, ...] = ()

    def collect(self) -> list[pytest.Item]:  # type: ignore[override]
        """Collect nothing, and skip with the reason."""
        folders = " ".join(f"./plugins/{name}" for name in self.needed)
        pytest.skip(f"not installed: pip install {folders}", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Return a module that is skipped before it is imported."""
    inside = module_path.relative_to(HERE).parts if module_path.is_relative_to(HERE) else ("",)
    needed = NEEDED.get(inside[0], ())
    if all(find_spec(f"mgb_{name}") for name in needed):
        return None
    absent: Absent = Absent.from_parent(parent, path=module_path)
    absent.needed = needed
    return absent


@pytest.fixture(scope="session")
def stub_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a CUDA driver lies that only takes notes."""
    from mgb_cuda.testing import stub

    found = tmp_path_factory.mktemp("driver")
    stub.build(found)
    return found
