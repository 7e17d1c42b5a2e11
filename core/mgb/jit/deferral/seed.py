"""The links of a call that was recorded: what it did counts as seen."""

from __future__ import annotations

from typing import Any

from ... import dtypes
from ...ir import Node, Spec, const_node, input_node
from ..entry import CUTS, END, EXCLUDE, OUTPUT_GRADIENT, Entry, Literal
from ..entry import Ref as Recorded
from ..record import Record
from .link import Link
from .operands import INEXACT, Ref, same_bits


def seed(root: Link, record: Record) -> None:
    """Add to `root` the sequences of `record`, each up to where a value of it was wanted."""
    way = _Way(root, record)
    for step, entry in enumerate(record.entries):
        if entry.op is OUTPUT_GRADIENT:
            break
        ends = entry.op in (END, EXCLUDE) or entry.op.ordered  # such an op runs at once
        if ends or any(wanted in way.steps for wanted in entry.required):
            way.end()
        elif entry.op not in CUTS:
            way.go(step, entry)


class _Way:
    """From the root along one sequence after another."""

    def __init__(self, root: Link, record: Record) -> None:
        self._root = self._at = root
        self._record = record
        self.end()

    def end(self) -> None:
        """A sequence ends here; the next one begins at the root."""
        if self._at is not self._root:
            self._at.seen += 1
        self._at = self._root
        self.steps: dict[int, Link] = {}
        self._numbers: dict[Any, tuple[int, Node]] = {}  # of the external inputs, by what they are

    def go(self, step: int, entry: Entry) -> None:
        feeds: list[Node] = []
        operands = [self._operand(ref, entry, feeds) for ref in entry.args]
        args, nodes = tuple([ref for ref, _ in operands]), tuple([node for _, node in operands])
        node = Node(entry.op, nodes, entry.params, entry.spec, entry.source)
        link = Link(self._at, entry.op, entry.params, args, node, tuple(feeds))
        known = next((child for child in self._at.children if _is_same(child, link)), None)
        self._at = self.steps[step] = known or self._at.add(link)

    def _operand(self, ref: Recorded, entry: Entry, feeds: list[Node]) -> tuple[Ref, Node]:
        if isinstance(ref, Literal) and not ref.array.ndim:
            exact = type(ref.raw) in dtypes.WEAK and (ref.raw or type(ref.raw) is not float)
            constant = Literal(ref.array, ref.raw if exact else INEXACT, device=ref.device)
            return constant, const_node(ref.array, ref.array.dtype, ref.device)
        if isinstance(ref, int) and ref in self.steps:
            link = self.steps[ref]
            assert link.node is not None
            return link.index, link.node
        key = id(ref.array) if isinstance(ref, Literal) else -1 - ref if ref < 0 else ("step", ref)
        if key not in self._numbers:
            spec: Spec = self._record.spec(ref)
            self._numbers[key] = len(self._numbers), input_node(spec, entry.source)
            feeds.append(self._numbers[key][1])
        number, node = self._numbers[key]
        return -1 - number, node


def _is_same(one: Link, other: Link) -> bool:
    return (
        one.op is other.op
        and one.params == other.params
        and [node.spec for node in one.feeds] == [node.spec for node in other.feeds]
        and len(one.args) == len(other.args)
        and all(map(_is_same_operand, one.args, other.args))
    )


def _is_same_operand(one: Ref, other: Ref) -> bool:
    if isinstance(one, Literal):
        return isinstance(other, Literal) and same_bits(one.array, other.array)
    return one == other
