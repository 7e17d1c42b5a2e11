"""Profiling: what a profile holds, that it explains the calls, in every way to call a traced function."""

from __future__ import annotations

import json
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import mgb.functional as F
import mgb.module as M
import mgb.optimizer as optim
import numpy as np
import profiling
import pytest
from mgb import Tensor, tensor
from mgb.autodiff import GradManager
from mgb.errors import TraceError
from mgb.executor import Options, compile_program
from mgb.executor.profile import PROFILED, CallProfile
from mgb.executor.profile_bandwidth import copy_bandwidth
from mgb.jit import exclude_from_trace, trace
from mgb.profiling import history
from mgb.tensor.tracing import graph_of
from profiling import body, floats, profiled, specs


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_JIT_BACKEND", "eager")
    monkeypatch.delenv("MGB_DEBUG", raising=False)


# what it holds


def test_profile_has_the_documented_structure() -> None:
    found = json.loads(json.dumps(profiled().get_profile(), allow_nan=False))
    assert set(found) == {"graph_exec", "profiler", "kernels", "calls", "copy_bandwidth"}
    parts = found["profiler"]
    assert set(parts) == {"device", "host", "opr_footprint", "opr_internal_pf"}
    operators, variables = found["graph_exec"]["operator"], found["graph_exec"]["var"]
    assert all(set(part) == set(operators) for part in parts.values())
    for spans in (*parts["device"].values(), *parts["host"].values()):
        ((_, span),) = spans.items()
        assert set(span) == {"start", "kern", "end"}
        assert 0 <= span["start"] <= span["kern"] <= span["end"] < 60
    assert {place for spans in parts["device"].values() for place in spans} == {"xpux:0"}
    assert {place for spans in parts["host"].values() for place in spans} == {"MainThread"}
    for name, operator in operators.items():
        assert all(variables[v]["owner_opr"] == name for v in operator["output"])
        assert set(operator["input"]) <= set(variables)
    assert [row["id"] for row in found["kernels"]] == list(operators)


def test_step_spans_are_contiguous() -> None:
    spans = [s["xpux:0"] for s in profiled().get_profile()["profiler"]["device"].values()]
    assert len(spans) > 1
    assert all(later["start"] == earlier["end"] for earlier, later in pairwise(spans))


def test_kernel_row_describes_its_step() -> None:
    rows = profiled(5).get_profile()["kernels"]
    (product,) = [row for row in rows if "matmul" in row["ops"]]
    assert product["name"] == "matmul" and product["by"] == "library"
    assert product["calls"] == 3  # the first call records, the second one compiles
    assert product["bytes_read"] == 4 * (8 * 4 + 4 * 6) and product["bytes_written"] == 4 * 8 * 6
    assert product["flops"] == 2 * 8 * 4 * 6
    assert all(source.startswith(profiling.__file__) for source in product["sources"])
    low, middle, total = (product["time"][k] for k in ("min", "median", "total"))
    assert 0 < low <= middle <= total and total >= 3 * low
    assert product["gb_per_second"] == pytest.approx(416 / middle / 1e9)
    assert product["fraction_of_copy"] == pytest.approx(416 / middle / copy_bandwidth())


# that it explains the calls


def test_step_times_cover_most_of_a_long_call() -> None:
    traced = trace(body, profiling=True, without_host=True)
    x, w = floats(1200, 1200), floats(1200, 1200, seed=1)
    for _ in range(2):
        traced(x, w)
    share = 0.0
    for _ in range(100):  # on a busy machine, most calls are interrupted somewhere
        traced.reset_profile()
        start = time.perf_counter()
        traced(x, w)
        wall = time.perf_counter() - start
        rows = traced.get_profile()["kernels"]
        steps = sum(row[part]["total"] for row in rows for part in ("time", "prepare"))
        assert 0 < steps <= wall
        share = max(share, steps / wall)
        if share > 0.8:
            break
    assert share > 0.8


def test_unprofiled_program_contains_no_timing_code() -> None:
    def run(profiling: bool) -> Any:
        traced = trace(body, profiling=profiling, without_host=True)
        for _ in range(3):
            traced(floats(8, 4), floats(4, 6, seed=1))
        return traced.variants()[0].programs[0].source

    assert "clock" in run(True)
    assert "clock" not in run(False) and "keep" not in run(False)


def test_profiled_program_gives_same_results_and_updates_in_place() -> None:
    def train(profiling: bool) -> tuple[list[np.ndarray], bool]:
        layer = M.Linear(4, 3)
        layer.weight[...] = floats(3, 4, seed=3)
        layer.bias[...] = floats(3, seed=4)
        sgd = optim.SGD(layer.parameters(), lr=0.1)
        manager = GradManager().attach(layer.parameters())

        @trace(without_host=True, profiling=profiling)
        def step(x: Tensor) -> Tensor:
            with manager:
                loss = (layer(x) ** 2).mean()
                manager.backward(loss)
            sgd.step().clear_grad()
            return loss

        losses = [step(floats(8, 4)).numpy() for _ in range(4)]
        before = layer.weight._data.ctypes.data
        step(floats(8, 4))
        return [*losses, layer.weight.numpy()], layer.weight._data.ctypes.data == before

    (plain, plain_in_place), (measured, in_place) = train(False), train(True)
    for expected, got in zip(plain, measured, strict=True):
        np.testing.assert_array_equal(got, expected)
    assert in_place == plain_in_place


# every way to call


@pytest.mark.parametrize(
    "options", [{}, {"without_host": True}, {"symbolic": True}, {"symbolic": True, "without_host": True}],
    ids=lambda options: " ".join(options) or "replay",
)  # fmt: skip
def test_every_trace_mode_is_profiled(options: dict[str, Any]) -> None:
    traced = profiled(4, **options)
    found = traced.get_profile()
    np.testing.assert_array_equal(
        traced(floats(8, 4), floats(4, 6, seed=1)).numpy(), body(floats(8, 4), floats(4, 6, seed=1)).numpy()
    )
    assert found["calls"] == (3 if "symbolic" in options else 2)  # a program's first run does not count
    assert any("matmul" in row["ops"] for row in found["kernels"])
    assert all(row["calls"] == found["calls"] for row in found["kernels"])


def test_each_segment_is_profiled_as_a_program() -> None:
    def read(x: Tensor, w: Tensor) -> Tensor:
        y = F.exp(x).sum()
        with exclude_from_trace():
            assert y.item() > 0
        if y.item() > 0:
            w = w * 2.0
        return F.matmul(x, w) * y

    found = profiled(4, read).get_profile()
    programs = {row["program"]: row["ops"] for row in found["kernels"]}
    assert len(programs) >= 2 and found["calls"] == 2
    assert {row["calls"] for row in found["kernels"]} == {2}


def test_each_shape_is_profiled_as_a_program() -> None:
    traced = trace(body, profiling=True)
    for rows in (2, 2, 2, 3, 3, 3):
        traced(floats(rows, 4), floats(4, 6, seed=1))
    found = traced.get_profile()
    assert {row["program"] for row in found["kernels"]} == {0, 1}
    shapes = [part["in_shapes"][0] for part in found["profiler"]["opr_footprint"].values()]
    assert [2, 4] in shapes and [3, 4] in shapes


def test_calls_from_several_threads_are_counted() -> None:
    traced = trace(body, profiling=True, without_host=True)
    x, w = floats(8, 4), floats(4, 6, seed=1)
    for _ in range(2):
        traced(x, w)
    traced.reset_profile()
    ready = threading.Barrier(4)

    def work() -> None:
        ready.wait()
        for _ in range(50):
            traced(x, w)

    threads = [threading.Thread(target=work, name=f"worker {n}") for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = traced.get_profile()
    assert found["calls"] == 200
    assert {row["calls"] for row in found["kernels"]} == {200}
    assert len({call.thread for call in traced._history.calls()}) == 4


def test_each_instance_has_its_own_profile() -> None:
    class Layer:
        @trace(profiling=True)
        def run(self, x: Tensor) -> Tensor:
            return F.exp(x) * 2.0

    first, second = Layer(), Layer()
    for _ in range(3):
        first.run(floats(3))
    assert first.run.get_profile()["calls"] == 1
    with pytest.raises(TraceError):
        second.run.get_profile()


def test_nested_traced_calls_are_not_counted_twice() -> None:
    inner = trace(lambda x: F.exp(x) * 2.0, profiling=True)

    def outside(x: Tensor, w: Tensor) -> Tensor:
        with exclude_from_trace():
            inner(x)
        return F.matmul(x, w)

    outer = profiled(4, outside)
    assert {op for row in outer.get_profile()["kernels"] for op in row["ops"]} == {"matmul"}
    assert "exp" in {op for row in inner.get_profile()["kernels"] for op in row["ops"]}


def test_nested_recording_is_not_attributed_to_the_outer_call() -> None:
    inner = trace(lambda x: F.exp(x) * 2.0)

    def outside(x: Tensor, w: Tensor) -> Tensor:
        with exclude_from_trace():
            if late:
                inner(x)
                inner(x)
        return F.matmul(x, w)

    late = False
    outer = profiled(3, outside)
    late = True
    outer(floats(8, 4), floats(4, 6, seed=1))
    last = outer._history.calls()[-1]
    assert not last.recorded and last.compiled == () and inner.stats()["programs"] == 1


def test_raising_call_is_not_profiled() -> None:
    def fails(x: Tensor, w: Tensor) -> Tensor:
        y = x * 2.0
        if stop:
            raise KeyError("stop")
        return y + 1.0

    stop = False
    traced = profiled(3, fails)
    stop = True
    with pytest.raises(KeyError):
        traced(floats(8, 4), floats(4, 6))
    assert traced.get_profile()["calls"] == 1
    assert PROFILED.get() is None


def test_profile_history_is_bounded_to_the_newest_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_MOST", 100)
    traced = profiled(200)
    per_call = 2 + sum(len(run.times) for run in traced._history.calls()[-1].runs)
    assert 1 <= traced.get_profile()["calls"] <= 100 // per_call
    assert traced._history.calls()[-1].number == 200


def test_constants_are_not_profiled_as_steps() -> None:
    traced = profiled(3, lambda x, w: (x * 2.0, tensor(np.eye(3, dtype=np.float32))))
    assert [row["name"] for row in traced.get_profile()["kernels"]] == ["mul"]


def test_run_has_one_span_per_kernel_call() -> None:
    graph = graph_of(body, *specs((8, 4), (4, 6)))
    program = compile_program(graph, Options(profiling=True))
    call = CallProfile(None, 1, (0, ""), 0)
    token = PROFILED.set(call)
    program.run(floats(8, 4)._data, floats(4, 6)._data)
    PROFILED.reset(token)
    (run,) = call.runs
    spans = list(run.spans)
    assert len(spans) == len(run.program.calls) == len(run.program.costs)
    assert run.times[0] <= spans[0].start and spans[-1].end <= run.times[-1]
    program.run(floats(8, 4)._data, floats(4, 6)._data)  # nobody looks on
    assert len(call.runs) == 1


# the table


def test_profile_table_lists_the_longest_step_first() -> None:
    traced = trace(lambda x: F.matmul(x, x) + x[:1, :1] * 2.0, profiling=True, opt_level=2)
    for _ in range(4):
        traced(floats(300, 300))
    text = str(traced.profile_table())
    lines = [line for line in text.splitlines() if line.startswith("│")]
    assert len(lines) == len(traced.get_profile()["kernels"])
    assert "matmul" in lines[0] and Path(__file__).name in lines[0]
    assert "median" in text and "of copy" in text and "Python" in text


# what goes wrong


QUESTIONS = ["get_profile", "profile_table", "reset_profile", "save_profile"]


def ask(traced: Any, question: str, path: Path) -> None:
    getattr(traced, question)(*([path] if question == "save_profile" else []))


@pytest.mark.parametrize("question", QUESTIONS)
def test_profile_methods_without_profiling_raise(question: str, tmp_path: Path) -> None:
    traced = trace(body)
    for _ in range(3):
        traced(floats(8, 4), floats(4, 6))
    with pytest.raises(TraceError, match=r"body is not profiled.*@trace\(profiling=True\)"):
        ask(traced, question, tmp_path / "trace.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("question", [q for q in QUESTIONS if q != "reset_profile"])
@pytest.mark.parametrize(
    ("calls", "options"), [(0, {}), (1, {}), (3, {"imperative": True})], ids=["none", "first", "imperative"]
)
def test_profile_methods_without_a_compiled_call_raise(
    calls: int, options: dict[str, Any], question: str, tmp_path: Path
) -> None:
    traced = profiled(calls, **options)
    with pytest.raises(TraceError, match="call it, twice"):
        ask(traced, question, tmp_path / "trace.json")
    assert not list(tmp_path.iterdir())


def test_reset_profile_clears_the_profile() -> None:
    traced = profiled(6)
    traced.reset_profile()
    with pytest.raises(TraceError):
        traced.get_profile()
    traced(floats(8, 4), floats(4, 6, seed=1))
    assert traced.get_profile()["calls"] == 1
