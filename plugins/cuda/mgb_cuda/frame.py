"""What a graph's kernels have in common: operands, passes, and what may share memory."""

from __future__ import annotations

from mgb import codegen
from mgb.codegen import Online, Operand, Schedule, hazards, online, schedule
from mgb.forking import cached_property
from mgb.ir import Graph, Node

#: More ops than any value takes: nothing is kept from pass to pass.
NEVER = 1 << 30


class Frame(codegen.Frame[Operand]):
    """The operands and passes of one graph; by `schedule` each pass reads its operands again."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph, schedule(graph, NEVER))
        self.operands = tuple(Operand(name, v) for name, v in self.named())

    @cached_property
    def keeping(self) -> Schedule:
        """The passes when values that are dear stay in registers."""
        return schedule(self.graph)

    def outputs_of(self, node: Node) -> list[Operand]:
        """The outputs that `node` is written to."""
        return [o for o in self.outputs if o.node is node]

    @cached_property
    def kept(self) -> tuple[Node, ...]:
        """What a row that stays in registers holds: what one pass makes and a later one reads."""
        passes = self.keeping.passes
        reads = [v for p in passes for v in dict.fromkeys(p.reads)]
        again = [v for v in dict.fromkeys(reads) if reads.count(v) > 1]
        return (*again, *(v for p in passes for v in p.keeps))

    @cached_property
    def online(self) -> tuple[Online, ...]:
        """The folds of the second pass, when the first can do them all."""
        return online(self.schedule)

    @cached_property
    def hazards(self) -> tuple[tuple[int, int], ...]:
        """(input, output) pairs that must not be the same memory."""
        return hazards(self.graph, self.schedule)
