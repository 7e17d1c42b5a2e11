"""EAGER: the fold over NumPy behind the interface of a backend. Slow, clear, the definition of right."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..ir import CONST, Graph, Kind, Node
from ..ir.dtypes import BY_NAME
from ..ir.sizes import At, is_sized, plain
from ..ops.declare import OPS
from ..runtime import device as devices
from ..tensor.apply import evaluate
from .backend import Backend, Kernel, Scope, Specialize, Strided, Traits

_TRAITS = Traits(
    vocabulary=frozenset(),
    kinds=frozenset(Kind),
    dtypes=frozenset(BY_NAME),
    devices=frozenset({"cpu", "gpu"}),
    scope=Scope.GRAPH,
    specialize=Specialize.SIZES,
    strided=Strided.ANY,
    min_ops=1,
    max_inputs=sys.maxsize,
    priority=-1000,
    api_version=1,
)


class EagerBackend(Backend):
    """Runs each node with its own eager rule; compiles nothing."""

    name = "eager"

    @property
    def traits(self) -> Traits:  # type: ignore[override]
        """Everything, and so every op that is declared by now."""
        return replace(_TRAITS, vocabulary=frozenset(OPS))

    def compile(self, graph: Graph) -> Kernel:
        """Return the fold of `mgb.tensor.apply.evaluate` over `graph`."""
        given = {node: dict(node.params) for node in graph.nodes}
        followed = {node: params for node, params in given.items() if is_sized(params)}

        def at(lengths: At) -> Callable[..., None]:
            return _fold(graph, given | {node: lengths(params) for node, params in followed.items()})

        return Kernel(at(plain), source=str(graph), atomic=True, at=at)


def _fold(graph: Graph, params: Mapping[Node, dict[str, Any]]) -> Callable[..., None]:
    """Return a function that runs a kernel whose nodes have these parameters."""

    def value(node: Node, *arrays: Any) -> Any:
        if node.op is CONST:
            return node.params["value"]  # NumPy's; the kernel serves this graph on every device
        return evaluate(node.op, arrays, params[node])

    def run(*arrays: Any, out: tuple[Any, ...]) -> None:
        values = graph.fold(value, arrays)
        if len(out) > 1:  # a value may be a view of an input whose memory another output takes over
            values = tuple(v.copy() for v in values)
        for target, made in zip(out, values, strict=True):
            target[...] = made if type(made) is type(target) else devices.place(made, devices.where(target))

    return run
