"""The wheel has the library, for all Pythons; the sdist has its sources; both install without a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent
SOURCES = {"launcher.c", "pool.c", "copies.c", "launcher.h"}

needs_compiler = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("cc"), reason="the library is built on Linux by a C compiler"
)


def build(kind: str, folder: Path, **environment: str) -> Path:
    """Build a ``wheel`` or an ``sdist`` of a copy of the plugin that nothing was built in before."""
    pytest.importorskip("setuptools", "77", reason="builds are made without an environment of their own")
    ignored = shutil.ignore_patterns("*.so", "build", "dist", "*.egg-info", "__pycache__", "tests")
    shutil.copytree(FOLDER, folder / "copy", ignore=ignored)
    code = f"from setuptools import build_meta as b; b.build_{kind}({str(folder)!r})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder / "copy",
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    (made,) = (path for path in folder.iterdir() if path.is_file())
    return made


@needs_compiler
def test_one_wheel_serves_all_pythons_from_the_oldest_on(tmp_path: Path) -> None:
    wheel = build("wheel", tmp_path)
    assert "-cp311-abi3-linux_" in wheel.name
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "mgb_native/_launcher.abi3.so" in names and "mgb_native/portable.py" in names
    assert not {name for name in names if name.endswith((".c", ".h"))}


def test_sdist_has_the_sources(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {Path(name).name for name in archive.getnames()}
    assert SOURCES | {"setup.py", "pyproject.toml"} <= names


def test_installing_succeeds_without_a_compiler(tmp_path: Path) -> None:
    wheel = build("wheel", tmp_path, CC="no-such-compiler", LDSHARED="no-such-compiler")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "mgb_native/portable.py" in names and "mgb_native/_launcher.abi3.so" not in names
