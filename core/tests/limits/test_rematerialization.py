"""Programs that compute values again: the same bits, less memory, errors that say how little is enough."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import arrays_for, random_graphs, run
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb import Tensor, dtypes, functional, memory, module, optimizer, plugins, random
from mgb.autodiff import GradManager
from mgb.backends import ALL_DTYPES, Backend, Kernel, Traits
from mgb.errors import MemoryBudgetError
from mgb.executor import DTRConfig, Options, Program, SublinearMemoryConfig, compile_program
from mgb.executor.remat.peak import memory_report
from mgb.ir import Graph, Kind, Spec
from mgb.jit import trace
from mgb.ops.declare import OPS
from mgb.ops.images.contract import matmul
from mgb.tensor import libraries
from mgb.tensor.tracing import graph_of

Config = SublinearMemoryConfig | DTRConfig
SUBLINEAR = SublinearMemoryConfig(num_worker=1)
F32 = dtypes.float32


def dtr(threshold: float) -> DTRConfig:
    """Every value may go."""
    return DTRConfig(max(1, int(threshold)), evictee_minimum_size=1)


class Folding(Backend):
    """Compiles to a fold over NumPy: the results of its steps are in the arena."""

    name = "folding"
    traits = Traits(
        frozenset(OPS), frozenset({Kind.ELEMENTWISE, Kind.REDUCE}), ALL_DTYPES, min_ops=1, api_version=1
    )

    def compile(self, graph: Graph) -> Kernel:
        def call(*arrays: np.ndarray, out: tuple[np.ndarray, ...]) -> None:
            values = [v.copy() for v in run(graph, arrays)]
            for target, value in zip(out, values, strict=True):
                target[...] = value

        return Kernel(call, atomic=True)

    def version(self) -> str:
        return "1"


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("cache")
        patch.setenv("MGB_CACHE_DIR", str(path))
        patch.setenv("MGB_VERIFY", "1")
        yield path


@pytest.fixture
def no_libraries() -> Iterator[None]:
    """Libraries of ops keep memory of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MGB_OP_LIBRARIES", "none")
        libraries.forget()
        yield
    libraries.forget()


def least(graph: Graph, options: Options) -> int:
    """The smallest threshold that the error names."""
    with pytest.raises(MemoryBudgetError) as caught:
        compile_program(graph, replace(options, memory=dtr(1)))
    return caught.value.smallest


def equal(found: Any, wanted: Any) -> None:
    """The same bits."""
    for a, b in zip(found, wanted, strict=True):
        assert a.tobytes() == b.tobytes()


# random programs


def mirrored(graph: Graph) -> Graph:
    """`graph` and then, from its last value back to its first, a sum with each: as a gradient reads them."""

    def body(*inputs: Tensor) -> list[Tensor]:
        values: list[Tensor] = []

        def rule(node: Any, *args: Any) -> Any:
            from mgb.tensor.tracing import copy_node

            values.append(copy_node(node, *args))
            return values[-1]

        outputs = graph.fold(rule, inputs)
        total = functional.sum(outputs[0])
        for value in reversed(values):
            total = total * 0.5 + functional.sum(functional.abs(value) + total)
        return [total, *outputs]

    return graph_of(body, *(n.spec for n in graph.inputs))


@settings(max_examples=40)
@given(random_graphs(max_nodes=12), st.booleans(), st.floats(0, 1))
def test_rematerialized_random_programs_match_plain_ones(graph: Graph, compiled: bool, share: float) -> None:
    """Both methods give what the program gives that keeps everything, which gives what the graph says."""
    graph = mirrored(graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugins, "choose_backend", lambda *_: Folding())
        options = Options(3 if compiled else 0)
        arrays = arrays_for(graph, integers=True)
        plain = compile_program(graph, options)
        wanted = plain.run(*arrays)
        for value, truth in zip(wanted, run(plain.simplified, arrays), strict=True):
            np.testing.assert_array_equal(value, truth)
        peak = memory_report(plain).peak
        equal(compile_program(graph, replace(options, memory=SUBLINEAR)).run(*arrays), wanted)
        try:
            program = compile_program(graph, replace(options, memory=dtr(share * peak)))
        except MemoryBudgetError as error:
            program = compile_program(graph, replace(options, memory=dtr(error.smallest)))
            assert memory_report(program).peak <= error.smallest
        else:
            assert memory_report(program).peak <= max(1, share * peak)
        equal(program.run(*arrays), wanted)
        equal(program.run(*arrays), wanted)  # in the arena that the first call has left


def layers(count: int, size: int = 64) -> Graph:
    """Products and their gradient, written out."""

    def body(x: Tensor, *weights: Tensor) -> list[Tensor]:
        values = [x]
        for w in weights:
            values.append(functional.tanh(matmul(values[-1], w)))
        gradient = values[-1]
        gradients = []
        for w, (below, y) in zip(reversed(weights), reversed(list(pairwise(values))), strict=True):
            gradient = gradient * (1.0 - y * y)
            gradients.append(matmul(functional.transpose(below, (1, 0)), gradient))
            gradient = matmul(gradient, functional.transpose(w, (1, 0)))
        return [w - g * 0.1 for w, g in zip(weights, reversed(gradients), strict=True)]

    square = Spec((size, size), F32)
    return graph_of(body, Spec((8 * size, size), F32), *[square] * count)


@pytest.mark.parametrize("level", [0, 3])
def test_memory_budget_is_met_or_rejected(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    monkeypatch.setattr(plugins, "choose_backend", lambda *_: Folding())
    graph, options = layers(12), Options(level)
    smallest = least(graph, options)
    program = compile_program(graph, replace(options, memory=dtr(smallest)))
    report = memory_report(program)
    assert report.peak <= smallest < report.planned / 2 and report.again > 0
    with pytest.raises(MemoryBudgetError, match=f"eviction_threshold={smallest - 1}:.* {smallest}: use"):
        compile_program(graph, replace(options, memory=dtr(smallest - 1)))
    arrays = arrays_for(graph)
    equal(program.run(*arrays), compile_program(graph, options).run(*arrays))


def test_sufficient_memory_leaves_the_program_unchanged() -> None:
    graph = layers(3)
    plain = memory_report(compile_program(graph, Options(0)))
    for config in (dtr(plain.peak), SublinearMemoryConfig(lb_memory_mb=1 << 10)):
        assert memory_report(compile_program(graph, Options(0, memory=config))) == plain
    assert plain.again == 0 and plain.peak == plain.planned < plain.apart


def test_input_is_not_overwritten_before_recomputation_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """``w`` gets its new value early; what was computed from the old one is computed again later."""
    monkeypatch.setattr(plugins, "choose_backend", lambda *_: Folding())

    def body(w: Tensor, x: Tensor) -> list[Tensor]:
        values = [x * w]
        new = w * 0.5
        for _ in range(12):
            values.append(functional.sin(matmul(values[-1], new)))
        total = values.pop()
        while values:
            total = matmul(total, values.pop()) * 0.125
        return [new, total]

    graph = graph_of(body, *[Spec((64, 64), F32)] * 2)
    plain = compile_program(graph, updates={0: 0})
    config = dtr(0.6 * memory_report(plain).peak)
    program = compile_program(graph, Options(memory=config), updates={0: 0})
    places = plain.memory_plan.places.values()
    assert [p.update for p in places if p.update is not None] == [0]
    readers = [sum(p.simplified.inputs[0] in s.reads for s in p.steps) for p in (plain, program)]
    assert readers[1] > readers[0]
    arrays = arrays_for(graph)
    wanted = run(plain.simplified, arrays)
    for p in (plain, program):
        holder = [a.copy() for a in arrays]
        owner = [holder[0]]
        equal(p.call(holder), wanted)
        del owner


def test_updates_stay_in_place() -> None:
    """A parameter's update waits for those who compute from the old value again, and replaces it then."""
    step, x = training("mlp", 8)
    once, again = (program_of(step, x, config) for config in (None, SUBLINEAR))
    assert memory_report(again).again > 0
    in_place = [sum(p.update is not None for p in q.memory_plan.places.values()) for q in (once, again)]
    assert in_place[0] == in_place[1] > 0


# training steps

#: Of perceptrons: how wide layers are. Products of thin ones are parts of kernels.
WIDTHS = {"mlp": 32, "thin": 8}


def training(kind: str, depth: int, dropout: float = 0.0) -> tuple[Callable[[Tensor], list[Tensor]], Tensor]:
    """One step of a network from fixed parameters; it returns the loss and all parameters."""
    draw = np.random.default_rng(0)
    parts: list[module.Module] = []
    for _ in range(depth):
        if kind in WIDTHS:
            parts += [module.Linear(WIDTHS[kind], WIDTHS[kind]), module.ReLU()]
        else:
            parts += [module.Conv2d(4, 4, 3, padding=1), module.BatchNorm2d(4), module.ReLU()]
        parts += [module.Dropout(dropout)] if dropout else []
    net = module.Sequential(*parts)
    for p in net.parameters():
        p._reset(Tensor(draw.standard_normal(p.shape) * 0.2, dtype="float32"))
    sgd = optimizer.SGD(net.parameters(), lr=0.01, momentum=0.9)
    manager = GradManager().attach(net.parameters())

    def step(x: Tensor) -> list[Tensor]:
        with manager:
            loss = (net(x) ** 2).mean()
            manager.backward(loss)
        sgd.step().clear_grad()
        return [loss, *net.parameters()]

    shape = (65536 // WIDTHS[kind], WIDTHS[kind]) if kind in WIDTHS else (8, 4, 16, 16)
    return step, Tensor(draw.standard_normal(shape), dtype="float32")


def traced(step: Callable[..., Any], config: Config | None) -> Any:
    """`step` with one of the two ways to save memory, or none."""
    name = "dtr_config" if isinstance(config, DTRConfig) else "sublinear_memory_config"
    return trace(step, without_host=True, symbolic=True, **{name: config})


def program_of(step: Callable[..., Any], x: Tensor, config: Config | None) -> Program:
    """The program of a call."""
    variant = traced(step, config).dry_run(x)
    program, _ = variant.program(0)
    return program


def results(kind: str, depth: int, config: Config | None, **more: float) -> list[np.ndarray]:
    """What two calls give, from the same start."""
    random.seed(5)
    step, x = training(kind, depth, **more)
    function = traced(step, config)
    return [t.numpy().copy() for _ in range(2) for t in function(x)]


@pytest.mark.parametrize("kind", ["mlp", pytest.param("conv", marks=pytest.mark.slow)])
def test_fifty_layers_train_in_35_percent_of_the_memory(kind: str) -> None:
    """At most 35 % of the memory for at most 1.5 times the steps, and the same bits."""
    step, x = training(kind, 50)
    plain = memory_report(program_of(step, x, None))
    wanted = results(kind, 50, None)
    for config in (SUBLINEAR, dtr(0.35 * plain.peak)):
        report = memory_report(program_of(step, x, config))
        assert report.planned == plain.peak
        assert report.peak <= 0.35 * plain.peak
        assert report.steps + report.again <= 1.5 * plain.steps
        equal(results(kind, 50, config), wanted)


@pytest.mark.parametrize("kind", ["mlp", "thin", "conv"])
def test_compiled_steps_train_in_half_the_memory(kind: str) -> None:
    """The same of fused groups, on whatever backend there is."""
    step, x = training(kind, 12)
    plain = memory_report(program_of(step, x, None))
    wanted = results(kind, 12, None)
    for config in (SUBLINEAR, dtr(0.5 * plain.peak)):
        report = memory_report(program_of(step, x, config))
        assert report.peak <= 0.5 * plain.peak
        assert report.steps + report.again <= 1.5 * plain.steps
        equal(results(kind, 12, config), wanted)


def test_recomputation_repeats_the_same_random_numbers() -> None:
    wanted = results("mlp", 8, None, dropout=0.3)
    assert not np.array_equal(wanted[0], results("mlp", 8, None)[0])
    equal(results("mlp", 8, SUBLINEAR, dropout=0.3), wanted)


@pytest.mark.parametrize("config", [None, SUBLINEAR], ids=["plain", "sublinear"])
@pytest.mark.parametrize("kind", ["mlp", "conv"])
def test_reported_peak_matches_measured_allocations(
    monkeypatch: pytest.MonkeyPatch, no_libraries: None, kind: str, config: Config | None
) -> None:
    """Python's own count of allocations, arena and eager results included, against the simulation.

    A size is rounded up to that of the pool's lists, and the arena to a large page and begun at one;
    convolutions need memory of their own inside.
    """
    monkeypatch.setenv("MGB_POOL_BYTES", "0")
    step, x = training(kind, 20)
    function = traced(step, config)
    for _ in range(3):
        function(x)
    report = memory_report(function.variants()[0].programs[0])
    records = function.stats()["records"]
    gc.collect()
    memory.empty_cache()
    tracemalloc.start()
    try:
        function(x)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert function.stats()["records"] == records
    inside = 0 if kind == "mlp" else 4 * x.numpy().nbytes
    assert 0.9 * report.peak <= peak <= 1.15 * report.peak + inside + (9 << 18)


def test_explain_reports_memory_peaks() -> None:
    step, x = training("mlp", 12)
    report = memory_report(program_of(step, x, SUBLINEAR))
    text = traced(step, SUBLINEAR).explain(x)
    assert f"{report.planned} planned, {report.peak} after rematerialisation" in text
    assert f"{report.again} of {report.steps} steps run again" in text and "computed again" in text
    assert f"inputs {report.inputs} bytes apart" in text
