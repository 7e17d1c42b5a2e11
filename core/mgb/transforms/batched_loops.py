"""`vmap` of the ops that hold a graph: their graphs are folded by the same rules.

Of a scan, and of a loop, all that is carried has a batch. Elements for which a loop has ended keep their
values while it goes on for others; where elements choose different branches, all of these run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir import Body, Graph, Node, Spec, input_node
from ..loops import COND, RESULT, SCAN, WHILE, result
from ..ops.layout import reshape, transpose
from ..ops.primitives import where
from ..ops.reduce import reduce_max
from ..tensor import Tensor
from ..tensor.apply import apply, literal
from ..tensor.tracing import rebuild
from .batching import RULES, Value, aligned, batch, full, moved

#: From the values of a graph's inputs to those of its outputs.
Results = Callable[[Sequence[Value]], Sequence[Value]]


def _of(graph: Graph, size: int) -> Results:
    """Return the results of `graph` for batches."""
    return lambda values: graph.fold(lambda node, *xs: batch(node, size, xs), values)


def _noted(nodes: Sequence[Node], values: Sequence[Value], size: int, results: Results) -> Body:
    """Return the graph of `results`, all of which have a batch, over inputs like `values`."""

    def element(node: Node, value: Value) -> Node:
        spec = node.spec
        return input_node(Spec((size, *spec.shape), spec.dtype, spec.device) if value.batched else spec)

    def run(*tensors: Tensor) -> list[Tensor]:
        given = [Value(t, v.batched) for t, v in zip(tensors, values, strict=True)]
        return [full(value, size) for value in results(given)]

    return Body(rebuild(run, list(map(element, nodes, values))))


def _with_batch(values: Sequence[Value], size: int) -> list[Value]:
    return [Value(full(v, size), True) for v in values]


def _scan(node: Node, size: int, values: Sequence[Value]) -> Tensor:
    params = dict(node.params)
    graph, first, end = params["body"].graph, params["consts"], params["consts"] + params["carries"]
    operands = [*values[:first], *_with_batch(values[first:end], size), *values[end:]]
    params["body"] = _noted(graph.inputs, operands, size, _of(graph, size))
    rows = [moved(v.tensor, 0, 1) if v.batched else v.tensor for v in operands[end:]]
    return apply(SCAN, *(v.tensor for v in operands[:end]), *rows, **params)


def _while(node: Node, size: int, values: Sequence[Value]) -> Tensor:
    params = dict(node.params)
    consts, nodes = params["consts"], params["body"].graph.inputs
    test, step = (_of(params[name].graph, size) for name in ("test", "body"))
    operands = [*values[:consts], *_with_batch(values[consts:], size)]

    def goes_on(given: Sequence[Value]) -> list[Value]:
        (value,) = test(given)
        if not value.batched:
            return [value]
        return [Value(reshape(reduce_max(value.tensor, axis=(0,)), shape=()), False)]

    def body(given: Sequence[Value]) -> list[Value]:
        (mask,) = test(given)
        new = _with_batch(step(given), size)
        if not mask.batched:
            return new
        return [_chosen(mask, a, b) for a, b in zip(new, given[consts:], strict=True)]

    def run(*tensors: Tensor) -> list[Tensor]:
        given = [Value(t, v.batched) for t, v in zip(tensors, operands, strict=True)]
        return [value.tensor for value in goes_on(given)]

    params["body"] = _noted(nodes, operands, size, body)
    params["test"] = Body(rebuild(run, [input_node(n.spec) for n in params["body"].graph.inputs]))
    return apply(WHILE, *(v.tensor for v in operands), **params)


def _chosen(mask: Value, yes: Value, no: Value) -> Value:
    return Value(where(aligned(mask, yes.tensor.ndim - 1), yes.tensor, no.tensor), True)


def _cond(node: Node, size: int, values: Sequence[Value]) -> Tensor:
    index, *operands = values
    branches, nodes = node.params["branches"], node.inputs
    if not index.batched:
        bodies = [_noted(nodes[1:], operands, size, _of(b.graph, size)) for b in branches]
        return apply(COND, index.tensor, *(v.tensor for v in operands), branches=tuple(bodies))

    def every(given: Sequence[Value]) -> list[Value]:
        found = [_with_batch(_of(b.graph, size)(given[1:]), size) for b in branches]
        outs = found[0]
        for k, others in enumerate(found[1:], 1):
            mask = Value(given[0].tensor >= k, True)
            outs = [_chosen(mask, yes, no) for yes, no in zip(others, outs, strict=True)]
        return outs

    only = _noted(nodes, values, size, every)
    return apply(COND, literal(0), *(v.tensor for v in values), branches=(only,))


def _result(node: Node, size: int, values: Sequence[Value]) -> Tensor:
    """Return a result of one of the above; the rows of a scan have their batch behind the first axis."""
    (loop,), params = node.inputs, node.params
    index, shape = params["index"], params["shape"]
    is_row = loop.op is SCAN and index >= loop.params["carries"]
    shape = (shape[0], size, *shape[1:]) if is_row else (size, *shape)
    out = result(values[0].tensor, index, Spec(shape, params["dtype"]))
    return transpose(out, axes=(1, 0, *range(2, len(shape)))) if is_row else out


RULES |= {SCAN.name: _scan, WHILE.name: _while, COND.name: _cond, RESULT.name: _result}
