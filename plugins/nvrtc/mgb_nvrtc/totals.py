"""The totals of a kernel's folds: what the threads of a team, or the blocks of a cluster, have found."""

from __future__ import annotations

from collections.abc import Iterable

from mgb.ir import Node
from mgb_cuda.variant import ROUND_BYTES, Kind

from .words import c_type, fold
from .writer import Writer

Names = dict[Node, str]


class Totals(Writer):
    """Prints how threads meet."""

    def finish_folds(self, number: int, folds: tuple[Node, ...]) -> None:
        if not folds:
            return
        if self.variant.kind is Kind.COLUMNS:
            if self.variant.team > 1:
                self.in_rounds(folds, self.column_totals)
            self.names |= {f: f"{self.accumulators[f]}[v]" for f in folds}
            return
        totals = {f: f"t{number}_{i}" for i, f in enumerate(folds)}
        self.warp_totals(totals)
        self.names |= totals
        if self.variant.team > 32:
            self.in_rounds(folds, self.block_totals)

    def warp_totals(self, totals: Names) -> None:
        v = self.variant
        for f, total in totals.items():
            self.line(f"{c_type(f)} {total} = {self.accumulators[f]}[0];")
        if v.lanes > 1:
            self.line("#pragma unroll")
            with self.block(f"for (int v = 1; v < {v.lanes}; ++v) {{"):
                for f, total in totals.items():
                    self.line(f"{total} = {fold(f, total, f'{self.accumulators[f]}[v]')};")
        if v.team > 1:
            self.line("#pragma unroll")
            with self.block(f"for (int away = {min(v.team, 32) // 2}; away; away >>= 1) {{"):
                for f, total in totals.items():
                    self.line(f"{total} = {fold(f, total, f'from_lane({total}, away)')};")

    def in_rounds(self, folds: tuple[Node, ...], meet) -> None:  # type: ignore[no-untyped-def]
        """Let threads meet, as few times as shared memory allows.

        Rounds use two parts of it in turn: who writes in a round has passed the barrier of the one before,
        and so has everybody else, who had then read what the round before that had written there.
        """
        waiting: list[Node] = []
        for f in folds:
            if waiting and self.round_bytes([*waiting, f]) > ROUND_BYTES:
                self.round(waiting, meet)
                waiting = []
            waiting.append(f)
        self.round(waiting, meet)

    def round(self, folds: list[Node], meet) -> None:  # type: ignore[no-untyped-def]
        used = 0
        with self.block("{"):
            for i, f in enumerate(folds):
                self.line(f"{c_type(f)} *m{i} = ({c_type(f)} *)(shared{self.rounds % 2} + {used});")
                used += self.round_bytes([f])
            meet({f: f"m{i}" for i, f in enumerate(folds)})
        self.rounds += 1

    def round_bytes(self, folds: Iterable[Node]) -> int:
        """Return the shared memory in which the totals of `folds` meet."""
        v = self.variant
        count = v.threads * v.lanes if v.kind is Kind.COLUMNS else v.threads // 32
        count += v.cluster if v.cluster > 1 else 0
        return sum(-(-count * f.spec.dtype.itemsize // 16) * 16 for f in folds)

    def block_totals(self, memory: Names) -> None:
        warps = min(self.variant.team, self.variant.threads) // 32
        first = f"team * {warps} + " if self.variant.across > 1 else ""
        lane = "threadIdx.x" if self.variant.cluster > 1 else "lane"
        with self.block(f"if ({lane} % 32 == 0) {{"):
            for f, m in memory.items():
                self.line(f"{m}[{first}{lane} / 32] = {self.names[f]};")
        self.line("__syncthreads();")
        for f, m in memory.items():
            self.line(f"{self.names[f]} = {m}[{first}0];")
        with self.block(f"for (int w = 1; w < {warps}; ++w) {{"):
            for f, m in memory.items():
                self.line(f"{self.names[f]} = {fold(f, self.names[f], f'{m}[{first}w]')};")
        if self.variant.cluster > 1:
            self.cluster_totals({f: f"({m} + {warps})" for f, m in memory.items()})

    def cluster_totals(self, memory: Names) -> None:
        """Fold what the blocks of a cluster have found: each puts it into the shared memory of all."""
        blocks = self.variant.cluster
        with self.block(f"if (threadIdx.x < {blocks}) {{"):
            for f, m in memory.items():
                place = f"{m} + blockIdx.x % {blocks}"
                self.line(f"*in_block({place}, threadIdx.x) = {self.names[f]};")
        self.line("cluster_sync();")
        for f, m in memory.items():
            self.line(f"{self.names[f]} = {m}[0];")
        with self.block(f"for (int b = 1; b < {blocks}; ++b) {{"):
            for f, m in memory.items():
                self.line(f"{self.names[f]} = {fold(f, self.names[f], f'{m}[b]')};")

    def column_totals(self, memory: Names) -> None:
        v = self.variant
        with self.lanes(v.lanes):
            for f, m in memory.items():
                place = f"(v * {v.team} + lane) * {v.across} + team"
                self.line(f"{m}[{place}] = {self.accumulators[f]}[v];")
        self.line("__syncthreads();")
        with self.lanes(v.lanes):
            for f, m in memory.items():
                self.line(f"{self.accumulators[f]}[v] = {m}[v * {v.threads} + team];")
            self.line("#pragma unroll 2")
            with self.block(f"for (int r = 1; r < {v.team}; ++r) {{"):
                for f, m in memory.items():
                    other = f"{m}[v * {v.threads} + r * {v.across} + team]"
                    total = f"{self.accumulators[f]}[v]"
                    self.line(f"{total} = {fold(f, total, other)};")

    def declare_shared(self) -> None:
        """Declare the memory in which threads meet; none where a team is a warp."""
        passes = [p.folds for p in self.schedule.passes if p.folds]
        meets = self.variant.team > (1 if self.variant.kind is Kind.COLUMNS else 32)
        if not passes or not meets:
            return
        most = max(min(self.round_bytes(folds), ROUND_BYTES) for folds in passes)
        most = max([most, *(self.round_bytes([f]) for folds in passes for f in folds)])
        for k in range(2):
            self.line(f"__shared__ __align__(16) unsigned char shared{k}[{most}];")
