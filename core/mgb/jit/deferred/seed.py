"""Add the links of a recorded call to a tree, so that the call counts as seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...ir import Node, const_node, input_node
from ..entry import CUTS, END, EXCLUDE, SHAPE, Entry, Literal, has_same_bits
from ..entry import Ref as Recorded
from ..record import Record
from ..variant import Variant
from .link import Link
from .operands import Ref, normalize_scalar
from .plan import SequencePlan


@dataclass(slots=True)
class Section:
    """Consecutive steps of a record, up to a value that is read or an op that runs at once.

    Attributes
    ----------
    root : Link
        The link where its sequence begins.
    keeps_constants : bool
        Arrays that are constants of the record are constants here; otherwise they are inputs.
    steps : list of int
        For each link of the sequence the step that it stands for.
    links : dict
        The links by these steps.
    inputs : dict
        The numbers of the external inputs, by their `Ref` or the id of their array.
    nodes : list of Node
        The nodes of the external inputs.
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
        """Return the last link; the root if there is none."""
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
            constant = Literal(ref.array, normalize_scalar(ref.raw), device=ref.device)
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
    """Return the sections of a record. Each begins at a new `root`, and its sequence counts as seen once.

    Parameters
    ----------
    record : Record
    root : callable
    symbolic_shape : bool
        Shapes are Tensors, and what depends on shapes alone is known at once.
    keeps_constants : bool
        See `Section`.
    """
    sections = [Section(root(), keeps_constants)]
    known: set[int] = set()
    for step, entry in enumerate(record.entries):
        section = sections[-1]
        ends = entry.op in (END, EXCLUDE) or entry.op.ordered
        if ends or any(ref in section.links for ref in entry.required):
            section.end = step
            if section.steps:
                section.links[section.steps[-1]].seen += 1
            sections.append(Section(root(), keeps_constants))
        elif symbolic_shape and _depends_on_shapes_only(entry, known):
            known.add(step)
        elif entry.op not in CUTS:
            section.add(record, step)
    return sections[:-1]


def _depends_on_shapes_only(entry: Entry, known: set[int]) -> bool:
    if entry.op is SHAPE:
        return True
    return bool(entry.args) and all(isinstance(ref, Literal) or ref in known for ref in entry.args)


def adopt_programs(sections: Sequence[Section], variant: Variant) -> None:
    """Let sections that end with a compiled segment of `variant` use its program."""
    ends = {section.end: section for section in sections if section.steps}
    for number, segment in enumerate(variant.segments):
        section = ends.get(segment.stop)
        if section is None or not variant.is_compiled(number):
            continue
        program, reads = variant.program(number)
        # A program with arrays as constants would use those of the recorded call.
        constants = any(not isinstance(ref, int) for ref in section.inputs)
        known = all(r in section.inputs for r in reads) and all(o in section.links for o in segment.outputs)
        if known and not constants:
            end = section.links[section.steps[-1]]
            outputs = frozenset([section.links[step].index for step in segment.outputs])
            plan = SequencePlan(end.sequence(), outputs)
            plan.adopt(program, [-1 - section.inputs[ref] for ref in reads])
            end.plans[outputs] = plan


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
        return isinstance(other, Literal) and has_same_bits(one.array, other.array)
    return one == other
