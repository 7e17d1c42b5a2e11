"""The text of a kernel: its signature, where its tile lies, and the passes over it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from mgb.ir import Node
from mgb_cuda.frame import Frame
from mgb_cuda.rows import Found, Turn

from .passes import TOGETHER, Passes
from .variant import Variant
from .words import NUMBERS, POINTERS, conversions, fold, nothing, t_type, total

#: Partial results that are folded at a time.
PARTS = 128


def texts(frame: Frame, variant: Variant) -> tuple[tuple[str, str], ...]:
    """Return the text and the name of each kernel, in the order in which they are launched."""
    stages = variant.stages(frame) or (None,)
    return tuple((Printer(frame, variant).text(stage), f"mgb_{stage or 0}") for stage in stages)


def source(frame: Frame, variant: Variant) -> str:
    """Return all of them."""
    return "\n".join(text for text, _ in texts(frame, variant))


def kernel(
    name: str,
    types: Mapping[str, str],
    aligned: Sequence[str],
    warps: int,
    nodes: Iterable[Node],
    body: Iterable[str],
) -> str:
    """Return the text of a kernel with parameters of these types, as `compiler.build` reads it."""
    head = [
        f"SIGNATURE = {dict(types)!r}",
        f"ALIGNED = {list(aligned)!r}",
        f"WARPS = {warps}",
        "",
        "",
        *conversions(nodes),
        "@jit",
        f"def {name}({', '.join(types)}):",
    ]
    return "\n".join([*head, *body, ""])


class Printer(Passes):
    """Prints the kernels of one variant."""

    settled = ("settled_exponentials", "moved_squares")

    def text(self, stage: int | None) -> str:
        """Return one kernel: all passes, or one stage of them."""
        v = self.variant
        self.lines, self.depth = [], 1
        if v.units:
            self.operands_of_unit()
        self.where()
        if not self.flat:
            self.compute(self.schedule.before)
        self.passes(stage)
        types = {"table": "*i64"} if v.units else self.signature()
        aligned = [name for name in types if types[name].startswith("*") and name not in self.askew()]
        nodes = (*self.frame.graph.inputs, *self.frame.graph.nodes)
        return kernel(f"mgb_{stage or 0}", types, aligned, v.warps, nodes, self.lines)

    def signature(self) -> dict[str, str]:
        """Return the type of each parameter."""
        pointers = self.variant.pointers(self.frame).items()
        types = {name: POINTERS[node.spec.dtype.name] for name, node in pointers}
        return types | {name: NUMBERS[kind] for kind, name in self.variant.numbers}

    def askew(self) -> set[str]:
        return {self.frame.operands[i].name for i in self.variant.askew}

    def operands_of_unit(self) -> None:
        """Find which set of operands this program works on, and read it from the table."""
        v, types = self.variant, self.signature()
        self.line("program = tl.program_id(0)")
        self.line(f"firsts = tl.load(table + tl.arange(0, {v.units}))")
        self.line("unit = tl.reduce((firsts <= program).to(tl.int32), 0, fold_add) - 1")
        self.line(f"block = program - tl.load(table + unit).to({self.place_type})")
        self.line(f"operands = table + {v.units} + unit * {len(types)}")
        for k, (name, kind) in enumerate(types.items()):
            found = f"tl.load(operands + {k})"
            if kind.startswith("*"):
                dtype = next(o.node for o in self.frame.arrays if o.name == name)
                found = f"{found}.to(tl.pointer_type({t_type(dtype)}))"
                self.line(f"{name} = {found if name in self.askew() else f'tl.multiple_of({found}, 16)'}")
            else:
                self.line(f"{name} = {found}.to(tl.{ {'i': 'int', 'u': 'uint'}[kind[0]] }{kind[1:]})")

    # where a program is

    def where(self) -> None:
        """Write the rows of this program, and the part of them that it works on."""
        v = self.variant
        block = "block" if v.units else f"tl.program_id(0).to({self.place_type})"
        if self.flat:
            self.line(f"begin = {block} * {v.long}")
            self.line("end = length")
            return
        self.line(f"row = {block} * {v.tall} + tl.arange(0, {v.tall})[:, None]")
        self.line(f"live = {self.constant('row < rows', 0)}")
        if v.split:
            self.line(f"begin = tl.program_id(1).to({self.place_type}) * chunk")
            self.line("end = tl.minimum(begin + chunk, length)")
        else:
            self.line("begin = 0")
            self.line("end = length")
        self.decompose("row", v.kept_loops)
        for c in range(len(v.classes)):
            if v.varies(c, v.kept_loops):
                self.line(f"b{c} = {self.hinted(c, self.offset(c, v.kept_loops), whole=False)}")

    # passes

    def start_folds(self, turn: Turn, folds: tuple[Node, ...]) -> None:
        v = self.variant
        self.together = TOGETHER if v.online and turn.number > 1 else 1
        if turn.found is Found.HERE and not v.stays:  # a loop follows
            for f in folds:
                self.line(f"{self.accumulators[f]} = tl.full({self.tile}, {nothing(f)}, {t_type(f)})")

    def finish_folds(self, number: int, folds: tuple[Node, ...]) -> None:
        for f in folds:
            self.names[f] = f"v{self.number[f]}"
            self.line(f"{self.names[f]} = {total(f, self.accumulators[f])}")

    def row_values(self, nodes: Iterable[Node]) -> None:
        self.compute(nodes)

    def row_stores(self, stage: int | None) -> None:
        mask = "live" if stage is None else "live & (tl.program_id(1) == 0)"
        for v in self.schedule.row_stores:
            for o in self.frame.outputs_of(v):
                self.store(o, mask, self.variant.kept_loops)

    # stages

    @contextmanager
    def each_part(self, folds: tuple[Node, ...]) -> Iterator[None]:
        for f in folds:
            empty = f"tl.full([{self.variant.tall}, {PARTS}], {nothing(f)}, {t_type(f)})"
            self.line(f"{self.accumulators[f]} = {empty}")
        with self.block(f"for first in range(0, chunks, {PARTS}):"):
            self.line(f"part = first + tl.arange(0, {PARTS})[None, :]")
            yield

    def part(self, name: str) -> str:
        return f"tl.load({name} + part * rows + row, mask=live & (part < chunks))"

    def fold_part(self, reduction: Node, found: str) -> None:
        total = self.accumulators[reduction]
        self.line(f"p = tl.where(live & (part < chunks), {found}, {self.neutral(reduction)})")
        self.line(f"{total} = {fold(reduction, total, 'p')}")

    def part_length(self, fold: Node) -> str:
        return f"tl.minimum(chunk, length - part * chunk).to({t_type(fold)})"

    def write_parts(self, number: int, folds: tuple[Node, ...]) -> None:
        for i, f in enumerate(folds):
            place = f"part{number}_{i} + tl.program_id(1).to({self.place_type}) * rows + row"
            self.line(f"tl.store({place}, {self.names[f]}, mask=live)")
