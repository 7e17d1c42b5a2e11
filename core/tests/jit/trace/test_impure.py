"""What makes a body run at each call, and that it is refused where the body is never to run."""

from __future__ import annotations

import functools
import logging
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mgb import errors, tensor
from mgb.jit import exclude_from_trace, partial_trace, trace, xla_trace
from outside import Thing, reasons, runs, thing

HERE = str(Path(__file__))

count, flag = 0, True
log: deque[Any] = deque()
table: dict[str, Any] = {}
written = np.zeros(2)
large = np.ones(100_000)
generator = np.random.default_rng(0)


@functools.lru_cache
def cached(of: object) -> float:
    return 2.0


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_JIT_BACKEND", "EAGER")
    monkeypatch.setattr(thing, "number", 2.0)
    log.clear()
    table.clear()


def counts(x: Any) -> Any:
    global count
    count += 1
    return x * 2.0


def appends(x: Any) -> Any:
    log.append(1)
    return x * 2.0


def writes_an_item(x: Any) -> Any:
    table.update(calls=1)
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
    appends, writes_an_array, keeps_an_argument, prints, logs,
    opens_a_file, reads_by_item, reads_by_numpy, reads_by_float, decides, masks, excludes, asks_the_time,
    draws, draws_by_numpy, asks_an_id, starts_a_thread, looks_into_a_large_array,
    returns_an_object,
]  # fmt: skip


def lines_of(function: Any) -> range:
    code = function.__code__
    lines = [line for *_, line in code.co_lines() if line is not None]
    return range(min(lines), max(lines) + 1)


@pytest.mark.parametrize("body", IMPURE, ids=lambda body: body.__name__)
def test_body_with_side_effects_runs_at_each_call_and_stats_name_the_line(body: Callable[[Any], Any]) -> None:
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
def test_run_body_false_rejects_side_effects_before_they_happen(
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
    assert (log, table, count, capsys.readouterr().out) == (deque(), {}, before, "")


@pytest.mark.parametrize("wrap", [partial_trace, functools.partial(xla_trace, backend="eager")])
def test_partial_trace_and_xla_trace_reject_side_effects(wrap: Any) -> None:
    with pytest.raises(errors.ImpureBodyError, match="print"):
        wrap(prints)(tensor(1.0))


def test_function_without_source_runs_at_each_call() -> None:
    names: dict[str, Any] = {"k": 2.0}
    exec("def f(x):\n    return x * k\n", names)
    traced = trace(names["f"])
    assert traced(tensor(1.0)).item() == 2.0
    names["k"] = 3.0
    assert traced(tensor(1.0)).item() == 3.0
    assert runs(traced) == 2


def test_changed_global_retraces_a_body_with_side_effects(monkeypatch: pytest.MonkeyPatch) -> None:
    @trace
    def f(x: Any) -> Any:
        log.append(1)
        return x * 4.0 if flag else x + 1.0

    assert f(tensor(1.0)).item() == 4.0
    monkeypatch.setitem(globals(), "flag", False)
    assert [f(tensor(1.0)).item() for _ in range(3)] == [2.0, 2.0, 2.0]
    assert len(log) == 4
