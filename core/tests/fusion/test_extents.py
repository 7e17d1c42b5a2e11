"""Extents between groups: what needs only the number of rows does not wait for what is computed of them."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest
from graphs import run
from mgb import dtypes
from mgb.autodiff import GradManager
from mgb.backends import ALL_DTYPES, Traits
from mgb.codegen.domain import structure_key
from mgb.executor import compile_program
from mgb.functional import loss
from mgb.fusion import NUMBER, Step, detect, place_extents
from mgb.ir import Graph, Kind, Spec
from mgb.ops.declare import OPS
from mgb.ops.methods import average
from mgb.ops.reduce import EXTENT
from mgb.passes import simplify, verify
from mgb.tensor import Tensor
from mgb.tensor.apply import apply
from mgb.tensor.tracing import graph_of

VOCABULARY = frozenset(n for n, op in OPS.items() if op.is_primitive) | {"exp", "log"}
TRAITS = Traits(VOCABULARY, frozenset({Kind.ELEMENTWISE, Kind.REDUCE}), ALL_DTYPES, api_version=1)


def cross_entropy_both_ways(x: Tensor, labels: Tensor) -> list[Tensor]:
    with GradManager().attach([x]) as manager:
        out = loss.cross_entropy(x, labels, label_smooth=0.1)
        manager.backward(out)
    assert x.grad is not None
    return [out, x.grad]


def steps_of(body: Callable[..., Any], *specs: Spec) -> tuple[Graph, list[Step]]:
    graph = place_extents(simplify(graph_of(body, *specs), 3))
    verify(graph)
    return graph, detect(graph, TRAITS)


def labelled(rows: int, classes: int) -> tuple[Spec, Spec]:
    return Spec((rows, classes), dtypes.float32), Spec((rows,), dtypes.int32)


def test_cross_entropy_and_its_gradient_read_the_logits_once() -> None:
    """The gradient of the mean is a constant for each row: it does not wait for the sum over the rows."""
    _, steps = steps_of(cross_entropy_both_ways, *labelled(6, 5))
    full = [[n.spec.shape for n in (*s.reads, *s.writes)].count((6, 5)) for s in steps if s.fused]
    assert sorted(full)[-1] == 2 and sum(full) == 2


def test_cross_entropy_and_its_gradient_match_numpy() -> None:
    random = np.random.default_rng(0)
    graph = graph_of(cross_entropy_both_ways, *labelled(6, 5))
    x, labels = random.standard_normal((6, 5)).astype(np.float32), random.integers(0, 5, 6).astype(np.int32)
    wide = x.astype(np.float64)
    wanted = np.eye(5)[labels] * 0.9 + 0.1 / 5
    rows = np.log(np.exp(wide).sum(1, keepdims=True)) - wide
    truth = (rows * wanted).sum(1).mean(), (np.exp(-rows) - wanted) / 6
    program = compile_program(graph)
    for got, want in zip(program.call([x, labels]), truth, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_structure_key_does_not_depend_on_the_extent() -> None:
    keys = []
    for rows in (6, 7):
        _, steps = steps_of(cross_entropy_both_ways, *labelled(rows, 5))
        keys.append([structure_key(s.graph) for s in steps if s.fused])
    assert keys[0] == keys[1]


def test_mean_uses_extent_instead_of_number() -> None:
    graph, _ = steps_of(lambda x: average(x * x, (1,)), Spec((6, 5), dtypes.float32))
    assert graph.has(EXTENT) and not graph.has(NUMBER)


@pytest.mark.parametrize("axis", [(0,), (1,), (0, 1)])
def test_extent_without_a_reduction_becomes_a_number(axis: tuple[int, ...]) -> None:
    spec = Spec((6, 5), dtypes.float32)
    extent = OPS["extent"]
    graph, _ = steps_of(lambda x: apply(extent, x * x, axis=axis) * 2.0 + x, spec)
    assert [n.op for n in graph.nodes if n.op is NUMBER] and not graph.has(EXTENT)
    x = np.ones(spec.shape, np.float32)
    np.testing.assert_array_equal(run(graph, [x])[0], 2 * prod(spec.shape[a] for a in axis) + x)


@pytest.mark.parametrize("axis", [(0,), (1,), (0, 1)])
def test_extent_is_not_taken_from_a_neighbouring_reduction(axis: tuple[int, ...]) -> None:
    spec = Spec((6, 5), dtypes.float32)
    other = Spec(tuple(d - 2 if a in axis else d for a, d in enumerate(spec.shape)), dtypes.float32)
    total, extent = OPS["reduce_sum"], OPS["extent"]
    graph, _ = steps_of(lambda x, y: apply(total, y, axis=axis) / apply(extent, x, axis=axis), spec, other)
    x, y = (np.arange(s.size, dtype=np.float32).reshape(s.shape) for s in (spec, other))
    np.testing.assert_allclose(
        run(graph, [x, y])[0],
        y.sum(axis, keepdims=True) / np.ones_like(x).sum(axis, keepdims=True),
        rtol=1e-6,
    )
