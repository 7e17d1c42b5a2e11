"""Calling kernels: a program for each new set of shapes, strides and threads, which native code runs."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mgb.backends import num_threads
from mgb.codegen import hazards
from mgb.runtime import forking
from mgb.runtime.forking import cached_property

from .code import Code
from .frame import Frame
from .native import native
from .plan import PARALLEL, Array, Plan, Planner
from .structures import Program, Site

#: The most parts for each thread, so that a late one does not keep the others waiting, and the nanoseconds
#: that a part takes at least.
PARTS, SHORTEST = 16, 5_000

#: Plans kept for each kernel, programs for each launcher, and of these those that native code looks through.
PLANS, PROGRAMS, RECENT = 1024, 256, 8

#: The words of ``struct part`` in `launcher.h`.
Part = tuple[int, ...]

#: Held by who changes the programs of a launcher. A signal or a finalizer may call a kernel meanwhile, in the
#: same thread.
_changing = forking.lock()


class Unit:
    """One compiled kernel: what it is called with, and its plans.

    Parameters
    ----------
    frame : Frame
    code : Code

    Attributes
    ----------
    refuses : bool
        Has it one more output, in which it tells of an index that is out of range?
    """

    def __init__(self, frame: Frame, code: Code) -> None:
        self.frame = frame
        self.stages = frame.stages
        self.refuses = frame.refused is not None
        self.code = code
        self.inputs = len(frame.graph.inputs)
        self.outputs = len(frame.outputs)  # what it refuses among them
        self.constants = tuple(np.ascontiguousarray(c.params["value"]) for c in frame.constants)
        self.hazards = hazards(frame.graph, frame.schedule)
        self.plans: dict[Any, Plan] = {}

    @cached_property
    def launcher(self) -> Launcher:
        """Return the launcher of this kernel alone."""
        return Launcher([self])

    def plan(self, xs: Sequence[Array], ys: Sequence[Array]) -> Plan:
        """Return the plan for the shapes and strides of these inputs and outputs."""
        key = tuple((a.shape, a.strides) for a in (*xs, *ys))
        plan = self.plans.get(key)
        if plan is None:
            if len(self.plans) >= PLANS:
                self.plans.clear()
            shapes = [a.shape for a in (*xs, *self.constants, *ys)]
            strides = [a.strides for a in (*xs, *self.constants, *ys)]
            plan = self.plans[key] = Planner(self.frame, shapes, strides).plan()
        return plan

    def whole(self, plan: Plan, first: int) -> Part:
        """Return all of the work as one part; the kernel's operands are at `first`."""
        return self.part(plan, first, (0, self.stages, 0, plan.rows, 0, plan.chunks))

    def part(self, plan: Plan, first: int, span: tuple[int, ...], shares: bool = False) -> Part:
        return (self.code.address, first, plan.address, *span, plan.own, int(shares))

    def by_rows(self, plan: Plan, first: int, parts: int) -> list[Part]:
        """Return about as many parts as given, each of whole rows; they may run at the same time."""
        parts = max(1, min(parts, plan.rows))
        every = (0, self.stages), (0, plan.chunks)
        return [self.part(plan, first, (*every[0], *rows, *every[1])) for rows in _cut(plan.rows, parts)]

    def by_chunks(self, plan: Plan, first: int, parts: int) -> Iterator[list[Part]]:
        """Yield parts of few long rows, stage by stage; the parts of a list may run at the same time."""
        cuts = list(_cut(plan.chunks, max(1, min(parts, plan.chunks))))
        for row in range(plan.rows):
            for k in range(self.stages):
                yield [self.part(plan, first, (k, k + 1, row, row + 1, *cut), shares=True) for cut in cuts]


def _parts(plan: Plan, threads: int) -> int:
    """Return into how many parts the work of a plan is cut for this many threads."""
    return max(1, min(PARTS, int(plan.work / threads / SHORTEST))) * threads if threads > 1 else 1


def _cut(count: int, parts: int) -> Iterator[tuple[int, int]]:
    return ((count * p // parts, count * (p + 1) // parts) for p in range(parts))


class Launcher:
    """``run`` of one kernel, or of several that are independent of each other.

    Parameters
    ----------
    units : sequence of Unit
        ``run`` takes the inputs of the first, of the second, ...; ``out`` is the outputs of the first, ...

    Attributes
    ----------
    hazards : frozenset of (int, int)
        See `Kernel.hazards`.
    overlaps : array
        The same, by the places of the arrays in a call.
    run : callable
        A function in C. It calls the kernels itself where a recent program fits, and `slow` otherwise.
    """

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units = tuple(units)
        self.inputs = sum(u.inputs for u in self.units)
        self.outputs = sum(u.outputs for u in self.units)
        self.constants = [c for u in self.units for c in u.constants]
        self.hazards = frozenset(self._hazards())
        pairs = [(i, self.inputs + j) for i, j in sorted(self.hazards)]
        self.overlaps = np.array(pairs, np.int64).reshape(-1, 2)
        self.operands = np.array(list(self._operands()), np.int64)
        self.programs: dict[Any, Program] = {}
        self.recent = _Recent(())
        self.memory = np.zeros(ctypes.sizeof(Site), np.uint8).view(_Owner)
        self.memory.owner = self
        self.site = Site.from_buffer(self.memory.data)
        self._fill_site()
        self.run: Callable[..., None] = native().function(self.memory)

    @property
    def launcher(self) -> Launcher:
        """Return this, as `Unit.launcher` returns that of one kernel."""
        return self

    @property
    def refuses(self) -> bool:
        """Return whether one of the kernels does."""
        return any(u.refuses for u in self.units)

    def _hazards(self) -> Iterator[tuple[int, int]]:
        x = y = 0
        for unit in self.units:
            yield from ((x + i, y + j) for i, j in unit.hazards)
            x, y = x + unit.inputs, y + unit.outputs

    def _operands(self) -> Iterator[int]:
        """Yield the place of each operand of each kernel among all inputs, outputs, constants."""
        x, y, c = 0, self.inputs, self.inputs + self.outputs
        for unit in self.units:
            yield from range(x, x := x + unit.inputs)
            yield from range(c, c := c + len(unit.constants))
            yield from range(y, y := y + unit.outputs)

    def _fill_site(self) -> None:
        self._kept = (self.slow, np.array([id(c) for c in self.constants], np.int64))
        site, (slow, constants) = self.site, self._kept
        site.slow, site.threads, site.array_type = id(slow), id(num_threads), id(np.ndarray)
        site.inputs, site.outputs = self.inputs, self.outputs
        site.constants, site.constant_count = constants.ctypes.data, len(constants)
        site.recent = self.recent.address

    def slow(self, *xs: Array, out: Sequence[Array]) -> None:
        """Run a call that fits no recent program, or with an output that overwrites an input too early."""
        if len(xs) != self.inputs or len(out) != self.outputs:
            wanted = f"{self.inputs} input and {self.outputs} output arrays"
            raise TypeError(f"the kernel takes {wanted}, not {len(xs)} and {len(out)}")
        arrays = [np.asarray(a) for a in (*xs, *out)]
        for i, j in self.overlaps:
            if arrays[i].ctypes.data == arrays[j].ctypes.data:
                arrays[i] = arrays[i].copy()
        program = self.program(arrays)
        native().launch(ctypes.addressof(program), *arrays, *self.constants)

    def program(self, arrays: Sequence[Array]) -> Program:
        """Return the program for inputs and outputs like `arrays`; native code finds it from now on."""
        threads = num_threads()
        key = (threads, *((a.shape, a.strides) for a in arrays))
        program = self.programs.get(key)
        if program is None:
            if len(self.programs) >= PROGRAMS:
                self.programs.clear()
            program = self.programs[key] = self.built(arrays, threads, PARALLEL)
        native().grow(program.threads - 1)
        self._show(program)
        return program

    def _show(self, program: Program) -> None:
        """Have native code look at `program` first.

        It may look between any two of these statements, and so may a call that a signal or a finalizer makes
        there, which has come here as well: a list that native code is told of lives until it is told of
        another one, whoever told it.
        """
        with _changing:
            others = (p for p in self.recent.programs if p is not program)
            recent = _Recent((program, *others)[:RECENT])
            replaced, self.recent = self.recent, recent
            self.site.recent = self.recent.address
            del replaced

    def built(self, arrays: Sequence[Array], threads: int, worth: int) -> Program:
        """Return a program for inputs and outputs like `arrays`; so many nanoseconds are `worth` threads."""
        plans = self._plans(arrays)
        parallel = sum(p.work for p in plans) >= worth
        phases = self._phases(plans, threads, worth) if parallel else [self._wholes(plans)]
        signature = [word for a in arrays for word in (a.ndim, *a.shape, *a.strides)]
        work = _Work(
            signature=np.array(signature, np.int64),
            parts=np.array([part for phase in phases for part in phase], np.int64),
            phases=np.array(list(itertools.accumulate(map(len, phases))), np.int64),
            plans=plans,
        )
        program = work.program(threads if parallel else 0)
        program.hazards, program.hazard_count = self.overlaps.ctypes.data, len(self.overlaps)
        program.operands, program.operand_count = self.operands.ctypes.data, len(self.operands)
        return program

    def _plans(self, arrays: Sequence[Array]) -> list[Plan]:
        plans, x, y = [], 0, self.inputs
        for unit in self.units:
            xs, ys = arrays[x : x + unit.inputs], arrays[y : y + unit.outputs]
            plans.append(unit.plan(xs, ys))
            x, y = x + unit.inputs, y + unit.outputs
        return plans

    def _firsts(self) -> Iterator[int]:
        first = 0
        for unit in self.units:
            yield first
            first += unit.inputs + len(unit.constants) + unit.outputs

    def _wholes(self, plans: Iterable[Plan]) -> list[Part]:
        return [u.whole(p, first) for u, p, first in zip(self.units, plans, self._firsts(), strict=True)]

    def _phases(self, plans: Iterable[Plan], threads: int, worth: int) -> list[list[Part]]:
        """Return one phase for all that is cut by rows, then those of the kernels that are cut by chunks."""
        together: list[Part] = []
        apart: list[list[Part]] = []
        for unit, plan, first in zip(self.units, plans, self._firsts(), strict=True):
            parts = _parts(plan, threads)
            if plan.work < worth:
                together.append(unit.whole(plan, first))
            elif plan.rows >= threads or plan.chunks < threads:
                together.extend(unit.by_rows(plan, first, parts))
            else:
                apart.extend(unit.by_chunks(plan, first, parts))
        return [phase for phase in (together, *apart) if phase]


class _Owner(np.ndarray[Any, Any]):
    """The memory of a site; it keeps the launcher alive as long as ``run`` is."""

    owner: Launcher


class _Recent:
    """The programs that native code looks through, and the list of their addresses that it reads."""

    def __init__(self, programs: tuple[Program, ...]) -> None:
        self.programs = programs
        self.words = np.array([*map(ctypes.addressof, programs), 0], np.int64)
        self.address = self.words.ctypes.data


@dataclass
class _Work:
    """The memory that a `Program` points to."""

    signature: Array
    parts: Array
    phases: Array
    plans: Sequence[Plan]
    claims: Array = field(init=False)

    def program(self, threads: int) -> Program:
        self.claims = np.zeros(len(self.parts), np.int32)
        program = Program()
        program.work = self
        program.owner, program.threads = id(program), threads
        program.signature, program.parts = self.signature.ctypes.data, self.parts.ctypes.data
        program.phases, program.phase_count = self.phases.ctypes.data, len(self.phases)
        program.claims = self.claims.ctypes.data
        program.own = _lines(max((p.own + p.shared for p in self.plans), default=0))
        program.common = _lines(max((p.shared for p in self.plans), default=0))
        return program


def _lines(size: int) -> int:
    """Round `size` bytes up to whole cache lines, at least one."""
    return -(-max(size, 1) // 64) * 64
