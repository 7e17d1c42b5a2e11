"""Display in notebooks and terminals: HTML of strings, and tables that fit."""

from __future__ import annotations

import io
from collections.abc import Iterable

#: Wide enough for every column of a table of ours.
WIDE = 200

_PRE = "overflow-x:auto; white-space:pre; line-height:normal; font-family:monospace"


def pre(text: str) -> str:
    """Return HTML that shows `text` as it is."""
    return f'<pre style="{_PRE}">{_escaped(text)}</pre>'


def folded(parts: Iterable[tuple[str, str]]) -> str:
    """Return HTML of titled texts, each behind its title until somebody clicks on it."""
    return "".join(
        f"<details><summary>{_escaped(title)}</summary>{pre(body)}</details>" for title, body in parts
    )


class Shown:
    """Base class of objects with ``__rich__`` or ``__rich_console__``: text, and a table in notebooks."""

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(file=io.StringIO(), width=WIDE, color_system=None)
        console.print(self)
        text: str = console.file.getvalue()  # type: ignore[attr-defined]
        return "\n".join(line.rstrip() for line in text.rstrip().splitlines())

    def _repr_html_(self) -> str:
        from rich.console import Console

        console = Console(file=io.StringIO(), width=WIDE, record=True)
        console.print(self)
        return console.export_html(inline_styles=True, code_format=f'<pre style="{_PRE}">{{code}}</pre>')


def _escaped(text: str) -> str:
    from html import escape  # for what few programs show

    return escape(text)
