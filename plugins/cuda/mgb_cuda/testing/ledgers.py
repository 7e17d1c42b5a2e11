"""The cost of kernels for each element, compared with budgets: read from machine code, without a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from .. import sass
from ..device import LaunchError
from ..generated import usual
from ..geometry import WITH_CLUSTERS
from ..image import problem
from ..launch import Unit
from ..ledger import Ledger, ledger
from .bench import OnDevice, traced
from .compiled import ARCHITECTURES, OnPaper, like, unit_of
from .suite import Suite
from .table import CASES, ISSUE, UNDER_WAY, Case

#: Each case on one architecture here, on all in the long tier.
IN_TURN = [
    pytest.param((name, a), id=f"{name}-{a}", marks=[] if k % 3 == i else [pytest.mark.slow])
    for k, name in enumerate(CASES)
    for i, a in enumerate(ARCHITECTURES)
]


class OnScales(OnPaper):
    """A GPU that nothing is launched on: it keeps images, which can be read."""

    def __init__(self, toolchain: Any, architecture: int) -> None:
        super().__init__(lambda text, a: (), architecture)
        self._toolchain = toolchain

    def compile(self, source: str) -> bytes:
        found: bytes = self._toolchain.compile(source, self.properties)
        return found

    def load(self, image: bytes, names: Sequence[str]) -> tuple[Any, ...]:
        return tuple((image, name) for name in names)

    def check(self, function: Any, threads: int) -> None:
        wrong = problem(*function, threads)
        if wrong is not None:
            raise LaunchError(wrong)


def unit_on_scales(module: Any, case: Case, here: bool = False) -> Unit:
    """Return the kernels for a case by the backend in `module`, none of which is compiled yet.

    They are for the GPU that is here, or for a H200.
    """
    scales = OnScales(module.Toolchain(), 90)
    if here:
        from .. import driver

        scales.properties = driver.properties(driver.current())

    class Given(OnDevice, module.Generated):  # type: ignore[misc, name-defined]
        name, traits = "given", module.traits("gpu")

    arrays = [like(case.dtype, shape) for shape in case.shapes]
    backend = Given(scales)
    unit: Unit = backend.load(traced(case.function, arrays, backend.traits), b"").state.unit()
    return unit


@pytest.mark.skipif(sass.missing() is not None, reason=str(sass.missing()))
class Ledgers(Suite):
    """Instructions, bytes and what is under way for each case.

    Attributes
    ----------
    toolchain : object
        What compiles.
    beyond : mapping
        Cases that do not keep a budget yet, with what they do not keep: ``instructions``, ``reads``, ...
    tables : mapping
        Has ``weighed``: `IN_TURN`, or some of it.
    """

    toolchain: ClassVar[Any]
    beyond: ClassVar[Mapping[str, set[str]]] = {}

    def ledger(self, case: Case, architecture: int) -> Ledger:
        """Return the ledger of the kernels for a case."""
        device = OnScales(self.toolchain, architecture)
        arrays = [like(case.dtype, shape) for shape in case.shapes]
        unit = unit_of(self.bench, device, self.bench.traced(case.function, *arrays))
        return ledger(unit, usual(unit)[1])

    def broken(self, case: Case, found: Ledger, architecture: int) -> set[str]:
        """Return which budgets are not kept."""
        most = case.most or ISSUE * found.least
        reads = case.reads if architecture // 10 in WITH_CLUSTERS else case.alone or case.reads
        read = sum(e.read for e in found.entries)
        return {
            name
            for name, holds in {
                "instructions": found.instructions <= most,
                "reads": read <= 1.1 * reads * found.loaded,
                "writes": found.written <= 1.02 * found.stored,
                "launches": len(found.entries) <= case.launches,
                "spills": not any(e.spills for e in found.entries),
                "blocks": found.main.resident >= case.blocks,
                "under way": found.main.under_way >= UNDER_WAY,
            }.items()
            if not holds
        }

    def test_kernel_costs_stay_within_their_budgets(self, weighed: tuple[str, int]) -> None:
        name, architecture = weighed
        found = self.ledger(CASES[name], architecture)
        assert self.broken(CASES[name], found, architecture) <= self.beyond.get(name, set()), found
