"""Docstrings, comments and messages of the core use the plain words of the field."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import mgb
import pytest
from docstrings import begins_with_verb, without_verb

PACKAGE = Path(mgb.__file__).parent

#: Ends a line of a docstring, a comment or a message, and begins the next one.
_SPACE = r"""(?:[\s#:]|["']\s*[rf]?["'])+"""

#: By what a line should say instead: what it must not contain.
WORDS = {
    "again, new, re-...": r"\b[Aa]new\b",
    "decomposed, lowered, expanded, written": r"\b[Ss]pelt\b",
    "is not a ...": rf"(?<![Tt]here )\b(?:is|are){_SPACE}no{_SPACE}(?!longer\b|more\b)[a-z]",
}

#: A docstring says what a function does ("Return ...") or what a class is ("The key of ...").
QUESTIONS = re.compile(r"(?:What|Who|Whose|Which|Whether|How|Why|Is|Are|Does|Did|Has|Can|May|Was|Were)\b")

FILES = [path for path in sorted(PACKAGE.rglob("*")) if path.suffix in (".py", ".pyi", ".txt", ".md")]


def lines_with(pattern: str) -> list[str]:
    found = []
    for path in FILES:
        text = path.read_text()
        for match in re.finditer(pattern, text):
            number = text.count("\n", 0, match.start()) + 1
            found.append(f"{path.relative_to(PACKAGE)}:{number}: {match[0]}")
    return found


@pytest.mark.parametrize("instead", WORDS)
def test_words_are_plain(instead: str) -> None:
    found = lines_with(WORDS[instead])
    assert not found, f"write {instead}:\n" + "\n".join(found)


def test_docstrings_do_not_begin_with_a_question_word() -> None:
    found = []
    for path in FILES:
        if path.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                text = ast.get_docstring(node) or ""
                if QUESTIONS.match(text):
                    found.append(f"{path.relative_to(PACKAGE)}:{node.body[0].lineno}: {text.splitlines()[0]}")
    assert not found, "begin with a verb, or with a noun for classes and modules:\n" + "\n".join(found)


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {first}"
        for path in FILES
        if path.suffix == ".py"
        for line, first in without_verb(path.read_text())
    ]
    assert not found, "begin with a verb in the imperative, as in `Return ...`:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "The number of bytes.",
        "A Tensor that is read.",
        "An array.",
        "Number of threads.",
        "Whether it is there.",
        "How many there are.",
        "`x` as a Tensor.",
        "``x + y``.",
        "NumPy's function.",
        "As `compile`, for a graph.",
        "0 everywhere.",
    ],
)
def test_docstrings_without_a_verb_are_found(text: str) -> None:
    assert not begins_with_verb(text)
    assert list(without_verb(f'def f():\n    """{text}"""')) == [(2, text)]
    assert not list(without_verb(f'@property\ndef f(self):\n    """{text}"""\nclass A:\n    """{text}"""'))


@pytest.mark.parametrize("text", ["Return `x`.", "Draw;\nagain.", "Cross-correlate images.", "Pool."])
def test_docstrings_with_a_verb_are_accepted(text: str) -> None:
    assert begins_with_verb(text)


@pytest.mark.parametrize(
    ("text", "is_plain"),
    [
        ("7 is no index", False),
        ("they are no\n    # strings", False),
        ('f"{name!r} is no "\n    f"name"', False),
        ("there is no memory left", True),
        ("it is no longer needed", True),
        ("7 is not an index", True),
        ("drawn anew", False),
        ("renewed", True),
    ],
)
def test_patterns(text: str, is_plain: bool) -> None:
    assert is_plain == (not any(re.search(pattern, text) for pattern in WORDS.values()))
