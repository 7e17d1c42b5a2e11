"""What docs/trace.md promises beside its samples: one short test for each sentence."""

from __future__ import annotations

import builtins
import contextvars
import cProfile
import dataclasses
import functools
import gc
import logging
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mgb
import mgb.functional as F
import mgb.module as M
import mgb.optimizer as optim
import numpy as np
import pytest
from mgb import Parameter, Tensor, errors, tensor
from mgb.autodiff import GradManager
from mgb.jit import exclude_from_trace, partial_trace, trace, xla_trace

HERE = str(Path(__file__))

count, flag = 0, True
log: list[Any] = []
table: dict[str, Any] = {}
written = np.zeros(2)
small, large = np.ones(8), np.ones(100_000)
generator = np.random.default_rng(0)
variable = contextvars.ContextVar("variable", default=2.0)


class Thing:
    """An object outside."""

    factor = 2.0

    def __init__(self) -> None:
        self.number = 2.0

    @property
    def twice(self) -> float:
        return self.number * 2

    def scaled(self, x: Any) -> Any:
        return x * self.factor


thing = Thing()


def helper(x: Any, by: float = 2.0) -> Any:
    return x * by


@functools.lru_cache
def cached(of: object) -> float:
    return 2.0


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("MGB_JIT_BACKEND", "EAGER")
    monkeypatch.setattr(thing, "number", 2.0)
    log.clear()
    table.clear()
    small[0] = 1.0
    yield


def runs(function: Any) -> int:
    return int(function.stats()["body_runs"])


def reasons(function: Any) -> str:
    return "\n".join(function.stats()["reasons"])


# what makes a body run at each call


def counts(x: Any) -> Any:
    global count
    count += 1
    return x * 2.0


def appends(x: Any) -> Any:
    log.append(1)
    return x * 2.0


def writes_an_attribute(x: Any) -> Any:
    thing.number = thing.number + 1.0
    return x * 2.0


def writes_an_item(x: Any) -> Any:
    table["calls"] = table.get("calls", 0) + 1
    return x * 2.0


def writes_an_array(x: Any) -> Any:
    written[0] += 1
    return x * 2.0


def keeps_an_argument(x: Any) -> Any:
    table["x"] = x
    return x * 2.0


def prints(x: Any) -> Any:
    print("called")
    return x * 2.0


def logs(x: Any) -> Any:
    logging.getLogger("mgb.tests").critical("called")
    return x * 2.0


def opens_a_file(x: Any) -> Any:
    with open(os.devnull) as file:
        file.read()
    return x * 2.0


def reads_by_item(x: Any) -> Any:
    return x * x.item()


def reads_by_numpy(x: Any) -> Any:
    return x * x.numpy()


def reads_by_float(x: Any) -> Any:
    return x * float(x)


def decides(x: Any) -> Any:
    return x * 2.0 if x > 0 else x


def masks(x: Any) -> Any:
    return x.reshape(1)[(x > 0).reshape(1)] * 2.0


def excludes(x: Any) -> Any:
    with exclude_from_trace():
        y = x * 2.0
    return y * 1.0


def asks_the_time(x: Any) -> Any:
    return x * 2.0 if time.time() > 0 else x


def draws(x: Any) -> Any:
    return x * 2.0 if random.random() < 2 else x


def draws_by_numpy(x: Any) -> Any:
    return x * 2.0 if generator.random() < 2 else x


def asks_an_id(x: Any) -> Any:
    return x * 2.0 if id(thing) else x


def calls_what_is_cached(x: Any) -> Any:
    return x * cached(thing)


def starts_a_thread(x: Any) -> Any:
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    return x * 2.0


def looks_into_a_large_array(x: Any) -> Any:
    return x * 2.0 if large[0] else x


def returns_an_object(x: Any) -> Any:
    made = Thing()
    made.number = x
    return made


IMPURE = [
    counts, appends, writes_an_attribute, writes_an_item, writes_an_array, keeps_an_argument, prints, logs,
    opens_a_file, reads_by_item, reads_by_numpy, reads_by_float, decides, masks, excludes, asks_the_time,
    draws, draws_by_numpy, asks_an_id, calls_what_is_cached, starts_a_thread, looks_into_a_large_array,
    returns_an_object,
]  # fmt: skip


def lines_of(function: Any) -> range:
    code = function.__code__
    lines = [line for *_, line in code.co_lines() if line is not None]
    return range(min(lines), max(lines) + 1)


@pytest.mark.parametrize(
    "body",
    IMPURE,
    ids=lambda body: body.__name__,
)
def test_such_a_body_runs_at_each_call_and_statistics_name_the_line(body: Callable[[Any], Any]) -> None:
    traced = trace(body)
    for _ in range(4):
        traced(tensor(1.0))
    assert runs(traced) == 4
    head, _, rest = reasons(traced).partition(f": {HERE}:")
    assert head == f"the body of {body.__name__} runs at each call"
    if body is not returns_an_object:  # its line is that of the call
        assert int(rest.partition(":")[0]) in lines_of(body)


REFUSED = [prints, appends, counts, writes_an_item, reads_by_item, decides, excludes, asks_the_time]


@pytest.mark.parametrize("body", REFUSED, ids=lambda body: body.__name__)
def test_without_its_body_such_a_call_is_refused_before_it_does_that(
    body: Callable[[Any], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    before = count
    weight = tensor(1.0)

    def changes(x: Any) -> Any:
        weight[...] = weight + 1.0
        return body(x)

    with pytest.raises(errors.ImpureBodyError, match=HERE + r":\d+"):
        trace(changes, run_body=False)(tensor(1.0))
    assert weight.item() == 2.0  # what was done before stands
    assert (log, table, count, capsys.readouterr().out) == ([], {}, before, "")


@pytest.mark.parametrize("wrap", [partial_trace, functools.partial(xla_trace, backend="eager")])
def test_a_part_or_a_whole_step_refuses_it_too(wrap: Any) -> None:
    with pytest.raises(errors.ImpureBodyError, match="print"):
        wrap(prints)(tensor(1.0))


def test_a_function_without_source_runs_at_each_call() -> None:
    names: dict[str, Any] = {"k": 2.0}
    exec("def f(x):\n    return x * k\n", names)
    traced = trace(names["f"])
    assert traced(tensor(1.0)).item() == 2.0
    names["k"] = 3.0
    assert traced(tensor(1.0)).item() == 3.0
    assert runs(traced) == 2


def test_other_ops_follow_from_what_has_changed_without_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    @trace
    def f(x: Any) -> Any:
        log.append(1)
        return x * 4.0 if flag else x + 1.0

    assert f(tensor(1.0)).item() == 4.0
    monkeypatch.setitem(globals(), "flag", False)
    assert [f(tensor(1.0)).item() for _ in range(3)] == [2.0, 2.0, 2.0]
    assert len(log) == 4


# what is watched


def reads_an_environment_variable(x: Any) -> Any:
    return x * float(os.environ.get("MGB_TEST_FACTOR", "2"))


CHANGES: list[tuple[Callable[[Any], Any], Callable[[pytest.MonkeyPatch], object]]] = [
    (reads_an_environment_variable, lambda patch: patch.setenv("MGB_TEST_FACTOR", "3")),
    (lambda x: x * variable.get(), lambda patch: contextvars.ContextVar.set(variable, 3.0)),
    (lambda x: x * thing.twice, lambda patch: patch.setattr(thing, "number", 3.0)),
    (lambda x: thing.scaled(x), lambda patch: patch.setattr(Thing, "scaled", lambda self, x: x * 5.0)),
    (lambda x: thing.scaled(x), lambda patch: patch.setattr(thing, "factor", 3.0, raising=False)),
    (lambda x: x * (3.0 if hasattr(thing, "extra") else 2.0), lambda patch: setattr(thing, "extra", 1)),
    (lambda x: helper(x), lambda patch: patch.setitem(globals(), "helper", lambda x: x * 7.0)),
    (lambda x: helper(x), lambda patch: patch.setattr(helper, "__defaults__", (3.0,))),
    (lambda x: helper(x), lambda patch: patch.setattr(helper, "__code__", (lambda x, by: x * 9.0).__code__)),
    (lambda x: x * len(log), lambda patch: log.append(1)),
    (lambda x: x * abs(-2.0), lambda patch: patch.setattr(builtins, "abs", lambda x: 5.0)),
    (lambda x: x * float(small.sum()), lambda patch: small.__setitem__(0, 5.0)),
]


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_what_changes_outside_makes_one_more_record(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    body, change = CHANGES[number]
    traced = trace(body)
    for _ in range(2):
        np.testing.assert_array_equal(traced(tensor(1.0)).numpy(), body(tensor(1.0)).numpy())
    assert runs(traced) == 1
    before = body(tensor(1.0)).item()
    token = variable.set(variable.get())
    try:
        change(monkeypatch)
        assert body(tensor(1.0)).item() != before
        for _ in range(2):
            assert traced(tensor(1.0)).item() == body(tensor(1.0)).item()
    finally:
        variable.reset(token)
        vars(thing).pop("extra", None)
    assert runs(traced) == traced.stats()["records"] == 2 and reasons(traced)


def test_what_changes_back_and_forth_costs_two_records() -> None:
    traced = trace(lambda x: x * thing.number)
    for n in range(6):
        thing.number = float(n % 2)
        assert traced(tensor(1.0)).item() == n % 2
    assert runs(traced) == 2


def test_the_mode_of_a_module_is_guarded_and_the_rate_of_an_optimizer_is_live() -> None:
    weight = Parameter(np.ones(2, np.float32))
    manager, optimizer = GradManager().attach([weight]), optim.SGD([weight], lr=1.0)
    drop = M.Dropout(0.5)

    @trace
    def step(x: Any) -> Any:
        with manager:
            manager.backward((drop(x) * 0.0 + weight).sum())
            optimizer.step().clear_grad()

    for rate in (1.0, 2.0, 4.0):
        optimizer.param_groups[0]["lr"] = rate
        step(tensor([1.0, 1.0]))
    assert weight.tolist() == [-6.0, -6.0] and runs(step) == 1
    for _ in range(2):
        drop.eval()
        step(tensor([1.0, 1.0]))
        drop.train()
        step(tensor([1.0, 1.0]))
    assert runs(step) == 2


def test_skipped_calls_draw_random_numbers() -> None:
    traced = trace(lambda x: x + mgb.random.normal(size=(3,)))
    seen = {tuple(traced(tensor(0.0)).tolist()) for _ in range(4)}
    assert len(seen) == 4 and runs(traced) == 1


@pytest.mark.parametrize("read_by_call", [False, True])
def test_another_tensor_in_a_variable_is_seen_at_the_second_call(read_by_call: bool) -> None:
    table["w"] = tensor(2.0)
    traced = trace(lambda x: x * table["w"])
    for _ in range(1 + read_by_call):
        assert traced(tensor(1.0)).item() == 2.0
    table["w"] = tensor(3.0)
    assert traced(tensor(1.0)).item() == 3.0


def test_what_the_body_makes_itself_is_free() -> None:
    @trace
    def f(x: Any) -> Any:
        made: list[Any] = []
        names = {f"{i}": x * i for i in range(3)}
        try:
            made.append(names["3"])
        except KeyError:
            made.extend(value for value in names.values())
        own = Thing()
        own.number = len(made)
        return sum(made) * own.twice + tensor([1.0, 2.0])

    for _ in range(3):
        assert f(tensor(1.0)).tolist() == [19.0, 20.0]
    assert runs(f) == 1


# run_body


def test_a_variable_of_the_environment_runs_every_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_RUN_BODY", "1")
    default, refusing = trace(lambda x: x * 2.0), trace(lambda x: x * 2.0, run_body=False)
    monkeypatch.delenv("MGB_RUN_BODY")
    for function in (default, refusing, trace(lambda x: x * 2.0, imperative=True)):
        for _ in range(3):
            assert function(tensor(1.0)).item() == 2.0
        assert runs(function) == 3


def test_two_answers_to_one_question_are_refused() -> None:
    with pytest.raises(errors.TraceInputError, match="run_body=False"):
        trace(lambda x: x, run_body=True, without_host=True)


@pytest.mark.parametrize("run_body", [None, False])
def test_under_a_tape_of_the_caller_the_body_runs(run_body: bool | None) -> None:
    x = tensor([1.0, 2.0])
    square = trace(lambda x: (x * x).sum(), run_body=run_body)
    for _ in range(3):
        x.grad = None
        with GradManager().attach([x]) as manager:
            manager.backward(square(x))
        assert x.grad.tolist() == [2.0, 4.0]
    assert runs(square) == 3


# arguments and results


def test_an_array_that_ops_take_is_an_input_and_one_that_python_reads_is_guarded() -> None:
    @trace
    def scaled(x: Any, a: Any) -> Any:
        return x * a

    @trace
    def chosen(x: Any, a: Any) -> Any:
        return x * 2.0 if a[0] > 0 else x * 3.0

    for sign in (1.0, -1.0, 1.0):
        assert scaled(tensor(1.0), np.array([sign, 2.0])).tolist() == [sign, 2.0]
        assert chosen(tensor(1.0), np.array([sign, 2.0])).item() == (2.0 if sign > 0 else 3.0)
    assert runs(scaled) == 1 and runs(chosen) == 2


def test_each_number_has_a_record_by_value_type_and_sign() -> None:
    traced = trace(lambda x, n: x * n)
    for n in (0.0, -0.0, 0, False, 1.0, 0.0, -0.0):
        assert np.signbit(traced(tensor(1.0), n).item()) == np.signbit(n)
    assert runs(traced) == 5


def test_an_object_from_outside_is_returned_as_it_is() -> None:
    traced = trace(lambda x: (x * 2.0, thing))
    assert all(traced(tensor(1.0))[1] is thing for _ in range(3)) and runs(traced) == 1


# shapes


def test_lengths_are_followed_through_python() -> None:
    traced = trace(lambda x: x[: x.shape[0] // 2] * 2.0 / x.shape[1])
    for rows in (8, 10, 13, 64):
        x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
        np.testing.assert_allclose(traced(tensor(x)).numpy(), x[: rows // 2] * 2 / 3, rtol=1e-6)
    assert runs(traced) == 1


def test_what_a_length_decides_is_a_guard() -> None:
    traced = trace(lambda x: x * 2.0 if x.shape[0] > 4 else x * 3.0)
    for rows in (3, 2, 5, 9, 4, 6):
        assert traced(tensor(np.ones(rows, np.float32))).tolist() == [2.0 if rows > 4 else 3.0] * rows
    assert runs(traced) == 2


def test_what_a_loop_counts_has_to_stay() -> None:
    traced = trace(lambda x: F.stack([x[i] * i for i in range(x.shape[0])]).sum())
    for rows in (4, 6, 4, 6):
        assert traced(tensor(np.ones(rows, np.float32))).item() == sum(range(rows))
    assert runs(traced) == 2


# debuggers, coverage, profilers, errors


def watched(x: Any) -> Any:
    y = x * 2.0
    return y + 1.0


def lines_seen(function: Callable[[], object]) -> list[int]:
    seen: list[int] = []

    def tracer(frame: Any, event: str, argument: object) -> Any:
        if frame.f_code.co_filename == HERE and frame.f_code.co_name == "watched":
            if event == "line":
                seen.append(frame.f_lineno - watched.__code__.co_firstlineno)
            return tracer
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        function()
    finally:
        sys.settrace(before)
    return seen


def test_a_debugger_sees_the_lines_of_the_recorded_call_alone() -> None:
    traced = trace(watched)
    assert lines_seen(lambda: traced(tensor(1.0))) == [1, 2]
    assert lines_seen(lambda: traced(tensor(1.0))) == [] and runs(traced) == 1
    always = trace(watched, run_body=True)
    assert [lines_seen(lambda: always(tensor(1.0))) for _ in range(2)] == [[1, 2]] * 2


def test_under_a_profiler_a_call_is_recorded_and_skipped() -> None:
    traced, profiler = trace(watched), cProfile.Profile()
    profiler.enable()
    try:
        for _ in range(2):
            assert traced(tensor(1.0)).item() == 3.0
    finally:
        profiler.disable()
    assert runs(traced) == 1


@pytest.mark.skipif(hasattr(sys, "monitoring"), reason="sys.monitoring has places for both and for mgb")
def test_under_a_debugger_and_a_profiler_the_body_runs() -> None:
    traced, before = trace(watched), (sys.gettrace(), sys.getprofile())
    sys.settrace(lambda *_: None)
    sys.setprofile(lambda *_: None)
    try:
        results = [traced(tensor(1.0)).item() for _ in range(3)]
    finally:
        sys.setprofile(before[1])
        sys.settrace(before[0])
    assert results == [3.0] * 3 and runs(traced) == 3 and "debugger and a profiler" in reasons(traced)


def test_a_breakpoint_makes_the_body_run(monkeypatch: pytest.MonkeyPatch) -> None:
    hits: list[int] = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: hits.append(1))

    @trace
    def f(x: Any) -> Any:
        breakpoint()
        return x * 2.0

    for _ in range(3):
        f(tensor(1.0))
    assert len(hits) == 3


def raises(x: Any) -> Any:
    y = x * 2.0
    raise ValueError(f"{y.shape}")


def test_a_traceback_names_the_line_of_the_body() -> None:
    with pytest.raises(ValueError) as caught:
        trace(raises)(tensor(1.0))
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.filename, last.name, last.lineno) == (HERE, "raises", raises.__code__.co_firstlineno + 2)
    assert last.line == 'raise ValueError(f"{y.shape}")'


def test_what_the_collector_calls_is_no_part_of_the_body() -> None:
    told: list[str] = []

    def callback(phase: str, information: dict[str, int]) -> None:
        told.append(phase)

    @trace
    def f(x: Any) -> Any:
        made = [[i] for i in range(5000)]
        return x * len(made)

    gc.callbacks.append(callback)
    try:
        for _ in range(3):
            f(tensor(1.0))
    finally:
        gc.callbacks.remove(callback)
    assert told and runs(f) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_what_a_recorded_call_has_done_before_an_exception_stands(error: type[BaseException]) -> None:
    total = Parameter(np.zeros(2, np.float32))

    @trace
    def add(x: Tensor) -> Tensor:
        total[...] = total + x
        raise error

    for n in (1, 2):
        with pytest.raises(error):
            add(tensor([1.0, 2.0]))
        assert total.tolist() == [n, 2.0 * n]


def test_a_part_of_an_array_is_guarded() -> None:
    traced, array = trace(lambda x: x * small[:2]), small
    for first in (1.0, 1.0, 4.0, 4.0):
        array[0] = first
        assert traced(tensor(2.0)).tolist() == [2 * first, 2.0]
    assert runs(traced) == 2


@dataclasses.dataclass
class Scaled:
    factor: float = 1.0

    @trace
    def run(self, x: Any) -> Any:
        return x * self.factor


def test_the_instance_of_a_traced_method_is_no_argument() -> None:
    scaled = Scaled()
    for factor in (1.0, 1.0, 5.0):
        scaled.factor = factor
        assert scaled.run(tensor(2.0)).item() == 2.0 * factor


class Batch(dict[str, Any]):
    factor = 1.0


def test_what_a_container_among_the_arguments_has_beside_its_elements_is_no_key() -> None:
    traced = trace(lambda batch: batch["x"] * batch.factor)
    for factor in (1.0, 1.0, 5.0):
        batch = Batch(x=tensor(2.0))
        batch.factor = factor
        assert traced(batch).item() == 2.0 * factor
    same = trace(lambda one, other: one[0] * (2 if one is other else 3))
    found = [tensor(1.0)]
    assert [same(found, found).item(), same(found, [tensor(1.0)]).item()] == [2.0, 3.0]


def test_a_container_from_outside_that_is_returned_is_that_very_object() -> None:
    outside = [1]
    traced = trace(lambda x: (outside, x * len(outside)))
    for _ in range(3):
        assert traced(tensor(1.0))[0] is outside
    outside.append(9)
    assert traced(tensor(1.0))[1].item() == 2.0
