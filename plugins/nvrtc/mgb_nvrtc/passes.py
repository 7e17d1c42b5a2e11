"""The passes of a kernel over its rows: loads, statements, folds, stores, and the totals of a team."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from mgb.codegen import IOTA, Online, Pass, statements
from mgb.ir import CONST, Node
from mgb_cuda.frame import Operand, registers
from mgb_cuda.variant import ROUND_BYTES, Kind

from .words import SPELLINGS, c_type, fold
from .writer import Writer

Names = dict[Node, str]

#: Registers that all slots of what a pass loads may take beside a row that stays in others.
AT_ONCE = 16


class Passes(Writer):
    """Prints loops over rows."""

    # one pass

    def visit(self, p: Pass, ahead: Iterable[Online] = ()) -> None:
        """Load, compute, fold and store every element of the row that the block works on.

        Folds that a later pass would do are done as well, as far as they can be, when they are given.
        """
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
            self.line(f"{total} = {self.fold(f, total, names[f.inputs[0]])};")
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

    def fold(self, node: Node, a: str, b: str) -> str:
        """Return the expression that folds two elements of reduction `node`."""
        return fold(node, a, b)

    # folds of the second pass in the first

    @property
    def groups(self) -> tuple[int, int]:
        """Rows of a thread whose folds are found apart, and the lanes of each."""
        lanes = self.variant.lanes
        return (lanes, 1) if self.variant.kind is Kind.COLUMNS else (1, lanes)

    def found(self, o: Online) -> str:
        """Return the variable of the partial result of lane ``v`` for a reduction."""
        return f"found{self.number[o.fold]}[{'v' if self.variant.kind is Kind.COLUMNS else '0'}]"

    def start_online(self, ahead: Iterable[Online]) -> None:
        """Write the registers for what is found before the second pass knows what to subtract."""
        groups, lanes = self.groups
        for o in ahead:
            kind = "Squares" if o.maximum is None else "Exponentials"
            self.line(f"{kind}<{c_type(o.fold)}, {lanes}> found{self.number[o.fold]}[{groups}];")
        with self.lanes(groups):
            for o in ahead:
                self.line(f"start({self.found(o)});")

    def declare_online(self) -> None:
        """Declare the registers for the values of a tile that such reductions are about."""
        for o in self.ahead:
            name = f"w{self.number[o.fold]}[{self.variant.slots}]"
            self.line(f"Vec<{c_type(o.fold)}, {self.variant.lanes}> {name};")

    def fold_online(self, tile: str) -> None:
        """Fold the values of a tile, whose maximum is known."""
        groups, _ = self.groups
        with self.lanes(groups):
            for o in self.ahead:
                first = f"w{self.number[o.fold]}[0].v[v]" if o.maximum is None else self.most(o.maximum)
                self.line(f"before_tile({self.found(o)}, {first});")
        inner = "0" if self.variant.kind is Kind.COLUMNS else "v"
        with self.slot(tile), self.each_lane():
            for o in self.ahead:
                value = f"w{self.number[o.fold]}[{self.slot_index}].v[v]"
                self.line(f"add({self.found(o)}, {inner}, {value});")
        with self.lanes(groups):
            for o in self.ahead:
                self.line(f"after_tile({self.found(o)});")

    def most(self, maximum: Node) -> str:
        """Return the greatest that lane ``v`` of a column, or all lanes of a row, have seen."""
        name, lanes = self.accumulators[maximum], self.groups[1]
        found = f"{name}[v]" if lanes == 1 else f"{name}[0]"
        for lane in range(1, lanes):
            found = self.fold(maximum, found, f"{name}[{lane}]")
        return found

    def settle(self, ahead: Iterable[Online], own: bool = False) -> None:
        """Emit each lane's partial results as of the second pass, or for the shift of its `own` block."""
        with self.lanes(self.groups[0]):
            for o in ahead:
                to = self.own_shift(o) if own else self.names[o.shift]
                self.line(f"{self.accumulators[o.fold]}[v] = settled({self.found(o)}, {to});")

    def own_shift(self, o: Online) -> str:
        """Return the shift that a block uses while the one of the row is unknown."""
        base = self.names[o.base]
        if o.maximum is None:
            return f"{base} / ({c_type(o.fold)})(limit - begin)"
        return f"finite_or_0({base})"

    # totals

    def total(self, k: int, folds: tuple[Node, ...]) -> None:
        """Fold what the threads of a team have found; each of them knows the total then."""
        if not folds:
            return
        if self.variant.kind is Kind.COLUMNS:
            if self.variant.team > 1:
                self.in_rounds(folds, self.column_totals)
            self.names |= {f: f"a{k}_{i}[v]" for i, f in enumerate(folds)}
            return
        totals = {f: f"t{k}_{i}" for i, f in enumerate(folds)}
        self.warp_totals(totals)
        self.names |= totals
        if self.variant.team > 32:
            self.in_rounds(folds, self.block_totals)

    def warp_totals(self, totals: Names) -> None:
        v = self.variant
        for f, total in totals.items():
            self.line(f"{c_type(f)} {total} = {self.accumulators[f]}[0];")
        if v.lanes > 1:
            self.line("#pragma unroll")
            with self.block(f"for (int v = 1; v < {v.lanes}; ++v) {{"):
                for f, total in totals.items():
                    self.line(f"{total} = {self.fold(f, total, f'{self.accumulators[f]}[v]')};")
        if v.team > 1:
            self.line("#pragma unroll")
            with self.block(f"for (int away = {min(v.team, 32) // 2}; away; away >>= 1) {{"):
                for f, total in totals.items():
                    self.line(f"{total} = {self.fold(f, total, f'from_lane({total}, away)')};")

    def in_rounds(self, folds: tuple[Node, ...], meet) -> None:  # type: ignore[no-untyped-def]
        """Let threads meet, as few times as shared memory allows.

        Rounds use two parts of it in turn: who writes in a round has passed the barrier of the one before,
        and so has everybody else, who had then read what the round before that had written there.
        """
        waiting: list[Node] = []
        for f in folds:
            if waiting and self.round_bytes([*waiting, f]) > ROUND_BYTES:
                self.round(waiting, meet)
                waiting = []
            waiting.append(f)
        self.round(waiting, meet)

    def round(self, folds: list[Node], meet) -> None:  # type: ignore[no-untyped-def]
        used = 0
        with self.block("{"):
            for i, f in enumerate(folds):
                self.line(f"{c_type(f)} *m{i} = ({c_type(f)} *)(shared{self.rounds % 2} + {used});")
                used += self.round_bytes([f])
            meet({f: f"m{i}" for i, f in enumerate(folds)})
        self.rounds += 1

    def round_bytes(self, folds: Iterable[Node]) -> int:
        """Return the shared memory in which the totals of `folds` meet."""
        v = self.variant
        count = v.threads * v.lanes if v.kind is Kind.COLUMNS else v.threads // 32
        count += v.cluster if v.cluster > 1 else 0
        return sum(-(-count * f.spec.dtype.itemsize // 16) * 16 for f in folds)

    def block_totals(self, memory: Names) -> None:
        warps = min(self.variant.team, self.variant.threads) // 32
        first = f"team * {warps} + " if self.variant.across > 1 else ""
        lane = "threadIdx.x" if self.variant.cluster > 1 else "lane"
        with self.block(f"if ({lane} % 32 == 0) {{"):
            for f, m in memory.items():
                self.line(f"{m}[{first}{lane} / 32] = {self.names[f]};")
        self.line("__syncthreads();")
        for f, m in memory.items():
            self.line(f"{self.names[f]} = {m}[{first}0];")
        with self.block(f"for (int w = 1; w < {warps}; ++w) {{"):
            for f, m in memory.items():
                self.line(f"{self.names[f]} = {self.fold(f, self.names[f], f'{m}[{first}w]')};")
        if self.variant.cluster > 1:
            self.cluster_totals({f: f"({m} + {warps})" for f, m in memory.items()})

    def cluster_totals(self, memory: Names) -> None:
        """Fold what the blocks of a cluster have found: each puts it into the shared memory of all."""
        blocks = self.variant.cluster
        with self.block(f"if (threadIdx.x < {blocks}) {{"):
            for f, m in memory.items():
                place = f"{m} + blockIdx.x % {blocks}"
                self.line(f"*in_block({place}, threadIdx.x) = {self.names[f]};")
        self.line("cluster_sync();")
        for f, m in memory.items():
            self.line(f"{self.names[f]} = {m}[0];")
        with self.block(f"for (int b = 1; b < {blocks}; ++b) {{"):
            for f, m in memory.items():
                self.line(f"{self.names[f]} = {self.fold(f, self.names[f], f'{m}[b]')};")

    def column_totals(self, memory: Names) -> None:
        v = self.variant
        with self.lanes(v.lanes):
            for f, m in memory.items():
                place = f"(v * {v.team} + lane) * {v.across} + team"
                self.line(f"{m}[{place}] = {self.accumulators[f]}[v];")
        self.line("__syncthreads();")
        with self.lanes(v.lanes):
            for f, m in memory.items():
                self.line(f"{self.accumulators[f]}[v] = {m}[v * {v.threads} + team];")
            self.line("#pragma unroll 2")
            with self.block(f"for (int r = 1; r < {v.team}; ++r) {{"):
                for f, m in memory.items():
                    other = f"{m}[v * {v.threads} + r * {v.across} + team]"
                    total = f"{self.accumulators[f]}[v]"
                    self.line(f"{total} = {self.fold(f, total, other)};")

    def declare_shared(self) -> None:
        """Declare the memory in which threads meet; none where a team is a warp."""
        passes = [p.folds for p in self.schedule.passes if p.folds]
        meets = self.variant.team > (1 if self.variant.kind is Kind.COLUMNS else 32)
        if not passes or not meets:
            return
        most = max(min(self.round_bytes(folds), ROUND_BYTES) for folds in passes)
        most = max([most, *(self.round_bytes([f]) for folds in passes for f in folds)])
        for k in range(2):
            self.line(f"__shared__ __align__(16) unsigned char shared{k}[{most}];")

    def constant_names(self, nodes: Iterable[Node]) -> None:
        """Name scalar constants, which need no statement."""
        self.compute([n for n in nodes if n.op is CONST], self.names)
