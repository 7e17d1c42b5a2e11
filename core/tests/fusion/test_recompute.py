"""What kernels compute again instead of reading it: which values, and that the results stay."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graphs import run
from mgb import dtypes
from mgb.backends import ALL_DTYPES, Scope, Traits
from mgb.fusion import Step, detect, recompute
from mgb.ir import Graph, Kind, Spec
from mgb.ops.bodies.transcendental import exp
from mgb.ops.declare import OPS
from mgb.ops.elementwise import rsqrt
from mgb.ops.images import contract
from mgb.ops.reduce import reduce_sum
from mgb.passes import simplify
from mgb.tensor import Tensor
from mgb.tensor.tracing import graph_of

VOCABULARY = frozenset(n for n, op in OPS.items() if op.is_primitive) | {"exp"}
TRAITS = Traits(VOCABULARY, frozenset({Kind.ELEMENTWISE, Kind.REDUCE}), ALL_DTYPES, api_version=1)
SQUARE = Spec((6, 6), dtypes.float32)


def steps_of(body: Callable[..., Any], *specs: Spec, traits: Traits = TRAITS) -> tuple[Graph, list[Step]]:
    """The steps after recomputation, checked to give what the graph gives."""
    graph = simplify(graph_of(body, *specs), 3)
    steps = recompute(graph, detect(graph, traits), traits)
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(s.shape).astype(s.dtype) for s in specs]
    values = dict(zip(graph.inputs, arrays, strict=True))
    for step in steps:
        values.update(zip(step.writes, run(step.graph, [values[r] for r in step.reads]), strict=True))
    for output, truth in zip(graph.outputs, run(graph, arrays), strict=True):
        np.testing.assert_allclose(values[output], truth, rtol=1e-5, atol=1e-5)
    return graph, steps


def full_size_writes(steps: list[Step]) -> int:
    return sum(n.spec.shape == SQUARE.shape for s in steps if s.fused for n in s.writes)


def standardized(x: Tensor) -> tuple[Tensor, Tensor]:
    deviation = x - reduce_sum(x, axis=(1,)) / 6.0
    scale = rsqrt(reduce_sum(deviation * deviation, axis=(1,)) / 6.0 + 1e-5)
    return deviation, deviation * scale


def test_normalization_gradient_recomputes_from_its_input() -> None:
    """The matmul stands between two kernels; the second wants two values that the first one could store."""

    def body(x: Tensor, w: Tensor) -> list[Tensor]:
        deviation, normal = standardized(x)
        g = contract.matmul(normal, w)
        return [g * normal + deviation * 2.0]

    graph, steps = steps_of(body, SQUARE, SQUARE)
    first, last = (s for s in steps if s.fused)
    assert full_size_writes([first]) == 1  # what the matmul reads
    assert graph.inputs[0] in last.reads
    assert sorted(math.prod(n.spec.shape) for n in last.reads) == [6, 36, 36, 36]


@pytest.mark.parametrize("between", [exp, lambda t: contract.matmul(t, t)], ids=["exp", "matmul"])
def test_expensive_values_are_stored(between: Callable[[Tensor], Tensor]) -> None:
    def body(x: Tensor, w: Tensor) -> list[Tensor]:
        value = between(x)
        return [contract.matmul(value * 2.0 + 1.0, w) + value]

    _, steps = steps_of(body, SQUARE, SQUARE)
    assert sum(n.op.name in ("exp", "matmul") for s in steps for n in s.graph.nodes) == 2


def test_sum_of_two_large_inputs_is_stored() -> None:
    """To read both again in two kernels moves more than to write the sum and read it twice."""

    def body(a: Tensor, b: Tensor, w: Tensor) -> list[Tensor]:
        total = a * 2.0 + b
        first = contract.matmul(exp(total), w)
        second = contract.matmul(exp(first + total), w)
        return [exp(second * total)]

    _, steps = steps_of(body, SQUARE, SQUARE, SQUARE)
    assert full_size_writes(steps) == 4


def test_program_result_is_stored() -> None:
    def body(x: Tensor, w: Tensor) -> list[Tensor]:
        deviation, normal = standardized(x)
        return [deviation, contract.matmul(normal, w) * deviation]

    graph, steps = steps_of(body, SQUARE, SQUARE)
    assert any(graph.outputs[0] in s.writes for s in steps)


def test_chain_is_recomputed_as_a_whole() -> None:
    def body(x: Tensor, w: Tensor, scale: Tensor, shift: Tensor) -> list[Tensor]:
        deviation, normal = standardized(x)
        value = normal * scale + shift
        g = contract.matmul(exp(value), w)
        return [g * value, g * normal, g * deviation]

    row = Spec((6,), dtypes.float32)
    _, steps = steps_of(body, SQUARE, SQUARE, row, row)
    first = next(s for s in steps if s.fused)
    assert full_size_writes([first]) == 1


def test_recompute_skips_whole_graph_backends() -> None:
    traits = Traits(
        VOCABULARY, frozenset(Kind) - {Kind.OPAQUE}, ALL_DTYPES, scope=Scope.GRAPH, min_ops=1, api_version=1
    )
    graph = simplify(graph_of(lambda x: [exp(x) * 2.0], SQUARE), 3)
    steps = detect(graph, traits)
    assert recompute(graph, steps, traits) == steps
