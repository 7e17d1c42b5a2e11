"""Where loops come from by themselves: recurrent layers; Python loops that are unrolled; files."""

from __future__ import annotations

from typing import Any

import mgb
import mgb.jit as mjit
import mgb.module as M
import numpy as np
import pytest
from mgb.amp import autocast
from mgb.autodiff import GradManager
from mgb.errors import UnrolledLoopWarning
from mgb.ir import Spec
from mgb.jit import fori_loop, scan, trace
from mgb.loops import SCAN, run_graph, unrolled
from mgb.tensor.tracing import graph_of

R = np.random.default_rng(2)
X = R.normal(size=(20, 3, 4)).astype(np.float32)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_long_sequences_match_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = (
        getattr(M, name)(4, 5, 2, bidirectional=True),
        getattr(torch.nn, name)(4, 5, 2, bidirectional=True),
    )
    pairs = []
    for full, parameter in theirs.named_parameters():
        kind, _, place = full.rpartition("_l")
        layer, _, way = place.partition("_")
        mine = dict(ours.cells[2 * int(layer) + (way == "reverse")].named_parameters())[kind]
        parameter.data.copy_(torch.tensor(mine.numpy()))
        pairs.append((mine, parameter))
    out, last = theirs(torch.tensor(X))
    ((out**2).sum() + sum(part.sum() for part in (last if name == "LSTM" else [last]))).backward()
    manager = GradManager().attach(ours.parameters())

    def step(x: Any) -> Any:
        with manager:
            out, last = ours(x)
            loss = (out**2).sum() + sum((part.sum() for part in (last if name == "LSTM" else [last])), 0.0)
            manager.backward(loss)
        grads = [mine.grad for mine, _ in pairs]
        for mine, _ in pairs:
            mine.grad = None
        return out, grads

    for run in (step, trace(step)):
        found, grads = run(mgb.tensor(X))
        np.testing.assert_allclose(found.numpy(), out.detach().numpy(), rtol=1e-4, atol=1e-5)
        for ours_grad, (_, parameter) in zip(grads, pairs, strict=True):
            np.testing.assert_allclose(ours_grad.numpy(), parameter.grad.numpy(), rtol=2e-3, atol=2e-4)


def test_long_sequence_is_one_scan_and_supports_autocast() -> None:
    layer = M.LSTM(4, 5)
    run = trace(lambda x: layer(x)[0], symbolic=True)
    run(mgb.tensor(X))
    assert sum(node.op is SCAN for program in run.programs() for node in program.recorded.nodes) == 1
    with autocast():
        mixed = layer(mgb.tensor(X))[0]
    np.testing.assert_allclose(mixed.numpy().astype(np.float32), layer(mgb.tensor(X))[0].numpy(), atol=5e-2)


def test_unrolled_graph_gives_the_same_results() -> None:
    def program(x: Any, xs: Any) -> Any:
        (a, n), ys = scan(lambda c, r: ((np.sin(c[0]) + r, c[1] + 1), c[0] * r), (x, 0), xs, reverse=True)
        return [a, n, ys, fori_loop(0, 3, lambda i, v: fori_loop(0, i * 0 + 2, lambda j, w: w * x, v), x)]

    graph = graph_of(program, Spec((4,), np.dtype("float32")), Spec((5, 4), np.dtype("float32")))
    given = X[0, 0], X[:5, 0]
    flat = unrolled(graph)
    assert graph.has(SCAN) and not flat.has(SCAN)
    x, xs, a, ys = given[0], given[1], given[0], [None] * 5
    for t in reversed(range(5)):
        ys[t], a = a * xs[t], np.sin(a) + xs[t]
    for found, true in zip(run_graph(flat, given), (a, 5, np.stack(ys), x**7), strict=True):
        np.testing.assert_allclose(found, true, rtol=1e-5)


def test_long_python_loop_warns() -> None:
    @trace(symbolic=True)
    def unrolled_loop(x: Any) -> Any:
        for _ in range(1000):
            x = x * 0.5 + 1
        return x

    with pytest.warns(UnrolledLoopWarning, match=r"test_layers\.py:\d+ .* 1000 times .* mgb\.jit\.scan"):
        unrolled_loop(mgb.tensor(1.0))


def test_explain_counts_loops() -> None:
    text = trace(lambda x: mjit.fori_loop(0, 9, lambda i, v: np.sin(v) * x + i, x)).explain(mgb.tensor(X))
    assert "1 loops of compiled steps" in text and "0 ops run eagerly" in text
