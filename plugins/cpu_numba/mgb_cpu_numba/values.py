"""The values of a kernel: its elements, and those with one value per row."""

from __future__ import annotations

from collections.abc import Iterable

from mgb.codegen import EXTENT, identity, statements
from mgb.ir import CONST, Kind, Node
from mgb_native.folds import held, wide
from mgb_native.frame import Buffer, Frame, Operand

from .places import Places

Names = dict[Node, str]
Nodes = tuple[Node, ...]


class Values(Places):
    """Writes how values are loaded, computed, folded and stored.

    Attributes
    ----------
    names : dict
        The variables of the values that one row has, or all rows.
    """

    def __init__(self, frame: Frame) -> None:
        super().__init__(frame)
        self.names: Names = {}

    def element(self, o: Operand, address: str, index: str) -> str:
        index = index if o.moves else "0"
        if o.is_iota:
            cast = self.function(f"cast_{o.dtype}", "cast", o.dtype)
            if o.node.spec.dtype.kind in "iu":  # which vectors of its own width can count in
                return f"add({cast}({address}), {cast}({index}))"
            return f"{cast}({address} + {index})"
        return self.load("in", o.dtype, address, index)

    def name(self, names: Names, node: Node, prefix: str, text: str) -> None:
        names[node] = f"{prefix}{len(names)}"
        self.line(f"{names[node]} = {text}")

    def compute(self, nodes: Iterable[Node], names: Names, prefix: str) -> None:
        def assign(node: Node, name: str, text: str) -> str:
            return f"{name} = {self.note_functions(node, text)}"

        for text in statements(nodes, names, self.table, assign, prefix):
            self.line(text)

    # row values

    def row_reads(self) -> None:
        """Load the operands that a row has one element of."""
        if not self.frame.columns:
            for node in self.frame.schedule.row_reads:
                o = self.frame.source_of[node]
                self.names[node] = f"{o.name}_value"
                self.line(f"{o.name}_value = {self.element(o, f'{o.name}_row', '0')}")

    def row_values(self, nodes: Iterable[Node], prefix: str) -> None:
        nodes = [v for v in nodes if v not in self.names]
        constants = [v for v in nodes if v.op is CONST]
        self.compute(constants, self.names, prefix)
        nodes = [v for v in nodes if v.op is not CONST]
        if not self.frame.columns:
            self.compute(nodes, self.names, prefix)
        elif nodes:
            with self.block("for i in range(width):"):
                names = dict(self.names)
                self.load_lanes(names, nodes, (), prefix)
                self.compute(nodes, names, prefix)
                for v in nodes:
                    r = self.frame.buffer("r", v)
                    self.store(r.name, r.dtype, r.name, "i", names[v])

    def load_lanes(self, names: Names, nodes: Iterable[Node], ends: Iterable[Node], prefix: str) -> None:
        """Load the row values that a loop over columns reads; elsewhere they are scalars and have names."""
        nodes = list(nodes)
        wanted = dict.fromkeys((*(i for v in nodes if v.op is not EXTENT for i in v.inputs), *ends))
        for v in wanted:
            if v in names or v in nodes:
                continue
            if v.op.kind is Kind.LEAF:
                o = self.frame.source_of[v]
                self.name(names, v, prefix, self.element(o, f"{o.name}_row", "i"))
            else:
                b = self.lane_buffer(v)
                self.name(names, v, prefix, self.load(b.name, b.dtype, b.name, "i"))

    def lane_buffer(self, node: Node) -> Buffer:
        return next(b for b in self.frame.buffers if b.node is node and b.name[0] in "tr")

    def row_stores(self) -> None:
        outputs = [o for o in self.frame.operands if o.is_output and o.node in self.frame.schedule.row_stores]
        if not outputs:
            return
        with self.block(f"if last == {self.frame.stages} and chunk0 == 0:"):
            if not self.frame.columns:
                for o in outputs:
                    self.store(o.name, o.dtype, f"{o.name}_row", "0", self.names[o.node])
                return
            with self.block("for i in range(width):"):
                names = dict(self.names)
                self.load_lanes(names, (), [o.node for o in outputs], "o")
                for o in outputs:
                    self.store(o.name, o.dtype, f"{o.name}_row", "i" if o.moves else "0", names[o.node])

    # reductions

    def running(self, fold: Node) -> str:
        """The variable that holds what a chunk of a row has folded to so far."""
        return f"{self.frame.buffer('p', fold).name}_now"

    def fill(self, addresses: dict[Node, str], prefix: str, count: str) -> None:
        """Let the buffers of reductions begin with what a reduction of nothing is."""
        if addresses:
            with self.block(f"for i in range({count}):"):
                for fold, address in addresses.items():
                    b = self.frame.buffer(prefix, fold)
                    self.store(b.name, b.dtype, address, "i", self.literal(identity(fold), held(fold)))

    def totals(self, folds: Nodes) -> None:
        if folds:
            (self.column_totals if self.frame.columns else self.row_totals)(folds)

    def row_totals(self, folds: Nodes) -> None:
        totals = {f: f"{self.frame.buffer('p', f).name}_total" for f in folds}
        for f, total in totals.items():
            self.line(f"{total} = {self.literal(identity(f), wide(f))}")
        with self.block("for chunk in range(chunks):"):
            for f, total in totals.items():
                p = self.frame.buffer("p", f)
                element = self.change(self.load(p.name, p.dtype, p.name, "chunk"), held(f), wide(f))
                self.line(f"{total} = {self.fold(f, total, element)}")
        for f, total in totals.items():
            self.name(self.names, f, "t", self.change(total, wide(f), held(f)))

    def change(self, value: str, source: str, target: str) -> str:
        """`value` of dtype `source` as `target`."""
        return value if source == target else f"{self.function(f'cast_{target}', 'cast', target)}({value})"

    def column_totals(self, folds: Nodes) -> None:
        buffers = {f: (self.frame.buffer("p", f), self.frame.buffer("t", f)) for f in folds}
        self.fill({f: t.name for f, (_, t) in buffers.items()}, "t", "width")
        with self.block("for chunk in range(chunks):"):
            for p, _ in buffers.values():
                self.line(f"{p.name}_at = {p.name} + chunk * piece * {p.itemsize}")
            with self.block("for i in range(width):"):
                for f, (p, t) in buffers.items():
                    total = self.load(t.name, t.dtype, t.name, "i")
                    partial = self.load(p.name, p.dtype, f"{p.name}_at", "i")
                    self.store(t.name, t.dtype, t.name, "i", self.fold(f, total, partial))
