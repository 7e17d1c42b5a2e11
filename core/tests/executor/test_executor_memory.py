"""Programs share memory as planned, and write in place only what nobody else holds."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from folding import DEFAULT, F32, Fold, Owner, S, check, spec, transposed, use
from graphs import run
from hypothesis import given
from hypothesis import strategies as st
from mgb import dtypes, memory
from mgb.backends import Kernel
from mgb.executor import Options, compile_program
from mgb.executor.packing import pack
from mgb.executor.plan import reads_in_place
from mgb.ir import Graph, Node, Spec
from mgb.ops import layout, primitives, reduce
from mgb.ops.images.contract import matmul
from mgb.ops.index import index_get
from mgb.tensor import Tensor
from mgb.tensor.tracing import graph_of

pytestmark = pytest.mark.usefixtures("kernel_folder")

# temporaries


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4), st.integers(0, 5000)), max_size=25).map(
        lambda rows: [(first, first + length, nbytes) for first, length, nbytes in rows]
    )
)
def test_pack_separates_overlapping_intervals(intervals: list[tuple[int, int, int]]) -> None:
    offsets, total = pack(intervals)
    assert all(offset % memory.ALIGNMENT == 0 for offset in offsets)
    for i, (first, last, nbytes) in enumerate(intervals):
        assert offsets[i] + nbytes <= total
        for j in range(i):
            apart = intervals[j][0] > last or first > intervals[j][1]
            assert apart or offsets[i] + nbytes <= offsets[j] or offsets[j] + intervals[j][2] <= offsets[i]
    busiest = max((sum(n for a, b, n in intervals if a <= t <= b) for t in range(15)), default=0)
    assert busiest <= total <= sum(-(-n // memory.ALIGNMENT) * memory.ALIGNMENT for _, _, n in intervals)


def chain(x: Tensor, length: int) -> Tensor:
    """Groups that cannot be joined: a product of matrices stands between each two."""
    for _ in range(length):
        x = matmul(x * 2.0 + 1.0, x)
    return x


def test_temporaries_share_memory(fold: Fold) -> None:
    graph = graph_of(lambda x: chain(x, 6), spec(64, 64))
    plan = compile_program(graph, Options(backend="fold")).memory_plan
    assert plan.bytes_before == 6 * 64 * 64 * 4
    assert plan.bytes_after == plan.arena_bytes == 64 * 64 * 4


def test_temporary_memory_is_not_reused_while_it_is_read(fold: Fold) -> None:
    def body(x: Tensor) -> Tensor:
        early = x * 2.0 + 1.0
        late = matmul(early, x) * 2.0 + 1.0
        return matmul(matmul(late, x), early)

    graph = graph_of(body, spec(3, 3))
    assert compile_program(graph, DEFAULT).memory_plan.arena_bytes > memory.ALIGNMENT
    check(graph, DEFAULT)


def test_output_is_never_in_the_arena(fold: Fold) -> None:
    """Not even through a view of a view."""

    def body(x: Tensor) -> list[Tensor]:
        y = x * x + 1.0
        y = layout.reshape(y, shape=(3, 4))
        z = transposed(y)
        return [z, matmul(y, z)]

    program = compile_program(graph_of(body, spec(12)))
    assert program.memory_plan.arena_bytes == 0
    first, _ = program.run(np.full(12, 2.0, F32))
    program.run(np.full(12, 7.0, F32))
    np.testing.assert_array_equal(first, np.full((4, 3), 5.0))


def test_concurrent_calls_do_not_interfere(fold: Fold) -> None:
    graph = graph_of(lambda x: chain(x, 4) * 0.5 + x, spec(48, 48))
    program = compile_program(graph)
    assert program.memory_plan.arena_bytes > 0
    inputs = [np.full((48, 48), 0.01 * n, F32) for n in range(6)]
    wanted = [run(graph, [x])[0] for x in inputs]
    wrong: list[int] = []

    def work(n: int) -> None:
        for _ in range(20):
            if not np.allclose(program.run(inputs[n])[0], wanted[n], rtol=1e-4):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_empty_cache_drops_idle_arenas(fold: Fold) -> None:
    program = compile_program(graph_of(lambda x: chain(x, 2), spec(256, 256)))
    x = np.zeros((256, 256), F32)
    gc.collect()
    memory.empty_cache()
    program.run(x)
    before = memory.stats().live
    memory.empty_cache()
    assert before - memory.stats().live == program.memory_plan.arena_bytes
    np.testing.assert_array_equal(program.run(x)[0], run(program.recorded, [x])[0])


def test_idle_arenas_of_many_programs_are_bounded(fold: Fold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_POOL_BYTES", str(1 << 20))
    memory.empty_cache()
    before = memory.stats().live
    programs = []
    for rows in range(140, 160):
        programs.append(compile_program(graph_of(lambda x: chain(x, 2), spec(rows, rows))))
        programs[-1].run(np.zeros((rows, rows), F32))
    arenas = [p.memory_plan.arena_bytes for p in programs]
    assert sum(arenas) > 1.5 * (1 << 20)
    assert arenas[-1] <= memory.stats().live - before <= 1.125 * (1 << 20) + max(arenas)
    for program in (programs[-1], programs[0]):  # it is at hand, or made again
        x = np.ones(program.inputs[0].shape, F32)
        np.testing.assert_array_equal(program.run(x)[0], run(program.recorded, [x])[0])


# updates in place


def step_graph() -> Graph:
    square = spec(64, 64)
    return graph_of(lambda w, g: [w - g * 0.5, reduce.reduce_sum(g * g, axis=(0, 1))], square, square)


@pytest.mark.parametrize("level", [0, 3])
def test_update_is_written_in_place(fold: Fold, level: int) -> None:
    shape = spec(160, 160)
    program = compile_program(graph_of(lambda w, g: [w - g * 0.5], shape, shape), Options(level), {0: 0})
    owner = Owner(np.ones((160, 160), F32))
    place = owner.array.__array_interface__["data"][0]
    g = np.ones((160, 160), F32)
    for count in range(1, 4):
        (owner.array,) = program.call([owner.array, g])
        assert owner.array.__array_interface__["data"][0] == place
        np.testing.assert_array_equal(owner.array, np.full((160, 160), 1 - count / 2))
    seen = owner.array.view()
    (owner.array,) = program.call([owner.array, g])
    assert owner.array.__array_interface__["data"][0] != place
    np.testing.assert_array_equal(seen, np.full((160, 160), -0.5))
    np.testing.assert_array_equal(owner.array, np.full((160, 160), -1.0))
    np.testing.assert_array_equal(g, np.ones((160, 160)))


def test_run_never_writes_in_place(fold: Fold) -> None:
    program = compile_program(step_graph(), updates={0: 0})
    w = np.ones((64, 64), F32)
    program.run(w, np.ones((64, 64), F32))
    np.testing.assert_array_equal(w, np.ones((64, 64)))


def test_array_with_two_owners_is_not_updated_in_place(fold: Fold) -> None:
    """The weight is its own gradient."""
    program = compile_program(step_graph(), updates={0: 0})
    owner = Owner(np.ones((64, 64), F32))
    new, _ = program.call([owner.array, owner.array])
    np.testing.assert_array_equal(owner.array, np.ones((64, 64)))
    np.testing.assert_array_equal(new, np.full((64, 64), 0.5))


def updated(function: Callable[..., Any], *shapes: Spec) -> bool:
    """Does the plan let output 0 replace input 0?"""
    plan = compile_program(graph_of(function, *shapes), updates={0: 0}).memory_plan
    return any(p.update == 0 for p in plan.places.values())


INTEGERS = spec(8, 8, dtype=dtypes.int32)
I = spec(3, dtype=dtypes.int32)

# fmt: off
UPDATES: dict[str, tuple[bool, Callable[..., Any], tuple[Spec, ...]]] = {
    "plain": (True, lambda w, g: [w - g * 0.5], (S, S)),
    "momentum": (True, lambda w, g: [w - (g + w * 0.1), g * w], (S, S)),
    "read earlier": (True, lambda w, g: [matmul(w, g) * 2.0 + g], (S, S)),
    "read by what may come earlier": (True, lambda w, g: [w - g * 0.5, matmul(w, g), matmul(g, w)], (S, S)),
    "a view read likewise": (True, lambda w, g: [w - g * 0.5, matmul(g, transposed(w))], (S, S)),
    "the old value is returned": (False, lambda w, g: [w - g * 0.5, w], (S, S)),
    "a view of it is returned": (False, lambda w, g: [w - g * 0.5, transposed(w)], (S, S)),
    "read later": (False, lambda w, g: [n := w - g * 0.5, matmul(n, w)], (S, S)),
    "read later, twice": (False, lambda w, g: [n := w - g * 0.5, matmul(matmul(n, w), w)], (S, S)),
    "by what may fail": (False, lambda w, i: [n := w * 0.5, index_get(n, i, axes=(0,), place=0)], (S, I)),
    "read transposed": (False, lambda w, g: [w - transposed(w) * g], (S, S)),
    "read across": (False, lambda w, g: [w - g * layout.slice_(w, window=((0, 8, 1), (0, 1, 1)))], (S, S)),
    "folded first": (False, lambda w: [w - reduce.reduce_max(w, axis=(1,))], (S,)),
    "another shape": (False, lambda w, g: [w + g * 1.0], (spec(1, 8), S)),
    "another dtype": (False, lambda w, g: [primitives.cast(w, dtype=F32) * g], (INTEGERS, S)),
}
# fmt: on


@pytest.mark.parametrize(("allowed", "function", "shapes"), UPDATES.values(), ids=UPDATES)
def test_conditions_for_in_place_updates(
    fold: Fold, allowed: bool, function: Any, shapes: tuple[Spec, ...]
) -> None:
    assert updated(function, *shapes) is allowed


class Telling(Fold):
    """Says which operands its kernels copy: those that are given here."""

    def __init__(self, *hazards: tuple[int, int]) -> None:
        super().__init__()
        self.hazards = frozenset(hazards)

    def compile(self, graph: Graph) -> Kernel:
        return replace(super().compile(graph), hazards=self.hazards)


def test_kernel_hazards_determine_in_place_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing is asked of its passes; but who else reads the operand still is."""

    def stepped(w: Tensor, g: Tensor) -> list[Tensor]:
        return [w - g / reduce.reduce_sum(w * w, axis=(0, 1)), reduce.reduce_sum(g, axis=(0, 1))]

    use(monkeypatch, Telling())
    assert updated(stepped, S, S)
    assert not updated(lambda w, g: [*stepped(w, g), w], S, S)
    assert not updated(lambda w, g: [w - transposed(w) * g], S, S)
    assert not updated(lambda w, g: [n := w - g * 0.5, matmul(n, w)], S, S)
    use(monkeypatch, Telling((0, 0)))
    assert not updated(stepped, S, S)
    use(monkeypatch, Telling((0, 1), (1, 0)))
    assert updated(stepped, S, S)


def test_only_one_of_two_equal_outputs_is_updated_in_place(fold: Fold) -> None:
    graph = graph_of(lambda a, b: [a + b * 2.0] * 2, S, S)
    plan = compile_program(graph, updates={0: 0, 1: 1}).memory_plan
    assert [p.update for p in plan.places.values()] == [0]


def test_in_place_updates_with_reductions() -> None:
    """Two passes: what the second still reads must not be written by the first; nor what each row reads."""

    def group(function: Callable[..., Any], *shapes: Spec) -> tuple[Graph, Node, Node]:
        graph = graph_of(function, *(shapes or (S, S)))
        return graph, graph.inputs[0], graph.outputs[0]

    def total(g: Tensor) -> Tensor:
        return reduce.reduce_sum(g, axis=(1,))

    assert reads_in_place(*group(lambda w, g: [w - g / total(g)]))
    assert reads_in_place(*group(lambda w, g: [w - g, g / total(g)]))
    assert not reads_in_place(*group(lambda w, g: [w - g, w * total(g)]))
    assert not reads_in_place(*group(lambda w, g: [w - g, total(w)]))
    assert not reads_in_place(*group(lambda w, g: [w - total(w) * g]))
    assert not reads_in_place(*group(lambda w, g: [w - total(w * g)]))
    assert not reads_in_place(*group(lambda b, x: [b * 2.0 - 1.0, x + b * 2.0], spec(1, 8), S))


def test_in_place_updates_of_several_shapes_in_one_group() -> None:
    """Parameters of many shapes may be updated by one group; what reads one in another shape still counts."""
    shapes = spec(1, 8), S, spec(5, 3)

    def group(function: Callable[..., Any]) -> tuple[Graph, Node, Node]:
        graph = graph_of(function, *shapes)
        return graph, graph.inputs[0], graph.outputs[0]

    assert reads_in_place(*group(lambda a, b, c: [a * 0.5, b * 0.5, c * 0.5]))
    assert reads_in_place(*group(lambda a, b, c: [a * 0.5, b * 0.5 + c.sum(), c * 0.5 + b.sum()]))
    assert not reads_in_place(*group(lambda a, b, c: [a * 0.5, b * a, c * 0.5]))
    assert not reads_in_place(*group(lambda a, b, c: [a * 0.5, b * (a + 1.0), c * 0.5]))
    assert not reads_in_place(*group(lambda a, b, c: [a * 0.5, b * 0.5, c + a.sum()]))
