"""The cost of a call from its graph alone: bytes moved and operations, to compare a measured time with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..ir import Kind, Node
from ..passes.cost import flops
from .schedule import Call

#: Distinct ops that the name of a call shows.
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Cost:
    """A call, described.

    Attributes
    ----------
    name : str
        Short, for people.
    by : str
        Who runs it: a backend, ``"library"`` or ``"eager"``; see `Step.by`.
    ops : tuple of str
        The names of its ops, constants left out.
    sources : tuple of str
        The user's lines that they come from, or for what a rewrite has put there, its operands.
    reads, writes : tuple of str
        The types of its operands and results.
    bytes_read, bytes_written : int
        Each operand and each result once; of what is indexed or gathered from, as much as is taken. An op
        that only changes the layout, run eagerly, has none: most of them make a view.
    flops : int
        An estimate: an element-wise op is one operation an element, ``exp`` like ``add``; a reduction one for
        each element that it folds; a product of matrices and a convolution two for each pair; what only
        moves elements none; anything else one for each element it reads.
    """

    name: str
    by: str
    ops: tuple[str, ...]
    sources: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    bytes_read: int
    bytes_written: int
    flops: int

    @property
    def nbytes(self) -> int:
        """Read and written."""
        return self.bytes_read + self.bytes_written


def cost_of(call: Call) -> Cost:
    """Return the `Cost` of a call."""
    nodes = [n for step in call.steps for n in step.graph.nodes if n.op.kind is not Kind.LEAF]
    moves = call.kernel is not None or any(n.op.kind is not Kind.LAYOUT for n in nodes)
    picks = len(nodes) == 1 and nodes[0].op.picks  # of its first operand
    read = (*call.writes, *call.reads[1:]) if picks else call.reads
    ops = tuple(n.op.name for n in nodes)
    return Cost(
        _name(ops),
        next((s.backend for s in call.steps if s.backend is not None), call.steps[0].by),
        ops,
        _sources(nodes) or _sources(call.reads),
        tuple(str(n.spec) for n in call.reads),
        tuple(str(n.spec) for n in call.writes),
        sum(n.spec.nbytes for n in read) if moves else 0,
        sum(n.spec.nbytes for n in call.writes) if moves else 0,
        sum(flops(step.graph) for step in call.steps),
    )


def _sources(nodes: Iterable[Node]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n.source for n in nodes if n.source))


def _name(ops: tuple[str, ...]) -> str:
    distinct = tuple(dict.fromkeys(ops))
    return "+".join(distinct[:_SHOWN]) + "+..." * (len(distinct) > _SHOWN)
