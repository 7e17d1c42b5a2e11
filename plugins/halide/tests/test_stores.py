"""Outputs that go past the caches, are written over what they are made of, or in the loop that folds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("halide", reason="Halide is not installed: pip install halide")
pytest.importorskip("mgb_halide", reason="the plugin is not installed: pip install ./plugins/halide")

from mgb.codegen import structure_key
from mgb.ops.bodies.division import mod
from mgb.ops.bodies.transcendental import exp
from mgb.ops.primitives import cast, sqrt, where
from mgb.ops.reduce import reduce_max, reduce_sum
from mgb.passes import lower
from mgb_conformance.cases import of, samples
from mgb_conformance.judge import judge, problem
from mgb_halide import HalideBackend, printed
from mgb_halide.launch import Calls, _Head
from mgb_halide.settings import SCHEDULE
from mgb_halide.stores import TurnBroken, written

BACKEND = HalideBackend()

LINE = 64
HALF, DOUBLE = np.dtype("float16"), np.dtype("float64")


def softmax(x: Any, axis: int) -> Any:
    e = exp(x - reduce_max(x, axis=(axis,)))
    return e / reduce_sum(e, axis=(axis,))


def lamb(p: Any, g: Any, m: Any) -> Any:
    """All is one row; what is written is known in the loop that folds."""
    m = m * 0.9 + g * 0.1
    step = m / (sqrt(g * g) + 1.0)
    axes = tuple(range(len(p.shape)))
    return m, step, reduce_sum(p * p, axis=axes), reduce_sum(step * step, axis=axes)


def update(p: Any, g: Any, m: Any) -> Any:
    m = m * 0.9 + g
    return m, p - m * 0.1


GROUPS: dict[str, Callable[..., Any]] = {
    "flat": lambda x: x * 2 + 1,
    "several": lambda x: (x * 2 + 1, x < 0, cast(x, dtype=HALF), cast(x, dtype=np.dtype("int8"))),
    "wide": lambda x: (cast(x, dtype=DOUBLE), cast(x, dtype=np.dtype(ml_dtypes.bfloat16))),
    "rows": lambda x: softmax(x, 1),
    "rows and sums": lambda x: (x - reduce_max(x, axis=(1,)), x * 2, reduce_sum(x, axis=(1,))),
    "columns": lambda x: (softmax(x, 0), reduce_sum(x, axis=(0,))),
    "all": lambda x: (x * 2, x < 0, reduce_sum(x * x, axis=(0, 1))),
}


def beside(array: np.ndarray[Any, Any], offset: int) -> np.ndarray[Any, Any]:
    """A copy that begins `offset` bytes after a multiple of a cache line, between bytes that are checked."""
    memory = np.full(array.nbytes + 4 * LINE, 0xA5, np.uint8)
    start = LINE - memory.ctypes.data % LINE + offset + LINE
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


KERNELS: dict[Any, Any] = {}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    KERNELS.clear()


def compiled(graph: Any) -> Any:
    """The kernel of a graph; one serves all sizes."""
    lowered = lower(graph, BACKEND.traits)
    key = structure_key(lowered)
    if key not in KERNELS:
        KERNELS[key] = BACKEND.compile(lowered)
    return KERNELS[key]


def untouched(array: np.ndarray[Any, Any]) -> bool:
    """Whether what lies around an array of `beside` is as it was."""
    memory = array
    while memory.base is not None:
        memory = memory.base
    start = array.ctypes.data - memory.ctypes.data
    return bool((memory[:start] == 0xA5).all() and (memory[start + array.nbytes :] == 0xA5).all())


def checked(
    function: Callable[..., Any], arrays: list[Any], offset: int = 0, over: dict[int, int] | None = None
) -> Any:
    """Run it on outputs at an offset, perhaps over inputs, and compare; returns the kernel."""
    graph = of(function, *arrays)
    kernel = compiled(graph)
    want = judge(graph, arrays)
    given, over = [beside(a, offset) if a.flags.c_contiguous else a for a in arrays], over or {}
    fresh = [beside(np.full(o.spec.shape, 77, o.spec.dtype), offset) for o in graph.outputs]
    assert all(graph.inputs[i].spec == graph.outputs[k].spec for k, i in over.items())
    out = [given[over[k]] if k in over else array for k, array in enumerate(fresh)]
    kernel.run(*given, out=tuple(out))
    assert [problem(g, w) for g, w in zip(out, want, strict=True)] == [None] * len(out)
    assert all(map(untouched, out))
    return kernel


@pytest.mark.parametrize("group", GROUPS)
def test_streaming_stores_at_any_alignment(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SCHEDULE.name, "stream=0")
    for shape in [(3, 2), (5, 64), (7, 1000), (300, 5), (3, 40_000)]:
        for offset in (0, 8, 32, 56) if group == "wide" else (0, 4, 32, 60):
            checked(GROUPS[group], [samples("float32", shape)], offset)


@pytest.mark.parametrize("group", GROUPS)
def test_full_vector_stores_are_nontemporal(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    monkeypatch.setattr(printed, "emit", lambda text, **_: texts.append(text) or b"")
    graph = lower(of(GROUPS[group], samples("float32", (50, 1000))), BACKEND.traits)
    with pytest.raises(RuntimeError):  # there is no object file
        BACKEND.compile(graph)
    assert texts[0].count("!nontemporal") >= sum(v.spec.size == 50_000 for v in graph.outputs)
    assert not any("tbaa" in line for line in texts[0].split("\n") if "!nontemporal" in line)


@pytest.mark.parametrize(("text", "mib", "past"), [("", 24, 0), ("", 40, 1), ("stream=100", 40, 0)])
def test_only_large_calls_use_streaming_stores(
    text: str, mib: int, past: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of these arrays is never touched."""
    monkeypatch.setenv(SCHEDULE.name, text)
    graph = of(lambda x: x * 2, np.ones(100, np.float32))
    unit = BACKEND.compile(lower(graph, BACKEND.traits)).state
    x, y = (np.empty(mib << 18, np.float32) for _ in range(2))
    assert _Head.from_address(unit.plan([x], [y]).address).past == past


SIZES = [(1,), (63,), (16_384,), (16_385,), (50_001,), (7, 3000), (300, 5), (5, 20_001), (9, 30, 50)]


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_outputs_written_inside_the_reduction_loop(ndim: int) -> None:
    """Also where the axes cannot be merged, and elements do not lie side by side."""
    for shape in (s for s in SIZES if len(s) == ndim):
        arrays = [samples("float32", shape, seed) for seed in range(3)]
        inner = [np.repeat(a, 2, axis=-1)[..., ::2] for a in arrays]
        outer = [np.concatenate([a, a], axis=-1)[..., : shape[-1]] for a in arrays]
        for given in (arrays, inner, outer, [inner[0], outer[1], arrays[2]]):
            checked(lamb, given)
        checked(lamb, arrays, over={0: 2, 1: 0})


def test_several_outputs_overwrite_their_inputs() -> None:
    for shape in [(5,), (1000,), (40, 70), (20, 16_500)]:
        arrays = [samples("float32", shape, seed) for seed in range(3)]
        for order in ({0: 0, 1: 2}, {0: 2, 1: 0}, {0: 1, 1: 0}):
            assert not checked(update, arrays, over=order).hazards


def rows_and(x: Any, y: Any, axis: int) -> Any:
    m = y * 0.5 + x
    return m, x - m / (reduce_sum(m * m, axis=(axis,)) + 1.0)


@pytest.mark.parametrize("axis", [0, 1])
def test_several_row_outputs_overwrite_their_inputs(axis: int) -> None:
    for shape in [(3, 5), (200, 100), (2, 50_000), (20_000, 3)]:
        x, y = samples("float32", shape), samples("float32", shape, 1)
        for order in ({0: 1, 1: 0}, {0: 0, 1: 1}):
            assert not checked(lambda x, y: rows_and(x, y, axis), [x, y], over=order).hazards


ODD: dict[str, Callable[..., Any]] = {
    "a constant": lambda x, y: (x * 2 + y, y * 0 + 3),
    "nothing but a constant": lambda x, y: (x * 2 + y, cast(where(x == x, 1.0, 1.0), dtype=x.dtype)),
    "a copy": lambda x, y: (x * 2 + y, y + 0),
    "the C library's functions": lambda x, y: (mod(x, y), mod(y, x), x - y),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("group", ODD)
def test_outputs_compiled_to_memset_or_memcpy_are_correct(group: str, dtype: str) -> None:
    """LLVM may fill and copy memory in one go, before the other output is computed."""
    for shape in [(70,), (3000,), (2, 3000)]:
        x, y = samples(dtype, shape), np.abs(samples(dtype, shape, 1)) + 1
        checked(ODD[group], [x, y], over={1: 0})
        checked(ODD[group], [x, y], over={0: 1, 1: 0})


@pytest.mark.parametrize("group", ["several", "rows and sums", "columns", "all"])
def test_broken_turns_fall_back_to_separate_computation(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def broken(text: str, streamed: Any, turns: Any) -> str:
        asked.append(bool(turns))
        if turns:
            raise TurnBroken("it was asked for")
        return written(text, streamed, turns)

    monkeypatch.setattr(printed, "written", broken)
    for shape in [(7, 300), (2, 20_001)]:
        checked(GROUPS[group], [samples("float32", shape)])
    assert asked[:2] == ([False] if group == "columns" else [True, False])
    x, y = samples("float32", (60, 70)), samples("float32", (60, 70), 1)
    checked(update, [x, y, x + y], over={0: 0, 1: 1})
    checked(lambda x, y: rows_and(x, y, 0), [x, y], over={0: 1, 1: 0})
    checked(lambda x, y: rows_and(x, y, 1), [x, y], over={0: 1, 1: 0})


TEXT = """
define i32 @kernel(ptr %a, ptr %b) {{
entry:
  store <16 x float> %x, ptr %a, align 4, !tbaa !1
  %late = load <16 x float>, ptr %b, align 4, !tbaa !5
  {second}
  ret i32 0
}}

!1 = !{{!2, !2, i64 0}}
!2 = !{{!"out0.0", !9, i64 0}}
!3 = !{{!4, !4, i64 0}}
!4 = !{{!"out0.1.width16.base0", !9, i64 0}}
!5 = !{{!6, !6, i64 0}}
!6 = !{{!"x0", !9, i64 0}}
"""

NAMES = frozenset({"out0.0", "out0.1"})


def test_joint_stores_are_placed_after_the_loads() -> None:
    text = TEXT.format(second="store <16 x float> %late, ptr %b, align 4, !tbaa !3")
    body = written(text, NAMES, [NAMES]).split("}")[0].strip().split("\n")
    assert body[2].startswith("  %late = load")
    assert body[3] == (
        "  call void @mgb.store.16xfloat.16xfloat(<16 x float> %x, ptr %a, <16 x float> %late, ptr %b)"
    ), body
    plain = written(text, (), [NAMES])
    assert plain.index("%late = load") < plain.index("store <16 x float> %x") and "mgb" not in plain


@pytest.mark.parametrize(
    "second",
    [
        "call void @llvm.memset.p0.i64(ptr %b, i8 0, i64 64, i1 false), !tbaa !3",
        "store <8 x float> %half, ptr %b, align 4, !tbaa !3",
        "",
    ],
)
def test_outputs_not_stored_together_raise_turn_broken(second: str) -> None:
    text = TEXT.format(second=second)
    with pytest.raises(TurnBroken, match=r"of out0\.0, out0\.1"):
        written(text, NAMES, [NAMES])
    written(text, NAMES, [])  # of one output each there is nothing to tell


def test_unrecognized_stores_raise_turn_broken() -> None:
    text = TEXT.format(second="store <16 x float> %late, ptr %b, align 4, !tbaa !3")
    with pytest.raises(TurnBroken, match=r"no store to out0\.0, out0\.1 is found"):
        written(text.replace(", !tbaa", ", !alias.scope !8, !tbaa"), NAMES, [NAMES])


@pytest.mark.parametrize("type_", ["<3 x float>", "<2 x i16>", "float", "ptr"])
def test_partial_vector_stores_are_left_unchanged(type_: str) -> None:
    text = TEXT.format(second=f"store {type_} %v, ptr %b, align 4, !tbaa !3")
    assert f"  store {type_} %v, ptr %b, align 4, !tbaa !3" in written(text, NAMES, [])


@pytest.mark.parametrize("threads", [1, 3])
def test_joined_small_kernels_match_separate_ones(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gives what it gives alone, on however many threads they are."""
    monkeypatch.setenv("MGB_NUM_THREADS", str(threads))
    sizes = [int(n) for n in np.random.default_rng(3).integers(1, 40_000, 60)]
    joined(sizes, monkeypatch)


def test_joined_large_kernel_keeps_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_NUM_THREADS", "3")
    joined([10, 1 << 20, 300], monkeypatch)


def joined(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    small: list[bool] = []
    phases = Calls._phases

    def noted(self: Any, *given: Any) -> Any:
        small.append(True)
        return phases(self, *given)

    monkeypatch.setattr(Calls, "_phases", noted)
    arrays = [[samples("float32", (n,), seed) for seed in range(3)] for n in sizes]
    graphs = [of(lamb if k % 3 == 0 else update, *given) for k, given in enumerate(arrays)]
    kernels = {str(k % 3 == 0): BACKEND.compile(lower(graphs[k], BACKEND.traits)) for k in (0, 1)}
    kernel = BACKEND.join([kernels[str(k % 3 == 0)] for k in range(len(sizes))])
    assert kernel is not None
    out = [[np.full(o.spec.shape, 77, np.float32) for o in graph.outputs] for graph in graphs]
    for _ in range(3):
        kernel.run(*(a for given in arrays for a in given), out=tuple(a for each in out for a in each))
        for graph, given, got in zip(graphs, arrays, out, strict=True):
            want = judge(graph, given)
            assert [problem(g, w) for g, w in zip(got, want, strict=True)] == [None] * len(got)
    assert bool(small) is (3 * max(sizes) < sum(sizes))
