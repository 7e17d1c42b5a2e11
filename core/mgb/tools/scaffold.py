"""`mgb new-backend`: a distribution with a backend that works, to start from."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from string import Template

from ..backends.plugins import EXTRAS, installed
from ..errors import ArgumentError

#: What each language is said to be in the new distribution, and what that requires besides.
LANGUAGES = {
    "c": ("C through the system compiler", ()),
    "llvm": ("the language of LLVM, called by the native launcher", ("mgb-native", "llvmlite>=0.44")),
    "python": ("NumPy's functions, one after the other", ()),
}

#: Each file, and its template; both may have names to be filled in.
FILES = {
    "mgb_backend_$name.py": "$language/backend.py.txt",
    "pyproject.toml": "every/pyproject.toml.txt",
    "README.md": "every/README.md.txt",
    "tests/test_conformance.py": "every/test_conformance.py.txt",
    ".github/workflows/test.yml": "every/test.yml.txt",
}


def rendered(name: str, language: str) -> dict[str, str]:
    """Return the text of each file of a new distribution, by its path."""
    words = {"name": name, "title": name.title().replace("_", ""), "language": language}
    words["what"], required = LANGUAGES[language]
    words["required"] = "".join(f', "{name}"' for name in required)
    folder = files("mgb.tools") / "templates"
    return {
        Template(path).substitute(words): Template(
            folder.joinpath(Template(source).substitute(words)).read_text("utf-8")
        ).substitute(words)
        for path, source in FILES.items()
    }


def write(name: str, language: str, parent: Path) -> Path:
    """Write a new distribution into `parent`; returns its folder.

    Raises
    ------
    ArgumentError
        The name is not valid, or the backend or the folder exists already: nothing is overwritten.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ArgumentError(f"{name!r} is not a valid backend name: use lower-case letters, digits and _")
    if name in {*EXTRAS, *installed()}:
        raise ArgumentError(
            f"a backend {name!r} exists already: choose another name; mgb backends lists them"
        )
    folder = parent / f"mgb-backend-{name}"
    try:
        folder.mkdir()
    except FileExistsError as error:
        raise ArgumentError(f"{folder} exists already and is not overwritten: choose another name") from error
    for path, text in rendered(name, language).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    return folder
