"""Ops of third parties: found by themselves, and fused, priced, laid out and recomputed as the core's own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pluggy
import pytest
from fusing import TRAITS, f32
from graphs import run
from mgb import plugins
from mgb.executor import compile_program
from mgb.executor.remat.timeline import timeline_of
from mgb.executor.views import view_strides
from mgb.fusion import Step, detect, recompute
from mgb.ir import Graph, Kind, Op, Spec
from mgb.ops import declare
from mgb.ops.declare import op_of
from mgb.ops.images import contract
from mgb.ops.primitives import cast, sub
from mgb.ops.reduce import reduce_sum
from mgb.passes import simplify
from mgb.passes.cost import flops, operations
from mgb.runtime.entry_points import scanned
from mgb.tensor import Tensor
from mgb.tensor.apply import apply
from mgb.tensor.tracing import graph_of

PACKAGE = """
from mgb.ir import Kind, Op
from mgb.backends.plugins import hookimpl

halved = Op("halved", Kind.ELEMENTWISE, lambda x: x, body=lambda x: x * 0.5, cheap=True)

@hookimpl
def mgb_ops():
    return [halved]
"""


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Install a package of ops; the ops and the plugins are as they were, afterwards."""
    manager = pluggy.PluginManager("mgb")
    manager.add_hookspecs(plugins.Hooks)
    manager.register(plugins._Builtin(), name="eager")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "manager", manager)
    monkeypatch.setattr(declare, "OPS", ops := dict(declare.OPS))
    monkeypatch.setattr(plugins, "OPS", ops)

    def install(source: str) -> None:
        (tmp_path / "foreign_ops.py").write_text(source)
        info = tmp_path / "foreign_ops-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign-ops\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[mgb.ops]\nforeign = foreign_ops\n")
        scanned.cache_clear()

    yield install
    scanned.cache_clear()
    sys.modules.pop("foreign_ops", None)


def test_op_package_is_found_without_a_backend(package: Callable[[str], None]) -> None:
    package(PACKAGE)
    halved = plugins.known_ops()["halved"]
    assert halved is sys.modules["foreign_ops"].halved
    assert apply(halved, np.float32(3)).numpy() == 1.5
    assert plugins.known_ops()["halved"] is halved


def test_broken_op_package_is_reported(
    package: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    package("import nowhere_to_be_found")
    assert "add" in plugins.known_ops()
    assert "foreign-ops" in caplog.text and "nowhere_to_be_found" in caplog.text


# as good as the core's own

MINUS = Op(
    "minus",
    Kind.ELEMENTWISE,
    op_of(sub).infer,
    np.subtract,
    body=lambda a, b: sub(a, b),
    promote=op_of(sub).promote,
)


def full_size_writes(minus: Callable[..., Tensor]) -> int:
    """How many full values the kernels around a product store, where `minus` makes what both need."""

    def body(x: Tensor, w: Tensor) -> list[Tensor]:
        deviation = minus(x, reduce_sum(x, axis=(1,)))
        return [contract.matmul(deviation * 3.0, w) * deviation + 1.0]

    traits = replace(TRAITS, vocabulary=TRAITS.vocabulary | {"minus"})
    graph = simplify(graph_of(body, f32(6, 6), f32(6, 6)), 3)
    steps = recompute(graph, detect(graph, traits), traits)
    return sum(n.spec.shape == (6, 6) for s in steps if s.fused for n in s.writes)


def test_cheap_foreign_op_is_recomputed_like_a_core_op() -> None:
    ours = full_size_writes(sub)
    assert full_size_writes(lambda a, b: apply(replace(MINUS, cheap=True), a, b)) == ours
    assert full_size_writes(lambda a, b: apply(MINUS, a, b)) > ours


def test_cheap_op_joins_a_group_over_a_larger_domain() -> None:
    """A value along the last axis alone, computed for each row: only a cheap one may be."""

    def groups(op: Op) -> int:
        def body(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
            return x * apply(op, a, b)

        traits = replace(TRAITS, vocabulary=TRAITS.vocabulary | {"minus"}, min_ops=1)
        return len(detect(graph_of(body, f32(8, 5), f32(5), f32(5)), traits))

    assert groups(replace(MINUS, cheap=True)) == 1 < groups(MINUS)


def times(count: int) -> Op:
    """An op that is opaque to fusion and takes `count` operations an element."""
    return Op("iterated", Kind.OPAQUE, lambda x: x, lambda x: x + 1, cost=lambda n: count * n.spec.size)


def test_declared_cost_is_used_for_flops() -> None:
    graph = graph_of(lambda x: apply(times(1000), x) + 1.0, f32(4, 5))
    assert flops(graph) == 1000 * 20 + 20
    assert operations(graph.nodes[0]) == 1000 * 20


def test_declared_cost_raises_the_recomputation_cost() -> None:
    def price(count: int) -> float:
        graph = graph_of(lambda x: apply(times(count), x), f32(100))
        (node,) = graph.nodes
        return timeline_of([Step(graph, graph.inputs, (node,), False)], graph).cost[0]

    assert price(1000) > 2 * price(1)


def test_declared_layout_is_a_view() -> None:
    back = Op(
        "backwards",
        Kind.LAYOUT,
        lambda x: Spec(x.shape[::-1], x.dtype),
        lambda x: x.transpose(),
        moves=lambda _shape, strides: strides[::-1],
    )
    graph = graph_of(lambda x: apply(back, x), f32(3, 4))
    assert view_strides(graph.nodes[0]) == (1, 4) == tuple(s // 4 for s in np.zeros((3, 4), "f4").T.strides)
    assert view_strides(graph_of(lambda x: apply(replace(back, moves=None), x), f32(3, 4)).nodes[0]) is None
    program = compile_program(graph_of(lambda x: apply(back, x * 2.0) + 1.0, f32(3, 4)))
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(program.run(x)[0], x.T * 2 + 1)


def test_keeps_bits_op_receives_16_bit_operands() -> None:
    given: list[Any] = []
    look = Op("look", Kind.ELEMENTWISE, lambda x: x, lambda x: given.append(x.dtype) or x.copy())
    x = cast(np.float32([1.5]), dtype=np.dtype(np.float16))
    for op in (look, replace(look, keeps_bits=True)):
        assert apply(op, x).numpy() == 1.5
    assert given == [np.float32, np.float16]


def test_core_op_declarations_are_consistent() -> None:
    """Cheap ops are element-wise, and views are those that NumPy makes."""
    for op in declare.OPS.values():
        assert not op.cheap or op.kind is Kind.ELEMENTWISE, op
        assert op.moves is None or op.kind is Kind.LAYOUT, op
        assert not op.picks or op.cost is not None, op


def test_graph_runs_with_foreign_ops() -> None:
    graph: Graph = graph_of(lambda x: apply(replace(MINUS, cheap=True), x, 1.0) * 2.0, f32(3))
    x = np.float32([1, 2, 3])
    np.testing.assert_array_equal(run(graph, [x])[0], (x - 1) * 2)
