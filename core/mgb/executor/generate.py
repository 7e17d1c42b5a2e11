"""From a plan to Python: the text of a program's function, and the names in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ..backends import Backend
from ..fusion import NUMBER
from ..ir import CONST, Graph, Node
from ..runtime.device import array_module
from .options import DEFAULT, Options
from .plan import MemoryPlan, Place
from .profile import Measured, clock
from .routine import Routine
from .schedule import Call
from .sequencer import Sequencer
from .sequences import sequences
from .writer import Writer, packed


def generate(
    graph: Graph,
    calls: Sequence[Call],
    plan: MemoryPlan,
    backend: Backend | None,
    options: Options = DEFAULT,
    into: bool = False,
) -> Routine:
    """Return the function that makes `calls` of the kernels of `backend`.

    `graph` is the whole program. When profiling, it notes the time before and after each call. With `into` it
    takes arrays for its results as well, and gives nothing.
    """
    kind = _ProfiledWriter if options.profiling else _IntoWriter if into else Writer
    writer = kind(graph, plan, backend, options.launch_graph)
    writer.ask_spare(calls)
    writer.begin(calls)
    last = {n: k for k, call in enumerate(calls) for n in call.reads} | dict.fromkeys(
        graph.outputs, len(calls)
    )
    for fits, numbers in sequences(calls, plan, None if options.profiling else backend, writer.is_sized):
        run = calls[numbers.start : numbers.stop]
        needed = {n for call in run for n in call.writes if last.get(n, -1) >= numbers.stop}
        if fits and backend is not None and Sequencer(writer, run, needed).write(backend):
            for k in numbers:
                writer.drop(plan.dropped[k])
        else:
            _write(writer, calls, numbers)
    writer.end()
    writer.give_result()
    return Routine(writer.source(), writer.bound, writer.recipes)


def _write(writer: Writer, calls: Sequence[Call], numbers: range) -> None:
    """Write the calls of these numbers one by one, or those together that the backend chains."""
    for row in writer.rows(calls, numbers):
        if not writer.chained([calls[k] for k in row]):
            for k in row:
                writer.call(calls[k])
        for k in row:
            writer.drop(writer.plan.dropped[k])


@dataclass
class _ProfiledWriter(Writer):
    """The same, with the time before and after each call, which does all that is its own."""

    splits: ClassVar[bool] = False
    timed: list[Call] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)

    def chained(self, calls: Sequence[Call]) -> bool:
        return False

    def begin(self, calls: Sequence[Call]) -> None:
        self.bind("clock", clock(self.device))
        self.mark()
        super().begin(calls)
        self.mark()

    def run(self, call: Call) -> None:
        if call.kernel is None and all(n.op in (CONST, NUMBER) for n in call.steps[0].graph.nodes):
            super().run(call)
            return
        self.timed.append(call)
        self.mark()
        super().run(call)
        self.mark()

    def end(self) -> None:
        super().end()
        self.mark()
        keep = self.bind("keep", Measured(self.graph, tuple(self.timed)).keep)
        self.line(f"{keep}({packed(self.marks)})")

    def mark(self) -> None:
        """Note the time."""
        self.marks.append(f"m{len(self.marks)}")
        self.line(f"{self.marks[-1]} = clock()")


class _IntoWriter(Writer):
    """The same, with arrays for the results among what it is given: what loops repeat allocates nothing."""

    parameters = "arrays, out"

    def begin(self, calls: Sequence[Call]) -> None:
        super().begin(calls)
        outputs = self.graph.outputs
        self.line(f"{packed(f'r{k}' for k in range(len(outputs)))} = out")
        given = {n for n, place in self.plan.places.items() if place == Place()}
        owners = [(k, self.owner(n)) for k, n in enumerate(outputs)]
        self.results = {n: f"r{k}" for k, n in reversed(owners) if n in given}

    def owner(self, node: Node) -> Node:
        """Return the value whose memory `node` takes over, or itself."""
        while (part := self.plan.places.get(node, Place()).part) is not None and part.window is None:
            node = part.whole
        return node

    def lies_alike(self, node: Node) -> bool:
        return node not in self.results and super().lies_alike(node)

    def fresh(self, node: Node) -> str:
        return self.results.get(node) or super().fresh(node)

    def give_result(self) -> None:
        for k, node in enumerate(self.graph.outputs):
            if self.results.get(self.owner(node)) != f"r{k}":
                copy = self.bind("copyto", array_module(node.spec.device).copyto)
                self.line(f"{copy}(r{k}, {self.value(node)})")
