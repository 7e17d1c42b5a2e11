"""Programs give what NumPy gives, in few calls; a kernel is compiled once."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from folding import DEFAULT, F32, Fold, Owner, S, check, spec, transposed, use
from graphs import random_graphs
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb import codegen, dtypes, passes, plugins
from mgb.autodiff import GradManager
from mgb.backends import Backend, Kernel, Specialize, Strided
from mgb.errors import CompileError
from mgb.executor import Options, Program, compile_program, kernels
from mgb.executor.operands import monotone
from mgb.ir import Graph, Spec, const_node
from mgb.jit import trace
from mgb.ops import layout, primitives, reduce
from mgb.ops.bodies import division
from mgb.ops.images.contract import matmul
from mgb.ops.index import gather_
from mgb.ops.primitives import iota
from mgb.runtime import cache
from mgb.tensor import Tensor
from mgb.tensor.tracing import graph_of

pytestmark = pytest.mark.usefixtures("kernel_folder")

# results


@settings(max_examples=60)
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
        lambda a, b: [division.floor_div(a, b * 0), division.mod(a, b * 0 + b)],
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
def test_graphs(fold: Fold, make: Callable[[], Graph], level: int) -> None:
    check(make(), Options(level))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
@pytest.mark.parametrize("level", [0, 3])
def test_16_bit_sums_accumulate_in_float32(fold: Fold, level: int, dtype: np.dtype[Any]) -> None:
    """In 16 bits a sum of ones ends at 256 (bfloat16) or 2048 (float16)."""
    graph = graph_of(lambda a: reduce.reduce_sum(a, axis=(0,)), spec(8192, 1, dtype=dtype))
    (found,) = compile_program(graph, Options(level)).run(np.ones((8192, 1), dtype))
    assert found.dtype == dtype and float(found[0, 0]) == 8192


@pytest.mark.parametrize("name", ["reduce_sum", "reduce_prod", "reduce_max", "reduce_min"])
@pytest.mark.parametrize("level", [0, 3])
def test_empty_arrays(fold: Fold, name: str, level: int) -> None:
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


def test_monotone_copies_only_non_monotone_strides() -> None:
    array = np.arange(24.0).reshape(2, 3, 4)
    wide = np.broadcast_to(array[:, :1], (2, 3, 4))
    for kept in (array, array[:, ::2], wide, array[:1].transpose(1, 0, 2)):
        assert monotone(kept) is kept
    for copied in (array.T, array[::-1]):
        found = monotone(copied)
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, copied)


@pytest.mark.parametrize("setting", ["raise", "warn", "ignore"])
def test_eager_steps_preserve_numpy_error_settings(setting: Any) -> None:
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


def test_program_string_and_attributes(fold: Fold) -> None:
    graph = graph_of(lambda a, b: matmul(a * b + 1.0, b) + a, spec(3, 3), spec(3, 3))
    program = compile_program(graph)
    text = str(program)
    assert "fused by fold" in text and "library" in text and "def run(arrays):" in text and "memory:" in text
    assert program.backends == ("fold",)
    assert program.inputs == (spec(3, 3), spec(3, 3)) and program.outputs == (spec(3, 3),)
    assert [k is not None for k in program.kernels] == [s.fused for s in program.steps]
    assert compile_program(graph, Options(0)).backends == ()


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


def test_joined_call_writes_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_joining_is_optional_for_a_backend(monkeypatch: pytest.MonkeyPatch, joins: bool) -> None:
    backend = use(monkeypatch, Fold(joins=joins))
    backend.join = lambda _: None
    program = compile_program(many_updates())
    assert set(sizes_of_calls(program)) == {1}
    assert "each step has a call of its own" in str(program)
    check(many_updates(), DEFAULT)


def test_large_steps_get_separate_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Fold(joins=True))
    shapes = [spec(600, 600), spec(3), spec(5), spec(700, 600)]
    graph = graph_of(lambda *xs: [x * 2.0 + 1.0 for x in xs], *shapes)
    assert sorted(sizes_of_calls(compile_program(graph))) == [1, 1, 2]
    check(graph, DEFAULT)


def test_step_runs_after_the_steps_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_pairs_of_dependent_steps_share_two_calls(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_update_is_scheduled_after_steps_that_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it, the parameter could not be updated in place: the call may yet refuse its indices."""
    use(monkeypatch, Fold(joins=True))

    def body(w: Tensor, g: Tensor, x: Tensor, index: Tensor) -> list[Tensor]:
        taken = gather_(x * 2.0 - 1.0, index, axis=0)
        return [taken * 3.0 + 1.0, w - g * 0.5]

    integers = Spec((3, 8), np.dtype(np.int32), S.device)
    program = compile_program(graph_of(body, S, S, S, integers), updates={1: 0})
    assert [p.update for p in program.memory_plan.places.values() if p.update is not None] == [0]


def test_update_is_scheduled_after_readers_of_a_view(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_kernel_is_compiled_once(fold: Fold) -> None:
    def graph(shape: Spec, factor: float = 2.0) -> Graph:
        return graph_of(lambda a: a * a + factor, shape)

    first = kernels.kernel_for(graph(spec(3, 4)), fold)
    assert kernels.kernel_for(graph(spec(3, 4)), fold) is first
    assert kernels.kernel_for(graph(spec(3, 5)), fold) is not first
    assert kernels.kernel_for(graph(spec(3, 4), 3.0), fold) is not first
    stats = kernels.stats()
    assert (stats.compiles, stats.memory_hits, stats.disk_hits) == (fold.compiled, 1, 0) == (3, 1, 0)
    assert stats.seconds > 0


def test_in_place_kernel_is_compiled_separately(fold: Fold) -> None:
    graph = graph_of(lambda a, b: a - b, S, S)
    found = [kernels.kernel_for(graph, fold, replaces) for replaces in ((), ((0, 0),), ((0, 1),))]
    assert len({*map(id, found)}) == fold.compiled == 3
    assert kernels.kernel_for(graph, fold, ((0, 0),)) is found[1]


def test_ndim_specialized_kernel_is_shared_across_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = use(monkeypatch, Fold(specialize=Specialize.NDIM))
    small, large, flat = (graph_of(lambda a: a * a + 2.0, spec(*s)) for s in ((3, 4), (5, 6), (1, 6)))
    assert kernels.kernel_for(small, backend) is kernels.kernel_for(large, backend)
    assert kernels.kernel_for(flat, backend) is not kernels.kernel_for(small, backend)


def test_kernel_is_loaded_from_the_disk_cache(fold: Fold) -> None:
    graph = graph_of(lambda a: a * a + 2.0, spec(3))
    kernels.kernel_for(graph, fold)
    kernels.forget()
    kernels.kernel_for(graph, fold)
    assert (fold.compiled, kernels.stats().disk_hits) == (1, 1)
    other = Fold()
    other.version = lambda: "2"  # type: ignore[method-assign]
    kernels.kernel_for(graph, other)
    assert other.compiled == 1


def test_kernel_that_other_sources_printed_is_compiled_again(
    fold: Fold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_of(lambda a: a * a + 5.0, spec(3))
    kernels.kernel_for(graph, fold)
    shutil.copytree(codegen.__path__[0], tmp_path / "codegen")
    with open(tmp_path / "codegen" / "guards.py", "a") as file:
        file.write("#")
    kernels.forget()
    monkeypatch.setattr(kernels, "_PRINTING", (tmp_path / "codegen", *kernels._PRINTING[1:]))
    kernels.kernel_for(graph, fold)
    assert fold.compiled == 2


def test_unloadable_cache_entry_is_replaced(fold: Fold) -> None:
    graph = graph_of(lambda a: a * a + 2.0, spec(3))
    lowered = passes.lower(graph, fold.traits)
    key = kernels.kernel_key(lowered, fold)
    cache.store("fold", key, b"of an older time")
    kernels.kernel_for(graph, fold)
    assert fold.compiled == 1
    assert cache.load("fold", key) == str(lowered).encode()


def test_memory_error_of_a_compiler_is_not_wrapped(fold: Fold, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile(_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(fold, "compile", compile)
    with pytest.raises(MemoryError):
        kernels.kernel_for(graph_of(lambda a: a * a + 3.0, spec(3)), fold)


@pytest.mark.parametrize("blob", [RuntimeError("no room for relocations"), "text"])
def test_kernel_that_cannot_be_saved_still_runs(
    fold: Fold, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, blob: Any
) -> None:
    def save(_: Kernel) -> Any:
        if isinstance(blob, Exception):
            raise blob
        return blob

    monkeypatch.setattr(fold, "save", save)
    graph = graph_of(lambda a: a * a + 2.0, spec(3))
    check(graph, DEFAULT)
    (record,) = caplog.records
    assert record.name == "mgb.backend" and record.levelname == "WARNING"
    assert "'fold'" in record.message and ("no room" in record.message) == isinstance(blob, Exception)
    kernels.forget()
    check(graph, DEFAULT)
    assert fold.compiled == 2 and cache.info().entries == 0


def test_threads_compile_once(fold: Fold) -> None:
    graph = graph_of(lambda a: a * a + 2.0, spec(3))
    start = threading.Barrier(8)
    found: list[Kernel] = []

    def work() -> None:
        start.wait()
        found.append(kernels.kernel_for(graph, fold))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fold.compiled == 1 and len(set(map(id, found))) == 1 and len(found) == 8


def test_compile_error_reports_the_backend(fold: Fold, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Graph) -> Kernel:
        raise ValueError("no register left")

    monkeypatch.setattr(fold, "compile", fail)
    message = r"(?s)'fold'.*ValueError: no register left.*graph\(.*mul\("
    with pytest.raises(CompileError, match=message) as caught:
        compile_program(graph_of(lambda a: a * a + 2.0, spec(3)))
    assert isinstance(caught.value.__cause__, ValueError) and not kernels._busy


def test_compile_hook_is_called(fold: Fold) -> None:
    told: list[tuple[Backend, Graph, Kernel, float]] = []

    class Listener:
        @plugins.hookimpl
        def mgb_compiled(self, backend: Backend, graph: Graph, kernel: Kernel, seconds: float) -> None:
            told.append((backend, graph, kernel, seconds))

    listener = Listener()
    plugins.manager.register(listener)
    try:
        graph = graph_of(lambda a: a * a + 2.0, spec(3))
        kernel = kernels.kernel_for(graph, fold)
        kernels.kernel_for(graph, fold)
    finally:
        plugins.manager.unregister(listener)
    assert [(b, k) for b, _, k, _ in told] == [(fold, kernel)]
    assert told[0][1].key == passes.lower(graph, fold.traits).key and told[0][3] >= 0


def test_share_of_a_mean_is_computed_once_and_for_each_length() -> None:
    @trace(backend="CPU_LLVM")
    def gradient(x: Tensor) -> Tensor:
        with GradManager().attach([x]) as manager:
            manager.backward(log_softmax_loss(x))
        grad = x.grad
        x.grad = None
        return grad

    def log_softmax_loss(x: Tensor) -> Tensor:
        labels = Tensor(np.zeros(x.shape[0], np.int32))
        return F.nn.cross_entropy(x, labels)

    for rows in (4, 4, 4, 7, 7, 9):
        x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(F32)
        shares = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
        shares[:, 0] -= 1
        np.testing.assert_allclose(gradient(Tensor(x)).numpy(), shares / rows, rtol=1e-5, atol=1e-7)
    (first, *_) = gradient.programs()
    assert "kernel" in first.source and "div_" not in first.source
