"""How compile time grows with nodes, Python time with ops, and memory with calls of changing shapes."""

from __future__ import annotations

import gc
import math
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from mgb import Tensor, module, optimizer
from mgb.autodiff import GradManager
from mgb.backends.plugins import choose_backend, load_backend
from mgb.executor import Options, compile_program, kernels
from mgb.executor.collector import resting
from mgb.fusion import detect, duplicate
from mgb.jit import trace
from mgb.passes import simplify

from mgb_bench.measure import interleave
from mgb_bench.plugin import Run

#: What is traced, and its arguments.
Program = tuple[Callable[..., Any], tuple[Tensor, ...]]

NODES = (10, 100, 1000, 10_000)

#: With kernels: past this many nodes compiling takes longer than a benchmark should.
COMPILED_NODES = (10, 100, 1000)

#: Stages that take less than this are all noise: the exponent is not fitted to them.
NOISE_SECONDS = 0.5e-3


def ones(*shape: int) -> Tensor:
    """Return a Tensor of ones in float32."""
    return Tensor(np.ones(shape, np.float32))


# graphs of a given size


def chain(nodes: int) -> Program:
    """Return a program in which each op reads the one before."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        for i in range(nodes):
            x = x + y if i % 2 else x * y
        return x

    return function, (ones(64), ones(64))


def tree(nodes: int) -> Program:
    """Return a program of products, added in pairs."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        level = [x * (i + 0.5) for i in range(nodes // 2)]
        while len(level) > 1:
            level = [a + b for a, b in zip(level[::2], level[1::2])] + level[len(level) // 2 * 2 :]
        return level[0] + y

    return function, (ones(64), ones(64))


def reductions(nodes: int) -> Program:
    """Return a program in which rows are centred again and again, and the whole is summed each time."""

    def function(x: Tensor) -> list[Tensor]:
        sums = []
        for _ in range(max(1, nodes // 7)):
            x = x - x.mean(axis=1, keepdims=True)
            sums.append((x * x).sum())
        return sums

    return function, (ones(8, 16),)


def training(nodes: int) -> Program:
    """Return a step of Adam on a perceptron of many layers, gradients included."""
    layers = max(1, nodes // 55)
    net = module.Sequential(*(part for _ in range(layers) for part in (module.Linear(8, 8), module.ReLU())))
    adam = optimizer.Adam(net.parameters(), lr=1e-3)
    manager = GradManager().attach(net.parameters())

    def function(x: Tensor) -> Tensor:
        with manager:
            loss: Tensor = (net(x) ** 2).mean()
            manager.backward(loss)
        adam.step().clear_grad()
        return loss

    return function, (ones(4, 8),)


GRAPHS: tuple[Callable[[int], Program], ...] = (chain, tree, reductions, training)


# compile time


def stages(program: Program, backend: str, compile_kernels: bool) -> dict[str, float]:
    """Return the seconds of each stage of one compilation, and what came out of it."""
    function, arguments = program
    chosen = load_backend(backend)
    clock = Clock()
    variant = clock("record", trace(function).dry_run, *arguments)
    graph, _ = clock("record", variant.graph, variant.segments[-1])
    with resting():  # as in `compile_program`
        simple = clock("simplify", simplify, graph, 3)
        again = clock("duplicate", duplicate, simple, chosen.traits)
        steps = clock("detect", detect, again, chosen.traits)
    clock("all without kernels", compile_program, graph, Options(backend="eager"))
    if compile_kernels:
        kernels.forget()
        clock("all with kernels", compile_program, graph, Options(backend=backend))
    return {"nodes": len(graph.nodes), "steps": len(steps), **clock.seconds}


class Clock:
    """Adds up the seconds of calls under a name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        gc.collect()
        start = time.perf_counter()
        value = call(*arguments)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        return value


def exponent(rows: Sequence[Mapping[str, float]], name: str) -> str:
    """Return the k of ``seconds ~ nodes**k``, from the two largest sizes that are beyond noise."""
    points = {row["nodes"]: row[name] for row in rows if row.get(name, 0.0) > NOISE_SECONDS}
    if len(points) < 2:
        return "-"
    (n, s), (more, longer) = list(points.items())[-2:]
    return f"{math.log(longer / s) / math.log(more / n):.2f}"


@pytest.mark.parametrize("graph", GRAPHS, ids=[graph.__name__ for graph in GRAPHS])
def test_compile_time(
    graph: Callable[[int], Program], benchmark: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Print one row for each size; the last row is the exponent between the two largest sizes."""
    monkeypatch.setenv("MGB_CACHE", "0")
    backend = _backend()
    most = 100 if run.quick else COMPILED_NODES[-1]
    stages(graph(NODES[0]), backend, True)  # imports are not part of any size

    def measure() -> list[dict[str, float]]:
        return [stages(graph(nodes), backend, nodes <= most) for nodes in NODES]

    rows = benchmark.pedantic(measure, rounds=1, iterations=1)
    names = [name for name in rows[0] if name not in ("nodes", "steps")]
    table = [[row["nodes"], row["steps"], *(_milliseconds(row.get(n)) for n in names)] for row in rows]
    table.append(["exponent", "", *(exponent(rows, name) for name in names)])
    note = f"milliseconds; groups as {backend} takes them; n log n has the exponent {_n_log_n(rows):.2f} here"
    _tell(benchmark, f"compile time: {graph.__name__}", ["nodes", "steps", *names], table, note)


def _backend() -> str:
    return choose_backend("cpu").name


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.1f}"


def _n_log_n(rows: Sequence[Mapping[str, float]]) -> float:
    n, more = rows[-2]["nodes"], rows[-1]["nodes"]
    return math.log(more * math.log(more) / (n * math.log(n))) / math.log(more / n)


def _tell(benchmark: Any, case: str, columns: list[str], rows: list[list[Any]], *notes: str) -> None:
    benchmark.extra_info.update(
        suite="growth", case=case, size="", table={"columns": columns, "rows": rows}, notes=notes
    )


# Python time of a call


def taped(ops: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a chain of products and its gradient: of `ops` ops, as the way back has two for each."""
    manager = GradManager()

    def function(x: Tensor, y: Tensor) -> Tensor:
        x.grad = None
        with manager.attach(x):
            z = x
            for _ in range(max(1, ops // 3)):
                z = z * y
            manager.backward(z)
        gradient = x.grad
        assert gradient is not None
        return gradient

    return function


def test_python_time(benchmark: Any, run: Run) -> None:
    """Measure microseconds of a call and of an op; kernels that the call runs are part of it."""
    counts = (1, 10, 100, 1000) if run.quick else (1, 10, 100, 1000, 10_000)
    x, y = ones(64), ones(64)
    calls: dict[tuple[str, int], Callable[[], Any]] = {}
    for ops in counts:
        calls["replay", ops] = partial(trace(chain(ops)[0], run_body=True), x, y)
        if ops <= COMPILED_NODES[-1]:
            calls["replay under a tape", ops] = partial(trace(taped(ops), run_body=True), x, y)
            calls["without_host", ops] = partial(trace(chain(ops)[0], without_host=True), x, y)

    def measure() -> Mapping[str, Any]:
        named = {f"{name} {ops}": call for (name, ops), call in calls.items()}
        return interleave(named, rounds=run.rounds)

    timings = benchmark.pedantic(measure, rounds=1, iterations=1)
    rows: list[list[Any]] = []
    for name, ops in calls:
        median = timings[f"{name} {ops}"].median * 1e6
        rows.append([name, ops, f"{median:.2f}", f"{median / ops:.2f}"])
    _tell(benchmark, "Python time", ["call", "ops", "us a call", "us an op"], rows)


# memory


@pytest.mark.parametrize("options", [{"run_body": True}, {"run_body": False}], ids=["replay", "without_host"])
def test_memory(options: dict[str, Any], benchmark: Any, run: Run) -> None:
    """Measure objects and memory over calls with 2,500 shapes: caches are full soon, and then stay."""
    weight = ones(1, 16)
    function = trace(lambda x: (x * weight).sum(axis=0) + 1.0, **options)
    calls = 2000 if run.quick else 10_000

    def measure() -> list[list[Any]]:
        rows = []
        for call in range(calls + 1):
            function(ones(1 + call % 2500, 16))
            if call % (calls // 10) == 0:
                gc.collect()
                rows.append([call, len(gc.get_objects()), f"{_resident():.1f}", len(function.variants())])
        return rows

    rows = benchmark.pedantic(measure, rounds=1, iterations=1)
    head = ["calls", "objects of Python", "resident MiB", "variants kept"]
    _tell(benchmark, f"memory: {'replay' if options['run_body'] else 'without_host'}", head, rows)


def _resident() -> float:
    """Return MiB; where the system does not report the present size, the largest so far."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize() / 2**20
    except OSError:
        unit = 1 if sys.platform == "darwin" else 2**10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
