"""A fusion group from outside: its domain, the axes it folds, and the key its kernel is kept under."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import GraphError
from ..ir import CONST, Graph, Kind, Node, digest, dtypes, exact_text
from ..ir.sizes import broadcast, fixed, same_shape
from ..ops.look_up import alongs, reach, tables_of
from ..ops.primitives import IOTA
from ..ops.reduce import EXTENT

Shape = tuple[int, ...]
Span = tuple[bool, ...]


def values(graph: Graph) -> tuple[Node, ...]:
    """Return every value of `graph`: the inputs, then the nodes.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> graph = graph_of(lambda x: F.exp(x) * x, Spec((2,), np.dtype("float32")))
    >>> values(graph)
    (<input: float32[2]>, <exp: float32[2]>, <mul: float32[2]>)
    """
    return tuple(dict.fromkeys((*graph.inputs, *graph.nodes)))


def operands(node: Node) -> tuple[Node, ...]:
    """Return the inputs of `node` that it reads at its own place: an ``extent`` reads none, and no table is.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> from mgb.ops.look_up import look_up
    >>> from mgb.tensor.tracing import graph_of
    >>> words, weights = Spec((5, 1), np.dtype("int32")), Spec((50, 8), np.dtype("float32"))
    >>> graph = graph_of(lambda i, w: look_up(w, i, along=(None, -1)), words, weights)
    >>> operands(graph.nodes[0]) == (graph.inputs[0],)
    True
    """
    if node.op is EXTENT:
        return ()
    return node.inputs[len(tables_of(node)) :] if node.op.kind is Kind.GATHER else node.inputs


def tables(graph: Graph) -> frozenset[Node]:
    """Return the inputs of a group that are looked up, and nothing else: they lie outside of its domain.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> from mgb.ops.look_up import look_up
    >>> from mgb.tensor.tracing import graph_of
    >>> words, weights = Spec((5, 1), np.dtype("int32")), Spec((50, 8), np.dtype("float32"))
    >>> graph = graph_of(lambda i, w: look_up(w, i, along=(None, -1)) * 2, words, weights)
    >>> tables(graph) == {graph.inputs[1]}
    True
    """
    found = {table for n in graph.nodes if n.op.kind is Kind.GATHER for table in tables_of(n)}
    if not found:
        return frozenset()
    return frozenset(found.difference(graph.outputs, *map(operands, graph.nodes)))


def sinks(graph: Graph) -> frozenset[Node]:
    """Return the values of a group that lie outside of its domain: what scatters fold elements into.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> from mgb.ops.scatter_folds import scatter_sum
    >>> from mgb.tensor.tracing import graph_of
    >>> keys, values = Spec((50,), np.dtype("int32")), Spec((50,), np.dtype("float32"))
    >>> graph = graph_of(lambda k, v: scatter_sum(v * v, k, along=(None,), shape=(8,)), keys, values)
    >>> sinks(graph) == set(graph.outputs)
    True
    """
    return frozenset(n for n in graph.nodes if n.op.kind is Kind.SCATTER)


def reached(node: Node, side: int = 0) -> Shape:
    """Return the shape of a table, by the axes of the domain along which a loop goes through it.

    Those of a look-up or a `dot` are its first operands, of which `side` says which; that of a scatter is its
    result.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> from mgb.ops.look_up import look_up
    >>> from mgb.tensor.tracing import graph_of
    >>> words, weights = Spec((5, 1), np.dtype("int32")), Spec((50, 8), np.dtype("float32"))
    >>> reached(graph_of(lambda i, w: look_up(w, i, along=(None, -1)), words, weights).nodes[0])
    (8,)
    """
    table = node if node.op.kind is Kind.SCATTER else node.inputs[side]
    return reach(table.spec.shape, alongs(node)[side])


def domain(graph: Graph) -> Shape:
    """Return the shape that every value of a group broadcasts to, but for tables and sinks.

    Raises
    ------
    GraphError
        The shapes do not broadcast: this is not a group.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> graph = graph_of(lambda x, y: x + y, *(Spec(s, np.dtype("float32")) for s in ((4, 1), (8,))))
    >>> domain(graph)
    (4, 8)
    """
    apart = tables(graph) | sinks(graph)
    shape = broadcast([v.spec.shape for v in values(graph) if v not in apart])
    if shape is None:
        raise GraphError(f"the values of a group do not broadcast to one domain\n{graph}")
    return shape


def spans(graph: Graph) -> Mapping[Node, Span]:
    """Map each value to the domain axes where its length is not 1: it varies along these.

    Tables and sinks have none.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> graph = graph_of(lambda x, y: x + y, *(Spec(s, np.dtype("float32")) for s in ((4, 1), (8,))))
    >>> [spans(graph)[v] for v in (*graph.inputs, *graph.outputs)]
    [(True, False), (False, True), (True, True)]
    """
    ndim, apart = len(domain(graph)), tables(graph) | sinks(graph)
    shapes = {v: () if v in apart else v.spec.shape for v in values(graph)}
    return {v: varying(shape, ndim) for v, shape in shapes.items()}


def varying(shape: Shape, ndim: int) -> Span:
    """Return the axes of `ndim` along which an array of `shape` varies.

    Examples
    --------
    >>> varying((4, 1), 3)
    (False, True, False)
    """
    return tuple(d != 1 for d in aligned(shape, ndim))


def aligned(shape: Shape, ndim: int) -> Shape:
    """Return `shape` with as many leading axes of length 1 as make `ndim` axes.

    Examples
    --------
    >>> aligned((4, 8), 3)
    (1, 4, 8)
    """
    return (1,) * (ndim - len(shape)) + shape


def reduced_axes(graph: Graph) -> tuple[int, ...]:
    """Return the domain axes that the group folds, scans or scatters, sorted; empty when there are none.

    A reduction along axes where its input has length 1 folds nothing and counts for nothing.

    Raises
    ------
    GraphError
        Two reductions fold different axes, or one folds an axis its input was broadcast along.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> graph = graph_of(lambda x: F.softmax(x, axis=1), Spec((4, 8), np.dtype("float32")))
    >>> reduced_axes(graph)
    (1,)
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
    if node.op.kind not in (Kind.REDUCE, Kind.SCAN, Kind.SCATTER):
        return ()
    source = node.inputs[:1] if node.op.kind is Kind.REDUCE else node.inputs
    axes = _axes_of(node, ndim)
    varies = {a: any(span[x][a] for x in source) for a in axes}
    long = tuple(a for a in axes if varies[a])
    broadcast = tuple(a for a in axes if not varies[a] and any(s[a] for s in span.values()))
    if long and broadcast:
        raise GraphError(f"{node} folds a value that is broadcast along axes {broadcast} of the domain")
    return long


def _axes_of(node: Node, ndim: int) -> tuple[int, ...]:
    """Return the axes of the domain that `node` folds."""
    if node.op.kind is Kind.SCATTER:
        kept = {ndim + at for at in node.params["along"] if at is not None}
        return tuple(a for a in range(ndim) if a not in kept)
    given, lead = node.params["axis"], ndim - node.spec.ndim
    return tuple(a + lead for a in (given if node.op.kind is Kind.REDUCE else (given,)))


def structure_key(graph: Graph) -> str:
    """Return a key that is equal for graphs which one kernel of `Specialize.NDIM` serves.

    It holds the ops, their parameters, constants by content, dtypes, the wiring, for each value which axes
    have length 1, and which scatters have results of one shape. Sizes are not in it, except that of an axis
    which no input, output or constant has: a kernel could not learn it.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> graphs = [graph_of(F.exp, Spec(s, np.dtype("float32"))) for s in ((4, 8), (3, 5), (3, 1))]
    >>> one, other, row = map(structure_key, graphs)
    >>> one == other, one == row
    (True, False)
    """
    lines = [f"{len(graph.inputs)} {_untold(graph)} {_alike(graph)}"]
    names = {v: i for i, v in enumerate(values(graph))}
    for v, name in names.items():
        pattern = "".join("1" if d == 1 else "n" for d in v.spec.shape)
        given = {} if v.op is IOTA else fixed({k: p for k, p in v.params.items() if not _is_length(v, k)})
        params = [f"{k}={exact_text(p)}" for k, p in sorted(given.items())]
        read = [] if name < len(graph.inputs) else [str(names[i]) for i in v.inputs]
        lines.append(f"{v.op.name} {dtypes.name_of(v.spec.dtype)} [{pattern}] {' '.join((*read, *params))}")
    lines.append(" ".join(str(names[o]) for o in graph.outputs))
    return digest("\n".join(lines).encode())


def _alike(graph: Graph) -> list[int]:
    """Return for each scatter which one is the first with a result of its shape: they may share places."""
    shapes = [n.spec.shape for n in graph.nodes if n.op.kind is Kind.SCATTER]
    return [next(i for i, other in enumerate(shapes) if same_shape(other, own)) for own in shapes]


def _is_length(node: Node, parameter: str) -> bool:
    """Return whether the shapes of arrays tell a parameter to kernels."""
    return node.op.kind is Kind.SCATTER and parameter == "shape"


def _untold(graph: Graph) -> list[tuple[int, int]]:
    """Return (axis, length) of the domain axes along which no array varies that a kernel is given."""
    if any(n.op.kind is Kind.CONTRACT for n in graph.nodes):
        return [] if _is_around_product(graph) else _every_size(graph)
    try:
        span, shape = spans(graph), domain(graph)
    except GraphError:  # no group of one domain
        return _every_size(graph)
    told = [span[v] for v in (*graph.inputs, *graph.outputs, *(n for n in graph.nodes if n.op is CONST))]
    gathers = [(n, k) for n in graph.nodes if n.op.kind is Kind.GATHER for k in range(len(tables_of(n)))]
    told += [varying(reached(n, k), len(shape)) for n, k in gathers]
    return [(a, fixed(d)) for a, d in enumerate(shape) if d != 1 and not any(s[a] for s in told)]


def _every_size(graph: Graph) -> list[tuple[int, int]]:
    return list(enumerate(fixed(d) for v in values(graph) for d in v.spec.shape))


def _is_around_product(graph: Graph) -> bool:
    """Return whether shapes follow from those of arrays by broadcasting and by one product of matrices."""
    kinds = [n.op.kind for n in graph.nodes if n.op is not CONST]  # an iota has a shape of its own
    return kinds.count(Kind.CONTRACT) == 1 and set(kinds) <= {Kind.CONTRACT, Kind.ELEMENTWISE}
