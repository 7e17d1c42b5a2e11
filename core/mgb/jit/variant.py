"""A record cut into segments, each compiled to a Program when its values are first needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..executor import Program
from ..ir import Graph, Node, input_node
from ..runtime import forking
from ..runtime.forking import cached_property
from .entry import CUTS, OUTPUT_GRADIENT, Literal, external_ref
from .record import Record
from .resize import Compiled, SizedRecord, Values

#: ``compile(graph, updates)``: `updates` says which outputs take the place of which inputs.
Compile = Callable[[Graph, Mapping[int, int]], Program]


@dataclass(frozen=True, slots=True)
class Segment:
    """The steps from `start` up to the cut at `stop`, and which of their values are needed later."""

    start: int
    stop: int
    outputs: tuple[int, ...]


def split(record: Record) -> tuple[Segment, ...]:
    """Split the sequence at its cuts. A value leaves its segment if a later step or a cut needs it.

    So does the value of the last ordered step before a cut, which depends on the other ordered steps.
    """
    last_use: dict[int, int] = {}
    for position, entry in enumerate(record.entries):
        used = entry.required if entry.op in CUTS else entry.args
        last_use.update((ref, position) for ref in used if not isinstance(ref, Literal))
    stop = next((i for i, e in enumerate(record.entries) if e.op is OUTPUT_GRADIENT), len(record.entries))
    segments, start = [], 0
    for position, entry in enumerate(record.entries):
        if entry.op in CUTS:
            ordered = [i for i in range(start, min(position, stop)) if record.entries[i].op.ordered]
            last_use.update(dict.fromkeys(ordered[-1:], position))
            outputs = tuple(i for i in range(start, position) if last_use.get(i, -1) >= position)
            segments.append(Segment(start, position, outputs))
            start = position + 1
    return tuple(segments)


class Variant:
    """One record with its programs.

    Parameters
    ----------
    record : Record
        Its lengths may be symbolic.
    compile : callable
    values : tuple of int, optional
        The lengths, if they are not the recorded ones.
    like : Variant, optional
        Another variant of the same record.

    Attributes
    ----------
    values : tuple of int
        The lengths of the axes of the arguments, if these are symbolic.
    sized : SizedRecord or None
        The records for other lengths.
    segments : tuple of Segment
    """

    def __init__(
        self, record: Record, compile: Compile, values: Values | None = None, like: Variant | None = None
    ) -> None:
        self._recorded, self._compile = record, compile
        self.values = record.lengths if values is None else values
        self.sized: SizedRecord | None = record.sized
        self.segments: tuple[Segment, ...] = split(record) if like is None else like.segments
        self._built: list[Compiled | None] = [None] * len(self.segments)
        self._lock = forking.lock()

    @cached_property
    def record(self) -> Record:
        """Return the record for these lengths, which is made on first use."""
        return self._recorded if self.sized is None else self.sized.record(self.values)

    @cached_property
    def abstract_record(self) -> Record:
        """Return the record with lengths in its entries that must not be used."""
        return self._recorded if self.sized is None else self.sized.abstract_record(self.values)

    @property
    def steps(self) -> int:
        """Return how many entries the record has."""
        return self.segments[-1].stop + 1

    def resized(self, leaves: Sequence[Any]) -> Variant | None:
        """Return the variant for arguments of other lengths, if the body would do the same with them."""
        values = None if self.sized is None else self.sized.values(leaves)
        return None if values is None else Variant(self._recorded, self._compile, values, self)

    @property
    def programs(self) -> tuple[Program, ...]:
        """Return what has been compiled so far, in order."""
        return tuple(built[0] for built in self._built if built is not None)

    def is_compiled(self, number: int) -> bool:
        """Check whether the segment has a program."""
        return self._built[number] is not None

    def program(self, number: int) -> tuple[Program, tuple[int, ...]]:
        """Return the Program of a segment, and the refs of the values that it reads."""
        found = self._built[number]
        if found is None:
            with self._lock:
                found = self._built[number]
                if found is None:
                    found = self._built[number] = self._build(self.segments[number])
        return found

    def _build(self, segment: Segment) -> Compiled:
        compile = partial(compile_segment, self._compile, self.segments, segment)
        if self.sized is None:
            return compile(self.record)
        return self.sized.program(segment, self.values, compile)

    def graph(self, segment: Segment) -> tuple[Graph, tuple[int, ...]]:
        """Return the segment as a Graph, and the refs of its inputs."""
        return build_graph(self.record, self.segments, segment)


def compile_segment(
    compile: Compile, segments: tuple[Segment, ...], segment: Segment, record: Record
) -> tuple[Program, tuple[int, ...]]:
    """Compile a segment of `record`; return its Program and the refs of the values that it reads."""
    graph, reads = build_graph(record, segments, segment)
    inputs_of = {ref: position for position, ref in enumerate(reads)}
    updates = {
        segment.outputs.index(step): inputs_of[external_ref(external)]
        for step, external in record.updates().items()
        if step in segment.outputs and external_ref(external) in inputs_of
    }
    return compile(graph, updates), reads


def build_graph(
    record: Record, segments: tuple[Segment, ...], segment: Segment
) -> tuple[Graph, tuple[int, ...]]:
    """Return a segment of `record` as a Graph, and the refs of its inputs."""
    boundary = {e.node: external_ref(i) for i, e in enumerate(record.externals)}
    for earlier in segments:
        if earlier.stop <= segment.start:
            boundary.update((record.node(i), i) for i in earlier.outputs)
    return extract_graph(tuple(record.node(i) for i in segment.outputs), boundary)


def extract_graph(
    outputs: tuple[Node, ...], boundary: Mapping[Node, int], instead: Mapping[Node, Node] | None = None
) -> tuple[Graph, tuple[int, ...]]:
    """Return the graph that computes `outputs` from the nodes of `boundary`, which become its inputs.

    Parameters
    ----------
    outputs : tuple of Node
    boundary : mapping
    instead : mapping, optional
        Replacements of constants.

    Returns
    -------
    graph : Graph
    refs : tuple of int
        For each input of `graph`, what `boundary` maps it to.
    """
    reach = Graph(tuple(boundary), outputs)
    read = {i for n in reach.nodes for i in n.inputs} | set(outputs)
    inputs = {n: input_node(n.spec, n.source) for n in boundary if n in read}
    copies: dict[Node, Node] = dict(inputs)
    for node in reach.nodes:
        if instead and node in instead:
            copies[node] = instead[node]
            continue
        args = tuple(copies[i] for i in node.inputs)
        copies[node] = (
            node if args == node.inputs else Node(node.op, args, node.params, node.spec, node.source)
        )
    graph = Graph(tuple(inputs.values()), tuple(copies[o] for o in outputs))
    return graph, tuple(boundary[n] for n in inputs)
