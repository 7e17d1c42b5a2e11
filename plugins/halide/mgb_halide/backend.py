"""The backend object: what it accepts, and how a graph becomes a kernel."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec

from mgb import cache
from mgb.backend import Kernel
from mgb.codegen import structure_key
from mgb.ir import Graph
from mgb_native import LaunchedBackend, loop_traits
from mgb_native.launch import Launcher
from mgb_native.objects import ObjectError
from mgb_native.target import processor, python

from .frame import Frame
from .fused import MarkLost, fused_pipeline
from .launch import Layout, Unit, is_short
from .machine import NAME, Code, dump, load, place
from .pipeline import build
from .schedule import HalideSchedule, parse
from .search import autoscheduled, tuned
from .settings import SCHEDULE
from .toolchain import TESTED, compile_pipeline, installed, keep
from .words import VOCABULARY

_log = logging.getLogger("mgb.halide")


class HalideBackend(LaunchedBackend):
    """Loops for the CPU, scheduled and compiled by Halide."""

    name = "halide"
    distribution = "mgb-halide"
    machines = ("x86_64",)
    traits = loop_traits(VOCABULARY, priority=50)

    def probe(self) -> str | None:
        if find_spec("halide") is None:
            return "Halide is not installed; python -m pip install halide"
        return self.machine_problem()

    def version(self) -> str:
        return f"{self.package} halide {installed()} {python()} {processor()} {SCHEDULE.get()}"

    def compile(self, graph: Graph) -> Kernel:
        if installed() != TESTED:
            _log.info("this is Halide %s; the tests are run with %s", installed(), TESTED)
        text = SCHEDULE.get()
        frame = Frame(graph, HalideSchedule().keep)
        layout = Layout.of(frame)
        if text.lower() == "tune":
            plan = tuned(frame, lambda plan: self._kernel(*_made(graph, plan)).run)
        else:
            plan = parse(text)
        frame, codes, plan = _made(graph, plan)
        if plan.auto and (exact := autoscheduled(frame, plan, layout, codes[0].short)):
            codes = [*codes, exact]
        return self._kernel(frame, codes, plan)

    def save(self, kernel: Kernel) -> bytes | None:
        unit: Unit = kernel.state
        return dump([*unit.codes.values(), *([unit.exact] if unit.exact else [])])

    def load(self, graph: Graph, blob: bytes) -> Kernel:
        codes = load(blob)
        plan = parse(codes[0].schedule)
        return self._kernel(Frame(graph, plan.keep), codes, plan)

    def _kernel(self, frame: Frame, codes: Sequence[Code], plan: HalideSchedule) -> Kernel:
        unit = Unit(frame, codes, lambda short: self._other(frame, plan, short))
        return Kernel(Launcher([unit]).run, _source(frame, plan), unit)

    def _other(self, frame: Frame, plan: HalideSchedule, short: bool) -> Code:
        """The form that a kernel was not compiled in at first: from the disk, or compiled and put there."""
        what = (self.version(), structure_key(frame.graph), str(plan), "short" if short else "long")
        key = hashlib.sha256("\n".join(what).encode()).hexdigest()
        with suppress(ObjectError):  # a damaged one is compiled again
            if blob := cache.load(self.name, key):
                return load(blob)[0]
        code = _compiled(frame, plan, short)
        cache.store(self.name, key, dump([code]))
        return code


def _made(graph: Graph, plan: HalideSchedule) -> tuple[Frame, list[Code], HalideSchedule]:
    """The code for the sizes of `graph` by a schedule."""
    frame = Frame(graph, plan.keep)
    return frame, [_compiled(frame, plan, is_short(frame, Layout.of(frame), plan))], plan


def _compiled(frame: Frame, plan: HalideSchedule, short: bool) -> Code:
    pipeline = None
    try:
        pipeline = build(frame, plan, short)
        compiled = fused_pipeline if pipeline.fused else compile_pipeline
        try:
            image = compiled(pipeline.outputs, pipeline.arguments, NAME)
        except MarkLost:  # LLVM computes what is loaded register by register, marks or not
            pipeline = build(frame, plan, short, registers=1)
            image = fused_pipeline(pipeline.outputs, pipeline.arguments, NAME, must=False)
        return place(image, pipeline.order, str(plan), short)
    except Exception as error:
        path = keep(_source(frame, plan), pipeline, error)
        about = f"Halide {installed()} (tested with {TESTED}) does not compile this group by [{plan.full()}]"
        kept = f"{path} has the group, its schedule and what Halide made of it"
        raise RuntimeError(f"{about}: {str(error).strip()}; {kept}") from error


def _source(frame: Frame, plan: HalideSchedule) -> str:
    """The schedule, the stages that it is for, and the group, as text."""
    stages = "\n".join(f"#   {line}" for line in frame.stages())
    return f"# Halide, schedule: {plan.full()}\n# stages:\n{stages}\n{frame.graph}"
