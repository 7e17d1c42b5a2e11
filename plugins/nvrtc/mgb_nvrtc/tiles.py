"""Kernels whose blocks turn squares of some inputs in shared memory.

An input that is transposed against the output has its neighbours along another loop than the innermost one.
Threads load a square of it along that loop, meet, and go on along the innermost loop, in which all other
operands are loaded and outputs are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mgb.codegen import Online, Pass
from mgb.ir import Node
from mgb_cuda.frame import Operand
from mgb_cuda.tiling import pitch

from .printer import Printer
from .words import c_type


class Tiles(Printer):
    """Prints the kernel of one variant. Its passes fold nothing, so that there is one."""

    @property
    def turned(self) -> list[Operand]:
        """Return the operands that go through shared memory."""
        return [self.frame.operands[i] for i in self.variant.turned]

    @property
    def apart(self) -> int:
        """The rows of a square that the threads of a block cover at once."""
        return self.variant.threads // self.variant.side

    def is_loaded(self, o: Operand) -> bool:
        return super().is_loaded(o) and self.index[o] not in self.variant.turned

    def declare_shared(self) -> None:
        side = self.variant.side
        for o in self.turned:
            size = side * pitch(side, o.itemsize)
            self.line(f"__shared__ __align__(16) {c_type(o.node)} turned_{o.name}[{size}];")

    def where(self) -> None:
        """Write the square of this block, and the place of this thread in it."""
        v = self.variant
        self.line(f"const int lane = threadIdx.x % {v.side}, team = threadIdx.x / {v.side};")
        outer = [j for j in v.folded_loops if j not in v.square]
        self.line("const I tile = blockIdx.x;")
        rest = "tile"
        for j in v.square:
            if j == v.square[-1] and not outer:
                self.line(f"const I first{j} = {rest} * {v.side};")
                return
            factor = "0, 0" if v.wide else f"p.mt{j}, p.ht{j}"
            self.line(f"const I u{j} = divide({rest}, p.t{j}, {factor});")
            self.line(f"const I first{j} = ({rest} - u{j} * p.t{j}) * {v.side};")
            rest = f"u{j}"
        self.decompose(rest, outer)

    def visit(self, p: Pass, ahead: Sequence[Online] = ()) -> None:
        self.turn()
        self.line("__syncthreads();")
        self.line("#pragma unroll 1")
        step = self.apart * self.variant.slots
        with self.block(f"for (int r = 0; r < {self.variant.side}; r += {step}) {{"):
            self.declare(p)
            self.visit_tile(p, f"team + r + {self.slot_index} * {self.apart}")

    def turn(self) -> None:
        """Load the squares along the loop in which their elements are neighbours."""
        v = self.variant
        count = v.side // self.apart
        for o in self.turned:
            kind, group = c_type(o.node), v.class_of[self.index[o]]
            with self.block("{"):
                self.line(f"{kind} held[{count}] = {{}};")
                with self.unrolled(count), self.inside(f"team + s * {self.apart}", v.fast):
                    self.line(f"held[s] = p.{o.name}[{self.offset(group, v.folded_loops)}];")
                with self.unrolled(count):
                    place = f"(team + s * {self.apart}) * {pitch(v.side, o.itemsize)} + lane"
                    self.line(f"turned_{o.name}[{place}] = held[s];")

    @contextmanager
    def slot(self, tile: str) -> Iterator[None]:
        """Open a block for each slot of a thread, in which its place in the square is known."""
        with self.unrolled(self.variant.slots), self.inside(tile, self.inner):
            for c in range(len(self.variant.classes)):
                self.line(f"const I o{c} = {self.offset(c, self.variant.folded_loops)};")
            yield

    @contextmanager
    def inside(self, down: str, along: int) -> Iterator[None]:
        """Open a block for the element in row `down` of the square, whose rows are `along` a loop."""
        (other,) = (j for j in self.variant.square if j != along)
        self.line(f"const int down = {down};")
        self.line(f"const I i{along} = first{along} + lane;")
        self.line(f"const I i{other} = first{other} + down;")
        with self.block(f"if (i{along} < p.n{along} && i{other} < p.n{other}) {{"):
            yield

    @contextmanager
    def unrolled(self, count: int) -> Iterator[None]:
        """Open a block for each ``s``."""
        if count > 1:
            self.line("#pragma unroll")
        with self.block(f"for (int s = 0; s < {count}; ++s) {{" if count > 1 else "{"):
            yield

    def lane_of(self, node: Node) -> str:
        o = self.frame.source_of.get(node)
        if o is None or self.index[o] not in self.variant.turned:
            return super().lane_of(node)
        return f"turned_{o.name}[lane * {pitch(self.variant.side, o.itemsize)} + down]"
