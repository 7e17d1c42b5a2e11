"""When and where: the loops of an algorithm's functions, by a schedule.

| group | loops, outermost first |
| --- | --- |
| no reduction | tasks of (pieces of the innermost axis, all other axes), vectors; with gaps: squares |
| folds along rows | tasks of rows; in a row each pass in turn: tasks of pieces, vectors |
| folds of columns | tasks of tiles; in a tile each pass in turn: tasks of groups of rows, rows, vectors |

So a row, or a tile of columns, is in cache when the next pass reads it. Tasks go to the threads; in short
rows there are none. No vector goes past the end of a row: the last is masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mgb.ir import Node
from mgb_native.folds import held

from .algorithm import Algorithm, Stage
from .frame import Frame
from .opaque import combines
from .schedule import Form, HalideSchedule
from .toolchain import hl, target
from .words import Expr, halide_type

Func = Any

#: The side of a square of elements that do not lie side by side.
SQUARE = 16


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Functions with their schedules, ready to be compiled.

    Attributes
    ----------
    outputs : tuple of halide.Func
    arguments : tuple of halide.ImageParam
        Those before the outputs.
    order : tuple of str
        The names of the operands in the order of all arguments; the first is ``"domain"``.
    fused : bool
        There are products with a mark; see `mgb_halide.fused`.
    streamed : frozenset of str
    turns : tuple of frozenset of str
        The names, as LLVM has them, of outputs that may go past the caches, and of those that are written
        together; see `mgb_halide.stores`.
    combines : bool
        Bits are combined; see `mgb_halide.opaque`.
    """

    outputs: tuple[Func, ...]
    arguments: tuple[Any, ...]
    order: tuple[str, ...]
    fused: bool
    streamed: frozenset[str]
    turns: tuple[frozenset[str], ...]
    combines: bool


def lanes_of(frame: Frame, plan: HalideSchedule, registers: int) -> int:
    """Return how many elements fill a register, of the width that most values have.

    Without folds, `registers`.
    """
    if plan.vector:
        return plan.vector
    widths = [_bits(v) for v in frame.graph.nodes if v.inputs] or [_bits(o.node) for o in frame.outputs]
    widths = [w for w in widths if w] or [8]
    common = max(sorted(set(widths)), key=widths.count)
    register = int(target().natural_vector_size(halide_type(f"uint{common}")))
    return register * registers if frame.flat else register


def _bits(v: Node) -> int:
    name = held(v)
    return 0 if name == "bool" else int(name.lstrip("uintfloa"))


def build(
    frame: Frame, plan: HalideSchedule, form: Form, registers: int = 0, apart: bool = False
) -> Pipeline:
    """Return the pipeline of `frame` under `plan`; `apart`: see `Algorithm`, `registers`: `lanes_of`."""
    lanes = lanes_of(frame, plan, registers or plan.unroll)
    together = 1 if form is Form.TINY else plan.unroll
    algorithm = Algorithm(frame, plan, lanes * together, form, apart)
    _Scheduler(algorithm, plan, lanes).run()
    return collect(algorithm)


def collect(algorithm: Algorithm) -> Pipeline:
    """Collect the functions and arguments of an algorithm that are to be compiled."""
    outputs = algorithm.outputs
    order = ["domain", *algorithm.params, *(o.name for _, operands in outputs for o in operands)]
    functions, arguments = tuple(f for f, _ in outputs), tuple(algorithm.arguments)
    streamed: set[str] = set()
    turns = []
    for number, (func, operands) in enumerate(outputs):
        loops = max((o.loops for o in operands), key=len)
        names = [f"{func.name()}.{k}" for k in range(len(operands))] if len(operands) > 1 else [func.name()]
        full = frozenset(n for n, o in zip(names, operands, strict=True) if o.loops == loops)
        if loops == algorithm.frame.loops and loops[:1] == ("i",):  # each element is written once
            streamed |= full
        if len(full) > 1 and number not in algorithm.ready and not algorithm.apart:
            turns.append(full)
    marks, bits = algorithm.fused, combines(algorithm.frame.graph)
    return Pipeline(functions, arguments, tuple(order), marks, frozenset(streamed), tuple(turns), bits)


class _Scheduler:
    def __init__(self, algorithm: Algorithm, plan: HalideSchedule, lanes: int) -> None:
        self.algorithm, self.plan, self.lanes = algorithm, plan, lanes
        self.frame = algorithm.frame
        self.guard = hl.TailStrategy.GuardWithIf
        self.dense = algorithm.dense()
        self.wide = lanes if self.frame.flat else algorithm.lanes
        self.count = 0
        self.parts: list[Func] = []

    def run(self) -> None:
        if self.frame.flat:
            self.flat()
        else:
            self.folding()

    def fresh(self, name: str) -> Any:
        """Return a loop of a name that is used once."""
        self.count += 1
        return hl.Var(f"{name}{self.count}")

    def length(self, loops: Sequence[str], most: int) -> Expr:
        """Return about how many elements the loops visit; exact below `most`."""
        total = hl.Expr(1)
        for loop in loops:
            total = total * hl.clamp(self.algorithm.extent(loop), 1, most)
            total = hl.min(total, most)
        return total

    # loops

    def vectors(self, stage: Any, var: Any, lanes: int, whole: bool = False) -> None:
        """Vectorize along `var`, where the inputs' elements lie side by side; else one by one.

        Where `var` visits `whole` vectors, what is past the end is masked outside of it.
        """
        if self.dense is not None:
            stage = stage.specialize(self.dense)
        stage.vectorize(var, lanes, hl.TailStrategy.RoundUp if whole else self.guard)

    def tasks(self, stage: Any, over: Sequence[Any], each: Expr) -> tuple[Any, Any]:
        """Return the loops `over`, innermost first, as tasks of so many steps; returns (task, step)."""
        one = over[0]
        for other in over[1:]:
            joined = self.fresh("joined")
            stage.fuse(one, other, joined)
            one = joined
        task, step = self.fresh("task"), self.fresh("step")
        stage.split(one, task, step, each, self.guard)
        stage.parallel(task)
        stage.partition(task, hl.Partition.Never)
        stage.partition(step, hl.Partition.Never)
        return task, step

    def sweep(self, stage: Any, loops: Sequence[str]) -> tuple[list[Any], Any]:
        """Run pieces of the innermost axis and the loops around it as tasks; return the loops' order."""
        variables = self.algorithm.vars
        i = variables["i"]
        piece, lane = self.fresh("piece"), self.fresh("lane")
        full = hl.max((self.algorithm.extent("i") + (self.wide - 1)) / self.wide * self.wide, self.wide)
        length = hl.min(full, max(self.plan.piece, self.wide))
        stage.split(i, piece, lane, length, self.guard)
        each = hl.max(self.plan.task / length, 1)
        task, step = self.tasks(stage, [piece, *(variables[x] for x in loops[1:])], each)
        return [lane, step, task], lane

    # kinds of groups

    def flat(self) -> None:
        for stage in self.algorithm.stages:
            if stage.role == "scalar":
                stage.func.compute_root().store_in(hl.MemoryType.Stack)
        for number, (func, operands) in enumerate(self.algorithm.outputs):
            loops = operands[0].loops
            if loops[:1] != ("i",):
                if loops:
                    self.tasks(func, [self.algorithm.vars[x] for x in loops], hl.Expr(self.plan.task))
                continue
            stage = func if self.dense is None else func.specialize(self.dense)
            _, lane = self.sweep(stage, loops)
            turn, element = self.fresh("turn"), self.fresh("element")
            stage.split(lane, turn, element, self.lanes, hl.TailStrategy.RoundUp)
            stage.vectorize(element)
            if self.dense is not None:
                self.squares(func, loops, turn)
            if number in self.algorithm.ready:
                ready = self.algorithm.ready[number]
                ready.compute_at(func, turn).store_in(hl.MemoryType.Stack)
                ready.bound_storage(self.algorithm.vars["i"], self.lanes)
                ready.vectorize(self.algorithm.vars["i"], self.lanes, self.guard)

    def squares(self, stage: Any, loops: Sequence[str], lane: Any) -> None:
        """Tile the two innermost axes in squares: neighbours along the second stay in cache."""
        variables = self.algorithm.vars
        first = self.fresh("square")
        stage.split(variables["i"], first, lane, SQUARE, self.guard)
        over, inside = [first], [lane]
        if len(loops) > 1:
            second, line = self.fresh("square"), self.fresh("line")
            stage.split(variables[loops[1]], second, line, SQUARE, self.guard)
            over, inside = [first, second], [lane, line]
        rest = [variables[x] for x in loops[2:]]
        stage.reorder(*inside, *over, *rest)
        self.tasks(stage, [*over, *rest], hl.Expr(max(1, self.plan.task // SQUARE**2)))

    def folding(self) -> None:
        outputs, early = self.algorithm.outputs, self.algorithm.early
        found = [self.anchor(k, *output) for k, output in enumerate(outputs) if k not in early]
        anchor, where = found[0] if len(found) == 1 else (None, None)
        for stage in self.algorithm.stages:
            self.stage(stage, anchor, where)
        for number, part in early.items():
            self.with_part(number, part)

    def with_part(self, number: int, part: Func) -> None:
        """Schedule an output that is written piece by piece as its inputs are reduced."""
        func, variables = self.algorithm.outputs[number][0], self.algorithm.vars
        piece, lane, c = self.fresh("piece"), self.fresh("lane"), hl.Var("c")
        folded = [variables[x] for x in self.frame.f_loops]
        func.split(variables["i"], piece if folded else c, lane, self.algorithm.piece, self.guard)
        if folded:
            group, line = self.fresh("group"), self.fresh("line")
            func.split(folded[0], group, line, self.algorithm.group, self.guard)
            func.fuse(piece, group, c)
            folded[0] = line
        func.reorder(lane, *folded, c)
        func.parallel(c)
        self.elements(number, func, lane, self.wide, whole=True)
        func.compute_with(part, c)

    def anchor(self, number: int, func: Func, operands: Sequence[Any]) -> tuple[Func, Any]:
        """Return the loops over rows or tiles of an output.

        Returns it and the loop in which a row is computed.
        """
        loops, variables = max((o.loops for o in operands), key=len), self.algorithm.vars
        kept = [x for x in loops if x in self.frame.k_loops]
        if self.frame.columns:
            return func, self.tiles(number, func, loops, kept)
        order: list[Any] = []
        if loops[:1] == ("i",):
            order = self.inner(func, loops)
        row = None
        if kept:
            elements = self.length([x for x in self.frame.loops if x not in kept], self.plan.task)
            task, row = self.tasks(func, [variables[x] for x in kept], hl.max(self.plan.task / elements, 1))
            func.reorder(*order, row, task)
        if order:
            self.elements(number, func, order[0], self.wide, whole=not self.algorithm.short)
        return func, row

    def elements(self, number: int, func: Func, lane: Any, lanes: int, whole: bool = False) -> None:
        """Vectorize an output along `lane`; see `vectors`."""
        if number not in self.algorithm.ready:
            self.vectors(func, lane, lanes, whole)
            return
        turn, element = self.fresh("turn"), self.fresh("element")
        func.split(lane, turn, element, lanes, hl.TailStrategy.RoundUp if whole else self.guard)
        func.vectorize(element)
        self.ready_in(number, func, turn, lanes)

    def ready_in(self, number: int, func: Func, turn: Any, lanes: int) -> None:
        """Compute all of a turn before it is written."""
        ready, i = self.algorithm.ready[number], self.algorithm.vars["i"]
        ready.compute_at(func, turn).store_in(hl.MemoryType.Stack)
        ready.bound_storage(i, lanes)
        self.vectors(ready, i, lanes)

    def inner(self, func: Func, loops: Sequence[str]) -> list[Any]:
        """Return the loops of an output, or of a value that is kept, in one row, innermost first."""
        inside = [x for x in loops if x not in self.frame.k_loops]
        if self.algorithm.short:
            return [self.algorithm.vars[x] for x in inside]
        order, _ = self.sweep(func, inside)
        return order

    def tiles(self, number: int, func: Func, loops: Sequence[str], kept: Sequence[str]) -> Any:
        variables = self.algorithm.vars
        lines = self.length(self.frame.f_loops, self.plan.fits)
        passes = len(self.frame.schedule.passes)
        width = hl.Expr(self.plan.tile)
        if passes > 1:
            width = hl.clamp(self.plan.fits / lines, self.lanes, self.plan.tile)
            width = width / self.lanes * self.lanes
        if loops[:1] != ("i",):
            return None
        tile, lane = self.fresh("tile"), self.fresh("lane")
        func.split(variables["i"], tile, lane, width, self.guard)
        each = hl.max(self.plan.task / (lines * width), 1)
        task, step = self.tasks(func, [tile, *(variables[x] for x in kept)], each)
        folded = [variables[x] for x in loops if x in self.frame.f_loops]
        func.reorder(lane, *folded, step, task)
        self.elements(number, func, lane, self.lanes)
        return step

    def stage(self, stage: Stage, anchor: Func, where: Any) -> None:
        func, variables = stage.func, self.algorithm.vars
        if stage.role in ("out", "row_out", "ready"):
            return
        if stage.role in ("lanes", "joined"):
            (self.lanes_stage if stage.role == "lanes" else self.joined_stage)(stage)
            if not self.algorithm.short:
                self.parts.append(func)
                return
        if where is None:
            func.compute_root()
        else:
            func.compute_at(anchor, where)
        if stage.role == "part":
            func.store_in(hl.MemoryType.Stack)
            c = hl.Var("c")
            func.parallel(c)
            func.partition(c, hl.Partition.Never)
            for each in self.parts:
                each.compute_at(func, c)
            self.parts = []
        elif stage.role == "columns":
            self.columns_stage(stage)
        elif stage.role == "kept":
            # What reads it stops at the end of the row, which Halide does not always see.
            for loop in (*(() if self.frame.columns else ("i",)), *self.frame.f_loops):
                func.bound(variables[loop], 0, self.algorithm.extent(loop))
            func.store_in(hl.MemoryType.Stack) if where is not None else None
            if self.frame.columns:
                self.vectors(func, variables["i"], self.lanes)
            else:
                inner = self.inner(func, self.frame.loops)[0]
                self.vectors(func, inner, self.wide, whole=not self.algorithm.short)
        elif self.frame.columns and stage.role in ("row", "sums"):
            self.vectors(func, variables["i"], self.lanes)
            if stage.role == "sums":
                update = func.update()
                update.reorder(variables["i"], stage.domain.x)
                update.vectorize(variables["i"], self.lanes, self.guard)

    def lanes_stage(self, stage: Stage) -> None:
        u = hl.Var("u")
        stage.func.store_in(hl.MemoryType.Stack)
        stage.func.vectorize(u)
        update = stage.func.update()
        r = stage.domain
        order = [u, *(r[d] for d in range(1 + len(self.frame.f_loops)))]
        update.reorder(*order)
        if self.dense is not None:
            update = update.specialize(self.dense)
        update.vectorize(u)

    def joined_stage(self, stage: Stage) -> None:
        u = hl.Var("u")
        stage.func.store_in(hl.MemoryType.Stack)
        stage.func.bound(u, 0, self.algorithm.narrow)
        stage.func.vectorize(u)

    def columns_stage(self, stage: Stage) -> None:
        variables, func, c = self.algorithm.vars, stage.func, hl.Var("c")
        i = variables["i"]
        func.vectorize(i, self.lanes, self.guard)
        update, r = func.update(), stage.domain
        kept = [variables[x] for x in self.frame.k_loops]
        parts = [] if self.algorithm.short else [c]
        update.reorder(i, *(r[d] for d in range(len(self.frame.f_loops))), *parts, *kept)
        if parts:
            update.parallel(c)
            update.partition(c, hl.Partition.Never)
        self.vectors(update, i, self.lanes)
