"""Kernels over rows, some inputs of which lie across them: neighbouring threads load of neighbouring rows.

A block has several rows. Of such an input its threads load, for each slot, as many elements of each of these
rows as a team has threads; they meet, and each takes the element that is its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from mgb.codegen import Pass
from mgb_cuda.frame import Operand
from mgb_cuda.tiling import row_pitch

from .printer import Printer
from .words import c_type


class Turned(Printer):
    """Prints the kernels of one variant."""

    @property
    def turned(self) -> list[Operand]:
        """Return the operands that go through shared memory."""
        return [self.frame.operands[i] for i in self.variant.turned]

    @property
    def last(self) -> str:
        """The same for all teams of a block, which meet on the way."""
        return "p.length"

    def is_loaded(self, o: Operand) -> bool:
        return super().is_loaded(o) and self.index[o] not in self.variant.turned

    def declare_shared(self) -> None:
        super().declare_shared()
        v = self.variant
        most = max(o.itemsize * v.across * row_pitch(v.team, v.across, o.itemsize) for o in self.turned)
        self.line(f"__shared__ __align__(16) unsigned char turning[{-(-most // 16) * 16}];")

    def visit_tile(self, p: Pass, tile: str) -> None:
        fresh = [self.frame.source_of[node] for node in self.fresh]
        self.turn([o for o in self.turned if o in fresh], tile)
        super().visit_tile(p, tile)

    def turn(self, operands: Iterable[Operand], tile: str) -> None:
        """Load slots of the rows of this block, along which threads are no neighbours, and hand them over."""
        v = self.variant
        for o in operands:
            self.line(f"Vec<{c_type(o.node)}, 1> {o.name}[{v.slots}] = {{}};")
            with self.block("{"):
                self.line(f"const int beside = threadIdx.x % {v.across}, down = threadIdx.x / {v.across};")
                self.across(o, tile)
                self.hand_over(o)

    def across(self, o: Operand, tile: str) -> None:
        """Load what this thread hands to others."""
        v, group = self.variant, self.variant.class_of[self.index[o]]
        self.line(f"const I other = (I)blockIdx.x * {v.across} + beside;")
        with self.block("if (other < p.rows) {"):
            self.decompose("other", v.kept_loops)
            self.line(f"const I start = {self.offset(group, v.kept_loops)};")
            self.line("#pragma unroll")
            with self.block(f"for (int s = 0; s < {v.slots}; ++s) {{"):
                self.line(f"const I at = {tile} + s * {v.stride} + down;")
                with self.block(f"if (at < {self.last}) {{"):
                    self.decompose("at", v.folded_loops)
                    self.line(f"{o.name}[s].v[0] = p.{o.name}[start + {self.offset(group, v.folded_loops)}];")

    def hand_over(self, o: Operand) -> None:
        """Give each thread the elements of its own row, slot by slot."""
        v, kind = self.variant, c_type(o.node)
        pitch = row_pitch(v.team, v.across, o.itemsize)
        self.line(f"{kind} *there = ({kind} *)turning;")
        self.line("#pragma unroll")
        with self.block(f"for (int s = 0; s < {v.slots}; ++s) {{"):
            self.line("__syncthreads();")
            self.line(f"there[beside * {pitch} + down] = {o.name}[s].v[0];")
            self.line("__syncthreads();")
            self.line(f"{o.name}[s].v[0] = there[team * {pitch} + lane];")
