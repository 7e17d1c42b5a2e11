"""Which outputs may be the memory of an input: what is told, and what happens where it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from operator import add, mul
from typing import Any

import numpy as np
from graphs import arrays_for, run
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mgb import dtypes
from mgb.codegen import hazards, schedule
from mgb.codegen.schedule import KEEP_OPS, Schedule
from mgb.ir import Graph, Kind, Node, Spec
from mgb.ops.bodies.transcendental import exp
from mgb.ops.primitives import maximum
from mgb.ops.reduce import reduce_max, reduce_sum
from mgb.passes import simplify
from mgb.tensor import Tensor
from mgb.tensor.tracing import graph_of

#: More ops than any value takes: every pass reads its operands again.
NEVER = 1 << 30

ORDERS = ("by_rows", "by_passes")

Place = tuple[int, ...]
Memory = dict[Node, np.ndarray]


def softmax(x: Any) -> Any:
    e = exp(x - reduce_max(x, axis=(1,)))
    return e / reduce_sum(e, axis=(1,))


def pairs(function: Callable[..., Any], *shapes: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    graph = graph_of(function, *(Spec(s, dtypes.float32) for s in shapes))
    return hazards(graph, schedule(graph, NEVER))


def test_output_may_alias_an_input_read_element_by_element() -> None:
    assert pairs(lambda x, y: x * y, (4, 50), (4, 50)) == ()
    assert pairs(softmax, (4, 50)) == ()


def test_output_may_not_alias_an_input_that_a_later_pass_reads() -> None:
    assert pairs(lambda x: [x + 1, softmax(x)], (4, 50)) == ((0, 0),)


def test_output_may_not_alias_an_input_it_does_not_depend_on() -> None:
    assert pairs(lambda x, y: [x + 1, x * y], (4, 50), (4, 50)) == ((1, 0),)


def test_output_may_not_alias_a_broadcast_input() -> None:
    assert pairs(lambda x, y: [x * y, y + 1], (4, 50), (50,)) == ((1, 1),)


class Player:
    """Runs a schedule element by element, and writes each result as soon as it is there.

    Parameters
    ----------
    graph : Graph
    plan : Schedule
    memory : dict
        The arrays of inputs, constants and outputs; two may be the same.
    """

    def __init__(self, graph: Graph, plan: Schedule, memory: Memory) -> None:
        self.graph, self.plan, self.memory = graph, plan, memory

    def at(self, node: Node, place: Place) -> Any:
        """Where the element of an array stands that belongs to a place of the domain."""
        rank = len(self.memory[node].shape)
        own = zip(self.memory[node].shape, place[len(place) - rank :], strict=True)
        return tuple(0 if d == 1 else p for d, p in own)

    def by_rows(self) -> None:
        """A row with all of its passes, then the next."""
        for row in self.places(folded=False):
            self.play([row])

    def by_passes(self) -> None:
        """All rows in each pass: threads that wait for each other between two."""
        self.play(list(self.places(folded=False)))

    def places(self, folded: bool) -> Iterator[Place]:
        pairs = enumerate(self.plan.shape)
        return product(*(range(d) if (a in self.plan.reduced) is folded else (0,) for a, d in pairs))

    def play(self, rows: list[Place]) -> None:
        plan, known = self.plan, {row: dict[Node, Any]() for row in rows}
        kept: dict[tuple[Place, Node], Any] = {}
        for row in rows:
            for node in plan.row_reads:
                known[row][node] = self.memory[node][self.at(node, row)]
            self.evaluate(plan.before, known[row])
        for part in plan.passes:
            for row in rows:
                folds: dict[Node, list[Any]] = {fold: [] for fold in part.folds}
                for inner in self.places(folded=True):
                    place = tuple(map(sum, zip(row, inner, strict=True)))
                    values = dict(known[row])
                    values |= {node: kept[place, node] for node in part.restores}
                    self.evaluate(part.computes, values, part.stores, place)
                    kept |= {(place, node): self.element(node, values, place) for node in part.keeps}
                    for fold, found in folds.items():
                        found.append(self.element(fold.inputs[0], values, place))
                for fold, found in folds.items():
                    known[row][fold] = self.one(fold, np.array(found))
            for row in rows:
                self.evaluate(part.after, known[row])
        for row in rows:
            for node in plan.row_stores:
                self.memory[node][self.at(node, row)] = known[row][node]

    def evaluate(
        self,
        nodes: tuple[Node, ...],
        values: dict[Node, Any],
        stores: tuple[Node, ...] = (),
        place: Place = (),
    ) -> None:
        for node in (*(n for n in stores if n in values), *nodes):
            if node not in values:
                values[node] = self.one(node, *(self.element(i, values, place) for i in node.inputs))
            if node in stores:
                self.memory[node][self.at(node, place)] = values[node]

    def element(self, node: Node, values: dict[Node, Any], place: Place) -> Any:
        """The value of a node at a place, read when it is first wanted."""
        if node not in values:
            values[node] = self.memory[node][self.at(node, place)]
        return values[node]

    def one(self, node: Node, *operands: Any) -> Any:
        """The element of a node from those of its operands; a fold is given all of its row."""
        if node.op.kind is Kind.LEAF:
            return np.ravel(node.params["value"])[0]
        if node.op.name == "extent":
            return node.spec.dtype.type(np.prod([self.plan.shape[a] for a in self.plan.reduced]))
        if node.op.kind is Kind.REDUCE:
            return node.op.eager(np.atleast_1d(operands[0]), axis=(0,))[0]
        return node.op.eager(*operands, **node.params)


def played(graph: Graph, plan: Schedule, arrays: list[Any], over: dict[int, int], order: str) -> list[Any]:
    """The outputs, with those of `over` in the memory of an input."""
    memory = {x: a.copy() for x, a in zip(graph.inputs, arrays, strict=True)}
    memory |= {n: n.params["value"] for n in graph.nodes if n.op.kind is Kind.LEAF and "value" in n.params}
    for j, y in enumerate(graph.outputs):
        memory[y] = memory[graph.inputs[over[j]]] if j in over else np.zeros(y.spec.shape, y.spec.dtype)
    with np.errstate(all="ignore"):
        getattr(Player(graph, plan, memory), order)()
    return [memory[y] for y in graph.outputs]


@st.composite
def groups(draw: st.DrawFn) -> Graph:
    """Element-wise ops, and folds over one set of axes, of operands of one shape and of smaller ones."""
    axes = draw(st.sampled_from(((), (1,), (0,), (0, 1))))
    small = draw(st.lists(st.sampled_from(((1, 4), (3, 1), (4,), ())), max_size=2))
    shapes = [*[(3, 4)] * draw(st.integers(1, 3)), *small]

    def body(*inputs: Tensor) -> list[Tensor]:
        values = list(inputs)
        for _ in range(draw(st.integers(1, 8))):
            x, y = draw(st.sampled_from(values)), draw(st.sampled_from(values))
            folds = axes and x.shape == (3, 4) and draw(st.booleans())
            op = draw(st.sampled_from((add, mul, maximum)))
            values.append(reduce_sum(x, axis=axes) if folds else op(x, y))
        made = values[len(inputs) :]
        return [made[-1], *draw(st.lists(st.sampled_from(made), max_size=2))]

    return simplify(graph_of(body, *(Spec(s, dtypes.float32) for s in shapes)), 1)


@settings(max_examples=300)
@given(data=st.data(), order=st.sampled_from(ORDERS), keep=st.sampled_from((KEEP_OPS, NEVER)))
def test_allowed_aliases_never_overwrite_values_read_later(
    data: st.DataObject, order: str, keep: int
) -> None:
    graph = data.draw(groups())
    assume(all(v.inputs for v in graph.outputs) and len(set(graph.outputs)) == len(graph.outputs))
    plan, arrays = schedule(graph, keep), arrays_for(graph)
    found = set(hazards(graph, plan))
    alike = [
        (i, j)
        for i, x in enumerate(graph.inputs)
        for j, y in enumerate(graph.outputs)
        if x.spec == y.spec and (i, j) not in found
    ]
    assume(alike)
    over: dict[int, int] = {}
    for i, j in data.draw(st.permutations(alike)):
        if j not in over and i not in over.values():
            over[j] = i
    want = played(graph, plan, arrays, {}, order)
    for right, judged in zip(want, run(graph, arrays), strict=True):
        np.testing.assert_allclose(right, judged, rtol=1e-4, atol=1e-4)
    for got, right in zip(played(graph, plan, arrays, over, order), want, strict=True):
        np.testing.assert_array_equal(got, right)
