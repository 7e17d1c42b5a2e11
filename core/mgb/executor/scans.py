"""Scans with unused results removed, and the memory of their carried values from step to step."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ..ir import Graph, Node

Arrays = Sequence[Any]

#: A value that is handed on as it is goes through at most so many carries in place.
DEEP = 4


@dataclass(frozen=True, slots=True)
class Carried:
    """A value that is carried.

    Attributes
    ----------
    root : int
        The result of a step that it is, or was some turns ago; -1: it never changes.
    path : tuple of int
        Itself, then the value that it takes over in the next turn, and so on up to what `root` becomes:
        numbers among what is carried.
    """

    root: int
    path: tuple[int, ...]

    @property
    def age(self) -> int:
        """The number of steps between computing the value and reading it."""
        return len(self.path) - 1

    def value(self, turn: int, places: Sequence[Arrays], first: Arrays) -> Any:
        """Return the array that holds it before a turn; `first` are those of the beginning."""
        if self.root < 0 or turn <= self.age:
            return first[self.path[0 if self.root < 0 else turn]]
        return places[self.root][(turn - self.age) % len(places[self.root])]


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan without what nobody wants.

    Attributes
    ----------
    graph : Graph
        Of one step: it gives only what it makes, not what is handed on.
    consts, length : int
    reverse : bool
    kept : tuple of int
        Which of the operands it takes.
    carried : tuple of Carried
    ends : tuple of int or None
        For each value that is carried the place of the result that it is in the end.
    rows : tuple of int
        For each row the place of the result.
    """

    graph: Graph
    consts: int
    length: int
    reverse: bool
    kept: tuple[int, ...]
    carried: tuple[Carried, ...]
    ends: tuple[int | None, ...]
    rows: tuple[int, ...]

    @classmethod
    def of(cls, node: Node, wanted: Sequence[int]) -> Scan:
        """Return the scan of the op `node` reduced to the results `wanted`."""
        graph, first, count = node.params["body"].graph, node.params["consts"], node.params["carries"]
        live = _live(graph, first, count, wanted)
        rows = [n for n in wanted if n >= count]
        carried, made = _carried([graph.inputs[first + n] for n in live], [graph.outputs[n] for n in live])
        outputs = (*(graph.outputs[live[n]] for n in made), *(graph.outputs[n] for n in rows))
        read = _read(Graph(graph.inputs, outputs))
        consts = [n for n in range(first) if graph.inputs[n] in read]
        xs = [n for n in range(first + count, len(graph.inputs)) if graph.inputs[n] in read]
        kept = (*consts, *(first + n for n in live), *xs)
        place = {n: k for k, n in enumerate(wanted)}
        return cls(
            Graph(tuple(graph.inputs[n] for n in kept), outputs),
            len(consts),
            node.params["length"],
            node.params["reverse"],
            kept,
            carried,
            tuple(place.get(n) for n in live),
            tuple(place[n] for n in rows),
        )

    @property
    def roots(self) -> int:
        """The number of carried values that a step computes."""
        return len(self.graph.outputs) - len(self.rows)

    def rounds(self, root: int) -> int:
        """Return in how many slots the results of a step rotate: one more than are read at the same time."""
        return 2 + max(c.age for c in self.carried if c.root == root)

    @property
    def warm(self) -> int:
        """After so many turns each place has been written."""
        return max((self.rounds(root) for root in range(self.roots)), default=1)

    @property
    def phases(self) -> int:
        """After so many turns all places are the same again."""
        return math.lcm(*(self.rounds(root) for root in range(self.roots)))

    @property
    def next_inputs(self) -> dict[int, int]:
        """From what a step makes to the input that has its value in the next turn."""
        return {c.root: self.consts + n for n, c in enumerate(self.carried) if c.root >= 0 and not c.age}

    def split(self, operands: Arrays) -> tuple[list[Any], list[Any], list[Any]]:
        """Split the operands into constants, initial carried values and scanned arrays."""
        given, end = [operands[n] for n in self.kept], self.consts + len(self.carried)
        return given[: self.consts], given[self.consts : end], given[end:]

    @property
    def slots(self) -> tuple[list[dict[int, int]], list[tuple[int, Carried]]]:
        """For each root which places are results, such that it ends there; and the results that are none."""
        found: list[dict[int, int]] = [{} for _ in range(self.roots)]
        missing = []
        for carried, k in zip(self.carried, self.ends, strict=True):
            if k is None:
                continue
            slot = (self.length - carried.age) % self.rounds(carried.root) if carried.root >= 0 else 0
            if carried.root < 0 or self.length <= carried.age or slot in found[carried.root]:
                missing.append((k, carried))
            else:
                found[carried.root][slot] = k
        return found, missing

    def rooms(self, fresh: Sequence[Callable[[], Any]]) -> list[list[Any]]:
        """Return memory for carried values that are not results."""
        counts = [self.rounds(root) - len(taken) for root, taken in enumerate(self.slots[0])]
        return [[fresh[root]() for _ in range(count)] for root, count in enumerate(counts)]

    def places(
        self, out: Arrays, rooms: Sequence[Sequence[Any]]
    ) -> tuple[list[list[Any]], list[tuple[int, Carried]]]:
        """Return where what is carried goes round, and the results that are copied in the end."""
        found, missing = self.slots
        made = []
        for root, taken in enumerate(found):
            free = iter(rooms[root])
            made.append([out[taken[n]] if n in taken else next(free) for n in range(self.rounds(root))])
        return made, missing


def _carried(inputs: Sequence[Node], outputs: Sequence[Node]) -> tuple[tuple[Carried, ...], list[int]]:
    """Return how each carried value is passed on, and the numbers of those that a step computes."""
    place = {node: n for n, node in enumerate(inputs)}
    after = [place.get(node) for node in outputs]  # the input that is handed on in its place
    paths: list[list[int] | None] = []
    for n in range(len(inputs)):
        path: list[int] | None = [n]
        while path is not None and (to := after[path[-1]]) is not None and to != path[-1]:
            path = None if to in path or len(path) > DEEP else [*path, to]
        paths.append(path)
    ends = {n: p[-1] if p is not None else n for n, p in enumerate(paths)}
    still = {n for n in ends if after[n] == n}
    loose = {n for n, p in enumerate(paths) if p is None or (n not in still and ends[n] in still)}
    made = [n for n in range(len(inputs)) if n in loose or after[n] is None]
    found = []
    for n, path in enumerate(paths):
        if n in still:
            found.append(Carried(-1, (n,)))
        elif n in loose or path is None:
            found.append(Carried(made.index(n), (n,)))
        elif loose.isdisjoint(path):
            found.append(Carried(made.index(path[-1]), tuple(path)))
        else:
            return _all_made(len(inputs))
    return tuple(found), made


def _all_made(count: int) -> tuple[tuple[Carried, ...], list[int]]:
    """Return carried values that are all copied in each turn."""
    return tuple(Carried(n, (n,)) for n in range(count)), list(range(count))


def _live(graph: Graph, first: int, count: int, wanted: Collection[int]) -> list[int]:
    """Return the carried values that a requested output depends on, now or in a later step."""
    live = [n for n in range(count) if n in wanted]
    rows = [n for n in wanted if n >= count]
    while True:
        reached = _read(Graph(graph.inputs, tuple(graph.outputs[n] for n in (*live, *rows))))
        more = [n for n in range(count) if n in live or graph.inputs[first + n] in reached]
        if more == live:
            return live
        live = more


def _read(graph: Graph) -> set[Node]:
    """Return the inputs that lead to an output."""
    return {n for n in graph.inputs if graph.readers[n]}.union(graph.outputs)
