"""The passes of a kernel over its rows: loads, statements, folds and stores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from mgb.codegen import IOTA, Online, Pass, statements
from mgb.ir import Node
from mgb_cuda.frame import Operand, registers
from mgb_cuda.variant import Kind

from .totals import Names, Totals
from .words import SPELLINGS, c_type, fold

#: Registers that all slots of what a pass loads may take beside a row that stays in others.
AT_ONCE = 16


class Passes(Totals):
    """Prints loops over rows."""

    # one pass

    def visit(self, p: Pass, ahead: Sequence[Online] = ()) -> None:
        v = self.variant
        self.ahead = tuple(ahead)
        if v.kind is Kind.FLAT or v.stays:
            self.declare(p)
            self.visit_tile(p, "begin")
            return
        if v.turned:
            self.line("#pragma unroll 1")
            self.tile(p, f"for (I tile = begin; tile < {self.last}; tile += {v.stride * v.slots}) {{")
            return
        step = v.stride * v.slots
        with self.block("{"):
            self.line("I tile = begin;")
            self.line("#pragma unroll 1")  # slots are unrolled already
            self.full = True
            self.tile(p, f"for (; tile + {step} <= end; tile += {step}) {{")
            self.full = False
            self.tile(p, "if (tile < end) {")

    def tile(self, p: Pass, head: str) -> None:
        """Emit the computation of one tile of a row."""
        with self.block(head):
            self.arrays = {}
            self.declare(p)
            self.visit_tile(p, "tile")
        self.arrays = {}

    @property
    def tail(self) -> bool:
        """Return whether some lanes of a vector may lie beyond the end of the row."""
        return self.variant.tail and not self.full

    @property
    def crowded(self) -> bool:
        """Return whether a row stays in registers that an earlier pass has loaded."""
        return self.variant.stays and any(n not in self.fresh for n in self.arrays)

    @property
    def last(self) -> str:
        """Return where a thread has seen enough of a row: where its own part of it ends."""
        return "end"

    def declare(self, p: Pass) -> None:
        """Declare the registers for what this pass loads, and for what it stores for a later one."""
        self.fresh = [n for n in dict.fromkeys(p.reads) if n not in self.arrays]
        for node in self.fresh:
            o = self.frame.source_of[node]
            self.arrays[node] = (o.name, self.width(self.index[o]))
            if self.is_loaded(o):
                width = self.arrays[node][1]
                self.line(f"Vec<{c_type(node)}, {width}> {o.name}[{self.variant.slots}];")
        for node in p.keeps:
            name = f"k{self.number[node]}"
            self.line(f"Vec<{c_type(node)}, {self.variant.lanes}> {name}[{self.variant.slots}];")
            self.arrays[node] = (name, self.variant.lanes)
        self.declare_online()

    def is_loaded(self, o: Operand) -> bool:
        """Return whether it is loaded into registers, for all slots before any is computed."""
        return not o.is_iota and (not self.variant.whole or self.is_vector(self.index[o]))

    def visit_tile(self, p: Pass, tile: str) -> None:
        loads = [o for n in self.fresh if self.is_loaded(o := self.frame.source_of[n])]
        v = self.variant
        at_once = v.slots * registers([o.node for o in loads], v.lanes) <= AT_ONCE or not self.crowded
        if loads and at_once:
            with self.slot(tile):
                for o in loads:
                    self.load(o)
        with self.slot(tile):
            if not at_once:
                for o in loads:
                    self.load(o)
            self.elements(p)
        if self.ahead:
            self.fold_online(tile)

    def slot(self, tile: str):  # type: ignore[no-untyped-def]
        """Open a block for each slot of a thread, in which ``at`` is its place in the row."""
        v = self.variant
        place = "lane" if v.kind is Kind.COLUMNS or v.lanes == 1 else f"lane * {v.lanes}"
        heads = [f"for (int s = 0; s < {v.slots}; ++s) {{"] if v.slots > 1 else ["{"]
        return self.element_block(heads, f"{tile} + {'s' if v.slots > 1 else '0'} * {v.stride} + {place}")

    def load(self, o: Operand) -> None:
        """Load the lanes of one operand at ``at``."""
        index = self.index[o]
        width, s = self.width(index), self.slot_index
        target, place = f"{o.name}[{s}]", self.place(index)
        if width > 1 and self.is_vector(index):
            whole = f"{target} = load<{c_type(o.node)}, {width}>(p.{o.name} + {place});"
            if not self.tail:
                self.line(whole)
                return
            self.line(f"if (at + {width} <= end) {whole}")
            self.line("else")
        with self.lanes(width):
            guard = "if (at + v < end) " if self.tail and width > 1 else ""
            step = self.step(index) if width > 1 else ""
            self.line(f"{guard}{target}.v[v] = p.{o.name}[{place}{step}];")

    def elements(self, p: Pass) -> None:
        """Emit the computation of each element, lane by lane, and the stores of whole vectors."""
        v = self.variant
        outputs = [o for n in p.stores for o in self.frame.outputs_of(n)]
        vectors = [o for o in outputs if v.lanes > 1 and self.is_vector(self.index[o])]
        for o in vectors:
            self.line(f"Vec<{c_type(o.node)}, {v.lanes}> {o.name};")
        self.load_ends(p)
        with self.each_lane():
            self.element(p, outputs, vectors)
        for o in vectors:
            self.store_vector(o)

    def load_ends(self, p: Pass) -> None:
        """Load what stays the same along the innermost loop, which lanes go past once at most."""
        v = self.variant
        ends = [o for n in p.reads if self.has_ends(o := self.frame.source_of[n])]
        if not ends:
            return
        loops, n = v.folded_loops, f"p.n{self.inner}"
        self.line(f"const I last = at + {v.lanes - 1} < end ? at + {v.lanes - 1} : end - 1;")
        for o in dict.fromkeys(ends):
            self.line(f"{c_type(o.node)} {o.name}[2];")
        for k, place in enumerate(("at", "last")):
            with self.block("{"):
                self.decompose(place, loops)
                for o in dict.fromkeys(ends):
                    where = self.offset(v.class_of[self.index[o]], loops)
                    self.line(f"{o.name}[{k}] = p.{o.name}[{where}];")
        self.decompose("at", loops[-2:])
        self.line(f"const I left = {n} - i{self.inner};")

    def has_ends(self, o: Operand) -> bool:
        """Return whether it is the same along the innermost loop, where lanes go past its end."""
        group = self.variant.class_of[self.index[o]]
        same = bool(self.variant.whole) and group >= 0 and not o.is_iota
        return same and self.variant.classes[group][self.inner] == "0"

    @contextmanager
    def each_lane(self) -> Iterator[None]:
        """Open a block for each lane ``v`` that is before the end of the row, in which its place is known."""
        with self.lanes(self.variant.lanes):
            if not self.tail:
                self.lane_places()
                yield
                return
            with self.block("if (at + v < end) {"):
                self.lane_places()
                yield

    def lane_places(self) -> None:
        """Write where the lane of classes is whose lanes are not neighbours of each other."""
        v = self.variant
        if v.whole:
            self.line("const I of = at + v;")
            self.decompose("of", v.folded_loops)
            for c in (c for c in range(len(v.classes)) if c not in v.whole):
                self.line(f"const I o{c} = {self.offset(c, v.folded_loops)};")

    def element(self, p: Pass, outputs: list[Operand], vectors: list[Operand]) -> None:
        names = self.names | {n: self.lane_of(n) for n in self.arrays}
        ready = set(self.arrays) - set(p.keeps)
        for n in p.keeps:
            del names[n]
        self.compute([n for n in p.computes if n not in ready], names)
        for n in p.keeps:
            self.line(f"{self.lane_of(n)} = {names[n]};")
        for f in p.folds:
            total = f"{self.accumulators[f]}[v]"
            self.line(f"{total} = {fold(f, total, names[f.inputs[0]])};")
        for early in self.ahead:
            self.line(f"w{self.number[early.fold]}[{self.slot_index}].v[v] = {names[early.value]};")
        for o in outputs:
            if o in vectors:
                self.line(f"{o.name}.v[v] = {names[o.node]};")
            else:
                index = self.index[o]
                loops = range(len(self.variant.folded))
                first = self.first_only(index, loops, self.variant.lanes > 1 and not self.variant.whole)
                step = self.step(index) if self.variant.lanes > 1 else ""
                self.line(f"{first}p.{o.name}[{self.place(index)}{step}] = {names[o.node]};")

    def lane_of(self, node: Node) -> str:
        """Return a lane of a value that is held for all slots."""
        name, width = self.arrays[node]
        index = self.index[self.frame.source_of[node]] if node in self.frame.source_of else -1
        if node.op is IOTA:
            step = self.step(index) if self.variant.lanes > 1 else ""
            return f"({c_type(node)})({self.place(index)}{step})"
        if index >= 0 and self.has_ends(self.frame.operands[index]):
            return f"(v < left ? {name}[0] : {name}[1])"
        if index >= 0 and self.variant.whole and not self.is_vector(index):
            return f"p.{name}[{self.place(index)}]"
        return f"{name}[{self.slot_index}].v[{'v' if width > 1 else '0'}]"

    def store_vector(self, o: Operand) -> None:
        v, index = self.variant, self.index[o]
        place = self.place(index)
        first = self.first_only(index, range(len(v.folded)), False)
        whole = f"store<{c_type(o.node)}, {v.lanes}>(p.{o.name} + {place}, {o.name});"
        if not self.tail:
            self.line(f"{first}{whole}")
            return
        with self.block(f"{first}{{"):
            self.line(f"if (at + {v.lanes} <= end) {whole}")
            self.line("else")
            with self.lanes(v.lanes):
                self.line(f"if (at + v < end) p.{o.name}[{place} + v] = {o.name}.v[v];")

    def compute(self, nodes: Iterable[Node], names: Names) -> None:
        """Write statements for `nodes`; names of what they read must be known."""

        def assign(node: Node, name: str, text: str) -> str:
            return f"const {c_type(node)} {name} = {text};"

        for text in statements(nodes, names, SPELLINGS, assign, "v"):
            self.line(text)

    # folds of the second pass in the first

    @property
    def row_places(self) -> int:
        """The lanes of a thread that are of one row, and of which it finds one result."""
        return self.variant.lanes // self.variant.row_lanes

    def found(self, o: Online) -> str:
        """Return the variable of the partial result of lane ``v`` for a reduction."""
        return f"found{self.number[o.fold]}[{'v' if self.variant.kind is Kind.COLUMNS else '0'}]"

    def start_online(self, ahead: Iterable[Online]) -> None:
        for o in ahead:
            kind = "Squares" if o.maximum is None else "Exponentials"
            name = f"found{self.number[o.fold]}[{self.variant.row_lanes}]"
            self.line(f"{kind}<{c_type(o.fold)}, {self.row_places}> {name};")
        with self.each_row():
            for o in ahead:
                self.line(f"start({self.found(o)});")

    def declare_online(self) -> None:
        """Declare the registers for the values of a tile that such reductions are about."""
        for o in self.ahead:
            name = f"w{self.number[o.fold]}[{self.variant.slots}]"
            self.line(f"Vec<{c_type(o.fold)}, {self.variant.lanes}> {name};")

    def fold_online(self, tile: str) -> None:
        """Fold the values of a tile, whose maximum is known."""
        with self.each_row():
            for o in self.ahead:
                first = f"w{self.number[o.fold]}[0].v[v]" if o.maximum is None else self.most(o.maximum)
                self.line(f"before_tile({self.found(o)}, {first});")
        inner = "0" if self.variant.kind is Kind.COLUMNS else "v"
        with self.slot(tile), self.each_lane():
            for o in self.ahead:
                value = f"w{self.number[o.fold]}[{self.slot_index}].v[v]"
                self.line(f"add({self.found(o)}, {inner}, {value});")
        with self.each_row():
            for o in self.ahead:
                self.line(f"after_tile({self.found(o)});")

    def most(self, maximum: Node) -> str:
        """Return the greatest that lane ``v`` of a column, or all lanes of a row, have seen."""
        name, lanes = self.accumulators[maximum], self.row_places
        found = f"{name}[v]" if lanes == 1 else f"{name}[0]"
        for lane in range(1, lanes):
            found = fold(maximum, found, f"{name}[{lane}]")
        return found

    def settle_fold(self, o: Online, shift: str) -> None:
        self.line(f"{self.accumulators[o.fold]}[v] = settled({self.found(o)}, {shift});")

    def own_shift(self, o: Online) -> str:
        base = self.names[o.base]
        if o.maximum is None:
            return f"{base} / ({c_type(o.fold)})(limit - begin)"
        return f"finite_or_0({base})"
