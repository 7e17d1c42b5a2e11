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
from .fused import fused_pipeline
from .launch import Layout, Unit, is_short
from .machine import NAME, Code, dump, load, place
from .pipeline import build
from .schedule import HalideSchedule, parse
from .search import autoscheduled, tuned
from .settings import SCHEDULE
from .toolchain import TESTED, compile_pipeline, installed, keep
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
    pipeline = None
    try:
        pipeline = build(frame, plan, short)
        compiled = fused_pipeline if pipeline.fused else compile_pipeline
        image = compiled(pipeline.outputs, pipeline.arguments, NAME)
        return place(image, pipeline.order, str(plan), short)
    except Exception as error:
        path = keep(_source(frame, plan), pipeline, error)
        about = f"Halide {installed()} (tested with {TESTED}) does not compile this group by [{plan.full()}]"
        kept = f"{path} has the group, its schedule and what Halide made of it"
        raise RuntimeError(f"{about}: {str(error).strip()}; {kept}") from error


def _kernel(frame: Frame, codes: Sequence[Code], plan: HalideSchedule) -> Kernel:
    unit = Unit(frame, codes, lambda short: _compiled(frame, plan, short))
    return Kernel(Launcher([unit]).run, _source(frame, plan), unit)


def _source(frame: Frame, plan: HalideSchedule) -> str:
    """The schedule, the stages that it is for, and the group, as text."""
    stages = "\n".join(f"#   {line}" for line in frame.stages())
    return f"# Halide, schedule: {plan.full()}\n# stages:\n{stages}\n{frame.graph}"
