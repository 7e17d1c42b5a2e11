"""Where the operands of a kernel are: their rows, pieces, tiles of transposed inputs."""

from __future__ import annotations

from collections.abc import Iterable

from mgb_native.frame import Frame, Operand

from .writer import Writer


class Places(Writer):
    """Writes how addresses are found.

    Parameters
    ----------
    frame : Frame
    """

    def __init__(self, frame: Frame) -> None:
        outputs = [o.name for o in frame.operands if o.is_output]
        super().__init__(["in", *outputs, *(b.name for b in frame.buffers if not b.name.startswith("g"))])
        self.frame = frame

    def places(self, index: str, kind: str, first: int = 0) -> list[str]:
        """Split `index` into its places along the loops of a kind, "kept" or "folded", from `first` out."""
        count, at = self.frame.loops[kind], self.frame.lengths_at[kind]
        names = []
        for axis in range(first, count - 1):
            length = f"slot(plan, {at + axis})"
            self.line(f"{kind}{axis} = remainder({index}, {length})")
            self.line(f"{kind}_rest{axis} = quotient({index}, {length})")
            names.append(f"{kind}{axis}")
            index = f"{kind}_rest{axis}"
        return [*names, index][: count - first]

    def moved(self, start: str, slots: Iterable[int], places: Iterable[str]) -> str:
        """`start`, moved to `places` by the strides in `slots`."""
        for at, place in zip(slots, places, strict=False):
            start = f"move({start}, {place}, slot(plan, {at}))"
        return start

    def lined_up(self, o: Operand, start: str, count: str) -> str:
        """Where the `count` elements that an input has at `start` lie side by side."""
        if not o.moves or o.is_iota or o.is_output:
            return start
        gather = self.function(f"gather_{o.itemsize}", "gather", o.itemsize)
        return f"{gather}(g{o.name}, {start}, slot(plan, {o.at}), {count})"

    def row_addresses(self) -> None:
        index, count = "row", ""
        if self.frame.columns:
            self.line("column = remainder(row, pieces) * piece")
            self.line("width = minimum(piece, n - column)")
            index, count = "quotient(row, pieces)", "width"
        places = self.places(index, "kept")
        read = self.frame.schedule.row_reads
        for o in self.frame.operands:
            start = self.moved(o.name, self.frame.strides_at(o, "kept"), places)
            if self.frame.columns and o.moves:
                start = self.moved(start, [o.at], ["column"])
            self.line(f"{o.name}_row = {self.lined_up(o, start, count) if o.node in read else start}")

    def ask(self) -> None:
        """Have the elements of a later row on their way from memory."""
        if not self.frame.tiled:
            return
        with self.block("if ahead != 0:"):
            for o in self.frame.tiled:
                later = self.moved(f"{o.name}_row", self.frame.strides_at(o, "kept"), ["ahead"])
                self.line(f"ask({later}, n * {o.itemsize})")

    def ask_for_next(self, k: int) -> None:
        """Have a unit of the next row on its way, if pass `k` is the one that does so."""
        asked = self.frame.asked(k)
        if asked:
            with self.block("if next != 0:"):
                for o in asked:
                    later = self.moved(f"{o.name}_at", self.frame.strides_at(o, "kept")[:1], ["1"])
                    self.line(f"ask({later}, count * {o.itemsize})")

    def tiles(self) -> None:
        """Lay out rows that lie across cache lines, as many together as share a line."""
        if not self.frame.tiled:
            return
        place = "kept0" if self.frame.loops["kept"] > 1 else "row"
        length = f"slot(plan, {self.frame.lengths_at['kept']})"
        with self.block("if tile != 0:"), self.block("if row >= tile1:"):
            self.line("tile0 = row")
            self.line(f"tile1 = minimum(row1, row + minimum(tile, {length} - {place}))")
            for o, step in self.frame.tiled.items():
                tile = self.function(f"tile_{o.itemsize}", "tile", o.itemsize)
                across = self.frame.strides_at(o, "kept").start
                found = f"{o.name}_row, slot(plan, {step}), n, slot(plan, {across})"
                self.line(f"{tile}(g{o.name}, {found}, tile1 - tile0, pitch)")
        for o, step in self.frame.tiled.items():
            laid = f"g{o.name} + (row - tile0) * pitch * {o.itemsize}"
            self.line(f"{o.name}_row = where(slot(plan, {step}) != 0, {laid}, {o.name}_row)")
