"""The report as Markdown: the machine, who is missing, one overview and one table of times for each suite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .peers import PEERS
from .results import LIMITS, Entry, Results

OVERVIEW = (
    "case", "size", "contestant", "min", "median", "GB/s", "limit GB/s", "of the limit", "best peer",
    "its median", "ratio",
)  # fmt: skip

#: What two of the columns mean.
LEGEND = (
    "- ratio: the best peer's median over ours, above 1 we are faster; limit: a program that moves as "
    "much memory over all cores, timed in the same rounds"
)

#: A table: its title, its head, its rows.
Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]


def markdown(results: Results) -> str:
    """Return the whole report."""
    parts = ["# Benchmarks", "", *machine_lines(results), ""]
    for suite, entries in results.suites():
        parts += [f"## {suite}", ""]
        for title, head, rows in tables(entries):
            parts += [f"### {title}", ""] if title else []
            parts += [*_lines(head, rows), ""]
        parts += [f"- {note}" for note in notes(entries)] + [""]
    return "\n".join(parts)


def processor(machine: Mapping[str, Any]) -> str:
    """Return the machine in a few words, and the day of the run."""
    day = f"; measured on {machine['date']}" if "date" in machine else ""
    return f"{machine['processor']}, {machine['cores']} cores, {machine['vectors']}{day}"


def machine_lines(results: Results) -> list[str]:
    """Describe the machine and the contestants that ran on it, as list items."""
    machine = results.machine
    caches = ", ".join(f"{name} {size}" for name, size in machine["caches"].items())
    lines = [
        f"- {processor(machine)}; {caches}",
        f"- {machine['system']}, Python {machine['python']}",
    ]
    lines += [f"- {name}: {version}" for name, version in machine["peers"].items()]
    lines += [f"- **missing: {name}**: {reason}" for name, reason in machine["missing"].items()]
    lines += [f"- **no results of suite {name}**: {why}" for name, why in machine.get("lost", {}).items()]
    if machine.get("quick"):
        lines.append("- a quick run: few rounds, so read differences below a fifth as noise")
    return [*lines, LEGEND]


def tables(entries: Sequence[Entry]) -> Iterable[Table]:
    """Yield the overview and the times of the races, then the other tables."""
    races = [entry for entry in entries if entry.timings]
    if races:
        yield overview(races)
        yield times(races)
    for entry in entries:
        if entry.table:
            yield f"{entry.case} {entry.size}".strip(), entry.table["columns"], _texts(entry.table["rows"])


def overview(races: Sequence[Entry]) -> Table:
    """Return one row for each of mgb's contestants in each race."""
    return "", OVERVIEW, [_overview_row(entry, name) for entry in races for name in entry.ours]


def _overview_row(entry: Entry, name: str) -> list[str]:
    best = entry.best_peer
    return [
        entry.case,
        entry.size,
        name,
        duration(entry.timings[name]["min"]),
        duration(entry.median(name)),
        _or_dash(entry.bandwidth(name), gigabytes),
        _or_dash(entry.limit, gigabytes),
        _or_dash(entry.of_limit(name), "{:.2f}".format),
        best or "-",
        _or_dash(best, lambda peer: duration(entry.median(peer))),
        _or_dash(entry.ratio(name), "**{:.2f}**".format),
    ]


def times(races: Sequence[Entry]) -> Table:
    """Return the medians of everybody, one column for each contestant."""
    found = dict.fromkeys(name for entry in races for name in entry.timings)
    order = [name for name in found if name not in PEERS and name not in LIMITS]
    order += [name for name in (*PEERS, *LIMITS) if name in found]
    rows = [[entry.case, entry.size, *(_time(entry, name) for name in order)] for entry in races]
    return "medians", ["case", "size", *order], rows


def _time(entry: Entry, name: str) -> str:
    if name in entry.timings:
        return duration(entry.median(name))
    return "failed" if name in entry.failed else "-"


def notes(entries: Sequence[Entry]) -> list[str]:
    """Return the notes that a reader needs beside the numbers."""
    lines = []
    for entry in entries:
        where = f"{entry.case} {entry.size}".strip()
        lines += [f"{where}: {note}" for note in entry.notes]
        lines += [f"{where}: {name} left out: {why}" for name, why in entry.failed.items()]
    return lines


def duration(seconds: float) -> str:
    """Format a duration with three digits and a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            return (
                f"{seconds * scale:.3g} {unit}"
                if seconds * scale < 999.5
                else f"{seconds * scale:.0f} {unit}"
            )
    return f"{seconds * 1e9:.3g} ns"


def gigabytes(bandwidth: float) -> str:
    """Format bytes per second in units of 10**9."""
    return f"{bandwidth / 1e9:.1f}"


def _or_dash(value: Any, show: Callable[[Any], str]) -> str:
    return "-" if value is None else show(value)


def _texts(rows: Iterable[Iterable[Any]]) -> list[list[str]]:
    return [[f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]


def _lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    every = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(map(_cell, row)) + " |" for row in every]


def _cell(text: str) -> str:
    """Return a cell as it stands there, ``a*b*c`` too; but what is bold stays so."""
    text = text.replace("|", "\\|")
    return text if text.startswith("**") else text.replace("*", "\\*")
