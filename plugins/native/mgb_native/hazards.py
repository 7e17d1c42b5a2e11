"""When an output must not be the memory of an input."""

from __future__ import annotations

from collections.abc import Sequence

from mgb.ir import Node

from .frame import Frame


def hazards(frame: Frame) -> tuple[tuple[int, int], ...]:
    """(input, output) pairs that must not be the same memory.

    An element of an input may be overwritten by the output that was computed from it. It may not be when the
    output is computed from other elements or without it, is written by several threads, or is written before
    a pass that reads the input again.
    """
    return tuple(
        (i, j)
        for i, x in enumerate(frame.graph.inputs)
        for j, y in enumerate(frame.graph.outputs)
        if x.spec == y.spec and not _may_share(frame, x, y)
    )


def replaced(frame: Frame, y: Node) -> tuple[int, ...]:
    """The inputs whose memory `y`, computed from their elements, may be given: `updates` in place."""
    found = _cone(frame.graph.nodes, y)
    return tuple(i for i, x in enumerate(frame.graph.inputs) if x.spec == y.spec and x in found)


def _may_share(frame: Frame, x: Node, y: Node) -> bool:
    passes = frame.schedule.passes
    everywhere = all(s or d == 1 for s, d in zip(frame.span[y], frame.schedule.shape, strict=True))
    written = [k for k, p in enumerate(passes) if y in p.stores]
    read = [k for k, p in enumerate(passes) if x in p.reads]
    if not everywhere or not written or (read and read[-1] > written[0]):
        return False
    return written[0] not in read or x in _cone(passes[written[0]].computes, y)


def _cone(nodes: Sequence[Node], node: Node) -> set[Node]:
    found = {node}
    for v in reversed(nodes):
        if v in found:
            found.update(v.inputs)
    return found
