"""Loops that work element by element are scans of kernels, for backends that carry a body along an axis.

``scan(lambda s, x: (s * 0.9 + x, s), init, xs)[1]`` would start a kernel for each row. As a `recurrence` it
is one kernel, with what computes the rows and what reads the results, and what is carried stays in cache.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from ..backends import Scope, Traits
from ..ir import CONST, Body, Graph, Kind, Node, Spec, dtypes
from ..ir.sizes import broadcast
from ..loops import RECURRENCE, RESULT, SCAN
from ..ops.layout import broadcast_to, cut_along, reshape
from ..tensor import Tensor, wrap
from ..tensor.apply import apply
from ..tensor.tracing import copy_node, graph_of, rebuild
from .gathers import unstretched

#: Loops of fewer steps, over fewer elements, of more ops and of more results stay as they are: for each
#: result that does not follow from another one the whole step is computed.
STEPS, ELEMENTS, OPS, RESULTS = 8, 1 << 12, 64, 2


def recurrences(graph: Graph, traits: Traits) -> Graph:
    """Spell loops whose steps are element-wise as recurrences, where a backend takes these.

    Parameters
    ----------
    graph : Graph
        Simplified.
    traits : Traits
        Of the backend that is to compile the groups.

    Returns
    -------
    Graph
    """
    takes = RECURRENCE.name in traits.vocabulary and Kind.SCAN in traits.kinds
    if not takes or traits.scope is not Scope.DOMAIN or graph.sizes is not None:
        return graph
    loops = {n: _Loop(n, graph) for n in graph.nodes if n.op is SCAN and n.params["length"] >= STEPS}
    loops = {n: loop for n, loop in loops.items() if loop.fits()}
    return rebuild(lambda *xs: graph.fold(partial(_rule, loops), xs), graph.inputs) if loops else graph


def _rule(loops: dict[Node, _Loop], node: Node, *values: Any) -> Any:
    """Return the value of `node` in the new graph; that of such a loop is a dict of its results."""
    if node in loops:
        return loops[node].results(values)
    if node.op is RESULT and isinstance(values[0], dict):
        return values[0][node.params["index"]]
    return copy_node(node, *values)


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop of the graph that holds it."""

    node: Node
    holder: Graph

    @property
    def graph(self) -> Graph:
        graph: Graph = self.node.params["body"].graph
        return graph

    @property
    def ends(self) -> tuple[int, int]:
        """Where among the inputs of a step the carried ones begin, and the rows."""
        consts, carries = self.node.params["consts"], self.node.params["carries"]
        return consts, consts + carries

    @property
    def carried(self) -> tuple[Node, ...]:
        return self.graph.inputs[slice(*self.ends)]

    @property
    def next(self) -> tuple[Node, ...]:
        """The results of a step that are carried on."""
        return self.graph.outputs[: len(self.carried)]

    @property
    def wanted(self) -> list[int]:
        """The results that are read."""
        found = {r.params["index"] for r in self.holder.readers[self.node]}
        return sorted(found)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.node.params["length"], *self.carried[0].spec.shape)

    def fits(self) -> bool:
        """Return whether steps are element-wise, of the shape of what is carried, and rows are wanted."""
        if not self.carried or self.node in self.holder.outputs or prod(self.shape) < ELEMENTS:
            return False
        if self.node.params["reverse"] and prod(self.shape[1:]) == 1:
            return False
        rows = [self.graph.outputs[n] for n in self.wanted]
        types = {(n.spec.shape, n.spec.dtype) for n in (*self.carried, *self.next, *rows)}
        some = any(n >= len(self.carried) for n in self.wanted) and len(types) == 1
        return some and self._is_elementwise() and self._spans() and len(self.apart()) <= RESULTS

    def _is_elementwise(self) -> bool:
        shape, other = self.carried[0].spec.shape, (*dtypes.HALVES, *dtypes.COMPLEX)
        for n in (*self.graph.inputs, *self.graph.nodes):
            if n.spec.dtype in other or broadcast([n.spec.shape, shape]) != shape:
                return False
        plain = (n for n in self.graph.nodes if not (n.op is CONST and n.spec.size == 1))
        return len(self.graph.nodes) <= OPS and all(n.op.kind is Kind.ELEMENTWISE for n in plain)

    def _spans(self) -> bool:
        """Return whether the rows have, together, each element of the result."""
        consts, rows = self.ends
        given = [n.spec.shape for n in self.node.inputs]
        shapes = [*given[:consts], *map(self._aligned, given[rows:])]
        return broadcast(shapes) == self.shape

    def _aligned(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of rows that stand as those of the carried values do."""
        return (shape[0], *(1,) * (len(self.shape) - len(shape)), *shape[1:])

    def apart(self) -> list[Node]:
        """Return the results of a step for each of which there is a recurrence: of most follows the rest."""
        rows = [self.graph.outputs[n] for n in self.wanted]
        found: list[Node] = []
        first = [n for n in (*self.next, *self.carried) if n in rows]
        for row in (*first, *rows):
            if not self._follows(row, found):
                found.append(row)
        return found

    def _follows(self, row: Node, found: Collection[Node]) -> bool:
        """Return whether `row` is made of `found` and of what the step reads, but for what it carries."""
        known = {n: n in found or n not in self.carried for n in self.graph.inputs}
        for n in self.graph.nodes:
            known[n] = n in found or all(known[i] for i in n.inputs)
        return known[row]

    def results(self, values: Sequence[Tensor]) -> dict[int, Tensor]:
        """Return the results that are wanted."""
        params, (consts, rows) = self.node.params, self.ends
        xs = [_reshaped(x, self._aligned(x.shape)) for x in values[rows:]]
        inits = map(unstretched, values[consts:rows])
        given = (*inits, *values[:consts], *xs)
        found = {
            row: apply(RECURRENCE, *given, axis=0, body=self._body(row), carries=rows - consts,
                       reverse=params["reverse"])
            for row in self.apart()
        }  # fmt: skip
        operands = [*values[:consts], *map(found.get, self.carried), *xs]
        made: Sequence[Any] = self.graph.fold(partial(_in_domain, found), operands)
        full = {n: _stretched(made[n], self.shape) for n in self.wanted}
        end = 0 if params["reverse"] else params["length"] - 1
        last = {n: cut_along(full[n], 0, end, end + 1) for n in self.wanted if n < rows - consts}
        return {n: reshape(last[n], shape=self.shape[1:]) if n in last else full[n] for n in self.wanted}

    def _body(self, row: Node) -> Body:
        """Return the step of one element: what is carried on and `row`, of what is carried and all else."""
        consts, rows = self.ends
        count = rows - consts
        step = Graph(self.graph.inputs, (*self.next, row))

        def one(*given: Tensor) -> Any:
            return list(step.fold(_of_one, (*given[count:rows], *given[:count], *given[rows:])))

        order = (*self.carried, *self.graph.inputs[:consts], *self.graph.inputs[rows:])
        return Body(graph_of(one, *(Spec((), n.spec.dtype, n.spec.device) for n in order)))


def _reshaped(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x if x.shape == shape else reshape(x, shape=shape)


def _stretched(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x if x.shape == shape else broadcast_to(x, shape=shape)


def _of_one(node: Node, *values: Tensor) -> Tensor:
    if node.op is CONST:
        return wrap(node.params["value"].reshape(()), node.spec.device)
    return apply(node.op, *values, **node.params)


def _in_domain(found: dict[Node, Tensor], node: Node, *values: Tensor | None) -> Tensor | None:
    """Return the value of `node` for all steps; None where it does not follow from what is found."""
    if node in found:
        return found[node]
    if node.op is CONST:
        return _of_one(node)
    return None if any(v is None for v in values) else apply(node.op, *values, **node.params)
