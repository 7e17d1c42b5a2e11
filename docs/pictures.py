"""Pictures of real graphs for docs/how_it_works.md, as SVG: a row for each depth, a colour for each kernel.

Usage: ``python docs/pictures.py --write`` draws them, ``--check`` compares.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from html import escape
from math import fsum
from pathlib import Path

import mgb
import mgb.functional as F
import mgb.module as M
from mgb.autodiff import GradManager
from mgb.executor import Options, compile_program
from mgb.executor.resized import plain_graph
from mgb.ir import CONST, Graph, Node, Spec
from mgb.jit import trace
from mgb.optimizer import SGD
from mgb.tensor import Tensor
from mgb.tensor.tracing import graph_of

FOLDER = Path(__file__).parent / "pictures"

#: One for each kernel; what runs op by op is white.
COLOURS = ("#c7e3ff", "#ffdca8", "#cdeec0", "#f3c9e6", "#e0d4ff", "#fff2a8", "#bfeee8", "#ffc9c2")

_HIGH, _BETWEEN, _LETTER = 26, 26, 6.6


def softmax(x: Tensor) -> Tensor:
    """The rows of `x` as probabilities, as a user writes it."""
    e = F.exp(x - F.max(x, axis=1, keepdims=True))
    return e / F.sum(e, axis=1, keepdims=True)


def step_graph() -> Graph:
    """A training step of a small network: forward, backward, update."""
    model = M.Sequential(M.Linear(8, 4), M.ReLU(), M.Linear(4, 1))
    manager, optimizer = GradManager().attach(model.parameters()), SGD(model.parameters(), lr=0.1)

    @trace(symbolic=True, backend="eager")
    def step(x: Tensor, y: Tensor) -> Tensor:
        with manager:
            loss = F.loss.square_loss(model(x), y)
            manager.backward(loss)
            optimizer.step().clear_grad()
        return loss

    step(mgb.functional.ones((16, 8)), mgb.functional.ones((16, 1)))
    (program,) = step.programs()
    return plain_graph(program.recorded)


def pictures() -> Mapping[str, Callable[[], str]]:
    """What draws each, by the name of its file."""
    rows = Spec((64, 100), mgb.tensor([0.0]).dtype)
    return {
        "softmax_recorded.svg": lambda: drawn(graph_of(softmax, rows)),
        "softmax_fused.svg": lambda: fused(graph_of(softmax, rows)),
        "step_recorded.svg": lambda: drawn(step_graph()),
        "step_fused.svg": lambda: fused(step_graph()),
    }


def fused(graph: Graph) -> str:
    """What the passes leave, coloured by kernel."""
    program = compile_program(graph, Options(backend="cpu_llvm"))
    owner: dict[Node, int] = {}
    kernels = [step for step in program.steps if step.fused]
    for number, step in enumerate(kernels):
        for node in Graph(step.reads, step.writes).nodes:
            owner.setdefault(node, number)
    return drawn(program.simplified, owner)


def drawn(graph: Graph, owner: Mapping[Node, int] | None = None) -> str:
    """A graph, from its inputs above to its outputs below; constants of one element are left out."""
    shown = [n for n in graph.nodes if n.op is not CONST]
    reads = {n: [i for i in n.inputs if i.op is not CONST] for n in shown} | {n: [] for n in graph.inputs}
    depth: dict[Node, int] = {}
    for node in (*graph.inputs, *shown):
        depth[node] = max((depth[i] + 1 for i in reads[node]), default=0)
    for node in reversed(graph.inputs):  # as near to its first reader as can be
        first = min((depth[r] for r in shown if node in reads[r]), default=1)
        depth[node] = max(first - 1, 0)
    return _svg(_placed(_rows(reads, depth)), reads, graph, owner or {})


def _rows(reads: Mapping[Node, Sequence[Node]], depth: Mapping[Node, int]) -> list[list[Node]]:
    """The nodes of each depth, each below the middle of what it reads."""
    rows: list[list[Node]] = [[] for _ in range(max(depth.values()) + 1)]
    for node, row in depth.items():
        rows[row].append(node)
    place: dict[Node, float] = {}
    for row in rows:
        for k, node in enumerate(row):
            known = [place[i] for i in reads[node] if i in place]
            place[node] = sum(known) / len(known) if known else float(k)
        row.sort(key=place.__getitem__)
        place.update((node, float(k)) for k, node in enumerate(row))
    return rows


def _placed(rows: Sequence[Sequence[Node]]) -> dict[Node, tuple[float, float, float]]:
    """The left end, the top and the width of each box."""
    widths = [[_LETTER * len(_label(n)) + 16 for n in row] for row in rows]
    whole = max(fsum(w) + 14 * (len(w) - 1) for w in widths)  # `sum` rounds otherwise from Python 3.12 on
    found = {}
    for number, (row, wide) in enumerate(zip(rows, widths, strict=True)):
        left = 10 + (whole - fsum(wide) - 14 * (len(wide) - 1)) / 2
        for node, width in zip(row, wide, strict=True):
            found[node] = left, 10.0 + number * (_HIGH + _BETWEEN), width
            left += width + 14
    return found


def _label(node: Node) -> str:
    shape = ",".join(map(str, node.spec.shape))
    return f"{node.op.name} [{shape}]"


def _edge(x: float, y: float, to_x: float, to_y: float) -> str:
    """A line, that goes round the boxes between rows that are far apart."""
    far = (to_y - y) / (_HIGH + _BETWEEN)
    aside = 0 if far < 1 else 40 + 12 * far
    aside = aside if to_x <= x else -aside
    curve = f"C{x + aside:.0f} {y + 30:.0f} {to_x + aside:.0f} {to_y - 30:.0f} {to_x:.0f} {to_y:.0f}"
    straight = f"L{to_x:.0f} {to_y:.0f}"
    return f'<path d="M{x:.0f} {y:.0f} {curve if aside else straight}" class="edge"/>'


def _svg(
    boxes: Mapping[Node, tuple[float, float, float]],
    reads: Mapping[Node, Sequence[Node]],
    graph: Graph,
    owner: Mapping[Node, int],
) -> str:
    width = max(left + wide for left, _, wide in boxes.values()) + 10
    height = max(top for _, top, _ in boxes.values()) + _HIGH + 10
    lines, shapes = [], []
    for node, (left, top, wide) in boxes.items():
        for operand in reads[node]:
            x, y, w = boxes[operand]
            lines.append(_edge(x + w / 2, y + _HIGH, left + wide / 2, top))
        colour = COLOURS[owner[node] % len(COLOURS)] if node in owner else "#ffffff"
        kind = "end" if node in graph.outputs else "input" if node in graph.inputs else "op"
        box = f'<rect x="{left:.0f}" y="{top:.0f}" width="{wide:.0f}" height="{_HIGH}" rx="6"'
        text = f'<text x="{left + wide / 2:.0f}" y="{top + 17:.0f}">{escape(_label(node))}</text>'
        shapes.append(f'{box} fill="{colour}" class="{kind}"/>{text}')
    style = (
        "text{font:11px ui-monospace,monospace;text-anchor:middle;fill:#222}.edge{stroke:#8a8f98;fill:none}"
        "rect{stroke:#8a8f98}.input{stroke-dasharray:4 3}.end{stroke:#222;stroke-width:2}"
    )
    wide = f"{width + 80:.0f}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-40 0 {wide} {height:.0f}" width="{wide}">'
    ground = '<rect x="-40" width="100%" height="100%" fill="#fff" style="stroke:none"/>'
    return "\n".join([f"{head}<style>{style}</style>{ground}", *lines, *shapes, "</svg>\n"])


def main(arguments: Sequence[str]) -> int:
    status = 0
    FOLDER.mkdir(exist_ok=True)
    for name, draw in pictures().items():
        text, path = draw(), FOLDER / name
        if "--write" in arguments:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path.name} is not what the code gives: python docs/pictures.py --write")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
