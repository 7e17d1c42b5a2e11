"""A profile as a table for people."""

from __future__ import annotations

import io
import statistics
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from ...executor.profile import CallProfile
from .report import Row, rows_of

if TYPE_CHECKING:
    from rich.table import Table

_COLUMNS = ("step", "by", "calls", "median", "total", "share", "bytes", "GB/s", "of copy", "GFLOP/s", "from")
_NUMBERS = frozenset(_COLUMNS[2:-1])

#: Wide enough for every column; as text, a table is never folded.
_WIDTH = 200


class ProfileTable:
    """The steps of a traced function, the longest first.

    ``print(table)`` gives text, ``rich.print(table)`` a table of the width of the terminal.

    Parameters
    ----------
    name : str
        Of the function.
    calls : sequence of CallProfile
        Of it, the `warm` ones.
    """

    def __init__(self, name: str, calls: Sequence[CallProfile]) -> None:
        self._name, self._calls = name, calls
        self._rows = sorted(rows_of(calls), key=lambda row: -sum(row.seconds))
        self._whole = sum(call.seconds for call in calls)

    def __rich__(self) -> Table:
        from rich.markup import escape
        from rich.table import Table

        table = Table(title=escape(self._title()), caption=self._caption())
        for name in _COLUMNS:
            table.add_column(name, justify="right" if name in _NUMBERS else "left", overflow="fold")
        for row in self._rows:
            table.add_row(*_cells(row, self._whole))
        return table

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(file=io.StringIO(), width=_WIDTH, color_system=None)
        console.print(self)
        text: str = console.file.getvalue()  # type: ignore[attr-defined]
        return text.rstrip()

    def _title(self) -> str:
        median = statistics.median(call.seconds for call in self._calls)
        return f"{self._name}: {len(self._calls)} calls, median {time_text(median)}"

    def _caption(self) -> str:
        kernels = sum(sum(row.seconds) for row in self._rows)
        prepare = sum(sum(row.prepare) for row in self._rows)
        parts = {"steps": kernels, "preparing them": prepare, "Python": self._whole - kernels - prepare}
        return ", ".join(f"{name} {part / self._whole:.1%}" for name, part in parts.items())


def _cells(row: Row, whole: float) -> list[str]:
    from rich.markup import escape

    moves = row.cost.nbytes > 0
    median = statistics.median(row.seconds)
    gflops = row.cost.flops / max(median, 1e-9) / 1e9
    return [
        escape(row.cost.name),
        row.cost.by,
        str(len(row.spans)),
        time_text(median),
        time_text(sum(row.seconds)),
        f"{sum(row.seconds) / whole:.1%}",
        bytes_text(row.cost.nbytes) if moves else "-",
        f"{row.bytes_per_second / 1e9:.2f}" if moves else "-",
        f"{row.fraction_of_copy:.0%}" if moves else "-",
        f"{gflops:.2f}" if row.cost.flops else "-",
        escape(PurePath(row.cost.sources[0]).name if row.cost.sources else ""),
    ]


def time_text(seconds: float) -> str:
    """``12.3 us``: three digits and the unit that suits them."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def bytes_text(count: int) -> str:
    """``1.5 MB``, in powers of 1000 as bandwidths are."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} B"
