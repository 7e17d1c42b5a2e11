"""The version of all distributions of this checkout, which is one: it stands in the root's pyproject.toml.

``python .ci/version.py`` prints it, ``--set 1.2.3`` writes it into every project and every requirement among
them, ``--check 1.2.3`` fails unless all have that one, ``--projects`` prints their folders.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_OWN = re.compile(r'^version = "([^"]*)"', re.MULTILINE)
_SELF = re.compile(r'^__version__ = "([^"]*)"', re.MULTILINE)
_AMONG = re.compile(r"\b(mgb(?:-[a-z-]+)?)(\[[a-z0-9,]+\])?==([0-9][^\"';, ]*)")


def projects() -> list[Path]:
    """The folders of what is published."""
    folders = [ROOT, *sorted((ROOT / "plugins").iterdir()), ROOT / "conformance", ROOT / "benchmarks"]
    return [folder for folder in folders if (folder / "pyproject.toml").exists()]


def versions(folder: Path) -> set[str]:
    """What a project calls itself, and the versions that it wants of others of this checkout."""
    text = (folder / "pyproject.toml").read_text()
    if folder == ROOT:
        text += _SELF.sub(r'\nversion = "\1"', (ROOT / "core" / "mgb" / "__init__.py").read_text())
    return {*_OWN.findall(text), *(found[2] for found in _AMONG.findall(text))}


def write(version: str) -> None:
    """Give every project this version."""
    citation = ROOT / "CITATION.cff"
    text = re.sub(r"^version: .*$", f"version: {version}", citation.read_text(), flags=re.MULTILINE)
    citation.write_text(text)
    package = ROOT / "core" / "mgb" / "__init__.py"
    package.write_text(_SELF.sub(f'__version__ = "{version}"', package.read_text(), count=1))
    for folder in projects():
        path = folder / "pyproject.toml"
        text = _OWN.sub(f'version = "{version}"', path.read_text(), count=1)
        path.write_text(_AMONG.sub(lambda found: f"{found[1]}{found[2] or ''}=={version}", text))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", metavar="VERSION")
    parser.add_argument("--check", metavar="VERSION")
    parser.add_argument("--projects", action="store_true")
    asked = parser.parse_args(arguments)
    if asked.projects:
        print(*(folder.relative_to(ROOT) for folder in projects()), sep="\n")
        return 0
    if asked.set:
        write(asked.set)
    (version,) = _OWN.findall((ROOT / "pyproject.toml").read_text())
    wrong = {str(folder): versions(folder) for folder in projects() if versions(folder) != {version}}
    if wrong or (asked.check and asked.check != version):
        print(f"the version is {version}, {asked.check or 'the same'} is wanted everywhere; others: {wrong}")
        return 1
    print(version)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
