"""The kernels of a variant: for each stage where its threads are and what they do."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mgb.codegen import EXTENT, Online
from mgb.ir import CONST, Node
from mgb_cuda.frame import Operand
from mgb_cuda.variant import Kind

from .passes import Passes
from .words import TYPES, c_type, nothing

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

    def types(self) -> list[str]:
        """Return the type of places and the struct of parameters."""
        v = self.variant
        lines = [f"typedef {v.place} I;", f"struct {'Unit' if v.units else 'Params'} {{"]
        types = {o.name: f"{'' if o.is_output else 'const '}{c_type(o.node)}" for o in self.frame.arrays}
        if v.split:
            for k, p in enumerate(self.frame.schedule.passes):
                types |= {f"part{k}_{i}": c_type(f) for i, f in enumerate(p.folds)}
        lines += [f"    {types[name]} *{name};" for name in v.pointers(self.frame)]
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
            self.all_passes() if stage is None else self.one_stage(stage)
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
        """Write the outputs that have one element for each row."""
        outputs = [o for v in self.schedule.row_stores for o in self.frame.outputs_of(v)]
        if not outputs:
            return
        only = " && blockIdx.y == 0" if stage is not None else ""
        with self.block(f"if (live && lane == 0{only}) {{"), self.lanes(self.variant.row_lanes):
            for o in outputs:
                self.row_store(o)

    def row_store(self, o: Operand) -> None:
        index = self.index[o]
        first = self.first_only(index, self.variant.kept_loops, self.variant.row_lanes > 1)
        step = self.step(index) if self.variant.row_lanes > 1 else ""
        self.line(f"{first}p.{o.name}[{self.base(index)}{step}] = {self.names[o.node]};")

    def row_values(self, nodes: Iterable[Node]) -> None:
        """Compute the values that are the same along a row."""
        fresh = [v for v in nodes if v not in self.names]
        computed = [v for v in fresh if v.op is not CONST]
        if self.variant.kind is Kind.ROWS or not computed:
            self.compute(fresh, self.names)
            return
        for v in computed:
            self.line(f"{c_type(v)} r{self.number[v]}[{self.variant.row_lanes}];")
        with self.lanes(self.variant.row_lanes):
            self.compute(fresh, self.names)
            for v in computed:
                self.line(f"r{self.number[v]}[v] = {self.names[v]};")
        self.names |= {v: f"r{self.number[v]}[v]" for v in computed}

    # passes

    def all_passes(self) -> None:
        """Write a kernel that does everything."""
        ahead = self.frame.online if self.variant.online else ()
        for k, p in enumerate(self.schedule.passes):
            self.start_folds(k, p.folds)
            if k == 0 and ahead:
                self.start_online(ahead)
                self.visit(p, ahead)
            elif k == 1 and ahead:
                self.settle(ahead)
            else:
                self.visit(p)
            self.total(k, p.folds)
            self.row_values(p.after)
        if not self.frame.flat:
            self.row_stores(None)

    def one_stage(self, stage: int) -> None:
        """Write a kernel that does one pass, given what the earlier ones' blocks found; or what follows.

        The first of an online variant does two; what a block has found of the second is about its own part.
        """
        passes, online = self.schedule.passes, self.frame.online if self.variant.online else ()
        for k, p in enumerate(passes[:stage]):
            self.start_folds(k, p.folds)
            self.read_parts(k, p.folds, online if k == 1 else ())
            self.total(k, p.folds)
            self.row_values(p.after)
        if stage < len(passes):
            ahead = online if stage == 0 else ()
            self.start_folds(stage, passes[stage].folds)
            self.start_online(ahead)
            self.visit(passes[stage], ahead)
            self.total(stage, passes[stage].folds)
            self.write_parts(stage, passes[stage].folds)
            if ahead:
                self.start_folds(1, passes[1].folds)
                self.settle(ahead, own=True)
                self.total(1, passes[1].folds)
                self.write_parts(1, passes[1].folds)
        if stage == self.frame.stages - 1:
            self.row_stores(stage)

    def start_folds(self, k: int, folds: Iterable[Node]) -> None:
        for i, f in enumerate(folds):
            self.line(f"{c_type(f)} a{k}_{i}[{self.variant.lanes}];")
            with self.lanes(self.variant.lanes):
                self.line(f"a{k}_{i}[v] = {nothing(f)};")
            self.accumulators[f] = f"a{k}_{i}"

    def read_parts(self, k: int, folds: tuple[Node, ...], ahead: Iterable[Online] = ()) -> None:
        """Fold what the blocks of an earlier stage have found of this row."""
        if not folds:
            return
        early = {o.fold: o for o in ahead}
        self.line("#pragma unroll 2")
        every = f"for (I c = lane; c < p.chunks; c += {self.variant.team}) {{"
        with self.block(every), self.lanes(self.variant.row_lanes):
            self.line("const I part = c * p.rows + row + v;")
            for i, f in enumerate(folds):
                found = f"p.part{k}_{i}[part]"
                if f in early:
                    found = self.about_shift(early[f], found)
                self.line(f"a{k}_{i}[v] = {self.fold(f, f'a{k}_{i}[v]', found)};")

    def about_shift(self, o: Online, found: str) -> str:
        """Return the partial result of a block for its own part, as if it had known the shift."""
        base = f"p.part0_{self.schedule.passes[0].folds.index(o.base)}[part]"
        if o.maximum is not None:
            return f"settled({found}, {base}, {self.names[o.shift]})"
        count = "(c + 1 < p.chunks ? p.chunk : p.length - c * p.chunk)"
        return f"moved({found}, {base}, ({c_type(o.fold)}){count}, {self.names[o.shift]})"

    def write_parts(self, k: int, folds: tuple[Node, ...]) -> None:
        """Write what this block has found of its row."""
        if not folds:
            return
        with self.block("if (live && lane == 0) {"), self.lanes(self.variant.row_lanes):
            for i, f in enumerate(folds):
                self.line(f"p.part{k}_{i}[(I)blockIdx.y * p.rows + row + v] = {self.names[f]};")
