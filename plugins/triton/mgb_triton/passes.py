"""The passes of a kernel over its tiles: places in memory, loads, statements, folds and stores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from mgb.codegen import EXTENT, Online, Pass, expression, is_operand
from mgb.ir import CONST, Node
from mgb_cuda.frame import Frame, Operand
from mgb_cuda.rows import Rows

from .variant import Variant
from .words import SPELLINGS, fold, nothing, t_type

#: Tiles whose folds are found ahead at a time.
TOGETHER = 4


class Passes(Rows):
    """Writes Triton for one variant.

    A tile is ``[tall, long]``; a flat one is ``[long]``. What varies along one of its axes only
    has length 1 along the other; Triton broadcasts.

    Attributes
    ----------
    known : set of str
        The places that have been computed here; these and names that a loop makes are forgotten after it.
    flat : bool
        Has the tile one axis?
    together : int
        How many tiles of the variant are one, in passes that find nothing ahead where others do.
    ends : bool
        May the tile lie beyond the end of a row?
    """

    given = ""
    variant: Variant

    def __init__(self, frame: Frame, variant: Variant) -> None:
        super().__init__(frame, variant, frame.schedule)
        self.known: set[str] = set()
        self.ends = True
        self.flat = variant.is_flat(frame)
        self.together = 1
        self.place_type = "tl.int64" if variant.wide else "tl.int32"

    @property
    def long(self) -> int:
        """Elements of a tile along a row."""
        return self.variant.long * self.together

    @property
    def tile(self) -> str:
        """Its shape."""
        return f"[{self.long}]" if self.flat else f"[{self.variant.tall}, {self.long}]"

    # lines

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write `head`, and what follows one level deeper; its names are forgotten then."""
        names, known = dict(self.names), set(self.known)
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1
        self.names, self.known = names, known

    # places

    def let(self, name: str, place: str) -> None:
        self.line(f"{name} = {place}")

    def quotient(self, place: str, loop: int) -> str:
        return f"{place} // n{loop}" if self.variant.wide else f"divide({place}, m{loop}, h{loop})"

    def where_at(self) -> None:
        """See to it that the place of the tile in each loop along rows is known."""
        if "at" not in self.known:
            self.known.add("at")
            self.decompose("at", self.variant.folded_loops)

    @property
    def inner_axis(self) -> int:
        """The axis of a tile along which memory is contiguous, if anything is."""
        return 0 if self.flat or not self.variant.folded or not self.variant.folded[-1] else 1

    def _along(self, axis: int) -> str:
        """Return the lanes as a hint has them: for each axis of a tile."""
        if self.flat:
            return str(self.variant.lanes)
        return f"[{self.variant.lanes}, 1]" if axis == 0 else f"[1, {self.variant.lanes}]"

    def hinted(self, group: int, text: str, whole: bool = True) -> str:
        """Return the places of a class, with what its printer knows of their neighbours."""
        v = self.variant
        single = self.flat and len(v.folded) == 1
        if v.lanes == 1 or v.classes[group][-1] != "1" or single or not (whole or self.inner_axis == 0):
            return text
        along = self._along(self.inner_axis)
        return f"tl.max_contiguous(tl.multiple_of({text}, {along}), {along})"

    def constant(self, mask: str, axis: int) -> str:
        """Return a mask along an axis of the tile, which is the same for lanes."""
        v = self.variant
        if v.lanes == 1 or v.tail or axis != self.inner_axis:
            return mask
        return f"tl.max_constancy({mask}, {self._along(axis)})"

    def place(self, index: int) -> tuple[str, str]:
        """Return where the elements of an operand are that this tile needs, and which of them there are."""
        v = self.variant
        group = v.class_of[index]
        if group < 0:
            return "0", ""
        kept = v.varies(group, v.kept_loops)
        if not v.varies(group, v.folded_loops):
            return f"b{group}", "live"
        name = f"o{group}"
        self.where_at()
        if name not in self.known:
            self.known.add(name)
            text = self.offset(group, v.folded_loops)
            self.line(f"{name} = {self.hinted(group, f'b{group} + {text}' if kept else text)}")
        if not kept and not self.ends:
            return name, ""
        return name, "mask" if kept else "inside"

    # values

    def load(self, node: Node) -> None:
        """Load what this tile needs of an operand."""
        o = self.frame.source_of[node]
        place, mask = self.place(self.index[o])
        name = f"v{self.number[node]}"
        if o.is_iota:
            text = f"{place}.to({t_type(node)})" if place != "0" else f"tl.full((), 0, {t_type(node)})"
        else:
            given = f"{o.name} + {place}" if place != "0" else o.name
            text = f"tl.load({given}, mask={mask})" if mask else f"tl.load({given})"
        self.line(f"{name} = {text}")
        self.names[node] = name

    def compute(self, nodes: Iterable[Node]) -> None:
        """Write statements for `nodes`; the operands that they read are loaded when they are first needed."""
        for node in nodes:
            if node in self.names or is_operand(node):
                continue
            self.known_values(node.inputs if node.op is not EXTENT else ())
            if node.op is EXTENT:
                shape = node.inputs[0].spec.shape
                long = any(shape[a] != 1 for a in node.params["axis"])
                number = "length" if long else "tl.full((), 1, tl.int32)"
                self.names[node] = f"{number}.to({t_type(node)})"
                continue
            text = expression(node, [self.names[i] for i in node.inputs], SPELLINGS)
            self.names[node] = text if node.op is CONST else f"v{self.number[node]}"
            if node.op is not CONST:
                self.line(f"{self.names[node]} = {text}")

    def known_values(self, nodes: Iterable[Node]) -> None:
        """See to it that operands have a name."""
        for node in nodes:
            if node not in self.names:
                if is_operand(node):
                    self.load(node)
                else:
                    self.compute([node])

    # one pass

    def visit(self, p: Pass, ahead: Sequence[Online] = ()) -> None:
        v = self.variant
        if ahead:
            self.visit_ahead(p, ahead)
        elif self.flat and v.tail:  # loads without a mask are of whole lanes
            with self.block(f"if begin + {self.long} <= end:"), self.without_end():
                self.tile_of("begin", p)
            with self.block("else:"):
                self.tile_of("begin", p)
        elif self.flat or v.stays:
            self.tile_of("begin", p)
        elif v.tail:
            self.line(f"last = begin + (end - begin) // {self.long} * {self.long}")
            with self.block(f"for tile in range(begin, last, {self.long}):"), self.without_end():
                self.tile_of("tile", p)
            with self.block(f"for tile in range(last, end, {self.long}):"):
                self.tile_of("tile", p)
        else:
            with self.block(f"for tile in range(begin, end, {self.long}):"):
                self.tile_of("tile", p)

    @contextmanager
    def without_end(self) -> Iterator[None]:
        """Emit the lines of this context for tiles that end before the row does."""
        self.ends = False
        yield
        self.ends = True

    def visit_ahead(self, p: Pass, ahead: Sequence[Online]) -> None:
        """Visit a few tiles at a time: what is found ahead is settled once for all of them."""
        v = self.variant
        step = self.long * TOGETHER
        if v.tail:
            self.line(f"last = begin + (end - begin) // {step} * {step}")
            with self.block(f"for tile in range(begin, last, {step}):"), self.without_end():
                self.tiles_ahead(p, ahead)
        with self.block(f"for tile in range({'last' if v.tail else 'begin'}, end, {step}):"):
            self.tiles_ahead(p, ahead)

    def tiles_ahead(self, p: Pass, ahead: Sequence[Online]) -> None:
        """Write some tiles: their values are known before any of them is reduced ahead."""
        for o in ahead:
            if o.maximum is not None:
                self.line(f"was{self.number[o.fold]} = {self.accumulators[o.maximum]}")
        for k in range(TOGETHER):
            names, known = dict(self.names), set(self.known)
            self.where_tile(f"tile + {k * self.long}")
            self.elements(p)
            self.line(f"mask{k} = mask")
            for o in ahead:
                self.line(f"w{self.number[o.fold]}_{k} = {self.names[o.value]}")
            self.names, self.known = names, known
        for o in ahead:
            self.fold_online(o)

    def tile_of(self, first: str, p: Pass) -> None:
        """Write a pass over one tile, which begins at `first`."""
        if "tile" not in self.known:
            self.known.add("tile")
            self.where_tile(first)
        self.elements(p)

    def where_tile(self, first: str) -> None:
        along = f"tl.arange(0, {self.long})"
        self.line(f"at = {first} + {along if self.flat else f'{along}[None, :]'}")
        if self.flat:
            if self.ends:
                self.line(f"inside = {self.constant('at < end', 0)}")
        elif self.ends:
            self.line(f"inside = {self.constant('at < end', 1)}")
            self.line("mask = live & inside")
        else:
            self.line(f"mask = tl.broadcast_to(live, {self.tile})")

    @property
    def everywhere(self) -> str:
        """The mask of elements that there are."""
        if not self.flat:
            return "mask"
        return "inside" if self.ends else "at < end"

    def elements(self, p: Pass) -> None:
        """Emit the computation of each element of a tile, its reductions and stores.

        An output may be the memory of an input: all is loaded before the first of several is stored. Then
        each is stored when it is known, so that few values are alive at a time.
        """
        if len(p.stores) > 1:
            self.known_values((*p.reads, *(v for v in p.stores if is_operand(v))))
        for node in p.computes:
            self.compute([node])
            if node in p.stores and not p.folds:
                self.store_all(node)
        self.known_values(f.inputs[0] for f in p.folds)
        for f in p.folds:
            x = f"tl.where(mask, {self.names[f.inputs[0]]}, {self.neutral(f)})"
            total = self.accumulators[f]
            self.line(f"{total} = {x if self.variant.stays else fold(f, total, x)}")
        for node in p.stores:
            if p.folds or node not in p.computes:
                self.store_all(node)

    def store_all(self, node: Node) -> None:
        """Write the outputs that a value is."""
        self.known_values([node])
        for o in self.frame.outputs_of(node):
            self.store(o, self.everywhere, range(len(self.variant.folded)))

    def neutral(self, node: Node) -> str:
        """Return an element that changes no fold."""
        return f"tl.full((), {nothing(node)}, {t_type(node)})"

    def store(self, o: Operand, mask: str, loops: Iterable[int]) -> None:
        """Write an output, each of its elements once."""
        index = self.index[o]
        place, _ = self.place(index)
        self.known_values([o.node])
        still = self.still(index, loops)
        if still or place == "0":
            if any(j in self.variant.folded_loops for j in still):
                self.where_at()
            whole = f"({mask})"
            mask = " & ".join([whole, *(f"(i{j} == 0)" for j in still)])
            place = f"({place} + 0 * {whole}.to({self.place_type}))"
        given = "" if mask == "at < end" else f", mask={mask}"
        self.line(f"tl.store({o.name} + {place}, {self.names[o.node]}{given})")

    # folds of the second pass in the first

    def start_online(self, ahead: Iterable[Online]) -> None:
        for o in ahead:
            n, kind = self.number[o.fold], t_type(o.fold)
            parts = ("found",) if o.maximum is not None else ("squares", "sums", "pivot")
            for part in parts:
                self.line(f"{part}{n} = tl.full({self.tile}, 0, {kind})")
            if o.maximum is None:
                self.line(f"count{n} = tl.full({self.tile}, 0, tl.int32)")

    def fold_online(self, o: Online) -> None:
        """Fold the values of some tiles."""
        n = self.number[o.fold]
        if o.maximum is not None:
            most = self.accumulators[o.maximum]
            self.line(f"found{n} = before_exponentials(found{n}, was{n}, {most})")
            for k in range(TOGETHER):
                self.line(f"found{n} += tl.where(mask{k}, exp_term(w{n}_{k} - shift_of({most})), 0.0)")
            return
        self.line(f"pivot{n} = tl.where(count{n} == 0, w{n}_0, pivot{n})")
        for k in range(TOGETHER):
            self.line(f"away = tl.where(mask{k}, w{n}_{k} - pivot{n}, 0.0)")
            self.line(f"count{n} += mask{k}.to(tl.int32)")
            self.line(f"sums{n} += away")
            self.line(f"squares{n} += away * away")
        names = ", ".join(f"{part}{n}" for part in ("squares", "sums", "pivot"))
        self.line(f"{names} = after_squares({names}, count{n})")

    def settle_fold(self, o: Online, shift: str) -> None:
        n = self.number[o.fold]
        if o.maximum is not None:  # that of each lane
            found = f"settled_exponentials(found{n}, {self.accumulators[o.maximum]}, {shift})"
        else:
            found = f"settled_squares(squares{n}, sums{n}, pivot{n}, count{n}, {shift})"
        self.line(f"{self.accumulators[o.fold]} = {found}")

    def own_shift(self, o: Online) -> str:
        if o.maximum is not None:
            return f"shift_of({self.names[o.base]})"
        return f"quotient_of({self.names[o.base]}, (end - begin).to({t_type(o.fold)}))"
