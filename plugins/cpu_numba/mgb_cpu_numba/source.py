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
from collections.abc import Callable

from mgb.codegen import EXTENT, Pass, combine, hazards, identity, replaced
from mgb_native.folds import held
from mgb_native.frame import HEAD, SPAN, Buffer, Frame, Operand

from .hints import DEAR, MASKED, PARTS, WHOLE
from .values import Values
from .words import FOLDERS
from .writer import Source


def source(frame: Frame) -> Source:
    """Print the kernel of `frame`."""
    return _Kernel(frame).run()


class _Kernel(Values):
    def run(self) -> Source:
        parameters = [o.name for o in self.frame.arrays]
        self.depth = 1
        self.extents()
        if self.frame.tiled:
            self.line("tile0 = row0")
            self.line("tile1 = row0")
        if self.frame.has_rows:
            with self.block("if short != 0:"):
                self.rows(self.short_row)
            with self.block("else:"):
                self.rows(self.row)
        else:
            self.rows(self.row)
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
            if node.op is EXTENT:
                folds = self.frame.span[node] != self.frame.span[node.inputs[0]]
                cast = self.function(f"cast_{held(node)}", "cast", held(node))
                self.names[node] = f"n{len(self.names)}"
                self.line(f"{self.names[node]} = {cast}({'extent' if folds else '1'})")

    def rows(self, row: Callable[[], None]) -> None:
        """The loop over rows, each as `row` writes it."""
        known = dict(self.names)
        with self.block("for row in range(row0, row1):"):
            row()
        self.names = known

    def short_row(self) -> None:
        """A row of one unit, without chunks and units."""
        self.row_addresses()
        self.ask()
        self.row_reads()
        self.row_values(self.frame.schedule.before, "b")
        for k, part in enumerate(self.frame.schedule.passes):
            self.begin(part)
            for name in (*(o.name for o in self.operands(part)), *(b.name for b in self.kept(part))):
                self.line(f"{name}_at = {name}{'' if name[0] == 'k' else '_row'}")
            self.line("count = n")
            self.work(k, part)
            for f in part.folds:
                self.names[f] = self.running(f)
            self.row_values(part.after, f"w{k}_")
        self.row_stores()

    def row(self) -> None:
        plan = self.frame.schedule
        self.row_addresses()
        self.tiles()
        self.row_reads()
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

    # passes

    def loop(self, k: int, part: Pass) -> None:
        """One pass over a row, chunk by chunk."""
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
        operands = self.operands(part)
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
            self.begin(part)

    def begin(self, part: Pass) -> None:
        """Initialize the reductions along a row to their identities."""
        for f in part.folds:
            self.line(f"{self.running(f)} = {self.literal(identity(f), held(f))}")

    def end_chunk(self, part: Pass) -> None:
        if not self.frame.columns:
            for f in part.folds:
                p = self.frame.buffer("p", f)
                self.store(p.name, p.dtype, p.name, "chunk", self.running(f))

    def unit(self, k: int, part: Pass, bases: dict[Operand, str], start: str, place: str) -> None:
        """One unit: the operands are at `place` of the innermost folded loop from `bases`."""
        if not self.frame.columns:
            start = self.moved(start, self.frame.starts_at[:1], [place])
            self.line(f"count = minimum(piece, n - {start})")
        for o, base in bases.items():
            address = self.moved(base, self.frame.strides_at(o, "folded")[:1], [place])
            self.line(f"{o.name}_at = {self.lined_up(o, address, self.count)}")
        for b in self.kept(part):
            self.line(f"{b.name}_at = {b.name} + unit * piece * {b.itemsize}")
        self.ask_for_next(k)
        self.work(k, part)

    def work(self, k: int, part: Pass) -> None:
        """The elements of a unit, whose operands and buffers have addresses."""
        for o in self.written(part):
            if o.moves:
                self.line(f"{o.name}_to = where(stream_{o.name} != 0, s{o.name}, {o.name}_at)")
        folds = () if self.frame.columns else part.folds
        for f in folds:  # of its own, so that units need not wait for each other
            self.line(f"{self.running(f)}_unit = {self.literal(identity(f), held(f))}")
        self.elements(k, part)
        for f in folds:
            now = self.running(f)
            self.line(f"{now} = {self.fold(f, now, f'{now}_unit')}")
        self.flush(part)

    def operands(self, part: Pass) -> list[Operand]:
        """Return the operands that a pass reads and writes."""
        return [*(self.frame.source_of[v] for v in part.reads), *self.written(part)]

    def kept(self, part: Pass) -> list[Buffer]:
        """Where a pass finds what an earlier one kept, and keeps what a later one wants."""
        return [self.frame.buffer("k", v) for v in (*part.restores, *part.keeps)]

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
        if len(part.computes) < DEAR:
            with self.block(f"for i in range({self.count}):"):
                self.element_statements(k, part)
            return
        self.line(f"whole = bit_and({self.count}, {self.literal(-WHOLE, 'int64')})")
        ends = f"{PARTS} * whole, where({PARTS} != 0, {self.count}, whole)"
        with self.block(f"for {PARTS} in range(2):"):
            with self.block(f"for {MASKED} in range({ends}):"):
                self.line(f"i = {MASKED}")
                self.element_statements(k, part)
            self.line("end()")

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
                now = f"{self.running(f)}_unit"
                word = FOLDERS.get(combine(f))
                self.line(f"{now} = {f'{word}({now}, {element})' if word else self.fold(f, now, element)}")
