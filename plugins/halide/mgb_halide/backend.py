"""The backend object: what it accepts, and how a graph becomes a kernel."""

from __future__ import annotations

import logging
import platform
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from mgb.backend import ALL_DTYPES, Backend, Kernel, Scope, Specialize, Strided, Traits
from mgb.ir import Graph, Kind
from mgb_native import target as shared
from mgb_native.launch import Launcher

from .frame import Frame
from .launch import Layout, Unit, is_short
from .machine import NAME, Code, dump, load, place
from .pipeline import build
from .schedule import HalideSchedule, parse
from .search import autoscheduled, tuned
from .settings import SCHEDULE
from .toolchain import TESTED, compile_pipeline, hl, installed
from .words import VOCABULARY

_log = logging.getLogger("mgb.halide")


class HalideBackend(Backend):
    """Loops for the CPU, scheduled and compiled by Halide."""

    name = "halide"
    traits = Traits(
        vocabulary=VOCABULARY,
        kinds=frozenset({Kind.ELEMENTWISE, Kind.REDUCE}),
        dtypes=ALL_DTYPES,
        devices=frozenset({"cpu"}),
        scope=Scope.DOMAIN,
        specialize=Specialize.NDIM,
        strided=Strided.ANY,
        joins=True,
        priority=50,
    )

    def probe(self) -> str | None:
        if find_spec("halide") is None:
            return "Halide is not installed; python -m pip install halide"
        if sys.platform != "linux" or platform.machine() != "x86_64":
            here = f"{sys.platform} on {platform.machine()}"
            return f"it runs on Linux on x86-64, this is {here}; export MGB_JIT_BACKEND=EAGER"
        return None

    @property
    def package(self) -> str:
        """The version of this package and of what calls its kernels."""
        return shared.package(Path(__file__).parent)

    def version(self) -> str:
        return f"{self.package} halide {installed()} {shared.python()} {shared.processor()} {SCHEDULE.get()}"

    def join(self, kernels: Sequence[Kernel]) -> Kernel | None:
        """One native call for all."""
        if not kernels:
            return None
        units = [kernel.state for kernel in kernels]
        return Kernel(Launcher(units).run, "\n\n".join(k.source for k in dict.fromkeys(kernels)))

    def compile(self, graph: Graph) -> Kernel:
        if installed() != TESTED:
            _log.info("this is Halide %s; the tests are run with %s", installed(), TESTED)
        text = SCHEDULE.get()
        frame = Frame(graph, HalideSchedule().keep)
        layout = Layout.of(frame)
        if text.lower() == "tune":
            plan = tuned(frame, lambda plan: _kernel(*_made(graph, plan)).run)
        else:
            plan = parse(text)
        frame, codes, plan = _made(graph, plan)
        if plan.auto and (exact := autoscheduled(frame, plan, layout, codes[0].short)):
            codes = [*codes, exact]
        return _kernel(frame, codes, plan)

    def save(self, kernel: Kernel) -> bytes | None:
        unit: Unit = kernel.state
        return dump([*unit.codes.values(), *([unit.exact] if unit.exact else [])])

    def load(self, graph: Graph, blob: bytes) -> Kernel:
        codes = load(blob)
        plan = parse(codes[0].schedule)
        return _kernel(Frame(graph, plan.keep), codes, plan)

    def target(self) -> str:
        return shared.target(self.package)

    def mismatch(self, target: str) -> str | None:
        try:
            return shared.mismatch(target, self.package, "mgb-halide")
        except (ValueError, KeyError, TypeError) as error:
            return f"what they need is not said as this version says it: {error}"


def _made(graph: Graph, plan: HalideSchedule) -> tuple[Frame, list[Code], HalideSchedule]:
    """The code for the sizes of `graph` by a schedule."""
    frame = Frame(graph, plan.keep)
    return frame, [_compiled(frame, plan, is_short(frame, Layout.of(frame), plan))], plan


def _compiled(frame: Frame, plan: HalideSchedule, short: bool) -> Code:
    try:
        pipeline = build(frame, plan, short)
        image = compile_pipeline(pipeline.outputs, pipeline.arguments, NAME)
    except hl.HalideError as error:
        about = f"Halide {installed()} (tested with {TESTED}) does not compile this group by [{plan.full()}]"
        raise RuntimeError(f"{about}: {str(error).strip()}\n{frame.graph}") from error
    return place(image, pipeline.order, str(plan), short)


def _kernel(frame: Frame, codes: Sequence[Code], plan: HalideSchedule) -> Kernel:
    unit = Unit(frame, codes, lambda short: _compiled(frame, plan, short))
    return Kernel(Launcher([unit]).run, f"# Halide, schedule: {plan.full()}\n{frame.graph}", unit)
