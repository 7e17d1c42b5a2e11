"""What a traced function tells of itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ..executor import Program
from ..ir import Graph
from .explain import explain
from .statistics import Statistics
from .variant import Variant


class Inspectable(ABC):
    """A traced function, looked at: its variants, their programs, what they cost."""

    _statistics: Statistics

    @abstractmethod
    def variants(self) -> list[Variant]:
        """Every recorded variant, oldest first."""

    @abstractmethod
    def dry_run(self, *args: Any, **kwargs: Any) -> Variant:
        """Record one call without running its ops: the body runs, no Tensor outside is changed."""

    def programs(self) -> list[Program]:
        """Everything that was compiled so far, variant by variant."""
        return [program for variant in self.variants() for program in variant.programs]

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """Every stage of one call as text: recorded, simplified, groups, kernels, memory; nothing is run."""
        return explain(self.dry_run(*args, **kwargs))

    @property
    def backend(self) -> str:
        """The backends that compiled something, in order; empty before the first compiled call."""
        names = [name for program in self.programs() for name in program.backends]
        return ", ".join(dict.fromkeys(names))

    @property
    def graph(self) -> Graph | None:
        """What was recorded first, before any rewriting; None before the first call."""
        variants = self.variants()
        return variants[0].graph(variants[0].segments[-1])[0] if variants else None

    def stats(self) -> dict[str, Any]:
        """What this function has cost so far.

        Returns
        -------
        dict
            ``calls``; ``body_runs``, at the other calls the body was skipped; ``records`` of the body;
            ``variants`` of them, which differ in shapes; compiled ``programs``; ``compile_seconds``,
            simplifying and planning included; for its kernels ``kernel_compiles``, ``kernel_memory_hits`` and
            ``kernel_disk_hits``; and ``reasons``, why it was recorded or compiled again, or why its body runs
            at each call, the latest last. The logger ``mgb.jit`` has them at INFO.
        """
        counts = {"variants": len(self.variants()), "programs": len(self.programs())}
        return {**self._statistics.as_dict(), **counts}
