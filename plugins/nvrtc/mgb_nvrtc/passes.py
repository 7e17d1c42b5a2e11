"""The passes of a kernel over its rows: loads, statements, folds, stores, and the totals of a team."""

from __future__ import annotations

from collections.abc import Iterable

from mgb.codegen import IOTA, Online, Pass, statements
from mgb.ir import CONST, Node
from mgb_cuda.frame import Operand

from .variant import ROUND_BYTES, Kind
from .words import SPELLINGS, c_type, fold
from .writer import Writer

Names = dict[Node, str]


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
        with self.block(f"for (I tile = begin; tile < {self.last}; tile += {v.stride * v.slots}) {{"):
            self.arrays = {}
            self.declare(p)
            self.visit_tile(p, "tile")
        self.arrays = {}

    @property
    def last(self) -> str:
        """Where a thread has seen enough of a row: where its own part of it ends."""
        return "end"

    def declare(self, p: Pass) -> None:
        """The registers for what this pass loads, and for what it keeps for a later one."""
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

    def is_loaded(self, o: Operand) -> bool:
        """Is it loaded into registers, for all slots before any is computed?"""
        return not o.is_iota

    def visit_tile(self, p: Pass, tile: str) -> None:
        loads = [o for n in self.fresh if self.is_loaded(o := self.frame.source_of[n])]
        if loads:
            with self.slot(tile):
                for o in loads:
                    self.load(o)
        with self.slot(tile):
            self.elements(p)

    def slot(self, tile: str):  # type: ignore[no-untyped-def]
        """A block for each slot of a thread, in which ``at`` is its place in the row."""
        v = self.variant
        place = "lane" if v.kind is Kind.COLUMNS or v.lanes == 1 else f"lane * {v.lanes}"
        heads = [f"for (int s = 0; s < {v.slots}; ++s) {{"] if v.slots > 1 else ["{"]
        return self.element_block(heads, f"{tile} + {'s' if v.slots > 1 else '0'} * {v.stride} + {place}")

    def load(self, o: Operand) -> None:
        """Load the lanes of one operand at ``at``."""
        v, index = self.variant, self.index[o]
        width, s = self.width(index), self.slot_index
        target, place = f"{o.name}[{s}]", self.place(index)
        if width > 1 and self.steps_by_one(index):
            whole = f"{target} = load<{c_type(o.node)}, {width}>(p.{o.name} + {place});"
            if not v.tail:
                self.line(whole)
                return
            self.line(f"if (at + {width} <= end) {whole}")
            self.line("else")
        with self.lanes(width):
            guard = "if (at + v < end) " if v.tail and width > 1 else ""
            step = self.step(index) if width > 1 else ""
            self.line(f"{guard}{target}.v[v] = p.{o.name}[{place}{step}];")

    def elements(self, p: Pass) -> None:
        """What is computed of each element, lane by lane, and the stores of whole vectors."""
        v = self.variant
        outputs = [o for n in p.stores for o in self.frame.outputs_of(n)]
        vectors = [o for o in outputs if v.lanes > 1 and self.steps_by_one(self.index[o])]
        for o in vectors:
            self.line(f"Vec<{c_type(o.node)}, {v.lanes}> {o.name};")
        with self.lanes(v.lanes):
            if v.tail:
                with self.block("if (at + v < end) {"):
                    self.element(p, outputs, vectors)
            else:
                self.element(p, outputs, vectors)
        for o in vectors:
            self.store_vector(o)

    def element(self, p: Pass, outputs: list[Operand], vectors: list[Operand]) -> None:
        names = self.names | {n: self.lane_of(n) for n in self.arrays}
        ready = set(self.arrays) - set(p.keeps)
        for n in p.keeps:
            del names[n]
        self.compute([n for n in p.computes if n not in ready], names)
        for n in p.keeps:
            self.line(f"{self.lane_of(n)} = {names[n]};")
        for early in self.ahead:
            self.before_folds(early)
        for f in p.folds:
            total = f"{self.accumulators[f]}[v]"
            self.line(f"{total} = {self.fold(f, total, names[f.inputs[0]])};")
        for early in self.ahead:
            self.fold_online(early, names[early.value])
        for o in outputs:
            if o in vectors:
                self.line(f"{o.name}.v[v] = {names[o.node]};")
            else:
                index = self.index[o]
                loops = range(len(self.variant.folded))
                first = self.first_only(index, loops, self.variant.lanes > 1)
                step = self.step(index) if self.variant.lanes > 1 else ""
                self.line(f"{first}p.{o.name}[{self.place(index)}{step}] = {names[o.node]};")

    def lane_of(self, node: Node) -> str:
        """A lane of a value that is held for all slots."""
        name, width = self.arrays[node]
        if node.op is IOTA:
            index = self.index[self.frame.source_of[node]]
            step = self.step(index) if self.variant.lanes > 1 else ""
            return f"({c_type(node)})({self.place(index)}{step})"
        return f"{name}[{self.slot_index}].v[{'v' if width > 1 else '0'}]"

    def store_vector(self, o: Operand) -> None:
        v, index = self.variant, self.index[o]
        place = self.place(index)
        first = self.first_only(index, range(len(v.folded)), False)
        whole = f"store<{c_type(o.node)}, {v.lanes}>(p.{o.name} + {place}, {o.name});"
        if not v.tail:
            self.line(f"{first}{whole}")
            return
        with self.block(f"{first}{{"):
            self.line(f"if (at + {v.lanes} <= end) {whole}")
            self.line("else")
            with self.lanes(v.lanes):
                self.line(f"if (at + v < end) p.{o.name}[{place} + v] = {o.name}.v[v];")

    def compute(self, nodes: Iterable[Node], names: Names) -> None:
        """Statements for `nodes`; names of what they read must be known."""

        def assign(node: Node, name: str, text: str) -> str:
            return f"const {c_type(node)} {name} = {text};"

        for text in statements(nodes, names, SPELLINGS, assign, "v"):
            self.line(text)

    def fold(self, node: Node, a: str, b: str) -> str:
        """The expression that folds two elements of reduction `node`."""
        return fold(node, a, b)

    # folds of the second pass in the first

    def start_online(self, ahead: Iterable[Online]) -> None:
        """The registers for what is found before the second pass knows what to subtract."""
        lanes = self.variant.lanes
        for o in ahead:
            kind = c_type(o.fold) if o.maximum is not None else f"Squares<{c_type(o.fold)}>"
            self.line(f"{kind} found{self.number[o.fold]}[{lanes}];")
        with self.lanes(lanes):
            for o in ahead:
                self.line(f"found{self.number[o.fold]}[v] = {{}};")

    def before_folds(self, o: Online) -> None:
        if o.maximum is not None:
            was = f"const {c_type(o.fold)} was{self.number[o.fold]}"
            self.line(f"{was} = {self.accumulators[o.maximum]}[v];")

    def fold_online(self, o: Online, x: str) -> None:
        n, kind = self.number[o.fold], c_type(o.fold)
        if o.maximum is None:
            self.line(f"add_square<{kind}>(found{n}[v], {x});")
        else:
            now = f"{self.accumulators[o.maximum]}[v]"
            self.line(f"found{n}[v] = add_exponential<{kind}>(found{n}[v], was{n}, {now}, {x});")

    def end_online(self, ahead: Iterable[Online]) -> None:
        """Keep each lane's own maximum: that of the row takes its place."""
        for o in ahead:
            if o.maximum is not None:
                n = self.number[o.fold]
                self.line(f"{c_type(o.fold)} most{n}[{self.variant.lanes}];")
                with self.lanes(self.variant.lanes):
                    self.line(f"most{n}[v] = {self.accumulators[o.maximum]}[v];")

    def settle(self, ahead: Iterable[Online]) -> None:
        """What each lane would have found in the second pass."""
        with self.lanes(self.variant.lanes):
            for o in ahead:
                n, kind = self.number[o.fold], c_type(o.fold)
                settled, most = "squares", ""
                if o.maximum is not None:
                    settled, most = "exponentials", f"most{n}[v], "
                text = f"settled_{settled}<{kind}>(found{n}[v], {most}{self.names[o.shift]})"
                self.line(f"{self.accumulators[o.fold]}[v] = {text};")

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
        """The shared memory in which the totals of `folds` meet."""
        v = self.variant
        count = v.threads * v.lanes if v.kind is Kind.COLUMNS else v.threads // 32
        return sum(-(-count * f.spec.dtype.itemsize // 16) * 16 for f in folds)

    def block_totals(self, memory: Names) -> None:
        warps = self.variant.team // 32
        first = f"team * {warps} + " if self.variant.across > 1 else ""
        with self.block("if (lane % 32 == 0) {"):
            for f, m in memory.items():
                self.line(f"{m}[{first}lane / 32] = {self.names[f]};")
        self.line("__syncthreads();")
        for f, m in memory.items():
            self.line(f"{self.names[f]} = {m}[{first}0];")
        with self.block(f"for (int w = 1; w < {warps}; ++w) {{"):
            for f, m in memory.items():
                self.line(f"{self.names[f]} = {self.fold(f, self.names[f], f'{m}[{first}w]')};")

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
        """The memory in which threads meet; none where a team is a warp."""
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
