"""Find docstrings of functions that do not begin with a verb in the imperative."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

#: What a verb in the imperative is not: articles, pronouns, prepositions, amounts, participles, questions.
_NOT_VERBS = frozenset(
    """
    A About After All Along An And Another Any Arrays As At Before Between Bits Blocks Both By Bytes
    Called Choices Code Each Elements Equal Every Everything Few First Floats For From Functions Half He
    How If Images In Indices Infinity Integers Into It Its Itself Just Keys Kinds Lengths Likewise Lines
    Many Markdown Messages Microseconds Milliseconds Minus Names Negative New No None Not Nothing Number
    Numbers Objects Of On One Only Other Others Our Outputs Part Parts Pieces Places Positions Programs
    Quotient Random Rank Real Refused Registers Rounded Row Rows Same Samples Seconds Sector Several Shape
    Sizes Slots So Some Square Squares Such Tensors Text Texts That The Their There These They This Those
    Through To Told Triangles True Two Unchanged Until Values Vectors We Weights What Whatever When Where
    Whether Which While Who Whose Why With Within Without Words Would Yes You Zeros
    """.split()
)
_WORD = re.compile(r"[A-Z][a-z]+(?:-[a-z]+)?(?=[\s.,:;]|$)")  # neither `code` nor NumPy nor "Halide's"


def begins_with_verb(text: str) -> bool:
    """Return whether the first word of a docstring may be a verb in the imperative, like ``Return``."""
    word = _WORD.match(text.strip())
    return word is not None and word[0] not in _NOT_VERBS


def _is_attribute(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = " ".join(map(ast.unparse, node.decorator_list))
    return re.search(r"property|\.setter|\.deleter|fixture", names) is not None


def without_verb(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and first line of each function's docstring in a module that begins otherwise.

    Properties and fixtures are values and may begin with a noun, as classes and modules may.
    """
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_attribute(node):
            found = ast.get_docstring(node)
            if found and not begins_with_verb(found):
                yield node.body[0].lineno, found.splitlines()[0]
