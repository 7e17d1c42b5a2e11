"""The cut between forward and backward program: values to save, and values to recompute.

What is cheap to compute again is not kept. The values to keep are a minimum cut: of all sets of values from
which element-wise ops and moves lead to everything that the gradient reads, the one of the fewest bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence

from ..ir import INPUT, Graph, Kind, Node
from ..ir.scalars import plain
from ..ops.creation import zeros_like
from ..tensor import Tensor
from ..tensor.apply import apply
from ..tensor.tracing import copy_node, rebuild

_CHEAP = frozenset({Kind.LEAF, Kind.ELEMENTWISE, Kind.LAYOUT})
#: So many cheap ops together are computed again for one value. In a residual network the cheap ops of all
#: blocks hang together: without a bound the last value would be computed from those of every block.
MOST = 32

_UNBOUNDED = 1 << 62
_SOURCE, _SINK = 0, 1


def depending_on(nodes: Iterable[Node], roots: Collection[Node]) -> set[Node]:
    """Return those of `nodes`, each after what it reads, that read one of `roots`.

    With the roots themselves.
    """
    found = set(roots)
    for node in nodes:
        if not found.isdisjoint(node.inputs):
            found.add(node)
    return found


def values_to_keep(gradients: Sequence[Node], arriving: Sequence[Node], held: Collection[Node]) -> list[Node]:
    """Return the values of the forward pass from which the backward pass computes everything that it reads.

    Parameters
    ----------
    gradients : sequence of Node
        What the backward pass computes.
    arriving : sequence of Node
        What it is given: gradients of outputs.
    held : collection of Node
        Values that stay alive anyway: keeping them is free.

    Returns
    -------
    list of Node
        Inputs, results of reductions, products and the like, and where it takes fewer bytes what was made
        of these element by element.

    Notes
    -----
    A value is a pair of vertices with an edge of as many bytes between them. An infinite edge leads from the
    source to what is not to be computed again, another from what the backward pass reads to the sink. Of all
    minimum cuts that one nearest the sink is taken, which leaves the least to compute again. A value that
    more than `MOST` cheap ops lead to is not computed again.
    """
    graph = Graph(tuple(arriving), tuple(gradients))
    later = depending_on(graph.nodes, arriving)
    ends = [i for n in graph.nodes if n in later for i in n.inputs]
    # in an order that is the same in each process and each call: what is kept is compared with what was
    wanted = dict.fromkeys(n for n in (*ends, *gradients) if n not in later)
    begins = _beginnings(Graph((), tuple(wanted)))
    network = Network()
    vertex: dict[Node, int] = {}
    stack = list(wanted)
    while stack:
        node = stack.pop()
        if node in vertex:
            continue
        enter, leave = network.vertex(), network.vertex()
        vertex[node] = enter
        network.edge(enter, leave, 1 if node in held else max(1, plain(node.spec.nbytes)))
        if node in wanted:
            network.edge(leave, _SINK, _UNBOUNDED)
        if node in begins:
            network.edge(_SOURCE, enter, _UNBOUNDED)
        else:
            stack += node.inputs
    for node, enter in vertex.items():
        if node not in begins:
            for i in set(node.inputs):
                network.edge(vertex[i] + 1, enter, _UNBOUNDED)
    behind = network.behind_the_cut()
    return [node for node, enter in vertex.items() if enter not in behind and enter + 1 in behind]


def _beginnings(graph: Graph) -> set[Node]:
    """Return the nodes that are not recomputed: inputs, expensive ops, results of too many cheap ones."""
    begins: set[Node] = set()
    again: dict[Node, frozenset[Node]] = {}  # for each node the cheap ops that lead to it, with its own
    for node in graph.nodes:
        ops = frozenset((node,) if node.inputs else ()).union(*(again[i] for i in node.inputs))
        if node.op is INPUT or node.op.kind not in _CHEAP or len(ops) > MOST:
            begins.add(node)
            ops = frozenset()
        again[node] = ops
    return begins


class Network:
    """A flow network, and its maximum flow by the method of Dinic (1970)."""

    def __init__(self) -> None:
        self._edges: list[list[int]] = [[], []]  # of each vertex; edge ``e ^ 1`` is the way back of ``e``
        self._heads: list[int] = []
        self._capacity: list[int] = []

    def vertex(self) -> int:
        """Return a new vertex."""
        self._edges.append([])
        return len(self._edges) - 1

    def edge(self, tail: int, head: int, capacity: int) -> None:
        """Add an edge from `tail` to `head`."""
        for start, end, room in ((tail, head, capacity), (head, tail, 0)):
            self._edges[start].append(len(self._heads))
            self._heads.append(end)
            self._capacity.append(room)

    def behind_the_cut(self) -> set[int]:
        """Return the vertices on the sink's side of the minimum cut that is nearest the sink."""
        while (levels := self._levels())[_SINK] >= 0:
            untried = [list(edges) for edges in self._edges]
            while self._push(levels, untried):
                pass
        behind, stack = {_SINK}, [_SINK]
        while stack:
            for edge in self._edges[stack.pop()]:
                tail = self._heads[edge]
                if self._capacity[edge ^ 1] and tail not in behind:
                    behind.add(tail)
                    stack.append(tail)
        return behind

    def _levels(self) -> list[int]:
        """List the distance of each vertex from the source over edges with capacity; -1: unreachable."""
        levels = [-1] * len(self._edges)
        levels[_SOURCE] = 0
        queue = deque([_SOURCE])
        while queue:
            vertex = queue.popleft()
            for edge in self._edges[vertex]:
                head = self._heads[edge]
                if self._capacity[edge] and levels[head] < 0:
                    levels[head] = levels[vertex] + 1
                    queue.append(head)
        return levels

    def _push(self, levels: list[int], untried: list[list[int]]) -> bool:
        """Send what fits along one shortest path; False when none is left."""
        path: list[int] = []
        vertex = _SOURCE
        while vertex != _SINK:
            while untried[vertex]:
                edge = untried[vertex][-1]
                head = self._heads[edge]
                if self._capacity[edge] and levels[head] == levels[vertex] + 1:
                    break
                untried[vertex].pop()
            else:
                if not path:
                    return False
                vertex = self._heads[path.pop() ^ 1]
                untried[vertex].pop()
                continue
            path.append(edge)
            vertex = head
        room = min(self._capacity[edge] for edge in path)
        for edge in path:
            self._capacity[edge] -= room
            self._capacity[edge ^ 1] += room
        return True


def without(
    graph: Graph, arrived: Collection[int], missing: Collection[int]
) -> tuple[Graph, tuple[int, ...]]:
    """Return the part of a backward graph that runs when some gradients do not arrive.

    What only they lead to is dropped, as a tape would never come there; where it meets another gradient that
    one is the sum, and any other op reads zeros.

    Parameters
    ----------
    graph : Graph
    arrived, missing : collection of int
        The indices of inputs that are gradients of outputs.

    Returns
    -------
    graph : Graph
        Over the same inputs.
    outputs : tuple of int
        The indices of those outputs of the old graph that are left.
    """
    gone = [graph.inputs[index] for index in missing]
    alive = depending_on(graph.nodes, [graph.inputs[index] for index in arrived])
    dead = depending_on(graph.nodes, gone) - alive

    def rule(node: Node, *values: Tensor) -> Tensor:
        operands = [i for i in node.inputs if i not in dead]
        if node in dead or len(operands) == len(values):
            return copy_node(node, *values)
        if node.op.name == "add" and len(operands) == 1 and operands[0].spec == node.spec:
            return values[node.inputs.index(operands[0])]
        filled = [zeros_like(i.spec) if i in dead else v for i, v in zip(node.inputs, values, strict=True)]
        return apply(node.op, *filled, **node.params)

    left = tuple(index for index, output in enumerate(graph.outputs) if output not in dead)
    folded = rebuild(lambda *xs: _picked(graph.fold(rule, xs), left), graph.inputs)
    return folded, left


def _picked(values: Sequence[Tensor], indices: Iterable[int]) -> list[Tensor]:
    return [values[index] for index in indices]
