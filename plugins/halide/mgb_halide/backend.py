"""The backend object: what it accepts, and how a graph becomes a kernel."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec

from mgb.backends import Kernel
from mgb.codegen import structure_key
from mgb.ir import Graph
from mgb.runtime import cache, forking
from mgb_native import LaunchedBackend, loop_traits
from mgb_native.backend import texts
from mgb_native.native import note
from mgb_native.objects import ObjectError
from mgb_native.target import processor, python

from .bridge import problem
from .frame import Frame
from .fused import MarkLost
from .launch import Calls, Layout, Unit, form_of
from .machine import Code, dump, load, place
from .pipeline import Pipeline, build
from .printed import compile_by_text
from .schedule import Form, HalideSchedule, parse
from .search import autoscheduled, tuned
from .settings import SCHEDULE
from .stores import TurnBroken
from .toolchain import TESTED, installed, keep
from .words import VOCABULARY

_log = logging.getLogger("mgb.halide")


class HalideBackend(LaunchedBackend):
    """Loops for the CPU, scheduled and compiled by Halide."""

    name = "halide"
    distribution = "mgb-halide"
    machines = ("x86_64",)
    traits = loop_traits(VOCABULARY, priority=50)
    variables = (SCHEDULE,)

    def probe(self) -> str | None:
        if find_spec("halide") is None:
            return "Halide is not installed; python -m pip install halide"
        return self.machine_problem() or problem

    def version(self) -> str:
        return f"{self.package} halide {installed()} {python()} {processor()} {SCHEDULE.get().strip()}"

    def compile(self, graph: Graph) -> Kernel:
        if installed() != TESTED:
            _log.info("this is Halide %s; the tests are run with %s", installed(), TESTED)
        text = SCHEDULE.get().strip()
        frame = Frame(graph, HalideSchedule().keep)
        layout = Layout.of(frame)
        if text.lower() == "tune":
            plan = tuned(frame, lambda plan: self._kernel(*_made(graph, plan)).run)
        else:
            plan = parse(text)
        frame, codes, plan = _made(graph, plan)
        if plan.auto and (exact := autoscheduled(frame, plan, layout, codes[0].form)):
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
        unit = Unit(frame, codes, lambda form: self._other(frame, plan, form))
        return _called([unit], _source(frame, plan), unit)

    def join(self, kernels: Sequence[Kernel]) -> Kernel | None:
        if not kernels:
            return None
        return _called([kernel.state for kernel in kernels], texts(kernels))

    def _other(self, frame: Frame, plan: HalideSchedule, form: Form) -> Code:
        """Return the form that a kernel was not compiled in at first.

        From the disk, or compiled and put there.
        """
        what = (self.version(), structure_key(frame.graph), str(plan), form.name)
        key = hashlib.sha256("\n".join(what).encode()).hexdigest()
        with suppress(ObjectError):  # a damaged one is compiled again
            if blob := cache.load(self.name, key):
                return load(blob)[0]
        with forking.undivided("the compiler of backend 'halide'"):  # which a call asks, not the core
            code = _compiled(frame, plan, form)
        cache.store(self.name, key, dump([code]))
        return code


def _made(graph: Graph, plan: HalideSchedule) -> tuple[Frame, list[Code], HalideSchedule]:
    """Return the code for the sizes of `graph` by a schedule."""
    frame = Frame(graph, plan.keep)
    return frame, [_compiled(frame, plan, form_of(frame, Layout.of(frame), plan))], plan


def _compiled(frame: Frame, plan: HalideSchedule, form: Form) -> Code:
    tried: list[Pipeline] = []
    try:
        image = _image(frame, plan, form, tried)
        return place(image, tried[-1].order, str(plan), form)
    except Exception as error:
        path = keep(_source(frame, plan), tried[-1] if tried else None, error)
        about = f"Halide {installed()} (tested with {TESTED}) does not compile this group by [{plan.full()}]"
        kept = f"{path} has the group, its schedule and what Halide made of it"
        raise RuntimeError(f"{about}: {str(error).strip()}; {kept}") from error


def _image(frame: Frame, plan: HalideSchedule, form: Form, tried: list[Pipeline]) -> bytes:
    """Return the object file of the last of the pipelines that are `tried`."""
    registers, apart = 0, False
    while True:
        tried.append(build(frame, plan, form, registers, apart))
        try:
            return compile_by_text(tried[-1], must=not registers)
        except MarkLost:  # LLVM computes what is loaded register by register, marks or not
            registers = 1
        except TurnBroken:
            apart = True


def _called(units: Sequence[Unit], source: str | Callable[[], str], state: Unit | None = None) -> Kernel:
    launcher = Calls(units)
    return Kernel(launcher.run, source, state, hazards=launcher.hazards, atomic=note is None)


def _source(frame: Frame, plan: HalideSchedule) -> str:
    """Return the schedule, the stages that it is for, and the group, as text."""
    stages = "\n".join(f"#   {line}" for line in frame.described())
    return f"# Halide, schedule: {plan.full()}\n# stages:\n{stages}\n{frame.graph}"
