"""A group as functions of Halide: the values that are computed, not when or where.

A row is summed in `lanes` side by side, over pieces of a fixed length, and the pieces are added up at the
end; a column over groups of rows of a fixed number. So the order of the additions is part of what is
computed, and neither the loops nor the number of threads change a result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mgb.codegen import EXTENT, Pass, identity
from mgb.ir import CONST, Node
from mgb_native.folds import held, wide

from .division import bound, hidden
from .frame import Frame, Names, Operand
from .fused import fuses, marked
from .schedule import Form, HalideSchedule
from .toolchain import hl
from .words import SPELLINGS, STORED, Expr, convert, fold, halide_type, literal, load, store

#: The lanes that are left of a row when its vectors are joined: the fewer, the fewer scalars.
NARROW = 4

#: Where a value is wanted: an expression for each loop.
Place = Mapping[str, Expr]
Func = Any


@dataclass
class Stage:
    """One function, and what the schedule has to know of it.

    Attributes
    ----------
    func : halide.Func
    role : str
        ``"lanes"``, ``"joined"``, ``"part"``, ``"total"``, ``"row"``, ``"kept"``, ``"ready"``,
        ``"out"``, ``"row_out"``.
    domain : halide.RDom or None
        What its update folds.
    """

    func: Func
    role: str
    domain: Any = None


@dataclass
class Algorithm:
    """The functions of one group.

    Parameters
    ----------
    frame : Frame
    plan : HalideSchedule
        The lengths of pieces and groups.
    lanes : int
        How many elements a row is summed in side by side.
    form : Form
    apart : bool
        Several outputs of a loop are computed by a loop of their own for each turn.
    """

    frame: Frame
    plan: HalideSchedule
    lanes: int
    form: Form
    apart: bool = False
    stages: list[Stage] = field(default_factory=list)

    def __post_init__(self) -> None:
        frame = self.frame
        self.vars = {loop: hl.Var(loop) for loop in frame.loops}
        self.params = {o.name: self._param(o) for o in frame.operands if not o.is_output}
        self.shape = hl.ImageParam(hl.UInt(8), max(1, len(frame.loops)), "domain")
        for d in range(max(1, len(frame.loops))):
            self.shape.dim(d).set_stride(hl.Expr())
        self.fused = fuses(frame.graph)
        self.tuples: dict[Node, tuple[Func, int, Names]] = {}
        self.constants: dict[Node, Expr] = {}
        self.ready: dict[int, Func] = {}
        self.parts: dict[int, Func] = {}
        self.early: dict[int, Func] = {}
        self._rows(frame.schedule.before)
        self._scalars()
        for k, part in enumerate(frame.schedule.passes):
            self._pass(k, part)
        self.outputs = self._outputs()

    @property
    def short(self) -> bool:
        """A row is one piece, a column one group."""
        return self.form is not Form.LONG

    # loops

    def extent(self, loop: str) -> Expr:
        """Return the length of a loop."""
        return self.shape.dim(self.frame.loops.index(loop)).extent()

    def here(self, loops: Names) -> dict[str, Expr]:
        return {loop: self.vars[loop] for loop in loops}

    def _param(self, o: Operand) -> Any:
        dtype = "uint8" if o.is_iota else STORED.get(o.node.spec.dtype.name, o.node.spec.dtype.name)
        param = hl.ImageParam(halide_type(dtype), len(o.loops), o.name)
        for d in range(len(o.loops)):
            param.dim(d).set_min(0)
        if o.loops:
            param.dim(0).set_stride(hl.Expr())
        return param

    @property
    def arguments(self) -> list[Any]:
        """Of the compiled function; the outputs follow."""
        return [self.shape, *self.params.values()]

    def dense(self) -> Expr | None:
        """Return whether the elements of each input lie side by side along the innermost loop.

        None: of course.
        """
        found = None
        for o in self.frame.operands:
            if not o.is_output and not o.is_iota and o.loops[:1] == ("i",):
                one = self.params[o.name].dim(0).stride() == 1
                found = one if found is None else found & one
        return found

    # values

    def value(self, node: Node, at: Place, memo: dict[Node, Expr]) -> Expr:
        """Return `node` at a place."""
        stack = [node]
        while stack:
            v = stack[-1]
            if v in memo:
                stack.pop()
                continue
            missing = [] if self._given(v) else [i for i in v.inputs if i not in memo]
            stack.extend(missing)
            if not missing:
                memo[v] = self._value(v, at, memo)
                stack.pop()
        return memo[node]

    def _given(self, v: Node) -> bool:
        return v in self.tuples or v in self.frame.source_of or v.op is EXTENT

    def _value(self, v: Node, at: Place, memo: dict[Node, Expr]) -> Expr:
        if v in self.tuples:
            func, index, loops = self.tuples[v]
            # No input that it is made of may vary along a loop of the rows; then one row is as good as all.
            return _element(func, tuple(at.get(loop, hl.Expr(0)) for loop in loops), index)
        if v in self.frame.source_of:
            return self._leaf(self.frame.source_of[v], at)
        if v.op is EXTENT:
            return self._extent(v)
        if v.op is CONST:
            if v not in self.constants:
                self.constants[v] = SPELLINGS["const"](v)
            return self.constants[v]
        if self.fused and v.op.name == "fma" and v.spec.dtype.kind == "f":
            a, b, c = (memo[i] for i in v.inputs)
            return marked(a, b, self.shape.dim(0).min()) + c
        operands = [memo[i] for i in v.inputs]
        if bound(v):
            operands[0] = hidden(operands[0], self.shape.dim(0).stride())
        return SPELLINGS[v.op.name](v, *operands)

    def _leaf(self, o: Operand, at: Place) -> Expr:
        param, dtype = self.params[o.name], o.node.spec.dtype.name
        if not o.is_iota:
            return load(param[tuple(at[loop] for loop in o.loops)], dtype)
        place = literal(0, "int64")
        for d, loop in enumerate(o.loops):
            place = place + hl.cast(hl.Int(64), at[loop]) * hl.cast(hl.Int(64), param.dim(d).stride())
        return convert(place, dtype)

    def _extent(self, v: Node) -> Expr:
        count = hl.i64(1)
        if self.frame.span[v] != self.frame.span[v.inputs[0]]:
            for loop in (*(() if self.frame.columns else ("i",)), *self.frame.f_loops):
                count = count * hl.cast(hl.Int(64), self.extent(loop))
        return convert(count, v.spec.dtype.name)

    def pure(self, loops: Names) -> tuple[Any, ...]:
        """Return the variables of loops."""
        return tuple(self.vars[loop] for loop in loops)

    def define(
        self, name: str, role: str, loops: Names, nodes: Sequence[Node], values: Sequence[Expr]
    ) -> Func:
        """Return a function over `loops` with a value for each of `nodes`."""
        func = hl.Func(name)
        func[self.pure(loops)] = _tuple(values)
        self.stages.append(Stage(func, role))
        for index, node in enumerate(nodes):
            self.tuples[node] = (func, index, loops)
        return func

    # passes

    def _pass(self, k: int, part: Pass) -> None:
        loops = self.frame.loops
        for v in part.keeps:
            self.define(f"kept{k}", "kept", loops, [v], [self.value(v, self.here(loops), {})])
        if part.folds:
            (self._fold_columns if self.frame.columns else self._fold_rows)(k, part.folds)
        self._rows(part.after)

    def _rows(self, nodes: Sequence[Node]) -> None:
        """Compute row values, each once for a row."""
        loops = self.frame.row_loops
        for v in nodes:
            if v.op is not CONST and v.op is not EXTENT and v not in self.tuples:
                value = self.value(v, self.here(loops), {})
                self.define(f"row{len(self.stages)}", "row", loops, [v], [value])

    def _scalars(self) -> None:
        """Define the values that are one number for all elements, in a graph without rows."""
        one = {v for v in self.frame.graph.nodes if not any(self.frame.span[v])} if self.frame.flat else ()
        read = {i for v in self.frame.graph.nodes if v not in one for i in v.inputs}
        wanted = [v for v in self.frame.graph.nodes if v in one and v in read and v.inputs]
        if wanted:
            memo: dict[Node, Expr] = {}
            self.define("scalars", "scalar", (), wanted, [self.value(v, {}, memo) for v in wanted])

    def _fold_rows(self, k: int, folds: Sequence[Node]) -> None:
        frame, k_loops = self.frame, self.frame.k_loops
        u, c = hl.Var("u"), hl.Var("c")
        n, lines = self.extent("i"), [self.extent(f) for f in frame.f_loops]
        kept = [self.vars[loop] for loop in k_loops]
        if self.short:
            r = hl.RDom([(0, (n + (self.lanes - 1)) / self.lanes), *((0, e) for e in lines)], f"r{k}")
            at = {loop: self.vars[loop] for loop in k_loops} | {"i": r[0] * self.lanes + u}
            r.where(hl.likely(at["i"] < n))
            at |= {f: r[1 + i] for i, f in enumerate(frame.f_loops)}
            lanes = self._accumulate(f"lanes{k}", "lanes", [u, *kept], folds, at, r)
            parts = self._joined(f"joined{k}", folds, lanes, kept)
            self.define(f"total{k}", "row", k_loops, folds, parts)
            return
        piece, group = self.piece, self.group
        pieces = (n + (piece - 1)) / piece
        steps = (hl.min(n, piece) + (self.lanes - 1)) / self.lanes
        r = hl.RDom([(0, steps), *([(0, group)] if lines else []), *((0, e) for e in lines[1:])], f"r{k}")
        at = {loop: self.vars[loop] for loop in k_loops}
        start = (c % hl.max(pieces, 1)) * piece if lines else c * piece
        at["i"] = start + r[0] * self.lanes + u
        r.where(hl.likely(at["i"] < n))
        if lines:
            at["f0"] = (c / hl.max(pieces, 1)) * group + r[1]
            r.where(at["f0"] < lines[0])
        at |= {f: r[2 + i] for i, f in enumerate(frame.f_loops[1:])}
        lanes = self._accumulate(f"lanes{k}", "lanes", [u, c, *kept], folds, at, r)
        parts = self._joined(f"joined{k}", folds, lanes, [c, *kept])
        part = hl.Func(f"part{k}")
        part[(c, *kept)] = _tuple(parts)
        self.stages.append(Stage(part, "part"))
        self.parts[k] = part
        chunks = pieces * ((lines[0] + group - 1) / group) if lines else pieces
        self._total(k, folds, part, chunks, k_loops)

    def _fold_columns(self, k: int, folds: Sequence[Node]) -> None:
        frame, plan = self.frame, self.plan
        c, lines = hl.Var("c"), [self.extent(f) for f in frame.f_loops]
        kept = [self.vars[loop] for loop in frame.k_loops]
        if self.short:
            r = hl.RDom([(0, e) for e in lines], f"r{k}")
            at = self.here(frame.row_loops) | {f: r[i] for i, f in enumerate(frame.f_loops)}
            func = self._accumulate(f"total{k}", "columns", [self.vars["i"], *kept], folds, at, r)
            for index, f in enumerate(folds):
                self.tuples[f] = (func, index, frame.row_loops)
            return
        r = hl.RDom([(0, hl.min(lines[0], plan.group)), *((0, e) for e in lines[1:])], f"r{k}")
        at = self.here(frame.row_loops)
        at["f0"] = c * plan.group + r[0]
        r.where(at["f0"] < lines[0])
        at |= {f: r[1 + i] for i, f in enumerate(frame.f_loops[1:])}
        part = self._accumulate(f"part{k}", "columns", [self.vars["i"], c, *kept], folds, at, r)
        self._total(k, folds, part, (lines[0] + (plan.group - 1)) / plan.group, frame.row_loops)

    def _accumulate(
        self, name: str, role: str, pure: list[Any], folds: Sequence[Node], at: Place, r: Any
    ) -> Func:
        """Return a function over `pure` that folds what its update visits."""
        func = hl.Func(name)
        func[tuple(pure)] = _tuple([literal(identity(f), held(f)) for f in folds])
        memo: dict[Node, Expr] = {}
        elements = [self.value(f.inputs[0], at, memo) for f in folds]
        now = [_element(func, pure, i) for i in range(len(folds))]
        func[tuple(pure)] = _tuple([fold(f, a, b) for f, a, b in zip(folds, now, elements, strict=True)])
        self.stages.append(Stage(func, role, r))
        return func

    @property
    def piece(self) -> int:
        """Elements of a row that are summed in a piece, where it has several."""
        return max(self.plan.piece, self.lanes)

    @property
    def group(self) -> Expr:
        """Rows that are summed together, where they are shorter than a piece."""
        return hl.max(self.piece / hl.max(self.extent("i"), 1), 1)

    @property
    def narrow(self) -> int:
        """The lanes that vectors of a row are joined to, before these are one number."""
        return min(NARROW, self.lanes)

    def _joined(self, name: str, folds: Sequence[Node], lanes: Func, rest: list[Any]) -> list[Expr]:
        """Return the lanes of a piece as one number for each of `folds`: pairwise, first in vectors."""
        u, func = hl.Var("u"), hl.Func(name)
        steps = range(0, self.lanes, self.narrow)
        func[(u, *rest)] = _tuple(
            [_pairwise(f, [_element(lanes, (u + s, *rest), i) for s in steps]) for i, f in enumerate(folds)]
        )
        self.stages.append(Stage(func, "joined"))
        return [
            _pairwise(f, [_element(func, (s, *rest), i) for s in range(self.narrow)])
            for i, f in enumerate(folds)
        ]

    def _total(self, k: int, folds: Sequence[Node], part: Func, chunks: Expr, loops: Names) -> None:
        pure = [self.vars[loop] for loop in loops]
        c = hl.RDom([(0, chunks)], f"c{k}")
        func = hl.Func(f"sums{k}")
        func[tuple(pure)] = _tuple([literal(identity(f), wide(f)) for f in folds])
        place = (pure[0], c.x, *pure[1:]) if self.frame.columns else (c.x, *pure)
        now = [_element(func, tuple(pure), i) for i in range(len(folds))]
        parts = [convert(_element(part, place, i), wide(f)) for i, f in enumerate(folds)]
        func[tuple(pure)] = _tuple([fold(f, a, b) for f, a, b in zip(folds, now, parts, strict=True)])
        self.stages.append(Stage(func, "sums", c))
        totals = [convert(one, held(f)) for one, f in zip(now, folds, strict=True)]
        self.define(f"total{k}", "row", loops, folds, totals)

    # results

    def _outputs(self) -> list[tuple[Func, tuple[Operand, ...]]]:
        """Return a function for what each loop writes.

        What is `apart` is `ready`, for a turn of the loop, before any is written, perhaps over what the
        others are made of; and so is what a pass writes, whose inputs may have gaps.
        """
        found = []
        for number, (loops, operands) in enumerate(self.frame.written(self.short)):
            memo: dict[Node, Expr] = {}
            at = self.here(loops)
            values = [store(self.value(o.node, at, memo), o.node.spec.dtype.name) for o in operands]
            full = loops == self.frame.loops
            several = loops[:1] == ("i",) and sum(o.loops == loops for o in operands) > 1
            early = full and self.frame.folds_last(self.short)
            if (several and self.apart) or early:
                ready = self.ready[number] = self.define(f"ready{number}", "ready", loops, [], values)
                values = [_element(ready, self.pure(loops), k) for k in range(len(values))]
            func = self.define(f"out{number}", "out" if full else "row_out", loops, [], values)
            self._bound(func, loops, operands)
            found.append((func, operands))
            if early:
                self.early[number] = self.parts[len(self.frame.schedule.passes) - 1]
        return found

    def _bound(self, func: Func, loops: Names, operands: Sequence[Operand]) -> None:
        """Say what is known of the arrays that are written."""
        for k, (o, buffer) in enumerate(zip(operands, func.output_buffers(), strict=True)):
            for d, loop in enumerate(loops):
                if k == 0:  # the others have the same, as Halide knows
                    buffer.dim(d).set_bounds(0, self.extent(loop))
                if loop not in o.loops:
                    buffer.dim(d).set_stride(0)
                elif d == 0 and loop != "i":
                    buffer.dim(d).set_stride(hl.Expr())


def _tuple(values: Sequence[Expr]) -> Any:
    return hl.Tuple(list(values)) if len(values) > 1 else values[0]


def _pairwise(f: Node, found: list[Expr]) -> Expr:
    """Combine elements into one number in pairs: each of the first half with one of the second."""
    while len(found) > 1:
        half = len(found) // 2
        found = [fold(f, a, b) for a, b in zip(found[:half], found[half:], strict=True)]
    return found[0]


def _element(func: Func, place: Sequence[Any], index: int) -> Expr:
    """Return one of the values of a function at a place."""
    call = func[tuple(place)]
    return hl.Expr(call[index] if len(func.types()) > 1 else call)
