"""What a graph's kernels have in common: operands, passes, and what may share memory."""

from __future__ import annotations

from dataclasses import dataclass

from mgb.codegen import Online, Schedule, hazards, is_operand, online, schedule, spans
from mgb.forking import cached_property
from mgb.ir import CONST, Graph, Node

#: More ops than any value takes: nothing is kept from pass to pass.
NEVER = 1 << 30


@dataclass(frozen=True, slots=True)
class Operand:
    """An array that a kernel reads or writes, or an ``iota``, whose elements are their own places."""

    name: str  # x0 x1 ... inputs, c0 ... constants, y0 ... outputs, i0 ... iotas
    node: Node

    @property
    def is_iota(self) -> bool:
        return self.name.startswith("i")

    @property
    def is_output(self) -> bool:
        return self.name.startswith("y")

    @property
    def itemsize(self) -> int:
        return 1 if self.is_iota else self.node.spec.dtype.itemsize


class Frame:
    """The operands and passes of one graph.

    Attributes
    ----------
    graph : Graph
    plain : Schedule
        Its passes when each reads its operands again.
    span : mapping
        See `mgb.codegen.spans`.
    operands : tuple of Operand
        Inputs, constants, outputs, iotas; all but the iotas are arrays that a call passes, in this order.
    flat : bool
        There are no reductions: the whole domain is one row that folds nothing.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.plain: Schedule = schedule(graph, NEVER)
        self.span = spans(graph)
        self.flat = not self.plain.reduced
        ndim = len(self.plain.shape)
        self.folded_axes = tuple(range(ndim)) if self.flat else self.plain.reduced
        self.operands = self._operands()

    def _operands(self) -> tuple[Operand, ...]:
        leaves = [v for v in self.graph.nodes if is_operand(v)]
        parts = {
            "x": self.graph.inputs,
            "c": [v for v in leaves if v.op is CONST],
            "y": self.graph.outputs,
            "i": [v for v in leaves if v.op is not CONST],
        }
        return tuple(Operand(f"{p}{i}", v) for p, nodes in parts.items() for i, v in enumerate(nodes))

    @cached_property
    def keeping(self) -> Schedule:
        """The passes when values that are dear stay in registers."""
        return schedule(self.graph)

    @property
    def arrays(self) -> tuple[Operand, ...]:
        """The operands that a call passes."""
        return tuple(o for o in self.operands if not o.is_iota)

    @cached_property
    def constants(self) -> tuple[Node, ...]:
        """The constants among them."""
        return tuple(o.node for o in self.operands if o.name.startswith("c"))

    @cached_property
    def source_of(self) -> dict[Node, Operand]:
        """The operand that each leaf is loaded from."""
        return {o.node: o for o in reversed(self.operands) if not o.is_output}

    def outputs_of(self, node: Node) -> list[Operand]:
        """The outputs that `node` is written to."""
        return [o for o in self.operands if o.is_output and o.node is node]

    @cached_property
    def stages(self) -> int:
        """The passes, and when the last one folds a stage after it, in which its totals are used."""
        return len(self.plain.passes) + bool(self.plain.passes[-1].folds)

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
        return online(self.plain)

    @cached_property
    def hazards(self) -> tuple[tuple[int, int], ...]:
        """(input, output) pairs that must not be the same memory."""
        return hazards(self.graph, self.plain)
