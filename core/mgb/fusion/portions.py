"""A large group is cut into portions, each a kernel: compilers take a time that grows faster than a loop.

A group's nodes, in an order in which each comes after those it reads, may be cut anywhere. What is computed
before a cut and read after it is kept in memory; what both sides read is read twice. The cut is where the
least of that has to be done.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import accumulate
from math import prod

from ..backends import Scope
from ..ir import Kind, Node
from ..ir.sizes import about, same_shape
from .legality import Group, Shape, bare, group_of, joined, row

#: A cut pays if it moves no more than a byte for so many ops of the portion, for each element of the domain.
OPS_FOR_A_BYTE = 8


def portions(
    nodes: Sequence[Node],
    weights: Sequence[int],
    group: Group,
    largest: int,
    most_inputs: int,
    readers: Mapping[Node, Sequence[Node]],
    outputs: Container[Node],
    is_copied: Callable[[Node], bool],
) -> list[list[Node]]:
    """Cut a group where it is too large for one kernel.

    Parameters
    ----------
    nodes : sequence of Node
        Of the group, each after those it reads.
    weights : sequence of int
        How many ops each is.
    group : Group
        What the rules know of it.
    largest : int
        The ops that a portion has at most, if there is a place to cut; between half of it and all of it.
    most_inputs : int
        The values that a portion reads at most.
    readers : mapping
        All readers of each node, those of other groups too.
    outputs : container of Node
        What has to be stored though nobody reads it.
    is_copied : callable
        Is a value made by each portion that reads it?

    Returns
    -------
    list of list of Node
        The group itself, where nothing is to be cut or no cut pays.
    """
    if sum(weights) <= largest or group.product is not None:
        return [list(nodes)]
    inside = set(nodes)
    stored = {n for n in nodes if n in outputs or not inside.issuperset(readers[n])}
    costs = _costs(nodes, stored, _writable(group), is_copied)
    cuts = _cuts(list(accumulate(weights, initial=0)), costs, about(prod(group.domain)), largest)
    parts = [list(nodes[a:b]) for a, b in zip((0, *cuts), (*cuts, len(nodes)), strict=True)]
    sound = all(_is_sound(part, stored, readers, most_inputs, is_copied) for part in parts)
    return parts if sound else [list(nodes)]


def _writable(group: Group) -> tuple[Shape, Shape]:
    return group.domain, row(group.domain, group.axes)


def _is_writable(shape: Shape, writable: Sequence[Shape]) -> bool:
    return any(same_shape(shape, written) for written in writable)


def _costs(
    nodes: Sequence[Node],
    stored: Container[Node],
    writable: Sequence[Shape],
    is_copied: Callable[[Node], bool],
) -> list[float]:
    """Return for each place the bytes that a cut there moves; infinity where a kernel cannot write one."""
    first: dict[Node, int] = {}
    last: dict[Node, int] = {}
    for place, node in enumerate(nodes):
        for value in node.inputs:
            if not is_copied(value):
                first.setdefault(value, place)
                last[value] = place
        first[node] = place
    changes, barred = [0] * (len(nodes) + 1), [0] * (len(nodes) + 1)
    inside = set(nodes)
    for value, end in last.items():
        is_new = value in inside and value not in stored
        cost = about(value.spec.nbytes) * (2 if is_new else 1)
        bar = is_new and not _is_writable(bare(value.spec.shape), writable)
        for sums, change in ((changes, cost), (barred, int(bar))):
            sums[first[value] + 1] += change
            sums[end + 1] -= change
    return [
        float("inf") if bars else cost
        for cost, bars in zip(accumulate(changes), accumulate(barred), strict=True)
    ]


def _cuts(ops: Sequence[int], costs: Sequence[float], size: int, largest: int) -> list[int]:
    """Return where to cut, by the ops before each place.

    Where no cut of a window pays, a later window is taken.
    """
    cuts: list[int] = []
    begin, least, most = 0, largest // 2, largest
    while ops[-1] - ops[begin] > most:
        end = min(ops[begin] + most, ops[-1] - largest // 2)
        window = range(bisect_left(ops, ops[begin] + least), bisect_right(ops, end))
        best = min(reversed(window), key=costs.__getitem__, default=begin)
        if begin < best and costs[best] * OPS_FOR_A_BYTE <= size * (ops[best] - ops[begin]):
            cuts.append(best)
            begin, least, most = best, largest // 2, largest
        else:
            least, most = most, most * 2
    return cuts


def _is_sound(
    part: Sequence[Node],
    stored: Container[Node],
    readers: Mapping[Node, Sequence[Node]],
    most_inputs: int,
    is_copied: Callable[[Node], bool],
) -> bool:
    """Return whether the rules take a portion for a group, and a kernel writes what others read of it."""
    inside = set(part)
    reads = {i for n in part for i in n.inputs if i not in inside and not is_copied(i)}
    if len(reads) > most_inputs:
        return False
    groups = [group_of(Scope.DOMAIN, n) for n in part]
    whole, *rest = sorted(groups, key=lambda g: (-about(prod(g.domain)), g.reduces))
    for group in rest:
        found = joined(Scope.DOMAIN, whole, group, True)
        if isinstance(found, str):
            return False
        whole = found
    written = (n for n in part if n in stored or not inside.issuperset(readers[n]))
    written = (n for n in written if n.op.kind is not Kind.SCATTER)
    return all(_is_writable(bare(n.spec.shape), _writable(whole)) for n in written)
