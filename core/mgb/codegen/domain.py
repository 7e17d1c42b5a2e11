"""A fusion group from outside: its domain, the axes it folds, and the key its kernel is kept under."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import GraphError
from ..ir import CONST, Graph, Kind, Node, digest, exact_text
from ..ops.primitives import IOTA
from ..sizes import broadcast, fixed

Shape = tuple[int, ...]
Span = tuple[bool, ...]


def values(graph: Graph) -> tuple[Node, ...]:
    """Every value of `graph`: the inputs, then the nodes."""
    return tuple(dict.fromkeys((*graph.inputs, *graph.nodes)))


def domain(graph: Graph) -> Shape:
    """The shape that every value of a group broadcasts to.

    Raises
    ------
    GraphError
        The shapes do not broadcast: this is no group.
    """
    shape = broadcast([v.spec.shape for v in values(graph)])
    if shape is None:
        raise GraphError(f"the values of a group do not broadcast to one domain\n{graph}")
    return shape


def spans(graph: Graph) -> Mapping[Node, Span]:
    """For each value, the domain axes along which it varies: those where its length is not 1."""
    ndim = len(domain(graph))
    return {v: tuple(d != 1 for d in aligned(v.spec.shape, ndim)) for v in values(graph)}


def aligned(shape: Shape, ndim: int) -> Shape:
    """`shape` with as many leading axes of length 1 as make `ndim` axes."""
    return (1,) * (ndim - len(shape)) + shape


def reduced_axes(graph: Graph) -> tuple[int, ...]:
    """The domain axes that the group folds, sorted; empty when nothing is folded.

    A reduction along axes where its input has length 1 folds nothing and counts for nothing.

    Raises
    ------
    GraphError
        Two reductions fold different axes, or one folds an axis its input was broadcast along.
    """
    span = spans(graph)
    ndim = len(domain(graph))
    found: dict[tuple[int, ...], Node] = {}
    for node in graph.nodes:
        if axes := _folds(node, span, ndim):
            found.setdefault(axes, node)
    if len(found) > 1:
        nodes = " and ".join(map(repr, found.values()))
        raise GraphError(f"the reductions of one group fold different axes: {nodes}\n{graph}")
    return next(iter(found), ())


def _folds(node: Node, span: Mapping[Node, Span], ndim: int) -> tuple[int, ...]:
    if node.op.kind is not Kind.REDUCE:
        return ()
    source = node.inputs[0]
    lead = ndim - source.spec.ndim
    axes = tuple(a + lead for a in node.params["axis"])
    varying = tuple(a for a in axes if span[source][a])
    broadcast = tuple(a for a in axes if not span[source][a] and any(s[a] for s in span.values()))
    if varying and broadcast:
        raise GraphError(f"{node} folds a value that is broadcast along axes {broadcast} of the domain")
    return varying


def structure_key(graph: Graph) -> str:
    """Equal for graphs that one kernel of `Specialize.NDIM` serves.

    It holds the ops, their parameters, constants by content, dtypes, the wiring, and for each value which
    axes have length 1. Sizes are not in it, except that of an axis which no input, output or constant has: a
    kernel could not learn it.
    """
    lines = [f"{len(graph.inputs)} {_untold(graph)}"]
    names = {v: i for i, v in enumerate(values(graph))}
    for v, name in names.items():
        pattern = "".join("1" if d == 1 else "n" for d in v.spec.shape)
        given = {} if v.op is IOTA else fixed(dict(v.params))
        params = [f"{k}={exact_text(p)}" for k, p in sorted(given.items())]
        read = [] if name < len(graph.inputs) else [str(names[i]) for i in v.inputs]
        lines.append(f"{v.op.name} {v.spec.dtype.name} [{pattern}] {' '.join((*read, *params))}")
    lines.append(" ".join(str(names[o]) for o in graph.outputs))
    return digest("\n".join(lines).encode())


def _untold(graph: Graph) -> list[tuple[int, int]]:
    """(axis, length) of the domain axes along which no array varies that a kernel is given."""
    if any(n.op.kind is Kind.CONTRACT for n in graph.nodes):
        return [] if _is_around_product(graph) else _every_size(graph)
    try:
        span, shape = spans(graph), domain(graph)
    except GraphError:  # no group of one domain
        return _every_size(graph)
    told = [span[v] for v in (*graph.inputs, *graph.outputs, *(n for n in graph.nodes if n.op is CONST))]
    return [(a, fixed(d)) for a, d in enumerate(shape) if d != 1 and not any(s[a] for s in told)]


def _every_size(graph: Graph) -> list[tuple[int, int]]:
    return list(enumerate(fixed(d) for v in values(graph) for d in v.spec.shape))


def _is_around_product(graph: Graph) -> bool:
    """Are all shapes made of those of arrays, by broadcasting and by one product of matrices?"""
    kinds = [n.op.kind for n in graph.nodes if n.op is not CONST]  # an iota has a shape of its own
    return kinds.count(Kind.CONTRACT) == 1 and set(kinds) <= {Kind.CONTRACT, Kind.ELEMENTWISE}
