"""From a graph to the Python source of its kernel.

A kernel is ``kernel(arrays, plan, span) -> int`` over addresses: of a C array with the addresses of the data
``x0, ..., y0, ...``, of the plan and of the span (see `mgb_native.frame`). It returns 1, having done nothing,
when an output is the memory of an input that must not be overwritten yet. The loops are

    rows: the axes that are kept
        passes over the row: chunks, units
            the innermost loop, over the elements of a unit

Softmax over the last axis, layer norm and the like are one kernel: the row stays in cache between the passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mgb.codegen import Pass, hazards, replaced, statements
from mgb.ir import CONST, Kind, Node
from mgb_native.folds import held, identity, wide
from mgb_native.frame import HEAD, SPAN, Buffer, Frame, Operand

from .words import FOLDERS
from .writer import Source, Writer

Names = dict[Node, str]
Nodes = tuple[Node, ...]


def source(frame: Frame) -> Source:
    """Print the kernel of `frame`."""
    return _Printer(frame).run()


class _Printer(Writer):
    def __init__(self, frame: Frame) -> None:
        outputs = [o.name for o in frame.operands if o.is_output]
        super().__init__(["in", *outputs, *(b.name for b in frame.buffers if not b.name.startswith("g"))])
        self.frame = frame
        self.names: Names = {}

    def run(self) -> Source:
        parameters = [o.name for o in self.frame.arrays]
        self.depth = 1
        self.extents()
        if self.frame.tiled:
            self.line("tile0 = row0")
            self.line("tile1 = row0")
        with self.block("for row in range(row0, row1):"):
            self.row()
        if any(o.is_output and o.moves for o in self.frame.operands):
            with self.block("if stream != 0:"):
                self.line("fence()")
        self.line("return 0")
        body, self.lines = self.lines, []
        self.head(parameters, set(re.findall(r"\w+", "\n".join(body))))
        constants = [f"{name} = {text}" for text, name in self.constants.items()]
        signature = "def kernel(arrays, plan, span):"
        text = [*constants, *([""] if constants else []), signature, *self.lines, *body, ""]
        return Source("\n".join(text), self.functions)

    # the parts of a kernel

    def head(self, parameters: list[str], used: set[str]) -> None:
        """Give the names that the body uses their values."""
        frame = self.frame
        sizes = [(name, f"slot(span, {i})") for i, name in enumerate(SPAN)]
        sizes += [(name, f"slot(plan, {i})") for i, name in enumerate(HEAD)]
        base = {True: "shared", False: "own"}
        buffers = [
            (b.name, f"{base[b.shared]} + slot(plan, {frame.buffers_at + i})")
            for i, b in enumerate(frame.buffers)
        ]
        used |= {base[b.shared] for b in frame.buffers if b.name in used}
        for i, name in enumerate(parameters):
            self.line(f"{name} = slot(arrays, {i})")
        risks: dict[int, list[str]] = {}
        for i, j in hazards(frame.graph, frame.schedule):
            risks.setdefault(i, []).append(f"y{j}")
        for i, outputs in risks.items():
            with self.block(f"if any_is(x{i}, {', '.join(outputs)}):"):
                self.line("return 1")
        iotas = [(o.name, "0") for o in frame.operands if o.is_iota]
        for name, text in (*sizes, *buffers, *iotas):
            if name in used:
                self.line(f"{name} = {text}")
        for o in self.frame.operands:
            if f"stream_{o.name}" in used:
                self.line(f"stream_{o.name} = {self.streams(o)}")

    def streams(self, o: Operand) -> str:
        """Whether an output goes past the caches: not where it replaces an input, which is in them."""
        inputs = [f"x{i}" for i in replaced(self.frame.graph, o.node)]
        return f"where(any_is({o.name}, {', '.join(inputs)}), 0, stream)" if inputs else "stream"

    def extents(self) -> None:
        for node in self.frame.graph.nodes:
            if node.op.name == "extent":
                folds = self.frame.span[node] != self.frame.span[node.inputs[0]]
                cast = self.function(f"cast_{held(node)}", "cast", held(node))
                self.names[node] = f"n{len(self.names)}"
                self.line(f"{self.names[node]} = {cast}({'extent' if folds else '1'})")

    def row(self) -> None:
        plan = self.frame.schedule
        self.row_addresses()
        self.row_values(plan.before, "b")
        for k, part in enumerate(plan.passes):
            if self.frame.stages == 1:
                self.loop(k, part)
            else:
                with self.block(f"if first <= {k} < last:"):
                    self.loop(k, part)
            self.totals(part.folds)
            self.row_values(part.after, f"w{k}_")
        self.row_stores()

    def places(self, index: str, kind: str, first: int = 0) -> list[str]:
        """Split `index` into its places along the loops of a kind, "kept" or "folded", from `first` out."""
        count, at = self.frame.loops[kind], self.frame.lengths_at[kind]
        names = []
        for axis in range(first, count - 1):
            length = f"slot(plan, {at + axis})"
            self.line(f"{kind}{axis} = remainder({index}, {length})")
            self.line(f"{kind}_rest{axis} = quotient({index}, {length})")
            names.append(f"{kind}{axis}")
            index = f"{kind}_rest{axis}"
        return [*names, index][: count - first]

    def moved(self, start: str, slots: Iterable[int], places: Iterable[str]) -> str:
        """`start`, moved to `places` by the strides in `slots`."""
        for at, place in zip(slots, places, strict=False):
            start = f"move({start}, {place}, slot(plan, {at}))"
        return start

    def lined_up(self, o: Operand, start: str, count: str) -> str:
        """Where the `count` elements that an input has at `start` lie side by side."""
        if not o.moves or o.is_iota or o.is_output:
            return start
        gather = self.function(f"gather_{o.itemsize}", "gather", o.itemsize)
        return f"{gather}(g{o.name}, {start}, slot(plan, {o.at}), {count})"

    def row_addresses(self) -> None:
        index, count = "row", ""
        if self.frame.columns:
            self.line("column = remainder(row, pieces) * piece")
            self.line("width = minimum(piece, n - column)")
            index, count = "quotient(row, pieces)", "width"
        places = self.places(index, "kept")
        read = self.frame.schedule.row_reads
        for o in self.frame.operands:
            start = self.moved(o.name, self.frame.strides_at(o, "kept"), places)
            if self.frame.columns and o.moves:
                start = self.moved(start, [o.at], ["column"])
            self.line(f"{o.name}_row = {self.lined_up(o, start, count) if o.node in read else start}")
        if self.frame.tiled:
            self.ask()
            self.tiles(places[0])
        if not self.frame.columns:
            for node in read:
                o = self.frame.source_of[node]
                self.names[node] = f"{o.name}_value"
                self.line(f"{o.name}_value = {self.element(o, f'{o.name}_row', '0')}")

    def ask(self) -> None:
        """Have the elements of a later row on their way from memory."""
        with self.block("if ahead != 0:"):
            for o in self.frame.tiled:
                later = self.moved(f"{o.name}_row", self.frame.strides_at(o, "kept"), ["ahead"])
                self.line(f"ask({later}, n * {o.itemsize})")

    def tiles(self, place: str) -> None:
        """Lay out rows that lie across cache lines, as many together as share a line."""
        length = f"slot(plan, {self.frame.lengths_at['kept']})"
        with self.block("if tile != 0:"), self.block("if row >= tile1:"):
            self.line("tile0 = row")
            self.line(f"tile1 = minimum(row1, row + minimum(tile, {length} - {place}))")
            for o, step in self.frame.tiled.items():
                tile = self.function(f"tile_{o.itemsize}", "tile", o.itemsize)
                across = self.frame.strides_at(o, "kept").start
                found = f"{o.name}_row, slot(plan, {step}), n, slot(plan, {across})"
                self.line(f"{tile}(g{o.name}, {found}, tile1 - tile0, pitch)")
        for o, step in self.frame.tiled.items():
            laid = f"g{o.name} + (row - tile0) * pitch * {o.itemsize}"
            self.line(f"{o.name}_row = where(slot(plan, {step}) != 0, {laid}, {o.name}_row)")

    def element(self, o: Operand, address: str, index: str) -> str:
        index = index if o.moves else "0"
        if o.is_iota:
            cast = self.function(f"cast_{o.dtype}", "cast", o.dtype)
            if o.node.spec.dtype.kind in "iu":  # which vectors of its own width can count in
                return f"add({cast}({address}), {cast}({index}))"
            return f"{cast}({address} + {index})"
        return self.load("in", o.dtype, address, index)

    # passes

    def loop(self, k: int, part: Pass) -> None:
        with self.block("for turn in range(chunk0, chunk1):"):
            # Every other pass runs backwards: it begins with what the one before has left in cache.
            self.line("chunk = chunk0 + (chunk1 - 1 - turn)" if k % 2 else "chunk = turn")
            self.begin_chunk(part)
            self.line("unit0 = chunk * group")
            self.line("unit1 = minimum(units, unit0 + group)")
            self.units(k, part)
            self.end_chunk(part)

    def units(self, k: int, part: Pass) -> None:
        """The units of a chunk. Only runs along the innermost of several folded loops take divisions."""
        operands = [*(self.frame.source_of[v] for v in part.reads), *self.written(part)]
        if self.frame.loops["folded"] < 2:
            with self.block("for unit in range(unit0, unit1):"):
                self.unit(k, part, {o: f"{o.name}_row" for o in operands}, "0", "unit")
            return
        length = f"slot(plan, {self.frame.lengths_at['folded']})"
        self.line(f"run0 = quotient(unit0, {length})")
        self.line(f"run1 = quotient(unit1 + {length} - 1, {length})")
        with self.block("for run in range(run0, run1):"):
            places = self.places("run", "folded", 1)
            for o in operands:
                slots = self.frame.strides_at(o, "folded")[1:]
                self.line(f"{o.name}_run = {self.moved(f'{o.name}_row', slots, places)}")
            if not self.frame.columns:
                self.line(f"start = {self.moved('0', self.frame.starts_at[1:], places)}")
            self.line(f"origin = run * {length}")
            with self.block(f"for unit in range(maximum(unit0, origin), minimum(unit1, origin + {length})):"):
                self.line("place = unit - origin")
                self.unit(k, part, {o: f"{o.name}_run" for o in operands}, "start", "place")

    def begin_chunk(self, part: Pass) -> None:
        if self.frame.columns:
            for f in part.folds:
                b = self.frame.buffer("p", f)
                self.line(f"{b.name}_at = {b.name} + chunk * piece * {b.itemsize}")
            self.fill({f: f"{self.frame.buffer('p', f).name}_at" for f in part.folds}, "p", "width")
        else:
            for f in part.folds:
                self.line(f"{self.running(f)} = {self.literal(identity(f), held(f))}")

    def running(self, fold: Node) -> str:
        """The variable that holds what a chunk of a row has folded to so far."""
        return f"{self.frame.buffer('p', fold).name}_now"

    def end_chunk(self, part: Pass) -> None:
        if not self.frame.columns:
            for f in part.folds:
                p = self.frame.buffer("p", f)
                self.store(p.name, p.dtype, p.name, "chunk", self.running(f))

    def fill(self, addresses: dict[Node, str], prefix: str, count: str) -> None:
        """Let the buffers of reductions begin with what a reduction of nothing is."""
        if addresses:
            with self.block(f"for i in range({count}):"):
                for fold, address in addresses.items():
                    b = self.frame.buffer(prefix, fold)
                    self.store(b.name, b.dtype, address, "i", self.literal(identity(fold), held(fold)))

    def unit(self, k: int, part: Pass, bases: dict[Operand, str], start: str, place: str) -> None:
        """One unit: the operands are at `place` of the innermost folded loop from `bases`."""
        if not self.frame.columns:
            start = self.moved(start, self.frame.starts_at[:1], [place])
            self.line(f"count = minimum(piece, n - {start})")
        for o, base in bases.items():
            address = self.moved(base, self.frame.strides_at(o, "folded")[:1], [place])
            self.line(f"{o.name}_at = {self.lined_up(o, address, self.count)}")
        for v in (*part.restores, *part.keeps):
            b = self.frame.buffer("k", v)
            self.line(f"{b.name}_at = {b.name} + unit * piece * {b.itemsize}")
        for o in self.written(part):
            if o.moves:
                self.line(f"{o.name}_to = where(stream_{o.name} != 0, s{o.name}, {o.name}_at)")
        self.elements(k, part)
        self.flush(part)

    def written(self, part: Pass) -> list[Operand]:
        """The outputs that a pass writes."""
        return [o for o in self.frame.operands if o.is_output and o.node in part.stores]

    def flush(self, part: Pass) -> None:
        """Write what the innermost loop left in buffers past the caches."""
        for o in self.written(part):
            if o.moves:
                flush = self.function(f"flush_{o.itemsize}", "flush", o.itemsize)
                with self.block(f"if stream_{o.name} != 0:"):
                    self.line(f"{flush}({o.name}_at, s{o.name}, {self.count})")

    @property
    def count(self) -> str:
        """How long the innermost loop is."""
        return "width" if self.frame.columns else "count"

    def elements(self, k: int, part: Pass) -> None:
        """The innermost loop."""
        with self.block(f"for i in range({self.count}):"):
            self.element_statements(k, part)

    def element_statements(self, k: int, part: Pass) -> None:
        names = dict(self.names)
        for v in part.reads:
            o = self.frame.source_of[v]
            self.name(names, v, f"e{k}_", self.element(o, f"{o.name}_at", "i"))
        for v in part.restores:
            b = self.frame.buffer("k", v)
            self.name(names, v, f"e{k}_", self.load(b.name, b.dtype, f"{b.name}_at", "i"))
        ends = (*part.stores, *(f.inputs[0] for f in part.folds))
        self.load_lanes(names, part.computes, ends, f"e{k}_")
        self.compute(part.computes, names, f"e{k}_")
        for v in part.keeps:
            b = self.frame.buffer("k", v)
            self.store(b.name, b.dtype, f"{b.name}_at", "i", names[v])
        for o in self.written(part):
            address, index = (f"{o.name}_to", "i") if o.moves else (f"{o.name}_at", "0")
            self.store(o.name, o.dtype, address, index, names[o.node])
        for f in part.folds:
            element = names[f.inputs[0]]
            if self.frame.columns:
                b = self.frame.buffer("p", f)
                total = self.load(b.name, b.dtype, f"{b.name}_at", "i")
                self.store(b.name, b.dtype, f"{b.name}_at", "i", self.fold(f, total, element))
            else:
                now = self.running(f)
                self.line(f"{now} = {FOLDERS[f.op.name]}({now}, {element})")

    def name(self, names: Names, node: Node, prefix: str, text: str) -> None:
        names[node] = f"{prefix}{len(names)}"
        self.line(f"{names[node]} = {text}")

    def compute(self, nodes: Iterable[Node], names: Names, prefix: str) -> None:
        def assign(node: Node, name: str, text: str) -> str:
            return f"{name} = {self.note_functions(node, text)}"

        for text in statements(nodes, names, self.table, assign, prefix):
            self.line(text)

    # row values

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
        wanted = dict.fromkeys((*(i for v in nodes if v.op.name != "extent" for i in v.inputs), *ends))
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
