"""A profile as a table for people."""

from __future__ import annotations

import io
import statistics
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ...executor.profile import CallProfile
from .report import rows_of

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
        self._rows = sorted((row.as_dict() for row in rows_of(calls)), key=lambda row: -row["time"]["total"])
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
        kernels, prepare = (sum(row[part]["total"] for row in self._rows) for part in ("time", "prepare"))
        parts = {"steps": kernels, "preparing them": prepare, "Python": self._whole - kernels - prepare}
        return ", ".join(f"{name} {part / self._whole:.1%}" for name, part in parts.items())


def _cells(row: dict[str, Any], whole: float) -> list[str]:
    from rich.markup import escape

    time, moved = row["time"], row["bytes_read"] + row["bytes_written"]
    speeds = [bytes_text(moved), f"{row['gb_per_second']:.2f}", f"{row['fraction_of_copy']:.0%}"]
    return [
        escape(row["name"]),
        row["by"],
        str(row["calls"]),
        time_text(time["median"]),
        time_text(time["total"]),
        f"{time['total'] / whole:.1%}",
        *(speeds if moved else "---"),
        f"{row['gflop_per_second']:.2f}" if row["flops"] else "-",
        escape(PurePath(row["sources"][0]).name if row["sources"] else ""),
    ]


def time_text(seconds: float) -> str:
    """``12.3 us``: three digits and the unit that suits them."""
    return _in_units(seconds, (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))) or f"{seconds * 1e9:.0f} ns"


def bytes_text(count: int) -> str:
    """``1.5 MB``, in powers of 1000 as bandwidths are."""
    return _in_units(count, (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))) or f"{count} B"


def _in_units(value: float, units: Iterable[tuple[str, float]]) -> str | None:
    return next((f"{value / unit:.3g} {name}" for name, unit in units if value >= unit), None)
