"""Smaller cases that may fail as a case does: each function gives some, the most promising first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from mgb import dtypes
from mgb.ir import CONST, Graph, Node, Spec, const_node, input_node
from mgb.tensor.tracing import make_node

from .case import Case

Array = np.ndarray[Any, Any]
Change = Callable[[Case], Iterator[Case]]

#: Parameters of ops that hold lengths.
_LENGTHS = frozenset({"shape", "window", "size"})


def one_output(case: Case) -> Iterator[Case]:
    """Yield each output alone."""
    if len(case.graph.outputs) > 1:
        for node in case.graph.outputs:
            yield _pruned(case, (node,), {})


def earlier_end(case: Case) -> Iterator[Case]:
    """Yield cases with another node as the only output: by halves, then the last few."""
    nodes = case.graph.nodes[:-1]
    low, high = 0, len(nodes)
    for node in (*_halves(nodes, low, high), *reversed(nodes[-8:])):
        if node.op is not CONST:
            yield _pruned(case, (node,), {})


def _halves(nodes: Sequence[Node], low: int, high: int) -> Iterator[Node]:
    """Yield the middle, three quarters, seven eighths, ...: a caller that accepts one starts over with it."""
    while low < high:
        middle = (low + high) // 2
        yield nodes[middle]
        low = middle + 1


def later_start(case: Case) -> Iterator[Case]:
    """Yield the first nodes, then single ones, as inputs with the values that they have."""
    nodes = case.graph.nodes
    count = len(nodes) // 2
    while count > 1:
        yield _with_inputs(case, nodes[:count])
        count //= 2
    for node in nodes:
        if node.op is not CONST and node not in case.graph.outputs:
            yield _with_inputs(case, (node,))


def _with_inputs(case: Case, nodes: Sequence[Node]) -> Case:
    """Return `case`, where `nodes` are not computed but given, as far as others read them."""
    kept = {n for n in case.graph.nodes if n not in nodes}
    read = {i for n in kept for i in n.inputs} & set(nodes)
    ends = {n for n in case.graph.outputs if n in nodes}
    given = [n for n in nodes if n in read - ends and n.op is not CONST]
    fresh = {n: input_node(n.spec) for n in given}
    arrays = {fresh[n]: np.ascontiguousarray(case.values[n]) for n in given}
    return _pruned(case, case.graph.outputs, dict(fresh), arrays)


def without_node(case: Case) -> Iterator[Case]:
    """Yield one node less: what reads it reads an operand of the same type instead."""
    for node in case.graph.nodes:
        for operand in dict.fromkeys(node.inputs):
            if operand.spec == node.spec:
                yield _pruned(case, case.graph.outputs, {node: operand})


def _pruned(
    case: Case,
    outputs: Sequence[Node],
    instead: Mapping[Node, Node],
    arrays: Mapping[Node, Array] | None = None,
) -> Case:
    """Return the graph of `outputs` with nodes replaced, and the inputs that it still has."""
    given = dict(zip(case.graph.inputs, case.arrays, strict=True)) | dict(arrays or {})
    made: dict[Node, Node] = {}

    def follow(node: Node) -> Node:
        while node in instead:
            node = instead[node]
        return node

    reach = Graph(tuple(given), tuple(follow(o) for o in outputs))
    for node in _order(reach, follow):
        inputs = tuple(made.get(follow(i), follow(i)) for i in node.inputs)
        made[node] = (
            node if inputs == node.inputs else Node(node.op, inputs, node.params, node.spec, node.source)
        )
    ends = tuple(made.get(o, o) for o in reach.outputs)
    read = {i for n in Graph(tuple(given), ends).nodes for i in n.inputs} | set(ends)
    inputs = tuple(n for n in given if n in read)
    return Case(Graph(inputs, ends), tuple(given[n] for n in inputs))


def _order(graph: Graph, follow: Callable[[Node], Node]) -> list[Node]:
    """Return the nodes that are needed, each after those that it reads."""
    order: dict[Node, None] = {}
    stack = [(o, False) for o in reversed(graph.outputs)]
    given = set(graph.inputs)
    while stack:
        node, ready = stack.pop()
        if node in order or node in given:
            continue
        if ready:
            order[node] = None
        else:
            stack.append((node, True))
            stack.extend((follow(i), False) for i in reversed(node.inputs))
    return list(order)


# lengths, dtypes, values


def remade(
    case: Case, array: Callable[[Array], Array], params: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> Case | None:
    """Rebuild the ops on other arrays and parameters, with new inferred types; None where they do not fit."""
    inputs = {n: array(a) for n, a in zip(case.graph.inputs, case.arrays, strict=True)}
    made = {n: input_node(Spec(a.shape, a.dtype, n.spec.device)) for n, a in inputs.items()}
    try:
        for node in case.graph.nodes:
            if node.op is CONST:
                value = array(node.params["value"])
                made[node] = const_node(value, value.dtype, node.spec.device)
            else:
                made[node] = make_node(node.op, tuple(made[i] for i in node.inputs), params(node.params))
    except Exception:  # an op rejects an invalid case, in whatever way
        return None
    graph = Graph(tuple(made[n] for n in case.graph.inputs), tuple(made[o] for o in case.graph.outputs))
    return Case(graph, tuple(inputs.values()))


def shorter(case: Case) -> Iterator[Case]:
    """Yield every axis of a length with less of it: a single element, two, three, half, one less."""
    arrays = (*case.arrays, *(n.params["value"] for n in case.graph.nodes if n.op is CONST))
    lengths = sorted({d for a in arrays for d in a.shape if d > 1}, reverse=True)
    for old in lengths:
        for new in sorted({1, 2, 3, old // 2, old - 1} - {0, old}):
            found = remade(case, partial(_cut, old=old, new=new), partial(_renamed, old=old, new=new))
            if found is not None and new < old:
                yield found


def _cut(array: Array, old: int, new: int) -> Array:
    """Return `array` with the first `new` of each axis of length `old`; its axes lie as they lay."""
    return array[tuple(slice(new if d == old else d) for d in array.shape)].copy(order="K")


def _renamed(params: Mapping[str, Any], old: int, new: int) -> dict[str, Any]:
    def changed(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(changed, value))
        return new if type(value) is int and value == old else value

    return {name: changed(value) if name in _LENGTHS else value for name, value in params.items()}


def in_dtype(case: Case, old: np.dtype[Any], new: np.dtype[Any]) -> Case | None:
    """Return the case with `new` wherever `old` is; None where it is nowhere, or ops reject it."""
    if all(n.spec.dtype != old for n in (*case.graph.inputs, *case.graph.nodes)):
        return None
    return remade(
        case,
        lambda a: a.astype(new, order="K") if a.dtype == old else a,
        lambda p: {name: new if isinstance(v, np.dtype) and v == old else v for name, v in p.items()},
    )


def usual_dtypes(case: Case) -> Iterator[Case]:
    """Yield float32 for other floats, int32 for other integers."""
    for old in dtypes.DTYPES[1:]:
        new = dtypes.float32 if old in dtypes.FLOATS else dtypes.int32
        with np.errstate(all="ignore"):  # left before another generator may enter it
            found = in_dtype(case, old, new) if old != new else None
        if found is not None:
            yield found


def plain_layout(case: Case) -> Iterator[Case]:
    """Yield each input row-major."""
    for place, array in enumerate(case.arrays):
        if not array.flags.c_contiguous:
            yield _with_array(case, place, np.ascontiguousarray(array))


def plain_values(case: Case) -> Iterator[Case]:
    """Yield each input with plain numbers: ones, 0 1 2 ..., a few that repeat; else with fewer digits."""
    for place, array in enumerate(case.arrays):
        for simple in plain_arrays(array.shape, array.dtype):
            if (simple == array).all():
                break
            yield _with_array(case, place, _like(simple, array))
        else:
            if array.dtype in dtypes.FLOATS:
                rounded = np.round(array.astype(np.float64), 1).astype(array.dtype)
                if not ((rounded == array) | (array != array)).all():
                    yield _with_array(case, place, _like(rounded, array))


def plain_arrays(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[Array]:
    """Yield arrays that are short to write."""
    count = int(np.prod(shape))
    yield np.ones(shape, dtype)
    if dtype != dtypes.bool_:
        yield np.arange(count).astype(dtype).reshape(shape)
        yield (np.arange(count) % 7).astype(dtype).reshape(shape)


def _like(values: Array, array: Array) -> Array:
    """Return `values`, lying as `array` does."""
    out = np.empty_like(array)
    out[...] = values
    return out


def _with_array(case: Case, place: int, array: Array) -> Case:
    return Case(case.graph, (*case.arrays[:place], array, *case.arrays[place + 1 :]))
