"""How the tests of fusion run groups, and the pieces that their programs are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from graphs import arrays_for, run
from mgb import dtypes
from mgb.backends import ALL_DTYPES, Scope, Traits
from mgb.codegen.domain import domain, reduced_axes
from mgb.fusion import FusionConfig, Step, detect
from mgb.ir import Graph, Kind, Spec
from mgb.ops import elementwise, layout, primitives, reduce
from mgb.ops.bodies import transcendental as tr
from mgb.ops.declare import OPS
from mgb.passes import lower, simplify, verify
from mgb.tensor import Tensor
from mgb.tensor.tracing import graph_of

VOCABULARY = frozenset(n for n, op in OPS.items() if op.is_primitive) | {"exp", "log", "sin", "pow", "erf"}
TRAITS = Traits(VOCABULARY, frozenset({Kind.ELEMENTWISE, Kind.REDUCE}), ALL_DTYPES, api_version=1)
WHOLE = Traits(
    VOCABULARY, frozenset(Kind) - {Kind.OPAQUE}, ALL_DTYPES, scope=Scope.GRAPH, min_ops=1, api_version=1
)
#: As `WHOLE`, with holes: layout ops split its groups.
HOLES = Traits(
    VOCABULARY,
    frozenset({Kind.ELEMENTWISE, Kind.REDUCE}),
    ALL_DTYPES,
    scope=Scope.GRAPH,
    min_ops=1,
    api_version=1,
)


def f32(*shape: int) -> Spec:
    return Spec(shape, dtypes.float32)


def execute(graph: Graph, steps: Sequence[Step], arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What the outputs are when the steps run one after the other."""
    values = dict(zip(graph.inputs, arrays, strict=True))
    for step in steps:
        out = run(step.graph, [values[r] for r in step.reads])
        assert not set(step.writes) & set(values), "a value is computed twice"
        values.update(zip(step.writes, out, strict=True))
    return [values[o] for o in graph.outputs]


def steps_of(
    function: Callable[..., Any], *specs: Spec, traits: Traits = TRAITS, **config: Any
) -> list[Step]:
    """The steps of `function` at opt_level 3, checked to compute what it computes."""
    graph = graph_of(function, *specs)
    simple = simplify(graph, 3)
    verify(simple)
    steps = detect(simple, traits, FusionConfig(**config))
    arrays = arrays_for(graph)
    for expected, found in zip(run(graph, arrays), execute(simple, steps, arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    for step in steps:
        if step.fused and traits.scope is Scope.DOMAIN and "matmul" not in ops(step):
            lowered = lower(step.graph, traits)
            verify(lowered)
            assert domain(lowered) == domain(step.graph)
            assert reduced_axes(lowered) == reduced_axes(step.graph)
    return steps


def fused(steps: Sequence[Step]) -> list[Step]:
    return [s for s in steps if s.fused]


def ops(step: Step) -> list[str]:
    return [n.op.name for n in step.graph.nodes if n.op.kind is not Kind.LEAF]


# the pieces that programs are made of


def total(x: Tensor, *axis: int) -> Tensor:
    return reduce.reduce_sum(x, axis=axis)


def mean(x: Tensor, *axis: int) -> Tensor:
    return total(x, *axis) / reduce.extent(x, axis=axis)


def softmax(x: Tensor) -> Tensor:
    e = tr.exp(x - reduce.reduce_max(x, axis=(x.ndim - 1,)))
    return e / total(e, x.ndim - 1)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - mean(x, x.ndim - 1)
    return centred / primitives.sqrt(mean(centred * centred, x.ndim - 1) + 1e-5) * weight + bias


def batch_norm(x: Tensor, weight: Tensor, bias: Tensor, old_mean: Tensor, old_var: Tensor) -> list[Tensor]:
    m = mean(x, 0, 2, 3)
    v = mean(elementwise.square(x - m), 0, 2, 3)
    y = (x - m) / primitives.sqrt(v + 1e-5) * weight + bias
    return [y, old_mean * 0.9 + m * 0.1, old_var * 0.9 + v * 0.1]


def adam(p: Tensor, g: Tensor, m: Tensor, v: Tensor, rate: Tensor) -> list[Tensor]:
    m = m * 0.9 + g * 0.1
    v = v * 0.999 + g * g * 0.001
    return [p - rate * (m / (primitives.sqrt(v) + 1e-8)), m, v]


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    rows, classes = logits.shape
    top = reduce.reduce_max(logits, axis=(1,))
    log_sum = layout.reshape(tr.log(total(tr.exp(logits - top), 1)) + top, shape=(rows,))
    places = primitives.iota(shape=(classes,), dtype=dtypes.int32)
    hit = primitives.eq(places, layout.reshape(labels, shape=(rows, 1)))
    picked = layout.reshape(total(primitives.where(hit, logits, 0.0), 1), shape=(rows,))
    return log_sum - picked
