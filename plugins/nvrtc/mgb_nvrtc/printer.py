"""The kernels of a variant: for each stage where its threads are and what they do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from mgb.codegen import EXTENT
from mgb.ir import CONST, Node
from mgb_cuda.frame import Operand
from mgb_cuda.rows import Turn
from mgb_cuda.variant import Kind

from .passes import Passes
from .words import TYPES, c_type, fold, nothing

#: A place in memory or in a loop, which the rest of its block may use or not.
PLACE = re.compile(r"( *)const (?:I|bool) (\w+) = .*;")


def used(lines: list[str]) -> list[str]:
    """Return `lines` without the places that nothing uses."""
    kept: list[str] = []
    for line in reversed(lines):
        found = PLACE.fullmatch(line)
        if found is None or _is_read(found[2], len(found[1]), kept):
            kept.append(line)
    return kept[::-1]


def _is_read(name: str, depth: int, after: list[str]) -> bool:
    """Return whether the rest of the block, whose last line stands first, has the word."""
    word = re.compile(rf"\b{name}\b")
    for line in reversed(after):
        if len(line) - len(line.lstrip()) < depth:
            return False
        if word.search(line):
            return True
    return False


class Printer(Passes):
    """Prints the kernels of one variant."""

    settled = ("settled", "moved")

    def types(self) -> list[str]:
        """Return the type of places and the struct of parameters."""
        v = self.variant
        lines = [f"typedef {v.place} I;", f"struct {'Unit' if v.units else 'Params'} {{"]
        for name, node in v.pointers(self.frame).items():
            lines.append(f"    {'' if name[0] in 'py' else 'const '}{c_type(node)} *{name};")
        lines += [f"    {kind} {name};" for kind, name in v.numbers]
        lines.append("};")
        if v.units:
            lines += [
                "struct Params {",
                f"    Unit unit[{v.units}];",
                f"    int first[{v.units}], units;",
                "};",
            ]
        return lines

    def kernel(self, stage: int | None) -> list[str]:
        """Return the lines of one kernel: of all passes, or of one stage of them."""
        self.lines, self.names, self.arrays, self.rounds = [], dict(self.constants()), {}, 0
        cluster = self.variant.cluster
        dims = f" __cluster_dims__({cluster}, 1, 1)" if cluster > 1 else ""
        head = f'extern "C" __global__ void{dims} __launch_bounds__({self.variant.bounds})'
        with self.block(f"{head} mgb_{stage or 0}(const __grid_constant__ Params {self.parameter}) {{"):
            self.declare_shared()
            if cluster > 1:
                self.line("cluster_sync();")  # the memory of a block is there when it has begun
            self.where()
            if not self.frame.flat:
                self.row_loads()
                self.row_values(self.schedule.before)
            self.passes(stage)
        return used(self.lines)

    @property
    def parameter(self) -> str:
        return "params" if self.variant.units else "p"

    def constants(self) -> Iterable[tuple[Node, str]]:
        """Yield the values that need no statement: numbers of elements."""
        for v in self.frame.graph.nodes:
            if v.op is EXTENT:
                shape = v.inputs[0].spec.shape
                long = any(shape[a] != 1 for a in v.params["axis"])
                yield v, f"({c_type(v)}){'p.length' if long else '1'}"

    # where a thread is

    def where(self) -> None:
        """Write this thread's row, its place in the team, and the part of the row that the block works on."""
        v = self.variant
        if v.kind is Kind.FLAT:
            self.where_flat()
            return
        block = "blockIdx.x"
        if v.cluster > 1:
            lane, team = f"blockIdx.x % {v.cluster} * {v.threads} + threadIdx.x", "0"
            block = f"(blockIdx.x / {v.cluster})"
        elif v.kind is Kind.ROWS:
            lane, team = f"threadIdx.x % {v.team}", f"threadIdx.x / {v.team}"
        else:
            lane, team = f"threadIdx.x / {v.across}", f"threadIdx.x % {v.across}"
        self.line(f"const int lane = {lane}, team = {team};")
        self.line(f"const I mine = ((I){block} * {v.across} + team) * {v.row_lanes};")
        self.line("const bool live = mine < p.rows;")
        self.line("const I row = live ? mine : 0;")
        if v.split:
            self.line("const I begin = (I)blockIdx.y * p.chunk;")
            self.line("const I limit = begin + p.chunk < p.length ? begin + p.chunk : p.length;")
            self.line("const I end = live ? limit : begin;")
        else:
            self.line("const I begin = 0;")
            self.line("const I end = live ? p.length : 0;")
        self.decompose("row", v.kept_loops)
        for c in range(len(v.classes)):
            self.line(f"const I b{c} = {self.offset(c, v.kept_loops)};")

    def where_flat(self) -> None:
        v = self.variant
        block = "blockIdx.x"
        if v.units:
            self.line("int unit = 0, beyond = params.units;")
            with self.block("while (beyond - unit > 1) {"):
                self.line("const int middle = (unit + beyond) / 2;")
                self.line("if ((int)blockIdx.x >= params.first[middle]) unit = middle;")
                self.line("else beyond = middle;")
            self.line("const Unit &p = params.unit[unit];")
            block = "(blockIdx.x - params.first[unit])"
        self.line("const int lane = threadIdx.x;")
        self.line(f"const I begin = (I){block} * {v.stride * v.slots};")
        self.line("const I end = p.length;")

    # rows

    def row_loads(self) -> None:
        """Load the operands that are the same along a row."""
        for node in self.schedule.row_reads:
            o = self.frame.source_of[node]
            index = self.index[o]
            base = self.base(index)
            wide = self.variant.row_lanes > 1
            step = self.step(index)
            if o.is_iota:
                self.names[node] = f"({TYPES[node.spec.dtype.name]})({base}{step if wide else ''})"
                continue
            if not wide:
                self.line(f"const {c_type(node)} {o.name} = p.{o.name}[{base}];")
                self.names[node] = o.name
                continue
            width = self.width(index)
            self.line(f"{c_type(node)} {o.name}[{width}];")
            with self.lanes(width):
                self.line(f"{o.name}[v] = p.{o.name}[{base}{step}];")
            self.names[node] = f"{o.name}[{'v' if width > 1 else '0'}]"

    def row_stores(self, stage: int | None) -> None:
        outputs = [o for v in self.schedule.row_stores for o in self.frame.outputs_of(v)]
        if not outputs:
            return
        only = " && blockIdx.y == 0" if stage is not None else ""
        with self.block(f"if (live && lane == 0{only}) {{"), self.each_row():
            for o in outputs:
                self.row_store(o)

    def row_store(self, o: Operand) -> None:
        index = self.index[o]
        first = self.first_only(index, self.variant.kept_loops, self.variant.row_lanes > 1)
        step = self.step(index) if self.variant.row_lanes > 1 else ""
        self.line(f"{first}p.{o.name}[{self.base(index)}{step}] = {self.names[o.node]};")

    def row_values(self, nodes: Iterable[Node]) -> None:
        fresh = [v for v in nodes if v not in self.names]
        computed = [v for v in fresh if v.op is not CONST]
        if self.variant.kind is Kind.ROWS or not computed:
            self.compute(fresh, self.names)
            return
        for v in computed:
            self.line(f"{c_type(v)} r{self.number[v]}[{self.variant.row_lanes}];")
        with self.each_row():
            self.compute(fresh, self.names)
            for v in computed:
                self.line(f"r{self.number[v]}[v] = {self.names[v]};")
        self.names |= {v: f"r{self.number[v]}[v]" for v in computed}

    # passes

    def start_folds(self, turn: Turn, folds: tuple[Node, ...]) -> None:
        for f in folds:
            name = self.accumulators[f]
            self.line(f"{c_type(f)} {name}[{self.variant.lanes}];")
            with self.lanes(self.variant.lanes):
                self.line(f"{name}[v] = {nothing(f)};")

    @contextmanager
    def each_part(self, folds: tuple[Node, ...]) -> Iterator[None]:
        self.line("#pragma unroll 2")
        every = f"for (I c = lane; c < p.chunks; c += {self.variant.team}) {{"
        with self.block(every), self.each_row():
            self.line("const I part = c * p.rows + row + v;")
            yield

    def part(self, name: str) -> str:
        return f"p.{name}[part]"

    def fold_part(self, reduction: Node, found: str) -> None:
        total = f"{self.accumulators[reduction]}[v]"
        self.line(f"{total} = {fold(reduction, total, found)};")

    def part_length(self, fold: Node) -> str:
        return f"({c_type(fold)})(c + 1 < p.chunks ? p.chunk : p.length - c * p.chunk)"

    def write_parts(self, number: int, folds: tuple[Node, ...]) -> None:
        with self.block("if (live && lane == 0) {"), self.each_row():
            for i, f in enumerate(folds):
                self.line(f"p.part{number}_{i}[(I)blockIdx.y * p.rows + row + v] = {self.names[f]};")
