"""Gradients of the ops that contain graphs, for tapes.

The gradient of a scan is a scan the other way over what the first one kept, that of a conditional a
conditional which computes again what it needs. A `while_loop` knows tangents only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from ..autodiff.cut import values_to_keep, without
from ..autodiff.function import Output
from ..autodiff.tape import Tape, forward_mode, snapshot
from ..errors import NoGradientError
from ..ir import Body, Graph, Node, Spec, input_node
from ..ops.creation import zeros_like
from ..ops.declare import OPS
from ..ops.images.contract import MATMUL, matmul
from ..ops.layout import reshape, transpose
from ..tensor import Tensor
from ..tensor.apply import apply, recording_tapes, untaped
from ..tensor.tracing import copy_node, rebuild
from .bundle import BundleCall, result
from .linear import both_ways, floats, pullback, pushforward, with_inputs

#: The gradient of each operand for those of results, by their places.
Pull = Callable[[Mapping[int, Tensor]], Sequence[Tensor | None]]


def _innermost(tensors: Sequence[Tensor]) -> list[Tape]:
    """Return those of the last level of the tapes that see one of `tensors`; they do not see each other."""
    tapes: list[Tape] = recording_tapes(tensors)
    return [tape for tape in tapes if tape.level == tapes[-1].level]


def _node_on(tape: Tape, tensor: Tensor) -> Any:
    return tensor._tape.get(tape) if tensor._tape else None


def _attach(tapes: Sequence[Tape], operands: Sequence[Tensor], bundle: Tensor, pull: Pull) -> Tensor:
    """Tell `tapes` how `bundle` came about."""
    for tape in tapes:
        tape.attach(bundle, BundleCall(tuple(_node_on(tape, x) for x in operands), pull))
    return bundle


def _seen(tapes: Sequence[Tape], operands: Sequence[Tensor], nodes: Sequence[Node]) -> tuple[int, ...]:
    """Return the places of the operands of floats that one of `tapes` sees."""
    return tuple(n for n in floats(nodes) if any(_node_on(tape, operands[n]) is not None for tape in tapes))


# scan


def scan_taped(
    *operands: Tensor, body: Body, consts: int, carries: int, length: int, reverse: bool
) -> Tensor:
    """Run `scan` where tapes watch: keep from each step what the backward pass needs."""
    scan, tapes = OPS["scan"], _innermost(operands)
    counts = {"consts": consts, "carries": carries, "length": length}
    if not tapes:
        return untaped(scan, *operands, body=body, **counts, reverse=reverse)
    nodes, level = body.graph.inputs, tapes[0].level
    seen = [n for n in _seen(tapes, operands, nodes) if not consts <= n < consts + carries]
    carried = [n for n in floats(nodes) if consts <= n < consts + carries]
    way = _way_back(body, consts, carries, tuple(sorted([*seen, *carried])))
    outer = [snapshot(x, level) for x in operands]
    bundle = apply(scan, *outer, body=way.forward, **counts, reverse=reverse)
    first = len(body.graph.outputs)
    kept = [result(bundle, first + n, Spec((length, *spec.shape), spec.dtype, spec.device))
            for n, spec in enumerate(way.residuals)]  # fmt: skip
    pull = partial(_scan_gradients, way, outer, kept, length, reverse)
    return _attach(tapes, operands, bundle, pull)


@dataclass(frozen=True, eq=False)
class _WayBack:
    """A scan in two: what keeps, and what goes back.

    Attributes
    ----------
    forward : Body
        As the body, with what is kept behind its results.
    residuals : tuple of Spec
        Of what is kept of one step.
    gradients : Graph
        Of one step: from the operands that it reads again, the gradients that arrive and the residuals. Its
        outputs are the gradients of `wanted`.
    consts, carries : int
        As in the op.
    wanted : tuple of int
        The places of operands whose gradients it gives.
    again : tuple of int
        The places of operands that it reads again.
    arriving : tuple of int
        The places of results whose gradients it takes.
    """

    forward: Body
    residuals: tuple[Spec, ...]
    gradients: Graph
    consts: int
    carries: int
    wanted: tuple[int, ...]
    again: tuple[int, ...]
    arriving: tuple[int, ...]


@lru_cache(maxsize=256)
def _way_back(body: Body, consts: int, carries: int, wanted: tuple[int, ...]) -> _WayBack:
    graph, both = body.graph, both_ways(body, wanted)
    count = len(graph.outputs)
    given, cotangents = both.inputs[: len(graph.inputs)], both.inputs[len(graph.inputs) :]
    free = {node for n, node in enumerate(given) if not consts <= n < consts + carries}
    keep = values_to_keep(both.outputs[count:], cotangents, free)
    again = tuple(n for n, node in enumerate(given) if node in free and node in keep)
    residuals = [node for node in keep if node not in free]
    return _WayBack(
        Body(Graph(given, (*both.outputs[:count], *residuals))),
        tuple(node.spec for node in residuals),
        with_inputs(Graph((*(given[n] for n in again), *residuals, *cotangents), both.outputs[count:])),
        consts,
        carries,
        wanted,
        again,
        floats(graph.outputs),
    )


@dataclass(frozen=True, eq=False)
class _Back:
    """The scan that goes back, for gradients that arrive at some of the results.

    Its graph takes what is read again of `consts`; the gradients of what is carried, and sums of those of the
    `summed` operands; then, of each step, what is read again of the scanned operands, the residuals, and the
    gradients of the `rows` that arrive. It gives the new sums, then rows: gradients of the `scanned`
    operands, and factors.

    Attributes
    ----------
    body : Body
    summed, scanned, rows : tuple of int
        Places of operands, and of results.
    products : tuple of _Product
        What is summed by one product after the loop.
    """

    body: Body
    summed: tuple[int, ...]
    scanned: tuple[int, ...]
    rows: tuple[int, ...]
    products: tuple[_Product, ...]


@dataclass(frozen=True, eq=False)
class _Product:
    """An operand from outside whose gradient is a product of what differs from step to step.

    Attributes
    ----------
    operand : int
        Its place.
    a, b : (bool, int)
        The factors: is it a row that is given, or one that is made, and its place among these.
    params : dict
        Of the product.
    """

    operand: int
    a: tuple[bool, int]
    b: tuple[bool, int]
    params: dict[str, bool]


@lru_cache(maxsize=256)
def _back(way: _WayBack, arrived: frozenset[int]) -> _Back:
    """Return the graph of the way back for those results whose gradients arrive.

    Others of the rows have none.
    """
    first = way.consts + way.carries
    seeds = way.gradients.inputs[len(way.gradients.inputs) - len(way.arriving) :]
    at = dict(zip(way.arriving, seeds, strict=True))  # by results
    carried = [at[n] for n in way.arriving if n < way.carries]
    rows = tuple(n for n in way.arriving if n >= way.carries and n in arrived)
    graph = _of_those(way.gradients, [at[n] for n in way.arriving if n >= way.carries and n not in rows])
    found = dict(zip(way.wanted, graph.outputs, strict=True))
    again = dict(zip(way.again, graph.inputs))
    residuals = graph.inputs[len(way.again) : len(graph.inputs) - len(seeds)]
    given = [*(node for n, node in again.items() if n >= first), *residuals, *(at[n] for n in rows)]
    outside = [node for n, node in again.items() if n < way.consts]
    products: list[_Product] = []
    made: list[Node] = []
    varies = _varying(graph, outside)
    for n in [n for n in way.wanted if n < way.consts]:
        node = found[n]
        if node.op is MATMUL and all(i.spec.ndim == 2 and i in varies for i in node.inputs):
            a, b = ((i in given, (given if i in given else _listed(made, i)).index(i)) for i in node.inputs)
            products.append(_Product(n, a, b, dict(node.params)))
    later = {product.operand for product in products}
    summed = tuple(n for n in way.wanted if n < way.consts and n not in later)
    scanned = tuple(n for n in way.wanted if n >= first)
    sums = [input_node(found[n].spec) for n in summed]
    inputs = (*outside, *carried, *sums, *given)
    new = [found[n] for n in way.wanted if way.consts <= n < first]
    ends = Graph(inputs, (*new, *(found[n] for n in summed), *(found[n] for n in scanned), *made))

    def with_sums(*values: Tensor) -> list[Tensor]:
        outs = list(ends.fold(copy_node, values))
        for k in range(len(sums)):
            place = len(carried) + k
            outs[place] = outs[place] + values[len(outside) + place]
        return outs

    return _Back(Body(rebuild(with_sums, inputs)), summed, scanned, rows, tuple(products))


def _listed(nodes: list[Node], node: Node) -> list[Node]:
    """Return `nodes` with `node` among them."""
    if node not in nodes:
        nodes.append(node)
    return nodes


def _of_those(graph: Graph, missing: Sequence[Node]) -> Graph:
    """Return `graph` where the gradients `missing` do not arrive."""
    places = [n for n, node in enumerate(graph.inputs) if node in missing]
    left, outputs = without(graph, [n for n in range(len(graph.inputs)) if n not in places], places)
    if len(outputs) == len(graph.outputs):
        return left
    found = dict(zip(outputs, left.outputs, strict=True))

    def filled(*values: Tensor) -> list[Tensor]:
        outs = dict(zip(outputs, left.fold(copy_node, values), strict=True))
        return [outs[n] if n in found else zeros_like(node.spec) for n, node in enumerate(graph.outputs)]

    return rebuild(filled, left.inputs)


def _varying(graph: Graph, outside: Sequence[Node]) -> set[Node]:
    """Return the nodes that vary from step to step."""
    found = set(graph.inputs).difference(outside)
    for node in graph.nodes:
        if not found.isdisjoint(node.inputs):
            found.add(node)
    return found


def _scan_gradients(
    way: _WayBack,
    operands: Sequence[Tensor],
    kept: Sequence[Tensor],
    length: int,
    reverse: bool,
    arrived: Mapping[int, Tensor],
) -> list[Tensor | None]:
    """Return the gradient of each operand of a scan."""
    back, first = _back(way, frozenset(arrived)), way.consts + way.carries
    outside = [operands[n] for n in way.again if n < way.consts]
    ends = [n for n in way.arriving if n < way.carries]
    carry = [arrived[n] if n in arrived else zeros_like(way.forward.graph.outputs[n].spec) for n in ends]
    sums = [zeros_like(operands[n].spec) for n in back.summed]
    rows = [*(operands[n] for n in way.again if n >= first), *kept, *(arrived[n] for n in back.rows)]
    bundle = apply(
        OPS["scan"], *outside, *carry, *sums, *rows, body=back.body, consts=len(outside),
        carries=len(carry) + len(sums), length=length, reverse=not reverse,
    )  # fmt: skip
    outs = [node.spec for node in back.body.graph.outputs]
    count = len(carry) + len(sums)
    places = [*(n for n in way.wanted if way.consts <= n < first), *back.summed, *back.scanned]
    found: dict[int, Tensor] = {}
    for place, n in enumerate(places):
        found[n] = result(bundle, place, outs[place] if place < count else _rows_of(outs[place], length))
    base = len(places)
    for product in back.products:
        a, b = (rows[k] if is_given else result(bundle, base + k, _rows_of(outs[base + k], length))
                for is_given, k in (product.a, product.b))  # fmt: skip
        found[product.operand] = _summed_product(a, b, **product.params)
    return [found.get(n) for n in range(len(operands))]


def _rows_of(spec: Spec, length: int) -> Spec:
    return Spec((length, *spec.shape), spec.dtype, spec.device)


def _summed_product(a: Tensor, b: Tensor, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
    """Return the sum of the products of matrices in two stacks: one product of long matrices."""
    return matmul(_long(a, not transpose_a), _long(b, transpose_b), transpose_a=True)


def _long(x: Tensor, is_turned: bool) -> Tensor:
    """Return the matrices one under the other, whose rows are what is summed over."""
    x = transpose(x, axes=(0, 2, 1)) if is_turned else x
    length, rows, columns = x.shape
    return reshape(x, shape=(length * rows, columns))


# cond


def cond_taped(index: Tensor, *operands: Tensor, branches: tuple[Body, ...]) -> Tensor:
    """Run `cond` where tapes watch."""
    cond, tapes = OPS["cond"], _innermost(operands)
    if not tapes:
        return untaped(cond, index, *operands, branches=branches)
    outer = [snapshot(x, tapes[0].level) for x in (index, *operands)]
    wanted = _seen(tapes, operands, branches[0].graph.inputs)
    bundle = apply(cond, *outer, branches=branches)
    return _attach(tapes, (index, *operands), bundle, partial(_cond_gradients, outer, branches, wanted))


def _cond_gradients(
    operands: Sequence[Tensor],
    branches: tuple[Body, ...],
    wanted: tuple[int, ...],
    arrived: Mapping[int, Tensor],
) -> list[Tensor | None]:
    outputs = branches[0].graph.outputs
    cotangents = [arrived[n] if n in arrived else zeros_like(outputs[n].spec) for n in floats(outputs)]
    back = tuple(Body(pullback(branch, wanted)) for branch in branches)
    bundle = apply(OPS["cond"], *operands, *cotangents, branches=back)
    specs = [node.spec for node in back[0].graph.outputs]
    found = {n + 1: result(bundle, k, specs[k]) for k, n in enumerate(wanted)}
    return [found.get(n) for n in range(len(operands))]


# while_loop


def while_taped(*operands: Tensor, test: Body, body: Body, consts: int) -> Tensor:
    """Run `while_loop` where tapes watch."""
    loop, tapes = OPS["while_loop"], _innermost(operands)
    if not tapes:
        return untaped(loop, *operands, test=test, body=body, consts=consts)
    outer = [snapshot(x, tapes[0].level) for x in operands]
    bundle = apply(loop, *outer, test=test, body=body, consts=consts)
    return _attach(tapes, operands, bundle, partial(_while_gradients, outer, test, body, consts))


def _while_gradients(
    operands: Sequence[Tensor], test: Body, body: Body, consts: int, arrived: Mapping[int, Tensor]
) -> list[Tensor | None]:
    """Return zeros in forward mode that depend on `arrived` like gradients: their gradients are tangents.

    Raises
    ------
    NoGradientError
        The gradients themselves are wanted.
    """
    if not forward_mode.get():
        raise NoGradientError(
            "while_loop has no gradient in reverse mode: how often it runs is known only when it has ended, "
            "so the memory for its steps cannot be allocated. Use scan, or fori_loop with bounds that are "
            "Python numbers; derivatives in a direction, by jvp, it has"
        )
    found: list[Tensor | None] = [None] * len(operands)
    for n in floats(body.graph.inputs):
        found[n] = zeros_like(operands[n].spec)._alias()
    places, gradients = list(arrived), list(arrived.values())
    pushed = partial(_while_tangents, operands, test, body, consts, places)
    for tape in recording_tapes(gradients):
        call = BundleCall(tuple(_node_on(tape, g) for g in gradients), pushed)
        for n, zeros in enumerate(found):
            if zeros is not None:
                tape.attach(zeros, Output(call, n))
    return found


def _while_tangents(
    operands: Sequence[Tensor],
    test: Body,
    body: Body,
    consts: int,
    places: Sequence[int],
    given: Mapping[int, Tensor],
) -> list[Tensor | None]:
    """Return the tangents of the results `places` for those that are `given` of operands."""
    nodes = body.graph.inputs
    outside = [n for n in floats(nodes) if n < consts]
    carried = [n for n in floats(nodes) if n >= consts]
    tangents = {n: given[n] if n in given else zeros_like(operands[n].spec) for n in (*outside, *carried)}
    loop = _with_tangents(test, body, consts)
    values = [*operands[:consts], *(tangents[n] for n in outside), *operands[consts:],
              *(tangents[n] for n in carried)]  # fmt: skip
    bundle = apply(OPS["while_loop"], *values, test=loop[0], body=loop[1], consts=consts + len(outside))
    first = len(nodes) - consts
    at = {n - consts: first + k for k, n in enumerate(carried)}
    return [result(bundle, at[n], nodes[consts + n].spec) if n in at else None for n in places]


@lru_cache(maxsize=256)
def _with_tangents(test: Body, body: Body, consts: int) -> tuple[Body, Body]:
    """Return a loop that carries tangents beside the values of floats."""
    graph, push = body.graph, pushforward(body)
    seeds = dict(zip(floats(graph.inputs), push.inputs[len(graph.inputs) :], strict=True))
    outside = [seeds[n] for n in seeds if n < consts]
    carried = [seeds[n] for n in seeds if n >= consts]
    inputs = (*graph.inputs[:consts], *outside, *graph.inputs[consts:], *carried)
    #: A float that is carried comes out as one.
    step = Graph(inputs, (*graph.outputs, *push.outputs))
    extra = [input_node(node.spec) for node in (*outside, *carried)]
    ask = (*test.graph.inputs[:consts], *extra[: len(outside)], *test.graph.inputs[consts:],
           *extra[len(outside) :])  # fmt: skip
    return Body(Graph(ask, test.graph.outputs)), Body(step)
