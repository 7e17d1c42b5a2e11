"""What a step moves and computes, and how fast the machine copies."""

from __future__ import annotations

from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from mgb import Tensor, tensor
from mgb.autodiff import GradManager
from mgb.executor.profile_bandwidth import copy_bandwidth
from mgb.ir import Graph, Kind
from mgb.ops.images.attention import attention
from mgb.passes.cost import flops
from mgb.tensor.tracing import graph_of
from profiling import profiled, specs


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_JIT_BACKEND", "eager")


def test_views_move_no_bytes() -> None:
    rows = profiled(3, lambda x, w: x.T).get_profile()["kernels"]
    assert [(row["name"], row["bytes_read"], row["flops"]) for row in rows] == [("transpose", 0, 0)]


def test_indexing_reads_only_the_selected_rows() -> None:
    places = tensor(np.array([3, 1], np.int32))
    (row,) = profiled(3, lambda x, w: x[places]).get_profile()["kernels"]
    assert row["ops"] == ["index_get"] and row["flops"] == 0
    assert (row["bytes_read"], row["bytes_written"]) == (4 * 2 * 4 + 4 * 2, 4 * 2 * 4)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_flops_are_those_of_its_matmuls(causal: bool) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    q, k = (2, 3, 50, 64), (2, 3, 70, 64)
    with FlopCounterMode(display=False) as counter:
        torch.softmax(torch.ones(q) @ torch.ones(k).mT, -1) @ torch.ones(k)
    graph = graph_of(lambda q, k, v: attention(q, k, v, causal=causal), *specs(q, k, k))
    assert 1 < flops(graph) / counter.get_total_flops() < 1.1  # it counts the softmax, too


@pytest.mark.parametrize(
    ("function", "shapes", "expected"),
    [
        (lambda x, y: x + y * 2.0, [(3, 5), (5,)], 15 + 5),
        (lambda x: F.relu(x), [(7,)], 7),
        (lambda x: F.exp(x).sum(axis=0), [(4, 5)], 20 + 20),
        (lambda x: x.reshape(20).reshape(4, 5).T, [(4, 5)], 0),
        (lambda x: F.argsort(x)[1], [(4, 5)], 20),
    ],
)
def test_elementwise_flops_are_counted_per_element(function: Any, shapes: list[Any], expected: int) -> None:
    assert flops(graph_of(function, *specs(*shapes))) == expected


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
def test_matmul_and_convolution_flops_match_torch(groups: int, stride: int) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    shapes = [(2, 4, 9, 10), (6, 4 // groups, 3, 2), (5, 3, 7), (5, 7, 4)]
    settings: dict[str, Any] = {"stride": stride, "padding": 1, "groups": groups}
    x, w, a, b = (torch.ones(s) for s in shapes)
    with FlopCounterMode(display=False) as counter:
        torch.conv2d(x, w, **settings)
        a @ b
    forward = counter.get_total_flops()

    def both(x: Tensor, w: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return F.conv2d(x, w, **settings), F.matmul(a, b)

    def gradients(*inputs: Tensor) -> list[Tensor]:
        with GradManager().attach(inputs) as manager:
            manager.backward(sum(y.sum() for y in both(*inputs)))
        return [t.grad for t in inputs]

    assert flops(graph_of(both, *specs(*shapes))) == forward
    # each product of two numbers is made once more for either of them; beside that, gradients are only moved
    assert _products(graph_of(gradients, *specs(*shapes))) == 2 * forward


def _products(graph: Graph) -> int:
    return sum(flops(Graph(n.inputs, (n,))) for n in graph.nodes if n.op.kind is Kind.CONTRACT)


def test_steps_sharing_a_kernel_call_are_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mgb_cpu_llvm")
    monkeypatch.setenv("MGB_JIT_BACKEND", "cpu_llvm")
    traced = profiled(4, lambda x, w: (F.exp(x) * 2.0, F.exp(w) * 2.0), opt_level=3)
    (row,) = traced.get_profile()["kernels"]
    assert row["by"] == "cpu_llvm" and sorted(row["ops"]) == ["exp", "exp", "mul", "mul"]
    assert row["bytes_read"] == row["bytes_written"] == 4 * (8 * 4 + 4 * 6)


def test_copy_bandwidth_is_measured_once() -> None:
    first = copy_bandwidth()
    assert 1e8 < first < 1e13
    assert copy_bandwidth() == copy_bandwidth("cpu0:0") == first
