"""Wheels have the library in C, for all Pythons; sdists have its sources; both install without a compiler."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parent.parent.parent

#: The plugins with a library: the library, and its sources.
LIBRARIES = {
    "native": ("_launcher", {"launcher.c", "pool.c", "copies.c", "strides.c", "launcher.h"}),
    "halide": ("_call", {"call.c"}),
}

each_plugin = pytest.mark.parametrize("plugin", LIBRARIES)
needs_compiler = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64" or not shutil.which("cc"),
    reason="all libraries are built on Linux for x86-64 alone, by a C compiler",
)


def build(kind: str, plugin: str, folder: Path, **environment: str) -> Path:
    """Build a ``wheel`` or an ``sdist`` of a copy of a plugin that nothing was built in before."""
    pytest.importorskip("setuptools", "77", reason="builds are made without an environment of their own")
    ignored = shutil.ignore_patterns("*.so", "build", "dist", "*.egg-info", "__pycache__", "tests")
    shutil.copytree(PLUGINS / plugin, folder / "copy", ignore=ignored)
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
@each_plugin
def test_one_wheel_serves_all_pythons_from_the_oldest_on(plugin: str, tmp_path: Path) -> None:
    wheel = build("wheel", plugin, tmp_path)
    assert "-cp311-abi3-linux_" in wheel.name
    names = set(zipfile.ZipFile(wheel).namelist())
    library = LIBRARIES[plugin][0]
    assert f"mgb_{plugin}/{library}.abi3.so" in names and f"mgb_{plugin}/backend.py" in names
    assert not {name for name in names if name.endswith((".c", ".h"))}


@each_plugin
def test_sdist_has_the_sources(plugin: str, tmp_path: Path) -> None:
    with tarfile.open(build("sdist", plugin, tmp_path)) as archive:
        names = {Path(name).name for name in archive.getnames()}
    assert LIBRARIES[plugin][1] | {"setup.py", "pyproject.toml"} <= names


@each_plugin
def test_installing_succeeds_without_a_compiler(plugin: str, tmp_path: Path) -> None:
    wheel = build("wheel", plugin, tmp_path, CC="no-such-compiler", LDSHARED="no-such-compiler")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert f"mgb_{plugin}/backend.py" in names and not {name for name in names if name.endswith(".so")}
