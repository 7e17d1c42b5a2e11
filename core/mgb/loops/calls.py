"""The loops over lists of Tensors; `mgb.jit` has them over any nesting."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir import Graph, Spec
from ..ops.primitives import cast
from ..tensor import Tensor
from ..tensor.apply import apply
from .body import note, together
from .bundle import result
from .ops import COND, SCAN, WHILE, stacked

Tensors = Sequence[Tensor]


def scan(
    function: Callable[[tuple[Tensor, ...], tuple[Tensor, ...]], tuple[Tensors, Tensors]],
    init: Tensors,
    xs: Tensors,
    length: int,
    reverse: bool = False,
) -> tuple[list[Tensor], list[Tensor]]:
    """Carry values from step to step, and stack what each step gives.

    Parameters
    ----------
    function : callable
        From what is carried and a row of each of `xs` to what is carried on, of the same shapes, and rows.
    init : sequence of Tensor
        They are cast to the dtypes that a step gives.
    xs : sequence of Tensor
        Of `length` rows each.
    length : int
    reverse : bool
        From the last row to the first; the rows of the result stand where those of `xs` do.

    Returns
    -------
    carry, ys : list of Tensor
    """
    count = len(init)

    def step(*values: Tensor) -> Tensors:
        carry, row = function(values[:count], values[count:])
        return (*carry, *row)

    rows = [Spec(x.shape[1:], x.dtype, x._device) for x in xs]
    while True:
        graph, outside = note("scan", step, [*(x.spec for x in init), *rows])
        types = [node.spec.dtype for node in graph.outputs[:count]]
        if types == [t.dtype for t in init]:
            return scan_graph(graph, outside, init, xs, length, reverse)
        init = [cast(t, dtype=dtype) for t, dtype in zip(init, types, strict=True)]


def scan_graph(
    graph: Graph, outside: Tensors, init: Tensors, xs: Tensors, length: int, reverse: bool
) -> tuple[list[Tensor], list[Tensor]]:
    """Build `scan` of a noted function."""
    count = len(init)
    (body,), outside = together([graph], [outside], count + len(xs))
    bundle = apply(SCAN, *outside, *init, *xs, body=body, consts=len(outside), carries=count, length=length,
                   reverse=reverse)  # fmt: skip
    specs = [n.spec for n in graph.outputs[:count]] + [stacked(n.spec, length) for n in graph.outputs[count:]]
    outs = [result(bundle, n, spec) for n, spec in enumerate(specs)]
    return outs[:count], outs[count:]


def while_loop(test: Graph, body: Graph, outside: Sequence[Tensors], init: Tensors) -> list[Tensor]:
    """Repeat a noted function while another one, noted too, gives True of what is carried."""
    (test_body, step), found = together([test, body], outside, len(init))
    bundle = apply(WHILE, *found, *init, test=test_body, body=step, consts=len(found))
    return [result(bundle, n, node.spec) for n, node in enumerate(body.outputs)]


def cond(
    index: Tensor, graphs: Sequence[Graph], outside: Sequence[Tensors], operands: Tensors
) -> list[Tensor]:
    """Apply one of several recorded graphs to `operands`; their results have the same types."""
    bodies, found = together(graphs, outside, len(operands))
    bundle = apply(COND, index, *found, *operands, branches=tuple(bodies))
    return [result(bundle, n, node.spec) for n, node in enumerate(graphs[0].outputs)]
