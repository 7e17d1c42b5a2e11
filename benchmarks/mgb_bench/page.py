"""The report as one HTML page: the tables of `report` and plots, in one file that loads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from .plots import bars, lines
from .report import Table, machine_lines, notes, tables
from .results import LIMITS, Entry, Results

_STYLE = """
body { font: 14px/1.45 sans-serif; margin: 2em auto; max-width: 1100px; color: #222; padding: 0 1em }
.wide { overflow-x: auto } svg { max-width: 100%; margin: 0 12px 12px 0 }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums }
th, td { padding: 2px 9px; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
"""


def page(results: Results) -> str:
    """Return the whole page."""
    parts = ["<!doctype html><html lang=en><meta charset=utf-8><title>mgb benchmarks</title>"]
    parts += [f"<style>{_STYLE}</style><h1>Benchmarks</h1>", _list(machine_lines(results))]
    for suite, entries in results.suites():
        parts += [f"<h2>{escape(suite)}</h2>", *plots(suite, entries), *map(_table, tables(entries))]
        parts.append(_list(notes(entries)))
    return "\n".join([*parts, "</html>"])


def plots(suite: str, entries: Sequence[Entry]) -> Iterable[str]:
    """Return ratios to the best peer, and for what was swept over sizes the bandwidth."""
    ratios = [
        (f"{entry.case} {entry.size}" + (f" {name}" if len(entry.ours) > 1 else ""), ratio)
        for entry in entries
        for name in entry.ours
        if (ratio := entry.ratio(name)) is not None
    ]
    if ratios:
        yield bars(f"{suite}: ratio to the best peer (logarithmic; green: mgb is faster)", ratios)
    for case in dict.fromkeys(entry.case for entry in entries):
        swept = [entry for entry in entries if entry.case == case and entry.nbytes]
        if len(swept) > 1:
            yield _bandwidths(case, swept)


def _bandwidths(case: str, entries: Sequence[Entry]) -> str:
    """Plot bandwidth against size; entries of the same number of elements are side by side."""
    same = len({entry.elements for entry in entries}) < len(entries)
    places = {id(e): float(2**i if same else e.elements) for i, e in enumerate(entries)}
    series: dict[str, list[tuple[float, float]]] = {}
    for entry in entries:
        for name in (*entry.ours, *entry.peers):
            bandwidth = entry.bandwidth(name)
            if bandwidth is not None:
                series.setdefault(name, []).append((places[id(entry)], bandwidth / 1e9))
        if entry.limit is not None:
            series.setdefault(LIMITS[0], []).append((places[id(entry)], entry.limit / 1e9))
    return lines(case, series, {places[id(entry)]: entry.size for entry in entries}, "GB/s")


def _list(items: Sequence[str]) -> str:
    return (
        "<ul>"
        + "".join(f"<li>{escape(item.removeprefix('- ').replace('**', ''))}</li>" for item in items)
        + "</ul>"
    )


def _table(table: Table) -> str:
    title, head, rows = table
    heading = f"<h3>{escape(title)}</h3>" if title else ""
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"{heading}<div class=wide><table><tr>{cells}</tr>{body}</table></div>"


def _cell(text: str) -> str:
    bold = text.startswith("**")
    return f"<td><b>{escape(text.strip('*'))}</b></td>" if bold else f"<td>{escape(text)}</td>"
