"""Plugins, the conformance suite and the benchmarks are documented in the words of the field."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import mgb
import pytest
from docstrings import without_verb

ROOT = Path(mgb.__file__).parent.parent.parent
PACKAGES = sorted(
    path
    for pattern in ("plugins/*/mgb_*", "conformance/mgb_conformance", "benchmarks/mgb_bench")
    for path in ROOT.glob(pattern)
    if path.is_dir()
)
#: Files that are written by people and may have comments and messages.
SUFFIXES = {".py", ".pyi", ".c", ".h", ".cuh", ".cpp"}

#: The first line says what a function does ("Return ...") or names a class or module ("The ...").
OPENING = re.compile(r"(What|Who|Whose)\b")
#: Forms that are avoided in code, comments and messages, and how to write them instead.
FORMS = {
    r"\banew\b": "write `again`, or which thing is made",
    r"(\b|_)spelt(\b|_)": "write `printed`, `emitted`, `decomposed`, `expanded` or `written as`",
    r"(?<!here )\bis\s+no\s+[a-zA-Z]": "write `is not a ...`; `there is no ...` is fine",
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each docstring of a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and (found := ast.get_docstring(node)):
            yield node.body[0].lineno, found


def faults(text: str, is_python: bool = True) -> Iterator[str]:
    """Yield each avoided form in the text of a file, with its line."""
    if is_python:
        for line, found in docstrings(text):
            if OPENING.match(found):
                yield f"{line}: begin with a verb, or name the thing: {found.partition(chr(10))[0]}"
        for line, first in without_verb(text):
            yield f"{line}: begin with a verb in the imperative, as in `Return ...`: {first}"
    for form, advice in FORMS.items():
        for match in re.finditer(form, text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{line}: {match[0]!r}: {advice}"


def test_all_distributions_are_checked() -> None:
    assert len(PACKAGES) > 10
    names = {path.name for path in PACKAGES}
    assert {"mgb_native", "mgb_cuda", "mgb_conformance", "mgb_bench"} <= names


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_documentation_avoids_unusual_forms(package: Path) -> None:
    files = [path for path in sorted(package.rglob("*")) if path.suffix in SUFFIXES]
    found = [
        f"{path.relative_to(ROOT)}:{fault}"
        for path in files
        for fault in faults(path.read_text(), path.suffix in (".py", ".pyi"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        '"""What the plugin does."""',
        'def f():\n    """Who calls it."""',
        'def f():\n    """The number of bytes."""',
        'def f():\n    """`x` as an array."""',
        'class A:\n    """Whose it is."""',
        "x = 1  # computed anew",
        "def spelt_out(): ...",
        "# it is spelt out",
        'raise ValueError("3 is no power of two")',
        "# the file is no ONNX file",
        '"""Whether a file\n    is no\n    model."""',
    ],
)
def test_unusual_forms_are_found(text: str) -> None:
    assert list(faults(text))


@pytest.mark.parametrize(
    "text",
    [
        '"""Whatever is read."""',
        '"""Return the arrays.\n\nWhat is read is kept.\n"""',
        'raise ValueError("there is no compiler here")',
        "# There is no such op",
        "# 3 is not a power of two",
    ],
)
def test_usual_forms_are_accepted(text: str) -> None:
    assert not list(faults(text))
