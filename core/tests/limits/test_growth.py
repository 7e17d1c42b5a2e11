"""What must not grow faster than the work: visits of the compiler, calls in replay, objects that stay."""

from __future__ import annotations

import functools
import gc
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from mgb import Tensor
from mgb.autodiff import GradManager
from mgb.backends import ALL_DTYPES, Kernel, Scope, Traits
from mgb.executor import kernels
from mgb.executor.collector import resting
from mgb.executor.packing import pack
from mgb.executor.plan import plan_memory
from mgb.executor.schedule import Call
from mgb.fusion import detect, legality
from mgb.fusion.quotient import Partition, Quotient
from mgb.fusion.step import make_step
from mgb.ir import INPUT, Graph, Kind, Node, Spec
from mgb.jit import trace
from mgb.ops.declare import OPS
from mgb.tensor.tracing import graph_of

ONES = np.ones((4, 8), np.float32)
TRAITS = Traits(frozenset(OPS), frozenset({Kind.ELEMENTWISE, Kind.REDUCE}), ALL_DTYPES, api_version=1)


def chain(x: Tensor, y: Tensor, ops: int) -> Tensor:
    for i in range(ops):
        x = x + y if i % 2 else x * y
    return x


def tree(x: Tensor, y: Tensor, ops: int) -> Tensor:
    level = [x * float(i) + y for i in range(ops // 3)]
    while len(level) > 1:
        level = [a + b for a, b in zip(level[::2], level[1::2])] + level[len(level) // 2 * 2 :]
    return level[0]


def centred(x: Tensor, y: Tensor, ops: int) -> list[Tensor]:
    sums = []
    for _ in range(ops // 5):
        x = x - x.mean(axis=1, keepdims=True)
        sums.append((x * y).sum())
    return sums


@pytest.mark.parametrize("function", [chain, tree, centred])
def test_detection_visits_grow_linearly_with_the_graph(
    function: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    original = Quotient._bits

    def counted(self: Quotient, bits: int) -> list[int]:
        places = original(self, bits)
        found.append(len(places))
        return places

    monkeypatch.setattr(Quotient, "_bits", counted)

    def work(ops: int) -> int:
        found.clear()
        variant = trace(function).dry_run(Tensor(ONES), Tensor(ONES), ops)
        graph, _ = variant.graph(variant.segments[-1])
        detect(graph, TRAITS)
        return sum(found) + len(graph.nodes)

    assert work(1600) < 5 * work(400)


@pytest.mark.parametrize("scope", [Scope.DOMAIN, Scope.GRAPH])
@pytest.mark.parametrize("function", [chain, tree, centred])
def test_detection_python_lines_grow_linearly_with_the_graph(
    function: Callable[..., object], scope: Scope
) -> None:
    def work(ops: int) -> int:
        variant = trace(function).dry_run(Tensor(ONES), Tensor(ONES), ops)
        graph, _ = variant.graph(variant.segments[-1])
        return _python_lines(lambda: detect(graph, replace(TRAITS, scope=scope, max_inputs=sys.maxsize)))

    assert work(2400) < 5 * work(600)  # both more than a kernel may hold


def test_merging_work_grows_linearly_with_group_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []
    original = Partition.find

    def counted(self: Partition, node: int) -> int:
        looked_at.append(node)
        return original(self, node)

    monkeypatch.setattr(Partition, "find", counted)

    def work(inputs: int) -> int:
        looked_at.clear()
        variant = trace(lambda *xs: [x.T * 2.0 + 1.0 for x in xs]).dry_run(
            *(Tensor(ONES) for _ in range(inputs))
        )
        graph, _ = variant.graph(variant.segments[-1])
        detect(graph, replace(TRAITS, max_inputs=sys.maxsize, scope=Scope.GRAPH, min_ops=1))
        return len(looked_at)

    assert work(400) < 5 * work(100)


def test_packing_work_grows_linearly_with_intervals() -> None:
    """Temporaries of a chain, and values that a way back reads in the other order."""

    def work(steps: int) -> int:
        passing = [(k, k + 1, 64 * (k % 5 + 1)) for k in range(2 * steps)]
        saved = [(k, 2 * steps - k, 640) for k in range(steps)]
        return _python_lines(lambda: pack([*passing, *saved]))

    assert work(1600) < 5 * work(400)


@pytest.mark.parametrize("joins", [False, True])
def test_memory_planning_work_grows_linearly_with_updates(joins: bool) -> None:
    def work(count: int) -> int:
        spec = Spec((4,), np.dtype(np.float32))
        graph = graph_of(lambda g, *ws: [w - g * 0.5 for w in ws], spec, *[spec] * count)
        steps = [make_step(_upstream(w), [w], True, "") for w in graph.outputs]
        kernel = Kernel(lambda *_, **__: None, atomic=True)
        calls = [Call(tuple(steps), kernel)] if joins else [Call((s,), kernel) for s in steps]
        updates = {k: k + 1 for k in range(count)}
        places = plan_memory(graph, calls, updates).places
        assert [place.update for place in places.values()] == list(updates.values())
        return _python_lines(lambda: plan_memory(graph, calls, updates))

    assert work(400) < 5 * work(100)


def _upstream(node: Node) -> list[Node]:
    return [n for n in Graph((), (node,)).nodes if n.op is not INPUT]


def _python_lines(function: Callable[[], object]) -> int:
    """How many lines of Python a call runs, those of comprehensions once for each element."""
    count = 0

    def trace_line(_frame: object, event: str, _argument: object) -> Any:
        nonlocal count
        count += event in ("line", "call")
        return trace_line

    before = sys.gettrace()
    sys.settrace(trace_line)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def test_gc_stays_disabled_until_the_outermost_block_exits() -> None:
    assert gc.isenabled()
    with resting():
        with pytest.raises(ZeroDivisionError), resting():
            assert not gc.isenabled()
            raise ZeroDivisionError
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with resting():
            pass
        assert not gc.isenabled(), "it was off before"
    finally:
        gc.enable()


def test_gc_stays_disabled_while_another_thread_compiles() -> None:
    begun, end = threading.Event(), threading.Event()

    def compile_long() -> None:
        with resting():
            begun.set()
            end.wait(60)

    thread = threading.Thread(target=compile_long)
    thread.start()
    begun.wait(60)
    with resting():
        pass
    assert not gc.isenabled(), "the other thread is not done"
    end.set()
    thread.join()
    assert gc.isenabled()


def test_graphs_may_be_deeper_than_the_recursion_limit() -> None:
    ops = 4 * sys.getrecursionlimit()
    manager = GradManager()

    @trace(backend="eager", opt_level=3)
    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        manager.attach(x)
        with manager:
            z = x
            for _ in range(ops):
                z = z + y
            manager.backward(z.sum())
        gradient, x.grad = x.grad, None
        return z, gradient

    x, y = Tensor(ONES), Tensor(0.5 * ONES)
    for _ in range(2):
        z, gradient = step(x, y)
        np.testing.assert_allclose(z.numpy(), 1 + 0.5 * ops * ONES, rtol=1e-3)
        np.testing.assert_array_equal(gradient.numpy(), ONES)


def test_replay_calls_few_python_functions_per_op() -> None:
    manager = GradManager()

    def taped(x: Tensor, y: Tensor, ops: int) -> Tensor:
        manager.attach(x)
        with manager:
            return chain(x, y, ops)

    for function, most in ((chain, 5), (taped, 24)):
        few, many = (_python_calls(trace(function, run_body=True), ops) for ops in (20, 120))
        assert many - few <= 100 * most


def _python_calls(function: Callable[..., object], ops: int) -> int:
    """How many Python functions a replay calls."""
    x, y = Tensor(ONES), Tensor(ONES)
    for _ in range(2):
        function(x, y, ops)
    count = 0

    def profile(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        function(x, y, ops)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("options", [{}, {"run_body": True}, {"reads": True}])
def test_calls_with_new_arguments_retain_a_bounded_number_of_objects(
    options: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "_MOST", 64)
    reads = options.get("reads", False)
    traced = functools.partial(trace, run_body=options.get("run_body"))
    weight = Tensor(np.ones((1, 3), np.float32))

    @traced(backend="eager")
    def function(x: Tensor, _new: object) -> Tensor:
        y = x * weight + 1.0
        return y * float(y.sum()) if reads else y

    def objects(first: int, last: int) -> int:
        for rows in range(first, last):
            function(Tensor(np.zeros((rows, 3), np.float32)), None if not options else [rows])
        legality._spell.cache_clear()  # of bounded size, and not full yet
        gc.collect()
        return len(gc.get_objects())

    before, after = objects(1, 2000), objects(2000, 3000)  # the caches are full after the first
    assert after - before < 0.02 * before
    assert len(function.variants()) <= 300
