"""Plots as SVG text, by Matplotlib: lines over a logarithmic axis, and bars around 1."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .peers import PEERS
from .results import LIMITS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: One colour a peer, in every plot (Okabe and Ito 2008: colour-blind readers can tell them apart).
COLOURS = dict(
    zip(
        PEERS,
        ("#0072b2", "#56b4e9", "#e69f00", "#999933", "#009e73", "#cc79a7", "#882255", "#d55e00", "#6a3d9a"),
        strict=True,
    )
)
LIMIT, FASTER, SLOWER = "#999999", "#009e73", "#d55e00"

#: Lines of backends of mgb, and of methods, which are not among the peers: black, each with its dashes.
DASHES = ("-", "--", "-.", ":")

#: What makes the SVG of equal figures equal text, with letters as text.
_SETTINGS = {"svg.hashsalt": "mgb", "svg.fonttype": "none", "font.size": 8, "font.family": "sans-serif"}

Points = Sequence[tuple[float, float]]


def styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return Matplotlib's style of the line of each contestant.

    Examples
    --------
    >>> styles(["mgb:cpu_llvm", "numpy"])["numpy"] == styles(["numpy"])["numpy"]
    True
    """
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        black = [style for style in found.values() if style["color"] == "black"]
        if name in COLOURS:
            found[name] = {"color": COLOURS[name], "linewidth": 1}
        elif name in LIMITS:
            found[name] = {"color": LIMIT, "linewidth": 1, "linestyle": "--"}
        else:
            dashes = DASHES[len(black) % len(DASHES)]
            found[name] = {"color": "black", "linewidth": 1.8, "linestyle": dashes}
    return found


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
    with _axes(5.4, 2.8) as (axes, text):
        for (name, points), style in zip(series.items(), styles(list(series)).values(), strict=True):
            axes.plot(*zip(*points, strict=True), label=name, **style)
        axes.set_xscale("log")
        axes.set_xticks(list(labels), list(labels.values()))
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color="#dddddd")
        axes.set_title(f"{title}, {unit}", loc="left", fontweight="bold", parse_math=False)
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.02), frameon=False)
    return text.getvalue()


def bars(title: str, values: Sequence[tuple[str, float]]) -> str:
    """Draw bars of ratios on a logarithmic axis, to the right of 1 and to the left of it."""
    names, ratios = [name for name, _ in values], [value for _, value in values]
    with _axes(7, 0.6 + 0.17 * len(values)) as (axes, text):
        colours = [FASTER if ratio >= 1 else SLOWER for ratio in ratios]
        drawn = axes.barh(range(len(ratios)), [ratio - 1 for ratio in ratios], left=1, color=colours)
        axes.bar_label(drawn, [f"{ratio:.2f}" for ratio in ratios], padding=3)
        axes.set_xscale("log", base=2)
        axes.set_xlim(min(*ratios, 0.5) / 1.6, max(*ratios, 2) * 1.6)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_yticks(range(len(names)), names, parse_math=False)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.axvline(1, color="#333333", linewidth=1)
        axes.set_title(title, loc="left", fontweight="bold", parse_math=False)
    return text.getvalue()


@contextmanager
def _axes(width: float, height: float) -> Iterator[tuple[Axes, io.StringIO]]:
    """Give axes of `width` by `height` inches to draw on, and where their SVG is written at the end."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    text = io.StringIO()
    with rc_context(_SETTINGS):
        figure = Figure(figsize=(width, height))
        axes = figure.add_subplot()
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        yield axes, text
        figure.savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    whole = text.getvalue()
    text.seek(0)
    text.truncate()
    text.write(whole[whole.index("<svg") :])  # a page holds it: neither prologue nor type of document
