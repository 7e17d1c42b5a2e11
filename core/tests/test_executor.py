"""Programs give what NumPy gives, share memory as planned, and write in place only what nobody else holds."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import arrays_for, random_graphs, run
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb import cache, dtypes, memory, passes, plugins
from mgb.backend import ALL_DTYPES, Backend, Kernel, Specialize, Strided, Traits
from mgb.errors import CompileError
from mgb.executor import Options, Program, compile_program, kernels
from mgb.executor.generate import monotone
from mgb.executor.packing import pack
from mgb.executor.plan import reads_in_place
from mgb.ir import Graph, Kind, Node, Spec, const_node
from mgb.ops import layout, primitives, reduce
from mgb.ops.contract import matmul
from mgb.ops.declare import OPS
from mgb.ops.index import gather_
from mgb.ops.primitives import iota
from mgb.tensor import Tensor
from mgb.tracing import graph_of

F32 = dtypes.float32
DEFAULT = Options()


class Fold(Backend):
    """Compiles to a fold over NumPy, keeps its promises on disk, and checks what it is handed."""

    name = "fold"

    def __init__(self, **traits: Any) -> None:
        kinds = frozenset({Kind.ELEMENTWISE, Kind.REDUCE})
        self.traits = Traits(frozenset(OPS), kinds, ALL_DTYPES, min_ops=1, **traits)
        self.compiled = 0

    def compile(self, graph: Graph) -> Kernel:
        self.compiled += 1
        return self._kernel(graph)

    def _kernel(self, graph: Graph) -> Kernel:
        def call(*arrays: np.ndarray, out: tuple[np.ndarray, ...]) -> None:
            for array in arrays:
                assert array.size > 0
                assert self.traits.strided is not Strided.CONTIGUOUS or array.flags.c_contiguous
            values = [v.copy() for v in run(graph, arrays)]
            for target, value in zip(out, values, strict=True):
                assert type(target) is np.ndarray and target.flags.c_contiguous
                assert (target.shape, target.dtype) == (value.shape, value.dtype)
                target[...] = value

        return Kernel(call, str(graph), graph)

    def join(self, kernels: Sequence[Kernel]) -> Kernel:
        def call(*arrays: np.ndarray, out: tuple[np.ndarray, ...]) -> None:
            inputs, outputs = iter(arrays), iter(out)
            parts = []
            for k in kernels:
                xs = list(islice(inputs, len(k.state.inputs)))
                parts.append((k, xs, tuple(islice(outputs, len(k.state.outputs)))))
            for k, xs, ys in reversed(parts):  # no order is promised
                k.run(*xs, out=ys)

        return Kernel(call)

    def version(self) -> str:
        return "1"

    def save(self, kernel: Kernel) -> bytes | None:
        return kernel.source.encode()

    def load(self, graph: Graph, blob: bytes) -> Kernel:
        if blob.decode() != str(graph):
            raise ValueError("another graph")
        return self._kernel(graph)


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MGB_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("MGB_VERIFY", "1")
        yield cache.folder()


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Fold:
    """What every program here is compiled with."""
    return use(monkeypatch, Fold())


def use(monkeypatch: pytest.MonkeyPatch, backend: Backend) -> Any:
    monkeypatch.setattr(plugins, "choose_backend", lambda *_: backend)
    cache.clear()
    kernels.forget()
    return backend


def spec(*shape: int, dtype: np.dtype[Any] = F32) -> Spec:
    return Spec(shape, dtype)


def check(graph: Graph, options: Options, **tolerance: float) -> None:
    """The program gives what its simplified graph gives, node by node; the passes have tests of their own."""
    arrays = arrays_for(graph, integers=True)
    program = compile_program(graph, options)
    found = program.run(*arrays)
    for value, wanted, node in zip(found, run(program.simplified, arrays), graph.outputs, strict=True):
        assert isinstance(value, np.ndarray)
        assert (value.shape, value.dtype) == (node.spec.shape, node.spec.dtype)
        np.testing.assert_allclose(value, wanted, **({"rtol": 1e-6} | tolerance))


def transposed(x: Tensor) -> Tensor:
    return layout.transpose(x, axes=(1, 0))


# results


@settings(max_examples=60, deadline=None)
@given(random_graphs(max_nodes=12), st.sampled_from([0, 2, 3]), st.sampled_from([None, True]), st.booleans())
def test_random_graphs(graph: Graph, level: int, reduces: bool | None, joins: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        use(patch, Fold(joins=joins))
        check(graph, Options(level, reduces), rtol=1e-4, atol=1e-4, equal_nan=True)


GRAPHS: dict[str, Callable[[], Graph]] = {
    "an output is an input": lambda: graph_of(lambda a, b: [a, a + b, b], spec(3), spec(3)),
    "nothing but inputs": lambda: graph_of(lambda a: [a, a], spec(3)),
    "an output is a constant": lambda: Graph((), (const_node([1.0, 2.0], F32), const_node(3.0, F32))),
    "an output is an iota": lambda: graph_of(lambda a: [a, iota(shape=(2, 3), dtype=F32)], spec(3)),
    "the same output twice": lambda: graph_of(lambda a: [y := a * 2.0 + a, y], spec(3)),
    "no output": lambda: graph_of(lambda a: [], spec(3)),
    "an unused input": lambda: graph_of(lambda a, b: [a + a * a], spec(3), spec(3)),
    "0-d": lambda: graph_of(lambda a, b: [a * b + a, a - b], spec(), spec()),
    "0-d and eager": lambda: graph_of(
        lambda a: layout.reshape(reduce.reduce_sum(a, axis=(0,)), shape=()), spec(4)
    ),
    "views": lambda: graph_of(
        lambda a: [transposed(a * a + 1.0), layout.slice_(a, window=((2, -1, -1), (0, 2, 1)))], spec(3, 4)
    ),
    "matmul between": lambda: graph_of(
        lambda a, b: matmul(a * b + 1.0, b * 2.0 - a) * 2.0 + a, spec(3, 3), spec(3, 3)
    ),
    "float16": lambda: graph_of(
        lambda a, b: [a * b + 1.0, matmul(a, b)],
        spec(3, 3, dtype=dtypes.float16),
        spec(3, 3, dtype=dtypes.float16),
    ),
    "integers by zero": lambda: graph_of(
        lambda a, b: [primitives.floor_div(a, b * 0), primitives.mod(a, b * 0 + b)],
        spec(9, dtype=dtypes.int32),
        spec(9, dtype=dtypes.int32),
    ),
    "large constant": lambda: graph_of(lambda a: a * Tensor([[1.0], [2.0]]) + a, spec(2, 3)),
    "large and eager": lambda: graph_of(
        lambda a, b: [(a + b) * a, transposed(a - b) / a], spec(256, 256), spec(256, 256)
    ),
}  # fmt: skip


@pytest.mark.parametrize("make", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("level", [0, 3])
def test_graphs(backend: Fold, make: Callable[[], Graph], level: int) -> None:
    check(make(), Options(level))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
@pytest.mark.parametrize("level", [0, 3])
def test_16_bit_sums_are_folded_in_32(backend: Fold, level: int, dtype: np.dtype[Any]) -> None:
    """In 16 bits a sum of ones ends at 256 (bfloat16) or 2048 (float16)."""
    graph = graph_of(lambda a: reduce.reduce_sum(a, axis=(0,)), spec(8192, 1, dtype=dtype))
    (found,) = compile_program(graph, Options(level)).run(np.ones((8192, 1), dtype))
    assert found.dtype == dtype and float(found[0, 0]) == 8192


@pytest.mark.parametrize("name", ["reduce_sum", "reduce_prod", "reduce_max", "reduce_min"])
@pytest.mark.parametrize("level", [0, 3])
def test_empty_arrays(backend: Fold, name: str, level: int) -> None:
    fold = getattr(reduce, name)
    graph = graph_of(lambda a: [a * a + 1.0, fold(a * a + 1.0, axis=(1,)) * 2.0], spec(2, 0, 3))
    product, folded = compile_program(graph, Options(level)).run(np.ones((2, 0, 3), F32))
    identity = {"reduce_sum": 0, "reduce_prod": 1, "reduce_max": -np.inf, "reduce_min": np.inf}[name]
    assert product.shape == (2, 0, 3)
    np.testing.assert_array_equal(folded, np.full((2, 1, 3), 2.0 * identity))


def test_strided_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(lambda a: a * a + 1.0, spec(3, 4))
    odd = np.arange(24, dtype=F32).reshape(4, 6).T[::2]
    for strided in Strided:
        use(monkeypatch, Fold(strided=strided))
        (found,) = compile_program(graph).run(odd)
        np.testing.assert_array_equal(found, odd * odd + 1)
        assert found.flags.c_contiguous


def test_monotone() -> None:
    array = np.arange(24.0).reshape(2, 3, 4)
    wide = np.broadcast_to(array[:, :1], (2, 3, 4))
    for kept in (array, array[:, ::2], wide, array[:1].transpose(1, 0, 2)):
        assert monotone(kept) is kept
    for copied in (array.T, array[::-1]):
        found = monotone(copied)
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, copied)


def test_text(backend: Fold) -> None:
    graph = graph_of(lambda a, b: matmul(a * b + 1.0, b) + a, spec(3, 3), spec(3, 3))
    program = compile_program(graph)
    text = str(program)
    assert "fused by fold" in text and "eager" in text and "def run(arrays):" in text and "memory:" in text
    assert program.backends == ("fold",)
    assert program.inputs == (spec(3, 3), spec(3, 3)) and program.outputs == (spec(3, 3),)
    assert [k is not None for k in program.kernels] == [s.fused for s in program.steps]
    assert compile_program(graph, Options(0)).backends == ()


# memory


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4), st.integers(0, 5000)), max_size=25).map(
        lambda rows: [(first, first + length, nbytes) for first, length, nbytes in rows]
    )
)
def test_pack(intervals: list[tuple[int, int, int]]) -> None:
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


def test_temporaries_share(backend: Fold) -> None:
    graph = graph_of(lambda x: chain(x, 6), spec(64, 64))
    plan = compile_program(graph, Options(backend="fold")).memory_plan
    assert plan.bytes_before == 6 * 64 * 64 * 4
    assert plan.bytes_after == plan.arena_bytes == 64 * 64 * 4


def test_a_temporary_keeps_its_place_while_it_is_read(backend: Fold) -> None:
    def body(x: Tensor) -> Tensor:
        early = x * 2.0 + 1.0
        late = matmul(early, x) * 2.0 + 1.0
        return matmul(matmul(late, x), early)

    graph = graph_of(body, spec(3, 3))
    assert compile_program(graph, DEFAULT).memory_plan.arena_bytes > memory.ALIGNMENT
    check(graph, DEFAULT)


def test_an_output_is_never_in_the_arena(backend: Fold) -> None:
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


def test_calls_do_not_disturb_each_other(backend: Fold) -> None:
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


def test_empty_cache_drops_idle_arenas(backend: Fold) -> None:
    program = compile_program(graph_of(lambda x: chain(x, 2), spec(256, 256)))
    x = np.zeros((256, 256), F32)
    gc.collect()
    memory.empty_cache()
    program.run(x)
    before = memory.stats().live
    memory.empty_cache()
    assert before - memory.stats().live == program.memory_plan.arena_bytes
    np.testing.assert_array_equal(program.run(x)[0], run(program.recorded, [x])[0])


def test_idle_arenas_of_many_programs_are_bounded(backend: Fold, monkeypatch: pytest.MonkeyPatch) -> None:
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


class Owner:
    """Holds an array, as a parameter does."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array


def step_graph() -> Graph:
    square = spec(64, 64)
    return graph_of(lambda w, g: [w - g * 0.5, reduce.reduce_sum(g * g, axis=(0, 1))], square, square)


@pytest.mark.parametrize("level", [0, 3])
def test_an_update_is_written_in_place(backend: Fold, level: int) -> None:
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


def test_run_never_writes_in_place(backend: Fold) -> None:
    program = compile_program(step_graph(), updates={0: 0})
    w = np.ones((64, 64), F32)
    program.run(w, np.ones((64, 64), F32))
    np.testing.assert_array_equal(w, np.ones((64, 64)))


def test_two_owners_of_one_array(backend: Fold) -> None:
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


S = spec(8, 8)
INTEGERS = spec(8, 8, dtype=dtypes.int32)

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
    "read transposed": (False, lambda w, g: [w - transposed(w) * g], (S, S)),
    "read across": (False, lambda w, g: [w - g * layout.slice_(w, window=((0, 8, 1), (0, 1, 1)))], (S, S)),
    "folded first": (False, lambda w: [w - reduce.reduce_max(w, axis=(1,))], (S,)),
    "another shape": (False, lambda w, g: [w + g * 1.0], (spec(1, 8), S)),
    "another dtype": (False, lambda w, g: [primitives.cast(w, dtype=F32) * g], (INTEGERS, S)),
}
# fmt: on


@pytest.mark.parametrize(("allowed", "function", "shapes"), UPDATES.values(), ids=UPDATES)
def test_which_updates_are_in_place(
    backend: Fold, allowed: bool, function: Any, shapes: tuple[Spec, ...]
) -> None:
    assert updated(function, *shapes) is allowed


def test_an_output_replaces_one_input(backend: Fold) -> None:
    graph = graph_of(lambda a, b: [a + b * 2.0] * 2, S, S)
    plan = compile_program(graph, updates={0: 0, 1: 1}).memory_plan
    assert [p.update for p in plan.places.values()] == [0]


def test_in_place_with_reductions() -> None:
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


# joined calls

SHAPES = [(3,), (4, 5), (2, 3, 4), (3,), (7, 1)]


def many_updates() -> Graph:
    """Parameters and gradients of several shapes; the outputs replace the parameters."""
    half = len(SHAPES)
    return graph_of(
        lambda *xs: [w - g * 0.5 for w, g in zip(xs[:half], xs[half:], strict=True)],
        *(spec(*shape) for shape in SHAPES * 2),
    )


def sizes_of_calls(program: Program) -> list[int]:
    return [len(call.steps) for call in program.calls]


def test_small_independent_steps_share_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Fold(joins=True, specialize=Specialize.NDIM))
    program = compile_program(many_updates())
    assert sizes_of_calls(program) == [len(SHAPES)] and len(program.steps) == len(SHAPES)
    assert "steps 0, 1, 2, 3, 4 share one call" in str(program)
    check(many_updates(), DEFAULT)


def test_a_joined_call_writes_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Fold(joins=True))
    program = compile_program(many_updates(), updates={i: i for i in range(len(SHAPES))})
    owners = [Owner(np.full(shape, 3.0, F32)) for shape in SHAPES]
    places = [id(owner.array) for owner in owners]
    for count in range(1, 4):
        results = program.call([*(o.array for o in owners), *(np.ones(s, F32) for s in SHAPES)])
        for owner, result in zip(owners, results, strict=True):
            owner.array = result
        del results, result
        assert [id(owner.array) for owner in owners] == places
        for owner in owners:
            np.testing.assert_array_equal(owner.array, np.full(owner.array.shape, 3 - count / 2))


@pytest.mark.parametrize("joins", [False, True])
def test_a_backend_need_not_join(monkeypatch: pytest.MonkeyPatch, joins: bool) -> None:
    backend = use(monkeypatch, Fold(joins=joins))
    backend.join = lambda _: None
    program = compile_program(many_updates())
    assert set(sizes_of_calls(program)) == {1}
    assert "each step has a call of its own" in str(program)
    check(many_updates(), DEFAULT)


def test_large_steps_have_calls_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Fold(joins=True))
    shapes = [spec(600, 600), spec(3), spec(5), spec(700, 600)]
    graph = graph_of(lambda *xs: [x * 2.0 + 1.0 for x in xs], *shapes)
    assert sorted(sizes_of_calls(compile_program(graph))) == [1, 1, 2]
    check(graph, DEFAULT)


def test_a_step_waits_for_what_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line reads the one before through a change of shape, which no group takes in."""
    use(monkeypatch, Fold(joins=True))

    def body(x: Tensor, other: Tensor) -> list[Tensor]:
        y = layout.reshape(x * 2.0 + 1.0, shape=(2, 3))
        z = layout.reshape(y * y - 3.0, shape=(3, 2))
        return [z * z + 5.0, other * 0.5 - 1.0]

    graph = graph_of(body, spec(6), spec(9))
    program = compile_program(graph)
    fused = [[s.writes[0].spec.shape for s in c.steps] for c in program.calls if c.kernel is not None]
    assert fused[-1][0] == (3, 2) and [len(shapes) for shapes in fused if (9,) in shapes] == [2]
    check(graph, DEFAULT)


def test_pairs_that_wait_for_each_other_share_two_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Adam: each parameter is updated with the help of a count of its own, which comes first."""
    use(monkeypatch, Fold(joins=True))

    def body(*xs: Tensor) -> list[Tensor]:
        pairs = zip(xs[: len(SHAPES)], xs[len(SHAPES) :], strict=True)
        counts = [(w, count + 1.0) for w, count in pairs]
        return [y for w, count in counts for y in (count, w - layout.reshape(count * 2.0, shape=()) * w)]

    graph = graph_of(body, *(spec(*shape) for shape in SHAPES), *(spec(1) for _ in SHAPES))
    program = compile_program(graph)
    joined = [len(call.steps) for call in program.calls if call.kernel is not None]
    assert len(joined) == 2 and joined[1] == len(SHAPES)
    check(graph, DEFAULT)


def test_an_update_stays_behind_what_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it, the parameter could not be updated in place: the call may yet refuse its indices."""
    use(monkeypatch, Fold(joins=True))

    def body(w: Tensor, g: Tensor, x: Tensor, index: Tensor) -> list[Tensor]:
        taken = gather_(x * 2.0 - 1.0, index, axis=0)
        return [taken * 3.0 + 1.0, w - g * 0.5]

    integers = Spec((3, 8), np.dtype(np.int32), S.device)
    program = compile_program(graph_of(body, S, S, S, integers), updates={1: 0})
    assert [p.update for p in program.memory_plan.places.values() if p.update is not None] == [0]


def test_an_update_stays_behind_who_reads_a_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside it, or before it, the parameter could not be updated in place."""
    use(monkeypatch, Fold(joins=True))

    def body(w: Tensor, g: Tensor) -> list[Tensor]:
        return [w - g * 0.5, layout.slice_(w, window=((1, -1, -1), (0, 8, 1))) * 2.0 + 1.0]

    graph = graph_of(lambda w, g: body(w, g)[::-1], S, S)
    program = compile_program(graph, updates={1: 0})
    assert set(sizes_of_calls(program)) == {1}
    assert [p.update for p in program.memory_plan.places.values() if p.update is not None] == [0]
    owner = Owner(np.full((8, 8), 2.0, F32))
    view, owner.array = program.call([owner.array, np.ones((8, 8), F32)])
    np.testing.assert_array_equal(view, np.full((2, 8), 5.0))
    np.testing.assert_array_equal(owner.array, np.full((8, 8), 1.5))


# kernels


def test_a_kernel_is_compiled_once(backend: Fold) -> None:
    def graph(shape: Spec, factor: float = 2.0) -> Graph:
        return graph_of(lambda a: a * a + factor, shape)

    first = kernels.kernel_for(graph(spec(3, 4)), backend)
    assert kernels.kernel_for(graph(spec(3, 4)), backend) is first
    assert kernels.kernel_for(graph(spec(3, 5)), backend) is not first
    assert kernels.kernel_for(graph(spec(3, 4), 3.0), backend) is not first
    stats = kernels.stats()
    assert (stats.compiles, stats.memory_hits, stats.disk_hits) == (backend.compiled, 1, 0) == (3, 1, 0)
    assert stats.seconds > 0


def test_a_kernel_for_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = use(monkeypatch, Fold(specialize=Specialize.NDIM))
    small, large, flat = (graph_of(lambda a: a * a + 2.0, spec(*s)) for s in ((3, 4), (5, 6), (1, 6)))
    assert kernels.kernel_for(small, backend) is kernels.kernel_for(large, backend)
    assert kernels.kernel_for(flat, backend) is not kernels.kernel_for(small, backend)


def test_the_disk_is_asked(backend: Fold) -> None:
    graph = graph_of(lambda a: a * a + 2.0, spec(3))
    kernels.kernel_for(graph, backend)
    kernels.forget()
    kernels.kernel_for(graph, backend)
    assert (backend.compiled, kernels.stats().disk_hits) == (1, 1)
    other = Fold()
    other.version = lambda: "2"  # type: ignore[method-assign]
    kernels.kernel_for(graph, other)
    assert other.compiled == 1


def test_a_blob_that_does_not_load_is_replaced(backend: Fold) -> None:
    graph = graph_of(lambda a: a * a + 2.0, spec(3))
    lowered = passes.lower(graph, backend.traits)
    key = kernels.kernel_key(lowered, backend)
    cache.store("fold", key, b"of an older time")
    kernels.kernel_for(graph, backend)
    assert backend.compiled == 1
    assert cache.load("fold", key) == str(lowered).encode()


def test_threads_compile_once(backend: Fold) -> None:
    graph = graph_of(lambda a: a * a + 2.0, spec(3))
    start = threading.Barrier(8)
    found: list[Kernel] = []

    def work() -> None:
        start.wait()
        found.append(kernels.kernel_for(graph, backend))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert backend.compiled == 1 and len(set(map(id, found))) == 1 and len(found) == 8


def test_a_failing_backend_is_named(backend: Fold, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Graph) -> Kernel:
        raise ValueError("no register left")

    monkeypatch.setattr(backend, "compile", fail)
    message = r"(?s)'fold'.*ValueError: no register left.*graph\(.*mul\("
    with pytest.raises(CompileError, match=message) as caught:
        compile_program(graph_of(lambda a: a * a + 2.0, spec(3)))
    assert isinstance(caught.value.__cause__, ValueError)


def test_the_hook_is_told(backend: Fold) -> None:
    told: list[tuple[Backend, Graph, Kernel, float]] = []

    class Listener:
        @plugins.hookimpl
        def mgb_compiled(self, backend: Backend, graph: Graph, kernel: Kernel, seconds: float) -> None:
            told.append((backend, graph, kernel, seconds))

    listener = Listener()
    plugins.manager.register(listener)
    try:
        graph = graph_of(lambda a: a * a + 2.0, spec(3))
        kernel = kernels.kernel_for(graph, backend)
        kernels.kernel_for(graph, backend)
    finally:
        plugins.manager.unregister(listener)
    assert [(b, k) for b, _, k, _ in told] == [(backend, kernel)]
    assert told[0][1].key == passes.lower(graph, backend.traits).key and told[0][3] >= 0


@pytest.mark.parametrize("setting", ["raise", "warn", "ignore"])
def test_eager_steps_leave_numpys_settings_of_float_errors_alone(setting: Any) -> None:
    divide = compile_program(graph_of(primitives.div, Spec((4,), F32), Spec((4,), F32)), DEFAULT)
    assert "ignore_float_errors" in divide.source
    zeros = np.zeros(4, np.float32)
    with np.errstate(all=setting):
        before = np.geterr()
        (quotient,) = divide.run(zeros, zeros)  # "raise" would raise here, "warn" would warn
        with pytest.raises(ValueError, match="broadcast"):
            divide.run(zeros, np.zeros(3, np.float32))
        assert np.geterr() == before
    assert np.isnan(quotient).all()
