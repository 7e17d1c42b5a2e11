"""Schedules: read and printed; given, tried or found, they change no more than the order of additions."""

from __future__ import annotations

import logging
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("halide", reason="Halide is not installed: pip install halide")
pytest.importorskip("mgb_halide", reason="the plugin is not installed: pip install ./plugins/halide")

from mgb.codegen import structure_key
from mgb.ops.bodies.transcendental import exp
from mgb.ops.reduce import reduce_max, reduce_sum
from mgb.passes import lower
from mgb_conformance.cases import of, samples
from mgb_conformance.judge import judge, problem
from mgb_halide import HalideBackend, backend
from mgb_halide.frame import Frame
from mgb_halide.schedule import AUTOSCHEDULERS, HalideSchedule, parse
from mgb_halide.settings import SCHEDULE
from mgb_native.objects import ObjectError

BACKEND = HalideBackend()


def softmax(x: Any) -> Any:
    e = exp(x - reduce_max(x, axis=(1,)))
    return e / reduce_sum(e, axis=(1,))


GROUPS = {
    "flat": lambda x: (x * 2 + 1, x < 0, exp(x)),
    "rows": softmax,
    "columns": lambda x: (reduce_sum(x, axis=(0,)), x - reduce_max(x, axis=(0,))),
    "all": lambda x: reduce_sum(x, axis=(0, 1)),
}


def checked(kernel: Any, graph: Any, x: np.ndarray) -> None:
    out = tuple(np.full(o.spec.shape, 77, o.spec.dtype) for o in graph.outputs)
    kernel.run(x, out=out)
    assert [problem(got, want) for got, want in zip(out, judge(graph, [x]), strict=True)] == [None] * len(out)


@pytest.mark.parametrize("text", ["", "task=4096", "vector=8 unroll=2 piece=64 tile=32 keep=0 stream=0"])
def test_schedule_text_round_trips(text: str) -> None:
    assert parse(str(parse(text))) == parse(text) == parse(parse(text).full())
    assert str(parse(text)).split() == text.split()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lanes=4", "no 'lanes'; it has vector"), ("task=0", "task='0'"), ("task=-1", "not a number"),
        ("task", "task=''"), ("piece=100", "not a power of two"), ("unroll=3", "not a power of two"),
        ("auto=Smith2030", "autoscheduler='Smith2030' is unknown"),
    ],
)  # fmt: skip
def test_invalid_schedule_text_is_reported(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse(text)


SCHEDULES = (
    "vector=4 unroll=1 piece=64 task=128 tile=16 group=3 fits=64",
    "keep=0",
    "keep=1000",
    "unroll=8 piece=32 stream=0",
)


@pytest.mark.parametrize("text", SCHEDULES)
@pytest.mark.parametrize("group", GROUPS)
def test_every_schedule_computes_the_right_result(
    group: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SCHEDULE.name, text)
    x = samples("float32", (37, 201))
    graph = of(GROUPS[group], x)
    kernel = BACKEND.compile(lower(graph, BACKEND.traits))
    assert parse(text).full() in kernel.source
    checked(kernel, graph, x)


def test_schedule_is_part_of_the_cache_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = BACKEND.version()
    monkeypatch.setenv(SCHEDULE.name, "task=4096")
    assert BACKEND.version() != before


@pytest.mark.parametrize("group", GROUPS)
def test_tuned_schedule_is_saved_with_the_kernel(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = samples("float32", (20, 50))
    graph = of(GROUPS[group], x)
    lowered = lower(graph, BACKEND.traits)
    monkeypatch.setenv(SCHEDULE.name, "tune")
    kernel = BACKEND.compile(lowered)
    monkeypatch.delenv(SCHEDULE.name)
    blob = BACKEND.save(kernel)
    assert blob is not None
    loaded = BACKEND.load(lowered, blob)
    assert loaded.source == kernel.source
    checked(loaded, graph, x)


@pytest.mark.parametrize("auto", [a for a in AUTOSCHEDULERS if a != "Anderson2021"])
@pytest.mark.parametrize("group", GROUPS)
def test_autoscheduled_kernels_are_correct_for_other_sizes_and_views(
    group: str, auto: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their code serves the sizes that it is for; others, views and outputs over inputs go the usual way."""
    monkeypatch.setenv(SCHEDULE.name, f"auto={auto}")
    x = samples("float32", (64, 256))
    graph = of(GROUPS[group], x)
    lowered = lower(graph, BACKEND.traits)
    kernel = BACKEND.compile(lowered)
    blob = BACKEND.save(kernel)
    assert blob is not None
    for each in (kernel, BACKEND.load(lowered, blob)):
        checked(each, graph, x)
        checked(each, graph, x[:, ::-1])
        other = samples("float32", (3, 5))
        smaller = of(GROUPS[group], other)
        assert structure_key(lower(smaller, BACKEND.traits)) == structure_key(lowered)
        checked(each, smaller, other)


def test_autoscheduled_code_is_used(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setenv(SCHEDULE.name, "auto=mullapudi2016")
    x = samples("float32", (64, 256))
    with caplog.at_level(logging.WARNING, "mgb.halide"):
        kernel = BACKEND.compile(lower(of(GROUPS["rows"], x), BACKEND.traits))
    assert not caplog.records
    exact = kernel.state.exact
    assert exact.sizes == {"i": 256, "k0": 64}
    assert exact.schedule == str(HalideSchedule(auto="Mullapudi2016"))
    (usual,) = kernel.state.codes.values()
    assert exact.image != usual.image


def test_files_of_a_failed_compilation_are_saved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The group and its schedule, and the loops where Halide came so far."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv(SCHEDULE.name, "task=4096")
    graph = lower(of(softmax, samples("float32", (4, 50))), BACKEND.traits)

    def refuse(*_: Any) -> Any:
        raise ObjectError("no such relocation")

    monkeypatch.setattr(backend, "place", refuse)
    with pytest.raises(RuntimeError, match=r"task=4096.*: no such relocation; .*mgb-halide-") as caught:
        BACKEND.compile(graph)
    (folder,) = (f for f in tmp_path.iterdir() if str(f) in str(caught.value))
    kept = (folder / "group.txt").read_text()
    assert str(graph) in kept and "task=4096" in kept and "folds" in kept
    assert "vector" in (folder / "loops.stmt").read_text() or "ramp" in (folder / "loops.stmt").read_text()
    assert (folder / "error.txt").read_text() == "no such relocation"


def test_stage_descriptions_use_graph_names() -> None:
    graph = of(softmax, samples("float32", (4, 50)))
    names = re.findall(r"(%\d+): \S+ = (reduce_max|reduce_sum)", str(graph))
    *passes, written = Frame(graph, 1).described()
    assert [re.search(r"folds (%\d+) (\w+)", line).groups() for line in passes] == names  # type: ignore[union-attr]
    assert re.fullmatch(r"writes y0 = %\d+ over \(i, k0\)", written)
