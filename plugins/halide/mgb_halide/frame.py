"""The interface of a kernel and its launcher: the operands, and the loops that their dimensions belong to.

A kernel knows the pattern of its shapes, never a size. Its loops are ``i``, over the innermost axis, then
``f0, f1, ...``, over the other axes that are folded, and ``k0, k1, ...``, over those that are kept, innermost
first. The launcher merges axes where it can and gives the loops that are left over the length 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mgb import codegen
from mgb.codegen import schedule
from mgb.ir import Graph, Node
from mgb.runtime.forking import cached_property

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Operand(codegen.Operand):
    """With the loops along which it varies: its dimensions, for Halide."""

    loops: Names


class Frame(codegen.Frame[Operand]):
    """The operands and loops of one graph's kernel.

    Parameters
    ----------
    graph : Graph
    keep_ops : int
        See `mgb.codegen.schedule`.
    """

    def __init__(self, graph: Graph, keep_ops: int) -> None:
        super().__init__(graph, schedule(graph, keep_ops))
        outer = [a for a in reversed(range(self.ndim)) if self.schedule.shape[a] != 1 and a != self.inner]
        self.folded = tuple(a for a in outer if a in self.schedule.reduced)
        self.kept = tuple(a for a in outer if a not in self.schedule.reduced)
        self.operands = tuple(Operand(name, v, self.loops_of(self.span[v])) for name, v in self.named())

    @cached_property
    def f_loops(self) -> Names:
        """The folded loops around the innermost one, innermost first."""
        return tuple(f"f{i}" for i in range(len(self.folded)))

    @cached_property
    def k_loops(self) -> Names:
        """The kept loops around the innermost one, innermost first."""
        return tuple(f"k{i}" for i in range(len(self.kept)))

    @property
    def loops(self) -> Names:
        """All loops, in the order of the dimensions of an array of the whole domain."""
        return (*(["i"] if self.inner is not None else []), *self.f_loops, *self.k_loops)

    @property
    def row_loops(self) -> Names:
        """The loops over rows."""
        return (*(["i"] if self.columns else []), *self.k_loops)

    def loops_of(self, span: Sequence[bool]) -> Names:
        """Return the loops of a value that varies along the axes in `span`."""
        inner = ["i"] if self.inner is not None and span[self.inner] else []
        folded = self.f_loops if any(span[a] for a in self.folded) else ()
        return (*inner, *folded, *(self.k_loops if any(span[a] for a in self.kept) else ()))

    def folds_last(self, short: bool) -> bool:
        """Return whether a pass that folds writes the elements too.

        Of one row, in no cache, that is not `short`.
        """
        return not (short or self.flat or self.columns or self.kept) and bool(self.schedule.passes[-1].folds)

    def written(self, short: bool) -> list[tuple[Names, tuple[Operand, ...]]]:
        """Return the groups of outputs that one loop writes, each with the loops that it runs over.

        Row values are written together with the elements of the row, over and over, which costs a store for a
        vector: so that both are made while the row is in cache.
        """
        full = any(o.loops == self.loops for o in self.outputs)
        together = full and not self.flat and not self.folds_last(short)
        classes: dict[Names, list[Operand]] = {}
        for o in self.outputs:
            classes.setdefault(self.loops if together else o.loops, []).append(o)
        return [(loops, tuple(operands)) for loops, operands in classes.items()]

    def described(self) -> list[str]:
        """Describe the passes in order, for people: a line each, values named as in the graph's text."""
        names = {v: f"%{i}" for i, v in enumerate(dict.fromkeys((*self.graph.inputs, *self.graph.nodes)))}

        def listed(nodes: Sequence[Node]) -> str:
            return ", ".join(f"{names[v]} {v.op.name}" for v in nodes)

        shared = f"each {'tile of columns' if self.columns else 'row'} ({', '.join(self.row_loops)})"
        lines = []
        for k, part in enumerate(() if self.flat else self.schedule.passes):
            words = [f"pass {k} of {shared}"]
            words += [f"keeps {listed(part.keeps)}"] if part.keeps else []
            words += [f"folds {listed(part.folds)}"] if part.folds else []
            words += [f"then {listed(part.after)}"] if part.after else []
            lines += ["; ".join(words)] if len(words) > 1 else []
        written = ", ".join(f"{o.name} = {names[o.node]} over ({', '.join(o.loops)})" for o in self.outputs)
        return [*lines, f"writes {written}"]
