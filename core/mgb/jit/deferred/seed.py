"""The links of a call that was recorded: what it did counts as seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...ir import Node, const_node, input_node
from ..entry import CUTS, END, EXCLUDE, OUTPUT_GRADIENT, SHAPE, Entry, Literal
from ..entry import Ref as Recorded
from ..record import Record
from ..variant import Variant
from .ending import Ending
from .link import Link
from .operands import Ref, compared, same_bits


@dataclass(slots=True)
class Section:
    """A straight run of steps of a record: up to where a value of them was wanted, or an op ran at once.

    Attributes
    ----------
    root : Link
        Where its sequence begins.
    keeps_constants : bool
        Are arrays that are constants of the record constants here? Else they are inputs.
    steps : list of int
        For each link of the sequence the step that it stands for.
    links : dict
        The links by these steps.
    inputs : dict
        For each input that it reads, by its `Ref` or the id of its array, the number of the external input.
    nodes : list of Node
        Of the external inputs.
    end : int
        The step where it ends: a cut, or an op that runs at once.
    """

    root: Link
    keeps_constants: bool = False
    steps: list[int] = field(default_factory=list)
    links: dict[int, Link] = field(default_factory=dict)
    inputs: dict[object, int] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    end: int = 0

    @property
    def last(self) -> Link:
        """The last link; the root if there is none."""
        return self.links[self.steps[-1]] if self.steps else self.root

    def add(self, record: Record, step: int) -> None:
        """Add the link of a step."""
        entry, feeds = record.entries[step], len(self.nodes)
        operands = [self._operand(record, ref, entry) for ref in entry.args]
        args, nodes = tuple([ref for ref, _ in operands]), tuple([node for _, node in operands])
        node = Node(entry.op, nodes, entry.params, entry.spec, entry.source)
        at = self.last
        link = Link(at, entry.op, entry.params, args, node, tuple(self.nodes[feeds:]))
        known = next((known for known in at.children if _is_same(known, link)), None)
        self.links[step] = known or at.add(link)
        self.nodes[feeds:] = self.links[step].feeds
        self.steps.append(step)

    def _operand(self, record: Record, ref: Recorded, entry: Entry) -> tuple[Ref, Node]:
        if isinstance(ref, int) and ref not in self.links and ref in record.statics:
            ref = Literal(record.static_value(ref), device=record.spec(ref).device)
        if isinstance(ref, Literal) and (self.keeps_constants or not ref.array.ndim):
            constant = Literal(ref.array, compared(ref.raw), device=ref.device)
            return constant, const_node(ref.array, ref.array.dtype, ref.device)
        if isinstance(ref, int) and ref in self.links:
            link = self.links[ref]
            assert link.node is not None
            return link.index, link.node
        key = ("array", id(ref.array)) if isinstance(ref, Literal) else ref
        if key not in self.inputs:
            self.inputs[key] = len(self.nodes)
            self.nodes.append(input_node(record.spec(ref), entry.source))
        number = self.inputs[key]
        return -1 - number, self.nodes[number]


def seed(
    record: Record, root: Callable[[], Link], symbolic_shape: bool, keeps_constants: bool = False
) -> list[Section]:
    """The sections of a record, the sequence of each from a `root`; they have come once then.

    Parameters
    ----------
    record : Record
    root : callable
    symbolic_shape : bool
        What follows from shapes alone is known at once then.
    keeps_constants : bool
        See `Section`.
    """
    sections = [Section(root(), keeps_constants)]
    known: set[int] = set()
    for step, entry in enumerate(record.entries):
        if entry.op is OUTPUT_GRADIENT:
            break
        now = sections[-1]
        ends = entry.op in (END, EXCLUDE) or entry.op.ordered
        if ends or any(wanted in now.links for wanted in entry.required):
            now.end = step
            if now.steps:
                now.links[now.steps[-1]].seen += 1
            sections.append(Section(root(), keeps_constants))
        elif symbolic_shape and _follows_from_shapes(entry, known):
            known.add(step)
        elif entry.op not in CUTS:
            now.add(record, step)
    return sections[:-1]


def _follows_from_shapes(entry: Entry, known: set[int]) -> bool:
    if entry.op is SHAPE:
        return True
    return bool(entry.args) and all(isinstance(ref, Literal) or ref in known for ref in entry.args)


def take_programs(sections: Sequence[Section], variant: Variant) -> None:
    """Let the sequences that end as segments of `variant` do have the programs that these have by now."""
    ends = {section.end: section for section in sections if section.steps}
    for number, segment in enumerate(variant.segments):
        section = ends.get(segment.stop)
        if section is None or not variant.is_compiled(number):
            continue
        program, reads = variant.program(number)
        constants = any(
            not isinstance(ref, int) for ref in section.inputs
        )  # the program holds what they were
        known = all(r in section.inputs for r in reads) and all(o in section.links for o in segment.outputs)
        if known and not constants:
            end = section.links[section.steps[-1]]
            outputs = frozenset([section.links[step].index for step in segment.outputs])
            ending = Ending(end.sequence(), outputs)
            ending.take(program, [-1 - section.inputs[ref] for ref in reads])
            end.endings[outputs] = ending


def _is_same(one: Link, other: Link) -> bool:
    return (
        one.op is other.op
        and one.params == other.params
        and one.signs == other.signs
        and [node.spec for node in one.feeds] == [node.spec for node in other.feeds]
        and len(one.args) == len(other.args)
        and all(map(_is_same_operand, one.args, other.args))
    )


def _is_same_operand(one: Ref, other: Ref) -> bool:
    if isinstance(one, Literal):
        return isinstance(other, Literal) and same_bits(one.array, other.array)
    return one == other
