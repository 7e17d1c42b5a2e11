"""A record cut into segments, each compiled to a Program when its values are first wanted."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from types import CodeType
from typing import Any, Protocol

from .. import forking
from ..executor import Program
from ..forking import cached_property
from ..ir import Graph, Node, input_node
from .entry import CUTS, END, OUTPUT_GRADIENT, Literal, external_ref
from .guard import Guards
from .record import Record
from .resize import SizedRecord, Values, with_input
from .tree import flatten


class Running(Protocol):
    """A call that runs segments: the arrays of inputs and of steps, and the operands yet to be used."""

    fed: list[Any]
    values: dict[int, Any]
    operands_left: Sequence[Any]


#: ``compile(graph, updates)``: `updates` says which outputs take the place of which inputs.
Compile = Callable[[Graph, Mapping[int, int]], Program]


@dataclass(frozen=True, slots=True)
class Segment:
    """The steps from `start` up to the cut at `stop`, and which of their values are wanted later."""

    start: int
    stop: int
    outputs: tuple[int, ...]


def split(record: Record) -> tuple[Segment, ...]:
    """Cut the sequence at its cuts; a value leaves its segment if a later step or a cut wants it.

    So do those of ordered steps: who wanted one later, after a departure, could not have it computed again.
    After the end nobody does, and the last one leads to the others.
    """
    last_use: dict[int, int] = {}
    for position, entry in enumerate(record.entries):
        wanted = entry.required if entry.op in CUTS else entry.args
        last_use.update((ref, position) for ref in wanted if not isinstance(ref, Literal))
    stop = next((i for i, e in enumerate(record.entries) if e.op is OUTPUT_GRADIENT), len(record.entries))
    segments, start = [], 0
    for position, entry in enumerate(record.entries):
        if entry.op in CUTS:
            ordered = [i for i in range(start, min(position, stop)) if record.entries[i].op.ordered]
            last_use.update(dict.fromkeys(ordered[-1:] if entry.op is END else ordered, position))
            outputs = tuple(i for i in range(start, position) if last_use.get(i, -1) >= position)
            segments.append(Segment(start, position, outputs))
            start = position + 1
    return tuple(segments)


class Variant:
    """One record with its programs.

    Parameters
    ----------
    record : Record
        Its lengths may be followed.
    compile : callable
    values : tuple of int, optional
        Other lengths than it was recorded for.
    like : Variant, optional
        One of the same record.

    Attributes
    ----------
    values : tuple of int
        The lengths of the axes of the arguments, where these are followed.
    sized : SizedRecord or None
        The records for other lengths.
    segments : tuple of Segment
    found : Guards or None
        Those of the record that say which ops a body does whatever Python reads.
    live_out : frozenset of int
        The steps whose values leave their segment. A Tensor of another step never gets a value.
    """

    def __init__(
        self, record: Record, compile: Compile, values: Values | None = None, like: Variant | None = None
    ) -> None:
        self._noted, self._compile = record, compile
        self.values = record.lengths if values is None else values
        self.sized: SizedRecord | None = record.sized
        self.found: Guards | None = record.guards.of_training() if like is None else like.found
        self.segments: tuple[Segment, ...] = split(record) if like is None else like.segments
        self.live_out = frozenset(step for segment in self.segments for step in segment.outputs)
        self._built: list[_Built | None] = [None] * len(self.segments)
        self._lock = forking.lock()

    @cached_property
    def record(self) -> Record:
        """The record for these lengths; it is made when somebody asks for it."""
        return self._noted if self.sized is None else self.sized.record(self.values)

    @cached_property
    def outline(self) -> Record:
        """The record, but that the lengths in its entries are not for use."""
        return self._noted if self.sized is None else self.sized.outline(self.values)

    def finds(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Would a call with these arguments find what the recorded one `found`?"""
        if self.found is None:
            return True
        if not self.found.asks_arguments():
            return self.found.hold(())
        leaves, arrangement = flatten((args, kwargs))
        return self.outline.arrangement in (None, arrangement) and self.found.hold(leaves)

    @property
    def steps(self) -> int:
        """How many entries the record has."""
        return self.segments[-1].stop + 1

    def resized(self, leaves: Sequence[Any]) -> Variant | None:
        """The variant for arguments of other lengths, if the body would do the same with them."""
        values = None if self.sized is None else self.sized.values(leaves)
        return None if values is None else Variant(self._noted, self._compile, values, self)

    def with_input(self, step: int, position: int) -> Variant:
        """As this one, with an input in place of the Python number that is an operand of `step`."""
        if self.sized is None:
            return Variant(with_input(self.record, step, position), self._compile)
        sized = self.sized.with_input(step, position)
        return Variant(sized.record(self.values), self._compile)

    @cached_property
    def specs(self) -> tuple[tuple[Any, Any, str], ...]:
        """Shape, dtype and device of each external input."""
        return tuple((s.shape, s.dtype, s.device) for s in self.record.signature)

    @property
    def programs(self) -> tuple[Program, ...]:
        """What has been compiled so far, in order."""
        return tuple(built.program for built in self._built if built is not None)

    def program(self, number: int) -> tuple[Program, tuple[int, ...]]:
        """The Program of a segment, and the refs of the values it reads."""
        built = self._of(number)
        return built.program, built.reads

    def run(self, number: int, session: Running) -> None:
        """Run a segment on what `session` was fed and on earlier values; add its own to these."""
        if self.segments[number].outputs:
            (self._built[number] or self._of(number)).run(session)

    def _of(self, number: int) -> _Built:
        found = self._built[number]
        if found is None:
            with self._lock:
                found = self._built[number]
                if found is None:
                    found = self._built[number] = self._build(self.segments[number])
        return found

    def _build(self, segment: Segment) -> _Built:
        compile = partial(compile_segment, self._compile, self.segments, segment)
        if self.sized is None:
            program, reads = compile(self.record)
        else:
            program, reads = self.sized.program(segment, self.values, compile)
        return _Built(program, reads, _runner(program, reads, segment.outputs))

    def graph(self, segment: Segment) -> tuple[Graph, tuple[int, ...]]:
        """The segment as a Graph, and the refs of its inputs."""
        return graph_of(self.record, self.segments, segment)


def compile_segment(
    compile: Compile, segments: tuple[Segment, ...], segment: Segment, record: Record
) -> tuple[Program, tuple[int, ...]]:
    """The Program of a segment of `record`, and the refs of the values it reads."""
    graph, reads = graph_of(record, segments, segment)
    inputs_of = {ref: position for position, ref in enumerate(reads)}
    updates = {
        segment.outputs.index(step): inputs_of[external_ref(external)]
        for step, external in record.updates().items()
        if step in segment.outputs and external_ref(external) in inputs_of
    }
    return compile(graph, updates), reads


def graph_of(
    record: Record, segments: tuple[Segment, ...], segment: Segment
) -> tuple[Graph, tuple[int, ...]]:
    """A segment of `record` as a Graph, and the refs of its inputs."""
    boundary = {e.node: external_ref(i) for i, e in enumerate(record.externals)}
    for earlier in segments:
        if earlier.stop <= segment.start:
            boundary.update((record.node(i), i) for i in earlier.outputs)
    return cut_out(tuple(record.node(i) for i in segment.outputs), boundary)


@dataclass(frozen=True, slots=True, eq=False)
class _Built:
    """The program of a segment, the refs that it reads, and ``run(session)``."""

    program: Program
    reads: tuple[int, ...]
    run: Callable[[Running], None]


def _runner(program: Program, reads: Sequence[int], outputs: Sequence[int]) -> Callable[[Running], None]:
    """A straight-line function for `Variant.run`: loops over few values cost as much as a small program.

    Nothing but the list that it makes refers to an array in addition: see `Program.call`.
    """
    read = ", ".join(f"values[{ref}]" if ref >= 0 else f"fed[{-1 - ref}]" for ref in reads)
    lines = [
        "def run(session):",
        "fed, values = session.fed, session.values",
        f"session.operands_left = operands = [{read}]",
        f"{''.join(f'values[{step}], ' for step in outputs)}= call(operands)",
        "session.operands_left = ()",
    ]
    scope: dict[str, Any] = {"call": program.call}
    exec(_code("\n    ".join(lines)), scope)
    run: Callable[[Running], None] = scope["run"]
    return run


@lru_cache(maxsize=64)
def _code(source: str) -> CodeType:
    """Programs for other lengths have the same text."""
    return builtins.compile(source, "<mgb segment>", "exec")


def cut_out(
    outputs: tuple[Node, ...], boundary: Mapping[Node, int], instead: Mapping[Node, Node] | None = None
) -> tuple[Graph, tuple[int, ...]]:
    """The graph that computes `outputs` from the nodes of `boundary`, which become its inputs.

    Parameters
    ----------
    outputs : tuple of Node
    boundary : mapping
    instead : mapping, optional
        Constants, each with one that takes its place.

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
