"""A profile as a table for people."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ..executor.profile import CallProfile
from ..runtime.shown import Shown
from .report import rows_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table

_COLUMNS = ("step", "by", "calls", "median", "total", "share", "bytes", "GB/s", "of copy", "GFLOP/s", "from")
_NUMBERS = frozenset(_COLUMNS[2:-1])

#: The columns that a narrow terminal does without, the least telling first.
_EXPENDABLE = ("GFLOP/s", "total", "calls", "bytes", "from", "of copy", "by", "GB/s")

#: Columns of words are folded, but not below so many characters.
_LEAST = 12

#: Faster than this many copies of memory, data comes from caches, and the share of a copy says nothing.
_MEMORY = 1.05


class ProfileTable(Shown):
    """The steps of a traced function, the longest first.

    ``print(table)`` gives text with every column, ``rich.print(table)`` those that fit in the terminal.

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

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        from rich.markup import escape
        from rich.table import Table

        rows = [dict(zip(_COLUMNS, _cells(row, self._whole), strict=True)) for row in self._rows]
        widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in _COLUMNS}
        columns = list(_COLUMNS)
        for name in _EXPENDABLE:
            least = (widths[c] if c in _NUMBERS else min(widths[c], _LEAST) for c in columns)
            if sum(least) + 3 * len(columns) + 1 > options.max_width:
                columns.remove(name)
        table = Table(title=escape(self._title()), caption=self._caption())
        for name in columns:
            if name in _NUMBERS:
                table.add_column(name, justify="right", min_width=widths[name])
            else:
                table.add_column(name, overflow="fold", min_width=min(widths[name], _LEAST))
        for row in rows:
            table.add_row(*(escape(row[name]) for name in columns))
        yield table

    def _title(self) -> str:
        median = statistics.median(call.seconds for call in self._calls)
        return f"{self._name}: {len(self._calls)} calls, median {time_text(median)}"

    def _caption(self) -> str:
        kernels, prepare = (sum(row[part]["total"] for row in self._rows) for part in ("time", "prepare"))
        parts = {"steps": kernels, "preparing them": prepare, "Python": self._whole - kernels - prepare}
        return ", ".join(f"{name} {part / self._whole:.1%}" for name, part in parts.items())


def _cells(row: dict[str, Any], whole: float) -> list[str]:
    time, moved = row["time"], row["bytes_read"] + row["bytes_written"]
    speeds = [bytes_text(moved), f"{row['gb_per_second']:.2f}", copy_text(row["fraction_of_copy"])]
    return [
        row["name"],
        row["by"],
        str(row["calls"]),
        time_text(time["median"]),
        time_text(time["total"]),
        f"{time['total'] / whole:.1%}",
        *(speeds if moved else "---"),
        f"{row['gflop_per_second']:.2f}" if row["flops"] else "-",
        PurePath(row["sources"][0]).name if row["sources"] else "",
    ]


def copy_text(fraction: float, unit: str = "") -> str:
    """Format a speed relative to a copy of memory."""
    return f"{min(fraction, 1.0):.0%}{unit}" if fraction <= _MEMORY else "in cache"


def time_text(seconds: float) -> str:
    """Format a time as ``12.3 us``: three digits and the unit that suits them."""
    return _in_units(seconds, (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))) or f"{seconds * 1e9:.0f} ns"


def bytes_text(count: int) -> str:
    """Format bytes as ``1.5 MB``, in powers of 1000 as bandwidths are."""
    return _in_units(count, (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))) or f"{count} B"


def _in_units(value: float, units: Iterable[tuple[str, float]]) -> str | None:
    return next((f"{value / unit:.3g} {name}" for name, unit in units if value >= unit), None)
