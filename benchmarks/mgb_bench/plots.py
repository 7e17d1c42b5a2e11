"""Plots as SVG text, with nothing to load: lines over a logarithmic axis, and bars around 1."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

#: Colours that colour-blind readers can tell apart (Okabe and Ito 2008); mgb and the limit have their own.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999933", "#882255", "#44aa99")
OURS, LIMIT = "#000000", "#999999"

WIDTH, HEIGHT = 460, 260
LEFT, RIGHT, TOP, BOTTOM = 48, 120, 28, 34

Points = Sequence[tuple[float, float]]


def colours(names: Sequence[str]) -> dict[str, str]:
    """Return one colour for each name."""
    rest = iter(COLOURS * (len(names) // len(COLOURS) + 1))
    return {n: OURS if n.startswith("mgb") else LIMIT if n.startswith("limit") else next(rest) for n in names}


def lines(title: str, series: Mapping[str, Points], labels: Mapping[float, str], unit: str) -> str:
    """Draw lines over a logarithmic x axis.

    Parameters
    ----------
    series : mapping of str to points
        By name, each with x > 0 and y >= 0.
    labels : mapping of float to str
        The marks of the x axis.
    unit : str
        Of y.
    """
    highest = max(y for points in series.values() for _, y in points) * 1.08
    first, last = math.log(min(labels)), math.log(max(labels))

    def place(x: float, y: float) -> str:
        across = (math.log(x) - first) / (last - first or 1.0)
        return (f"{LEFT + across * (WIDTH - LEFT - RIGHT):.1f},"
                f"{HEIGHT - BOTTOM - y / highest * (HEIGHT - TOP - BOTTOM):.1f}")  # fmt: skip

    parts = [_text(LEFT, 16, f"{title}, {unit}", weight="bold")]
    for x, label in labels.items():
        at, _, _ = place(x, 0).partition(",")
        parts.append(_text(float(at), HEIGHT - 12, label, anchor="middle"))
    for y in _marks(highest):
        _, _, at = place(min(labels), y).partition(",")
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 6, float(at) + 4, f"{y:g}", anchor="end"))
    for row, (name, colour) in enumerate(colours(list(series)).items()):
        points = " ".join(place(*point) for point in series[name])
        style = 'stroke-dasharray="5 3"' if colour == LIMIT else 'stroke-width="2"' if colour == OURS else ""
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" {style}/>')
        parts.append(_text(WIDTH - RIGHT + 8, TOP + 14 * row + 6, name, fill=colour))
    return _svg(WIDTH, HEIGHT, parts)


def bars(title: str, values: Sequence[tuple[str, float]]) -> str:
    """Draw bars of ratios on a logarithmic axis, to the right of 1 and to the left of it."""
    row, label = 18, 250
    height = 34 + row * len(values) + 10
    span = max(abs(math.log2(value)) for _, value in values) or 1.0
    middle, half = label + 180, 160 / span
    parts = [_text(10, 16, title, weight="bold")]
    for place, (name, value) in enumerate(values):
        y, length = 34 + row * place, math.log2(value) * half
        colour = "#009e73" if value >= 1 else "#d55e00"
        parts.append(_text(label, y + 10, name, anchor="end"))
        box = f'x="{min(middle, middle + length):.1f}" y="{y}" width="{abs(length):.1f}" height="12"'
        parts.append(f'<rect {box} fill="{colour}"/>')
        parts.append(_text(label + 360, y + 10, f"{value:.2f}"))
    parts.append(f'<line x1="{middle}" x2="{middle}" y1="28" y2="{height - 6}" stroke="#333"/>')
    return _svg(label + 410, height, parts)


def _marks(highest: float) -> list[float]:
    """Return four to eight round numbers from 0 on."""
    step = 10 ** math.floor(math.log10(highest))
    step = next(step * f for f in (0.2, 0.5, 1, 2) if highest / (step * f) <= 8)
    return [step * i for i in range(int(highest / step) + 1)]


def _text(
    x: float, y: float, text: str, anchor: str = "start", fill: str = "#222", weight: str = "normal"
) -> str:
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-weight="{weight}">'
            f"{escape(text)}</text>")  # fmt: skip


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-size="11" '
    return head + 'font-family="sans-serif">' + "".join(parts) + "</svg>"
