"""Cheap values are computed again by each op that reads them, instead of being stored for all.

A float16 input that is cast to float32 for two kernels would be written once in 32 bits and read twice; cast
in each kernel it is read twice in 16 bits. If the readers come into one kernel after all, lowering merges the
copies.
"""

from __future__ import annotations

from ..backends import Traits
from ..ir import Graph, Kind, Node
from ..ir.sizes import about
from ..passes.rewrite import with_inputs
from .legality import DEFAULT, FusionConfig, accepts
from .step import is_copied


def duplicate(graph: Graph, traits: Traits, config: FusionConfig = DEFAULT) -> Graph:
    """Give each reader of a cheap value a copy of the op that computes it, where that saves memory traffic.

    A value is cheap if one cheap op computes it of one input of the graph, beside constants.
    The input is there anyway; reading it must cost no more than reading the value: it is not larger, or the
    reader reads it too. Values that are outputs, or have a reader that cannot be fused, are stored anyway.
    """
    given = frozenset(graph.inputs)
    refused = {n: accepts(traits, n, config) is not None for n in graph.nodes}

    def cheap(node: Node) -> bool:
        operands = {i for i in node.inputs if not is_copied(i)}
        readers = graph.readers[node]
        return (
            node.op.kind is Kind.ELEMENTWISE
            and node.op.cheap
            and len(operands) == 1
            and operands <= given
            and len(readers) > 1
            and not any(refused[n] or n.op.kind is Kind.GATHER for n in (node, *readers))
        )

    again = {n: _source(n) for n in graph.nodes if cheap(n)}
    for output in graph.outputs:
        again.pop(output, None)

    def visit(node: Node, *inputs: Node) -> Node:
        fresh = []
        for old, new in zip(node.inputs, inputs, strict=True):
            source = again.get(old)
            saves = source is not None and (
                about(source.spec.nbytes - old.spec.nbytes) <= 0 or source in node.inputs
            )
            fresh.append(Node(new.op, new.inputs, new.params, new.spec, new.source) if saves else new)
        return with_inputs(node, tuple(fresh))

    return Graph(graph.inputs, graph.fold(visit, graph.inputs)) if again else graph


def _source(node: Node) -> Node:
    return next(i for i in node.inputs if not is_copied(i))
