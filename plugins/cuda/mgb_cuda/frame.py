"""The common part of a graph's kernels: operands, passes, and which of them may share memory."""

from __future__ import annotations

from collections.abc import Iterable

from mgb import codegen
from mgb.codegen import Online, Operand, Schedule, hazards, online, schedule
from mgb.ir import Graph, Node
from mgb.runtime.forking import cached_property

#: More ops than any value takes: nothing is kept from pass to pass.
NEVER = 1 << 30

#: Ops of a dozen instructions or more: what they have made is kept while it is needed.
DEAR = frozenset("exp log sin cos tanh erf expm1 log1p div sqrt quotient fmod_float fmod_double".split())


def registers(nodes: Iterable[Node], lanes: int = 1) -> int:
    """Return those of a thread that neighbouring elements of each of `nodes` take: narrow ones share them."""
    return sum(-(-lanes * v.spec.dtype.itemsize // 4) for v in nodes)


class Frame(codegen.Frame[Operand]):
    """The operands and passes of one graph; by `schedule` each pass reads its operands again."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph, schedule(graph, NEVER))
        self.operands = tuple(Operand(name, v) for name, v in self.named())

    @cached_property
    def keeping(self) -> Schedule:
        """The passes when values that are dear stay in registers."""
        return schedule(self.graph, dear=DEAR)

    def outputs_of(self, node: Node) -> list[Operand]:
        """Return the outputs that `node` is written to."""
        return [o for o in self.outputs if o.node is node]

    @cached_property
    def kept(self) -> tuple[Node, ...]:
        """Return the values that a row holds in registers between two passes, where they take most."""
        passes = self.keeping.passes
        made: dict[Node, int] = {}
        last: dict[Node, int] = {}
        for k, p in enumerate(passes):
            for v in (*p.reads, *p.restores, *p.keeps):
                made.setdefault(v, k)
                last[v] = k
        between = [[v for v in made if made[v] < k <= last[v]] for k in range(1, len(passes))]
        return tuple(max(between, key=registers, default=[]))

    @cached_property
    def parts(self) -> dict[str, Node]:
        """The folds of each pass, by the names of what blocks that share a row find of them."""
        folds = ((k, i, f) for k, p in enumerate(self.schedule.passes) for i, f in enumerate(p.folds))
        return {f"part{k}_{i}": f for k, i, f in folds}

    @cached_property
    def online(self) -> tuple[Online, ...]:
        """The folds of the second pass, when the first can do them all."""
        return online(self.schedule)

    @cached_property
    def hazards(self) -> tuple[tuple[int, int], ...]:
        """(input, output) pairs that must not be the same memory."""
        return hazards(self.graph, self.schedule)
