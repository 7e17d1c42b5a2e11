"""From a graph to the threads of a grid: the level ``gpu``, in ``gpu``, ``scf``, ``arith`` and ``llvm``.

How threads share the work is a `mgb_cuda.variant.Variant`, as that of other backends for NVIDIA's GPUs. A
kernel of a row that blocks share does one pass, and leaves what it has found to the next.
"""

from __future__ import annotations

from collections.abc import Iterable

from mgb.codegen import EXTENT, Online
from mgb.ir import CONST, Node
from mgb_cuda.frame import Frame
from mgb_cuda.packing import Packing
from mgb_cuda.variant import Kind, Variant
from mgb_native.folds import held
from mgb_native.nest import SCALAR
from mgb_native.nest.body import element, stored
from mgb_native.nest.lanes import Nodes, Value
from mgb_native.nest.words import from_memory, to_memory

from .places import GLOBAL, dtype_of
from .totals import Totals

#: The names of the function and of its module.
SYMBOL, MODULE = "kernel", "group"

_TYPES = {"int": "index", "int64_t": "index", "uint32_t": "i32"}


def packing(frame: Frame, variant: Variant) -> Packing:
    """How the parameters of a kernel are packed: each on its own."""
    return Packing(len(variant.pointers(frame)), variant.numbers, apart=True)


def parameters(frame: Frame, variant: Variant) -> tuple[tuple[str, str], ...]:
    """(name, MLIR's type) of what a kernel is passed."""
    words = ((name, _TYPES[kind]) for kind, name in variant.numbers)
    return (*((name, GLOBAL) for name in variant.pointers(frame)), *words)


class Grid(Totals):
    """The kernel of one group, as each thread runs it.

    Parameters
    ----------
    frame : Frame
    variant : Variant
    stage : int, optional
        Of a split row the pass that this kernel does; after the last one, what its totals are used for.
    """

    def __init__(self, frame: Frame, variant: Variant, stage: int | None = None) -> None:
        super().__init__(frame, variant)
        self.stage = stage

    def text(self) -> str:
        """The module."""
        self.extents()
        self.where()
        if not self.frame.flat:
            self.row_loads()
            self.row_values(self.schedule.before)
        self.all_passes() if self.stage is None else self.one_stage(self.stage)
        v = self.variant
        arguments = ", ".join(f"%{name}: {type_}" for name, type_ in parameters(self.frame, v))
        bound = f"nvvm.maxntid = array<i32: {v.threads}>, nvvm.minctasm = {v.at_once} : i32"
        head = f"  gpu.func @{SYMBOL}({arguments}) kernel attributes {{{bound}}} {{"
        lines = [head, *(f"  {line}" for line in self.head()), *self.lines, "    gpu.return", "  }"]
        layout = f"#dlti.dl_spec<index = {64 if v.wide else 32} : i64>"
        module = f"gpu.module @{MODULE} attributes {{dlti.dl_spec = {layout}}} {{"
        return "\n".join([f"module {{\n{module}", *self.memory(), *lines, "}\n}", ""])

    def memory(self) -> list[str]:
        """The shared memory in which threads meet."""
        if not self.shared_bytes:
            return []
        words = "{addr_space = 3 : i32, alignment = 16 : i64}"
        type_ = f"!llvm.array<{self.shared_bytes} x i8>"
        return [f"  llvm.mlir.global internal @shared{k}() {words} : {type_}" for k in range(2)]

    # where a thread is

    def extents(self) -> None:
        """The lengths that reductions fold, as numbers."""
        span = self.frame.span
        for node in self.frame.graph.nodes:
            if node.op is EXTENT:
                folds = span[node] != span[node.inputs[0]]
                count = "%length" if folds else self.index(1)
                whole = self.op(f"arith.index_cast {count} : index to i64")
                name = self.op(f"arith.sitofp {whole} : i64 to {element(held(node))}", "n")
                for names in self.names:
                    names[node] = Value(name)

    def where(self) -> None:
        """The row of this thread, its place in the team, and the part of the row that the block works on."""
        v = self.variant
        thread, block = self.op("gpu.thread_id x", "thread"), self.op("gpu.block_id x", "block")
        self.team, self.chunk = self.index(0), ""
        if v.kind is Kind.FLAT:
            self.lane, self.end = thread, "%length"
            self.begin = self.mul(block, self.index(v.stride * v.slots))
            self.begins = [self.index(0)] * len(v.classes)
            return
        self.lane = thread
        if v.across > 1:
            fast, slow = (v.team, v.across) if v.kind is Kind.ROWS else (v.across, v.team)
            inside, outside = self.rem(thread, self.index(fast)), self.div(thread, self.index(fast))
            self.lane, self.team = (inside, outside) if v.kind is Kind.ROWS else (outside, inside)
            assert fast * slow == v.threads
        mine = self.mul(self.add(self.mul(block, self.index(v.across)), self.team), self.index(v.row_lanes))
        self.live = self.less(mine, "%rows")
        self.row = self.select(self.live, mine, self.index(0))
        self.part_of_row()
        self.row_places = self.split(self.row, v.kept_loops)
        self.begins = [self.offset(c, self.row_places) for c in range(len(v.classes))]

    def part_of_row(self) -> None:
        """From where to where the block works, and nowhere past the last row."""
        self.begin, limit = self.index(0), "%length"
        if self.variant.split:
            self.chunk = self.op("gpu.block_id y", "chunk")
            self.begin = self.mul(self.chunk, "%chunk")
            limit = self.least(self.add(self.begin, "%chunk"), "%length")
        self.limit = limit
        self.end = self.select(self.live, limit, self.begin)

    # rows

    def row_loads(self) -> None:
        """Load the operands that are the same along a row."""
        places = dict(enumerate(self.begins))
        for node in self.schedule.row_reads:
            o, known = self.frame.source_of[node], dict[str, Value]()
            for lane, names in enumerate(self.names):
                at = self.at(o, places, lane)
                if at not in known:
                    known[at] = self.place_of(node, at) if o.is_iota else self.read_one(o.name, at, node)
                names[node] = known[at]

    def read_one(self, name: str, place: str, node: Node) -> Value:
        """The element of an array at a place."""
        where, type_ = self.pointer(f"%{name}", place, node.spec.dtype.name), stored(node.spec.dtype.name)
        found = self.op(f"llvm.load {where} : {GLOBAL} -> {type_}", "e")
        return Value(from_memory(self.body, found, node.spec.dtype.name))

    def row_values(self, nodes: Iterable[Node]) -> None:
        """Compute the values that are the same along a row."""
        wanted = [v for v in nodes if v.op is not CONST]
        for names in self.names:
            self.compute(wanted, names)

    def row_stores(self) -> None:
        """Write the outputs that have one element for each row."""
        outputs = [o for v in self.schedule.row_stores for o in self.frame.outputs_of(v)]
        if not outputs:
            return
        places = dict(enumerate(self.begins))

        def write() -> None:
            for lane, names in enumerate(self.names):
                for o in outputs:
                    still = self.still(o, self.variant.kept_loops)
                    if self.variant.row_lanes > 1 and self.inner in still and lane:
                        continue
                    value = to_memory(self.body, self.value(o.node, names, SCALAR), dtype_of(o))
                    at = self.at(o, places, lane)
                    first = self.first_of_all(still, self.row_places)
                    self.only(first, lambda o=o, at=at, value=value: self.write_lanes(o, at, [value]))

        self.only(self.first_thread(self.chunk), write)

    def first_thread(self, chunk: str = "") -> str:
        """Is this the first thread that works on a row that there is, of all blocks that share it?"""
        zero = self.index(0)
        conditions = [self.live, self.compare("eq", self.lane, zero)]
        return self.all_of([*conditions, self.compare("eq", chunk, zero) if chunk else ""])

    # passes

    def all_passes(self) -> None:
        """A kernel that does everything."""
        ahead = self.frame.online if self.variant.online else ()
        for k, part in enumerate(self.schedule.passes):
            self.start_folds(part.folds)
            if k == 0 and ahead:
                self.start_ahead(ahead)
                self.visit(part, ahead)
            elif k == 1 and ahead:
                self.settle_all(ahead)
            else:
                self.visit(part)
            self.total(part.folds)
            self.row_values(part.after)
        if not self.frame.flat:
            self.row_stores()

    def one_stage(self, stage: int) -> None:
        """A kernel that does one pass, given what the blocks of the earlier ones found; or what follows.

        The first of an online variant does two; what a block has found of the second is about its own part.
        """
        passes, online = self.schedule.passes, self.frame.online if self.variant.online else ()
        for k, part in enumerate(passes[:stage]):
            self.start_folds(part.folds)
            self.read_parts(k, part.folds, online if k == 1 else ())
            self.total(part.folds)
            self.row_values(part.after)
        if stage < len(passes):
            ahead = online if stage == 0 else ()
            self.start_folds(passes[stage].folds)
            self.start_ahead(ahead)
            self.visit(passes[stage], ahead)
            self.total(passes[stage].folds)
            self.write_parts(stage, passes[stage].folds)
            if ahead:
                self.start_folds(passes[1].folds)
                self.settle_all(ahead, own=True)
                self.total(passes[1].folds)
                self.write_parts(1, passes[1].folds)
        if stage == self.frame.stages - 1:
            self.row_stores()

    def settle_all(self, ahead: Iterable[Online], own: bool = False) -> None:
        """Emit each lane's partial results as of the second pass, or for the shift of its `own` block."""
        for o in ahead:
            for g, lanes in enumerate(self.groups):
                type_, names = self.of(o), self.names_of(g)
                to = self.own_shift(o, g) if own else self.value(o.shift, names, SCALAR)
                self.hold(("fold", o.fold, lanes[0]), self.settle(o, g, lanes, to), type_)
        for key in [k for k in self.state if k[0] in _AHEAD]:  # type: ignore[index]
            del self.state[key]

    def own_shift(self, o: Online, g: int) -> str:
        """Return the shift that a block uses while the one of the row is unknown."""
        base = self.value(o.base, self.names_of(g), SCALAR)
        if o.maximum is None:
            return self.reckon("fdiv", base, self.count_of(self.sub(self.limit, self.begin)))
        return self.finite_or_0(base)

    def count_of(self, places: str) -> str:
        """A number of places in the dtype at hand."""
        whole = self.op(f"arith.index_cast {places} : index to i64")
        return self.op(f"arith.sitofp {whole} : i64 to {element(self.at_hand)}", "n")

    # parts of rows

    def part_place(self, chunk: str, lane: int) -> str:
        """Where what a block has found of a row is."""
        return self.beside(self.add(self.mul(chunk, "%rows"), self.row), lane)

    def read_parts(self, k: int, folds: Nodes, ahead: Iterable[Online] = ()) -> None:
        """Fold what the blocks of an earlier stage have found of this row."""
        if not folds:
            return
        early = {o.fold: o for o in ahead}

        def turn(chunk: str) -> None:
            for lane in range(self.variant.row_lanes):
                place = self.part_place(chunk, lane)
                for i, f in enumerate(folds):
                    found = self.read_one(f"part{k}_{i}", place, f).name
                    if f in early:
                        found = self.about_shift(early[f], found, chunk, place, lane)
                    key = "fold", f, lane
                    self.hold(key, self.step(f, self.now(key), found), self.body.type(held(f)))

        self.repeat(self.lane, "%chunks", self.variant.team, turn)

    def about_shift(self, o: Online, found: str, chunk: str, place: str, lane: int) -> str:
        """Return the partial result of a block for its own part, as if it had known the shift."""
        self.of(o)
        i, to = self.schedule.passes[0].folds.index(o.base), self.value(o.shift, self.names_of(lane), SCALAR)
        base = self.read_one(f"part0_{i}", place, o.base).name
        if o.maximum is not None:
            return self.settled_sum(found, base, to)
        rest = self.sub("%length", self.mul(chunk, "%chunk"))
        return self.moved_squares(found, base, self.count_of(self.least("%chunk", rest)), to)

    def write_parts(self, k: int, folds: Nodes) -> None:
        """Write what this block has found of its row."""
        if not folds:
            return

        def write() -> None:
            for lane, names in enumerate(self.names):
                place = self.part_place(self.chunk, lane)
                for i, f in enumerate(folds):
                    dtype = f.spec.dtype.name
                    value = to_memory(self.body, self.value(f, names, SCALAR), dtype)
                    where = self.pointer(f"%part{k}_{i}", place, dtype)
                    self.line(f"llvm.store {value}, {where} : {stored(dtype)}, {GLOBAL}")

        self.only(self.first_thread(), write)


#: What is held of folds that are found ahead.
_AHEAD = ("sum", "squares", "most", "shift", "pivot", "count", "next")
