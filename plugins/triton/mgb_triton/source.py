"""The text of a kernel: its signature, where its tile lies, and the passes over it."""

from __future__ import annotations

from collections.abc import Iterable

from mgb.codegen import Online
from mgb.ir import Node
from mgb_cuda.frame import Frame

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


class Printer(Passes):
    """Prints the kernels of one variant."""

    def text(self, stage: int | None) -> str:
        """Return one kernel: all passes, or one stage of them."""
        v = self.variant
        self.lines, self.depth = [], 1
        if v.units:
            self.operands_of_unit()
        self.where()
        if not self.flat:
            self.compute(self.frame.schedule.before)
        self.all_passes() if stage is None else self.one_stage(stage)
        types = {"table": "*i64"} if v.units else self.signature()
        aligned = [name for name in types if types[name].startswith("*") and name not in self.askew()]
        head = [
            f"SIGNATURE = {types!r}",
            f"ALIGNED = {aligned!r}",
            f"WARPS = {v.warps}",
            "",
            "",
            *conversions((*self.frame.graph.inputs, *self.frame.graph.nodes)),
            "@jit",
            f"def mgb_{stage or 0}({', '.join(types)}):",
        ]
        return "\n".join([*head, *self.lines, ""])

    def signature(self) -> dict[str, str]:
        """Return the type of each parameter."""
        types = {o.name: POINTERS[o.node.spec.dtype.name] for o in self.frame.arrays}
        for k, p in enumerate(self.frame.schedule.passes):
            types |= {f"part{k}_{i}": POINTERS[f.spec.dtype.name] for i, f in enumerate(p.folds)}
        pointers = {name: types[name] for name in self.variant.pointers(self.frame)}
        return pointers | {name: NUMBERS[kind] for kind, name in self.variant.numbers}

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
        for c, letters in enumerate(v.classes):
            if any(letters[j] != "0" for j in v.kept_loops):
                self.line(f"b{c} = {self.hinted(c, self.offset(c, v.kept_loops), whole=False)}")

    # passes

    def all_passes(self) -> None:
        """Write a kernel that does everything."""
        ahead = self.frame.online if self.variant.online else ()
        for k, p in enumerate(self.frame.schedule.passes):
            self.together = TOGETHER if ahead and k > 1 else 1
            self.start_folds(k, p.folds, empty=k != 1 or not ahead)
            if k == 0 and ahead:
                self.start_online(ahead)
                self.visit(p, ahead)
            elif k == 1 and ahead:
                self.settle(ahead)
            else:
                self.visit(p)
            self.finish_folds(p.folds)
            self.compute(p.after)
        self.row_stores("live")

    def one_stage(self, stage: int) -> None:
        """Write a kernel that does one pass, given what the earlier ones' programs found; or what follows.

        The first of an online variant does two; what a program has found of the second is about its own part.
        """
        passes, online = self.frame.schedule.passes, self.frame.online if self.variant.online else ()
        for k, p in enumerate(passes[:stage]):
            self.accumulators = {f: f"a{k}_{i}" for i, f in enumerate(p.folds)}
            self.read_parts(k, p.folds, online if k == 1 else ())
            self.finish_folds(p.folds)
            self.compute(p.after)
        if stage < len(passes):
            ahead = online if stage == 0 else ()
            self.together = TOGETHER if online and not ahead else 1
            self.start_folds(stage, passes[stage].folds)
            self.start_online(ahead)
            self.visit(passes[stage], ahead)
            self.finish_folds(passes[stage].folds)
            self.write_parts(stage, passes[stage].folds)
            if ahead:
                self.start_folds(1, passes[1].folds, empty=False)
                self.settle(ahead, own=True)
                self.finish_folds(passes[1].folds)
                self.write_parts(1, passes[1].folds)
        if stage == self.frame.stages - 1:
            self.row_stores("live & (tl.program_id(1) == 0)")

    def row_stores(self, mask: str) -> None:
        """Write the outputs that have one element for each row."""
        for v in self.frame.schedule.row_stores:
            for o in self.frame.outputs_of(v):
                self.store(o, mask, self.variant.kept_loops)

    # folds

    def start_folds(self, k: int, folds: Iterable[Node], empty: bool = True) -> None:
        """Name what a pass folds into, and let it be empty where a loop follows."""
        self.accumulators = {f: f"a{k}_{i}" for i, f in enumerate(folds)}
        if self.variant.stays or not empty:
            return
        for f, name in self.accumulators.items():
            self.line(f"{name} = tl.full({self.tile}, {nothing(f)}, {t_type(f)})")

    def finish_folds(self, folds: Iterable[Node]) -> None:
        """Fold the lanes of a tile."""
        for f in folds:
            self.names[f] = f"v{self.number[f]}"
            self.line(f"{self.names[f]} = {total(f, self.accumulators[f])}")

    def read_parts(self, k: int, folds: tuple[Node, ...], ahead: Iterable[Online] = ()) -> None:
        """Fold what the programs of an earlier stage have found of these rows."""
        if not folds:
            return
        early = {o.fold: o for o in ahead}
        for f, name in self.accumulators.items():
            self.line(f"{name} = tl.full([{self.variant.tall}, {PARTS}], {nothing(f)}, {t_type(f)})")
        with self.block(f"for first in range(0, chunks, {PARTS}):"):
            self.line(f"part = first + tl.arange(0, {PARTS})[None, :]")
            for i, f in enumerate(folds):
                found = self.part(f"part{k}_{i}")
                if f in early:
                    found = self.about_shift(early[f], found)
                self.line(f"p = tl.where(live & (part < chunks), {found}, {self.neutral(f)})")
                self.line(f"{self.accumulators[f]} = {fold(f, self.accumulators[f], 'p')}")

    def part(self, name: str) -> str:
        """Return the expression that loads the partial results of these rows."""
        return f"tl.load({name} + part * rows + row, mask=live & (part < chunks))"

    def about_shift(self, o: Online, found: str) -> str:
        """Return the partial result of a program for its own part, as if it had known the shift."""
        base = self.part(f"part0_{self.frame.schedule.passes[0].folds.index(o.base)}")
        if o.maximum is not None:
            return f"settled_exponentials({found}, {base}, {self.names[o.shift]})"
        count = f"tl.minimum(chunk, length - part * chunk).to({t_type(o.fold)})"
        return f"moved_squares({found}, {base}, {count}, {self.names[o.shift]})"

    def write_parts(self, k: int, folds: tuple[Node, ...]) -> None:
        """Write what this program has found of its rows."""
        for i, f in enumerate(folds):
            place = f"part{k}_{i} + tl.program_id(1).to({self.place_type}) * rows + row"
            self.line(f"tl.store({place}, {self.names[f]}, mask=live)")
