"""What a step of an optimizer is made of, read off the clock: ``python -m mgb_bench.update_parts``."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import mgb
from mgb import optimizer as optim
from mgb.jit import trace

from .case import MI
from .measure import settle
from .suites.test_updates import CASES
from .ways.updates import halves

CALLS = 200

#: What a line of the generated call or of its program does, by the first text found in it.
PARTS = (
    ("targets", "which inputs may be overwritten"),
    ("kernel_", "kernels"),
    ("_reset", "are results in place?"),
    ("(leaves)", "guards: arguments"),
    ("isdisjoint", "guards: arguments"),
    ("(arrays): return MISS", "guards: arrays"),
    ("program(arrays)", "results out, old arrays off"),
    ("float32(", "learning rate and other numbers"),
)
REST = "lists of arrays, all else"

Marks = list[tuple[float, str]]


def step_of(name: str, size: int) -> tuple[Any, list[Any]]:
    """A traced step of ``optimizer.<name>``, called a few times, and its arguments."""
    many = (
        f"{'SGD with momentum' if name == 'SGD' else name}, {'small tensors' if size < MI else 'one tensor'}"
    )
    values, given = halves(next(case for case in CASES if case.name == many).inputs(size))
    params, grads = [mgb.Parameter(v) for v in values], [mgb.tensor(g) for g in given]
    more = {"momentum": 0.9} if name == "SGD" else {}
    update = getattr(optim, name)(params, lr=1e-3, **more)

    @trace(without_host=True)
    def step(*grads: Any) -> None:
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad
        update.step().clear_grad()

    for _ in range(4):
        step(*grads)
    return step, grads


def measured(source: str, names: dict[str, Any], marks: Marks, function: str) -> Callable[..., Any]:
    """The function of `source` with the clock read where one of `PARTS` ends."""
    lines: list[str] = []
    last = REST
    for line in source.splitlines():
        part = next((part for text, part in PARTS if text in line), REST)
        if part != last and lines and not lines[-1].endswith(":"):
            space = lines[-1][: len(lines[-1]) - len(lines[-1].lstrip())]
            lines.append(f"{space}marks.append((clock(), {last!r}))")
        lines.append(line)
        last = part
    scope = {**names, "marks": marks, "clock": time.perf_counter}
    exec(compile("\n".join(lines), "<measured>", "exec"), scope)
    made: Callable[..., Any] = scope[function]
    return made


def instrument(step: Any, marks: Marks) -> None:
    """Have the calls of `step` note the time of each part."""
    (program,) = step.programs()
    (call,) = step._calls
    names = call.run.__globals__
    inner = measured(program.source, program.call.__globals__, marks, "run")
    step._fast_path = measured(call.source, {**names, "program": inner}, marks, "made")


def parts(name: str, size: int, cold: bool) -> dict[str, float]:
    """Median microseconds of each part of one step; `cold`: of the second call after a pause."""
    step, grads = step_of(name, size)
    marks: Marks = []
    instrument(step, marks)
    rows = [_row(step, grads, marks, cold) for _ in range(CALLS)]
    fastest = rows if cold else sorted(rows, key=lambda row: sum(row.values()))[: CALLS // 5]
    return {part: statistics.median(row[part] for row in fastest) * 1e6 for part in fastest[0]}


def _row(step: Any, grads: list[Any], marks: Marks, cold: bool) -> dict[str, float]:
    if cold:
        settle()
        step(*grads)
    marks.clear()
    before = time.perf_counter()
    step(*grads)
    after = time.perf_counter()
    row: dict[str, float] = {}
    for now, part in (*marks, (after, REST)):
        row[part] = row.get(part, 0.0) + now - before
        before = now
    return row


def main() -> None:
    """Print a table for each optimizer and size."""
    for name, size in (("Adam", 200), ("SGD", 200), ("Adam", MI), ("SGD", MI)):
        hot, cold = (parts(name, size, cold) for cold in (False, True))
        print(f"{name}, {'one tensor of 1 Mi' if size == MI else '200 tensors'}: microseconds, hot and cold")
        for part in sorted(hot, key=lambda part: -hot[part]):
            print(f"  {part:36}{hot[part]:8.1f}{cold[part]:8.1f}")
        print(f"  {'together':36}{sum(hot.values()):8.1f}{sum(cold.values()):8.1f}")


if __name__ == "__main__":
    main()
