"""The units of a chunk: the runs along the folded axes, and the innermost loop."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from mgb.codegen import Pass, operands
from mgb.ir import CONST, Node

from ..folds import held
from ..slots import Operand
from .body import Body
from .builder import INDEX, SCALAR, WORD, Carried, Lanes
from .lanes import Access, Names, Value, Width
from .sinking import Sinking, Tables
from .states import apart, carried
from .words import fold_step, nothing

Bases = dict[Operand, str]


class Units:
    """The units of one chunk of one pass.

    Parameters
    ----------
    nest : Sinking
        What is written to.
    k : int
        The number of the pass.
    part : Pass
    rows : dict
        Where each operand has its row.
    columns : str
        How many columns there are, where the lanes are columns.
    partials : dict
        Where reductions are kept, likewise.
    tables : dict
        Where scatters are.
    lanes : Width
        Of the innermost loop.
    """

    def __init__(
        self,
        nest: Sinking,
        k: int,
        part: Pass,
        rows: Bases,
        columns: str,
        partials: dict[Node, Access],
        tables: Tables,
        lanes: Width,
    ) -> None:
        self.nest = nest
        self.frame = nest.frame
        self.part = part
        self.asked = self.frame.asked(k)
        self.rows = rows
        self.columns = columns
        self.partials = partials
        self.tables = tables
        self.lanes = lanes
        #: What is carried on; columns have it in memory.
        self.scans = () if self.frame.columns else nest.scans_of(part)
        self.written = [o for o in self.frame.operands if o.is_output and o.node in part.stores]
        self.operands = [*(self.frame.source_of[v] for v in part.reads), *self.written]
        self.operands += [o for v in part.computes for o in self.frame.tables_of.get(v, ())]

    def write(self, unit0: str, unit1: str, carried: Sequence[Carried]) -> list[str]:
        """Write the loops. Only runs along the innermost of several folded loops take divisions."""
        nest, zero, one = self.nest, self.nest.index(0), self.nest.index(1)
        if self.frame.loops["folded"] < 2:
            last = nest.sub(nest.add(unit0, unit1), one) if self.frame.reverse else ""
            at = partial(nest.sub, last) if last else str
            bases = {o: self.rows[o] for o in self.operands}
            return nest.loop(
                unit0,
                unit1,
                one,
                carried,
                lambda unit, given: self.unit(bases, zero, at(unit), at(unit), given),
                "unit",
            )
        length = nest.slot(self.frame.lengths_at["folded"])
        run0 = nest.div(unit0, length)
        run1 = nest.div(nest.add(unit1, nest.sub(length, one)), length)

        def turn(run: str, given: list[str]) -> Sequence[str]:
            now = [(value, type_) for value, (_, type_) in zip(given, carried, strict=True)]
            return self.run(run, length, (unit0, unit1), now)

        return nest.loop(run0, run1, one, carried, turn, "run")

    def run(self, run: str, length: str, units: tuple[str, str], carried: Sequence[Carried]) -> list[str]:
        """Return one run along the innermost reduced loop, as far as it is among the units."""
        nest, frame = self.nest, self.frame
        places = nest.places(run, "folded", 1)
        bases = {
            o: nest.moved(self.rows[o], frame.strides_at(o, "folded")[1:], places) for o in self.operands
        }
        zero = nest.index(0)
        start = zero if frame.columns else nest.moved(zero, frame.starts_at[1:], places)
        origin = nest.mul(run, length)
        first, last = nest.greatest(units[0], origin), nest.least(units[1], nest.add(origin, length))

        def turn(unit: str, given: list[str]) -> Sequence[str]:
            span = (nest.sub(unit, first), nest.sub(last, unit))
            return self.unit(bases, start, unit, nest.sub(unit, origin), given, span)

        return nest.loop(first, last, nest.index(1), carried, turn, "unit")

    def unit(
        self,
        bases: Bases,
        start: str,
        unit: str,
        place: str,
        given: list[str],
        span: tuple[str, str] | None = None,
    ) -> Sequence[str]:
        """Return one unit: the operands are at `place` of the innermost folded loop from `bases`.

        `span` is how many units of a run lie before it, and how many begin with it.
        """
        nest, count = self.nest, self.columns
        if not self.frame.columns:
            start = nest.moved(start, self.frame.starts_at[:1], [place])
            count = nest.least(nest.slot("piece"), nest.sub(nest.slot("n"), start))
        at = {}
        for o, base in bases.items():
            address = nest.moved(base, self.frame.strides_at(o, "folded")[:1], [place])
            tiled = span if self.frame.flat and o in self.frame.tiled else None
            at[o] = nest.laid(o, address, count) if o.is_table else nest.lined_up(o, address, count, tiled)
        nest.ask("next", {o: at[o] for o in self.asked}, nest.index(1), count)
        return self.work(at, unit, count, given)

    def work(self, at: Bases, unit: str, count: str, given: list[str]) -> list[str]:
        """Return the elements of a unit, whose operands are at `at`."""
        nest = self.nest
        done = self.elements(at, unit, count, given)
        for v in self.part.scatters:
            if self.frame.scatters(v) and v is self.frame.together[v][0]:
                nest.fold_noted(self.frame.together[v], self.tables, count)
        for o in self.written:
            if o.moves:
                nest.put_apart(o, at[o], count)
                source = nest.buffer(nest.buffer_of("s", o.node))
                size = nest.mul(count, nest.index(o.itemsize))
                nest.when(nest.streams(o), partial(nest.call, "mgb_flush", at[o], source, size))
        return done

    @property
    def stays_in_registers(self) -> bool:
        """Return whether a block of columns may be folded through a whole chunk before the next block is."""
        part, frame = self.part, self.frame
        alone = not (part.totals or part.scatters or part.keeps or part.restores or part.stores)
        reads = not any(v in frame.tables_of or v in frame.scans for v in part.computes)
        return bool(frame.columns and part.folds and alone and reads) and frame.loops["folded"] == 1

    def columns_in_registers(self, unit0: str, unit1: str) -> None:
        """Write the loops over blocks of columns, each through all units."""
        nest, part = self.nest, self.part
        lanes_of = nest.lane_reads(part.computes, part.ends, self.rows)

        def block(i: str, lanes: Lanes, _: list[str]) -> Sequence[str]:
            body, given = Body(nest, lanes), lanes_of(i, lanes)
            begun = [(nothing(body, f, held(f)), body.type(held(f))) for f in part.folds]
            turn = lambda unit, totals: self.one_unit(unit, i, lanes, given, totals)  # noqa: E731
            done = nest.loop(unit0, unit1, nest.index(1), begun, turn, "unit")
            for f, total in zip(part.folds, done, strict=True):
                nest.write(self.partials[f], i, Value(total, lanes.count), lanes)
            return ()

        nest.over(self.columns, self.lanes, [], block)

    def one_unit(self, unit: str, i: str, lanes: Lanes, given: Names, totals: list[str]) -> Sequence[str]:
        """Return the totals of columns with the elements of one more unit."""
        nest, body = self.nest, Body(self.nest, lanes)
        at = {
            o: nest.moved(self.rows[o], self.frame.strides_at(o, "folded")[:1], [unit]) for o in self.operands
        }
        names = self.fixed(at) | given
        for o in (self.frame.source_of[v] for v in self.part.reads):
            if o.moves:
                names[o.node] = nest.element(o, nest.access(o, at[o]), at[o], i, lanes)
        nest.compute(self.part.computes, names, lanes, i)
        values = (nest.value(f.inputs[0], names, lanes) for f in self.part.folds)
        steps = zip(self.part.folds, totals, values, strict=True)
        return [fold_step(body, f, total, value, held(f)) for f, total, value in steps]

    def elements(self, at: Bases, unit: str, count: str, given: list[str]) -> list[str]:
        """Return the innermost loop."""
        nest, part = self.nest, self.part
        reads = [(v, self.frame.source_of[v]) for v in part.reads]
        sources = [(v, o, nest.access(o, at[o]), at[o]) for v, o in reads if o.moves]
        nest.look_at |= {o: address for o, address in at.items() if o.is_table}
        fixed = self.fixed(at)
        sources += self.rows_of_tables(fixed, count)
        kept = self.kept(unit)
        to = {o: self.target(o, at[o]) for o in self.written}
        lines = nest.lines_of_tables(part, self.tables, fixed)
        lanes_of = nest.lane_reads(part.computes, part.ends, self.rows) if self.frame.columns else None
        type_ = Lanes(self.lanes.turn)
        count_folds = len(part.folds)
        begun = [
            (value, Body(nest, type_).type(held(f)))
            for f, value in zip(part.folds, given[:count_folds], strict=False)
        ]
        begun += carried(self.scans, given[count_folds:])

        def turn(i: str, lanes: Lanes, given: list[str]) -> Sequence[str]:
            names = dict(fixed)
            for v, o, access, address in sources:
                names[v] = nest.element(o, access, address, i, lanes)
            for v in part.restores:
                names[v] = nest.read(kept[v], i, lanes)
            if lanes_of is not None:
                names |= lanes_of(i, lanes)
            nest.carried = apart(self.scans, given[len(part.folds) :])
            nest.compute(part.computes, names, lanes, i)
            for v in part.totals:
                nest.scanned(v, names, lanes, i)
            for v in part.scatters:
                nest.sink(v, lines, i, names, lanes)
            for v in part.keeps:
                nest.write(kept[v], i, Value(nest.value(v, names, lanes), lanes.count), lanes)
            for o, access in to.items():
                nest.write(access, i, Value(nest.value(o.node, names, lanes), lanes.count), lanes)
            states = (x for v in self.scans for x in nest.carried[v])
            return [*self.folds(i, lanes, names, given), *states]

        return nest.near_and_far(
            part.computes, lambda begun: nest.over(count, self.lanes, begun, turn), begun
        )

    def fixed(self, at: Bases) -> Names:
        """Load the loop-invariant values. LLVM cannot hoist them: an output might alias an operand."""
        nest, names = self.nest, dict(self.nest.row_names)
        for v in self.part.reads:
            o = self.frame.source_of[v]
            if not o.moves:
                names[v] = nest.element(o, nest.access(o, at[o]), at[o], nest.index(0), SCALAR)
        for v in self.part.computes:
            moves = any(o.moves for o in self.frame.tables_of.get(v, ()))
            if v not in self.frame.scans and not moves and all(self.is_fixed(i, names) for i in operands(v)):
                nest.compute([v], names, SCALAR, nest.index(0))
        return names

    def is_fixed(self, node: Node, names: Names) -> bool:
        """Return whether it is among what is the same in every turn, which has `names`."""
        return node in names or (node.op is CONST and node not in self.frame.source_of)

    def rows_of_tables(self, fixed: Names, count: str) -> list[tuple[Node, Operand, Access | None, str]]:
        """Return the rows of tables that a loop goes through: their indices are the same in every turn."""
        nest, found = self.nest, []
        for v in self.part.computes:
            if v not in self.frame.look_ups or v in fixed:
                continue
            (o,) = self.frame.tables_of[v]
            if all(self.is_fixed(i, fixed) for i in operands(v)):
                offset = nest.offset(v, fixed, SCALAR)
                start = nest.add(nest.look_at[o], nest.change("bitcast", offset, WORD, INDEX))
                start = nest.lined_up(o, start, count)
                found.append((v, o, nest.access(o, start), start))
        return found

    def kept(self, unit: str) -> dict[Node, Access]:
        """Return where the values are that an earlier pass kept, or that a later one reads."""
        nest, found = self.nest, {}
        nodes = (*self.part.restores, *self.part.keeps)
        passed = nest.mul(unit, nest.slot("piece")) if nodes else ""
        for v in nodes:
            b = nest.buffer_of("k", v)
            found[v] = nest.at_buffer(b, nest.add(nest.buffer(b), nest.mul(passed, nest.index(b.itemsize))))
        return found

    def target(self, o: Operand, address: str) -> Access:
        """Return where the loop writes an output.

        A buffer, when it is to go past the caches, or lies apart.
        """
        nest = self.nest
        if o.moves:
            buffer = nest.buffer(nest.buffer_of("s", o.node))
            address = nest.select(nest.streams(o), buffer, address)
        return nest.side_by_side(o, address)

    def folds(self, i: str, lanes: Lanes, names: Names, given: list[str]) -> list[str]:
        """Fold the elements of a turn."""
        nest, body, done = self.nest, Body(self.nest, lanes), []
        for k, f in enumerate(self.part.folds):
            value = nest.value(f.inputs[0], names, lanes)
            if self.frame.columns:
                nest.fold_into(self.partials[f], f, i, value, lanes)
                continue
            if lanes.mask:
                value = body.select(lanes.mask, value, nothing(body, f, held(f)), body.type(held(f)))
            done.append(fold_step(body, f, given[k], value, held(f)))
        return done
