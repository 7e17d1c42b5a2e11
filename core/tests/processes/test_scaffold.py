"""`mgb new-backend` writes a distribution that passes its own suite."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from mgb.errors import ArgumentError
from mgb.tools import scaffold

EXAMPLE = Path(__file__).parent.parent.parent.parent / "examples" / "backend_c"


@pytest.mark.parametrize("language", scaffold.LANGUAGES)
def test_generated_backend_passes_the_conformance_suite(tmp_path: Path, language: str) -> None:
    for required in scaffold.LANGUAGES[language][1]:
        module = re.split("[<>=]", required)[0].replace("-", "_")
        pytest.importorskip(module, reason=f"not installed: pip install {required}")
    command = [sys.executable, "-m", "mgb", "new-backend", "brand_new", "--language", language]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    folder = tmp_path / "mgb-backend-brand_new"
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    info = folder / "brand_new-1.0.dist-info"  # as pip would write it
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n")
    ((name, module),) = project["entry-points"]["mgb.backends"].items()
    (info / "entry_points.txt").write_text(f"[mgb.backends]\n{name} = {module}\n")
    tiers = "TestContract or TestFloor or TestLayouts"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "tests", "-q", "-k", tiers],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout and "failed" not in done.stdout


def test_c_example_matches_the_generated_backend() -> None:
    name = "mgb_backend_c.py"
    assert scaffold.rendered("c", "c")[name] == (EXAMPLE / name).read_text()


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    scaffold.write("brand_new", "python", tmp_path)
    with pytest.raises(ArgumentError, match="is not overwritten"):
        scaffold.write("brand_new", "python", tmp_path)


@pytest.mark.parametrize("name", ["eager", "Upper", "a-b", "", "../x"])
def test_invalid_backend_names_are_rejected(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArgumentError):
        scaffold.write(name, "python", tmp_path)
    assert not list(tmp_path.iterdir())
