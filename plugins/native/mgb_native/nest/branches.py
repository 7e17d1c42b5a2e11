"""Branches around rare work: the operands of ``unlikely`` that nothing else needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mgb.ir import CONST, Graph, Node

UNLIKELY = "unlikely"


@dataclass(frozen=True, slots=True)
class Branch:
    """A part of a loop that few turns compute.

    Attributes
    ----------
    condition : Node
    choices : tuple of Node
        The values that are other ones where it holds.
    inside : tuple of Node
        What is computed for these alone, in order.
    before : tuple of Node
        What is to be computed first, in order.
    """

    condition: Node
    choices: tuple[Node, ...]
    inside: tuple[Node, ...]
    before: tuple[Node, ...]


def branches(graph: Graph, nodes: Sequence[Node], kept: frozenset[Node]) -> list[Branch]:
    """Return the branches of a loop that computes `nodes` of `graph`; values `kept` are wanted outside."""
    groups: list[list[Node]] = []
    for node in (n for n in nodes if n.op.name == UNLIKELY):
        needs = _cone(nodes, node.inputs)
        fits = (g for g in groups if g[0].inputs[0] is node.inputs[0] and needs.isdisjoint(g))
        group = next(fits, None)
        if group is None:
            groups.append([node])
        else:
            group.append(node)
    return [_branch(graph, nodes, group, kept) for group in groups]


def _branch(graph: Graph, nodes: Sequence[Node], group: list[Node], kept: frozenset[Node]) -> Branch:
    chosen, inside, computed = set(group), set[Node](), set(nodes)
    wanted = {i for node in group for i in (node.inputs[0], node.inputs[2])}
    for node in reversed(nodes):
        if node in wanted or node in kept or node in chosen:
            continue
        readers = graph.readers[node]
        if readers and all(r in inside or (r in chosen and r in computed) for r in readers):
            inside.add(node)
    ends = {*wanted, *(i for node in inside for i in node.inputs), *(node.inputs[1] for node in group)}
    before = _cone(nodes, ends - inside)
    return Branch(
        group[0].inputs[0],
        tuple(group),
        tuple(n for n in nodes if n in inside),
        tuple(n for n in nodes if n in before and n not in inside),
    )


def _cone(nodes: Sequence[Node], ends: Iterable[Node]) -> set[Node]:
    """Return those of `nodes` that `ends` need, themselves included."""
    found: set[Node] = set(ends)
    for node in reversed(nodes):
        if node in found:
            found.update(node.inputs)
    return found.intersection(n for n in nodes if n.op is not CONST)
