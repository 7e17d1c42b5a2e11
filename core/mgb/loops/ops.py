"""The ops that hold a Graph: `scan`, `while_loop`, `cond`; each gives a bundle of its results.

Operands stand in this order: what the graphs take from outside, then what is carried, then what is scanned.
The eager rules run the graphs op by op; `executor.loops` runs them compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from ..errors import LoopError
from ..ir import CONST, Body, Graph, Kind, Node, Op, Spec
from ..ops.declare import register
from ..runtime.device import array_module, is_gpu, on, place, where
from ..tensor.apply import evaluate
from .bundle import BUNDLE, as_they_are, bundled
from .gradients import cond_taped, scan_taped, while_taped


def run_graph(graph: Graph, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Return the outputs of `graph`, op by op."""

    def rule(node: Node, *values: Any) -> Any:
        if node.op is CONST:
            return node.params["value"]
        return evaluate(node.op, values, dict(node.params), node.spec.device)

    return graph.fold(rule, arrays)


def _placed(graph: Graph, values: Sequence[Any]) -> list[Any]:
    """Put constants among the results, which are NumPy's, on the devices of the outputs."""
    return [place(v, node.spec.device) for v, node in zip(values, graph.outputs)]


def check_operands(name: str, body: Body, specs: Sequence[Spec]) -> None:
    """Raise a `LoopError` where a graph does not take operands of `specs`."""
    wanted = [(n.spec.shape, n.spec.dtype) for n in body.graph.inputs]
    given = [(s.shape, s.dtype) for s in specs]
    if wanted != given:
        raise LoopError(f"{name}: the graph of its body expects operands {wanted}, got {given}")


# scan


def stacked(spec: Spec, length: int) -> Spec:
    """Return the type of `length` values of `spec` along a new first axis."""
    return Spec((length, *spec.shape), spec.dtype, spec.device)


def _scan_infer(*specs: Spec, body: Body, consts: int, carries: int, length: int, reverse: bool) -> Spec:
    xs = specs[consts + carries :]
    if wrong := [s.shape for s in xs if not s.shape or s.shape[0] != length]:
        raise LoopError(f"scan: xs must have length {length} along the first axis, got shape {wrong[0]}")
    parts = [Spec(s.shape[1:], s.dtype) for s in xs]
    check_operands("scan", body, (*specs[: consts + carries], *parts))
    return BUNDLE


def _scan(*arrays: Any, body: Body, consts: int, carries: int, length: int, reverse: bool) -> Any:
    graph, outside, carry = body.graph, arrays[:consts], arrays[consts : consts + carries]
    xs = arrays[consts + carries :]
    ys = [_empty(stacked(node.spec, length)) for node in graph.outputs[carries:]]
    for t in reversed(range(length)) if reverse else range(length):
        values = run_graph(graph, (*outside, *carry, *(x[t, ...] for x in xs)))
        carry = values[:carries]
        for y, value in zip(ys, values[carries:], strict=True):
            y[t] = place(value, where(y))
    return bundled([*_placed(graph, carry), *ys])


def _empty(spec: Spec) -> Any:
    with on(spec.device) if is_gpu(spec.device) else nullcontext():
        return array_module(spec.device).empty(spec.shape, spec.dtype)


def _scan_cost(node: Node) -> int:
    length: int = node.params["length"]
    return length * _graph_cost(node.params["body"].graph)


def _graph_cost(graph: Graph) -> int:
    return sum(n.op.cost(n) if n.op.cost is not None else n.spec.size for n in graph.nodes if n.inputs)


SCAN = register(
    Op("scan", Kind.OPAQUE, _scan_infer, _scan, promote=as_they_are, cost=_scan_cost, keeps_bits=True,
       crosses=True, taped=scan_taped,
       meaning="`carry, y = body(*outside, carry, x)` for each of `length` rows `x`, from the last one if "
       "`reverse`: a bundle of the last carry and of the rows `y`.")
)  # fmt: skip


# while_loop


def _while_infer(*specs: Spec, test: Body, body: Body, consts: int) -> Spec:
    check_operands("while_loop", test, specs)
    check_operands("while_loop", body, specs)
    return BUNDLE


def _while(*arrays: Any, test: Body, body: Body, consts: int) -> Any:
    outside, carry = arrays[:consts], arrays[consts:]
    while bool(run_graph(test.graph, (*outside, *carry))[0]):
        carry = run_graph(body.graph, (*outside, *carry))
    return bundled(_placed(body.graph, carry))


def _while_cost(node: Node) -> int:
    return _graph_cost(node.params["body"].graph)  # at least: how often is known to nobody


WHILE = register(
    Op("while_loop", Kind.OPAQUE, _while_infer, _while, promote=as_they_are, cost=_while_cost,
       keeps_bits=True, crosses=True, taped=while_taped,
       meaning="`while test(*outside, *carry): carry = body(*outside, *carry)`: a bundle of the last carry.")
)  # fmt: skip


# cond


def _cond_infer(index: Spec, *specs: Spec, branches: tuple[Body, ...]) -> Spec:
    if index.shape or index.dtype.kind not in "iub":
        raise LoopError(f"cond: the predicate is {index}, not one Boolean or integer")
    for branch in branches:
        check_operands("cond", branch, specs)
    return BUNDLE


def branch_of(index: Any, branches: Sequence[Any]) -> Any:
    """Return the one that an array of no axes chooses: True the last of two; beyond the ends the nearest."""
    return branches[min(max(int(index), 0), len(branches) - 1)]


def _cond(index: Any, *arrays: Any, branches: tuple[Body, ...]) -> Any:
    graph = branch_of(index, branches).graph
    return bundled(_placed(graph, run_graph(graph, arrays)))


def _cond_cost(node: Node) -> int:
    return max(_graph_cost(branch.graph) for branch in node.params["branches"])


COND = register(
    Op("cond", Kind.OPAQUE, _cond_infer, _cond, promote=as_they_are, cost=_cond_cost, keeps_bits=True,
       crosses=True, taped=cond_taped,
       meaning="`branches[index](*operands)`, where an index beyond an end is that end: a bundle.")
)  # fmt: skip

#: What holds a graph and gives a bundle.
LOOPS = (SCAN, WHILE, COND)


def nodes_within(graph: Graph) -> Iterator[Node]:
    """Yield the nodes of a graph, and those of the graphs that they hold; no bundles."""
    for node in graph.nodes:
        if node.op not in LOOPS:
            yield node
            continue
        for value in node.params.values():
            for body in value if isinstance(value, tuple) else (value,):
                yield from nodes_within(body.graph) if isinstance(body, Body) else ()
