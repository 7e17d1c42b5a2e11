"""Calling a kernel: a plan for each new set of shapes and strides, then C calls on one or more threads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from mgb.backend import num_threads

from . import pool
from .frame import SPAN, Frame
from .hazards import hazards
from .plan import Array, Plan, Planner, scratch

#: Parts for each thread, so that a late one does not keep the others waiting.
PARTS = 4

#: Plans kept for each kernel.
PLANS = 1024


class Launcher:
    """``run`` of one kernel.

    Parameters
    ----------
    frame : Frame
    address : int
        Of the compiled kernel.
    """

    def __init__(self, frame: Frame, address: int) -> None:
        self.frame = frame
        self.stages = frame.stages
        self.risky = tuple(dict.fromkeys(i for i, _ in hazards(frame)))
        self.plans: dict[Any, Plan] = {}
        self.constants = tuple(np.ascontiguousarray(c.params["value"]) for c in frame.constants)
        integers = [ctypes.c_ssize_t] * (len(frame.arrays) + 2)
        self.quick = ctypes.PYFUNCTYPE(ctypes.c_int, *integers)(address)
        self.free = ctypes.CFUNCTYPE(ctypes.c_int, *integers)(address)
        self.run = self._generate()

    def _generate(self) -> Callable[..., None]:
        """The function that a call goes through; it is all the overhead there is, so it has no loops."""
        xs = [f"x{i}" for i in range(len(self.frame.graph.inputs))]
        ys = [f"y{i}" for i in range(len(self.frame.graph.outputs))]
        key = [f"{x}.shape, {x}.strides" for x in xs] + [f"{y}.shape" for y in ys]
        ids = [f"id({x})" for x in xs] + [str(id(c)) for c in self.constants] + [f"id({y})" for y in ys]
        text = (
            f"def run({', '.join(xs)}{', ' if xs else ''}*, out):\n"
            f"    {', '.join(ys)}, = out\n"
            f"    key = {', '.join(key)},\n"
            f"    plan = plans.get(key) or prepare(key)\n"
            f"    if plan.span is None or quick({', '.join(ids)}, plan.address, plan.span_address):\n"
            f"        slow(plan, ({', '.join([*xs, ''])}), out)\n"
        )
        names: dict[str, Any] = {
            "quick": self.quick,
            "plans": self.plans,
            "prepare": self.prepare,
            "slow": self.slow,
        }
        exec(text, names)
        run: Callable[..., None] = names["run"]
        return run

    def prepare(self, key: tuple[Any, ...]) -> Plan:
        """The plan for ``(shape, strides, ..., output shape, ...)``."""
        if len(self.plans) >= PLANS:
            self.plans.clear()
        inputs = len(self.frame.graph.inputs)
        shapes = [*key[: 2 * inputs : 2], *(c.shape for c in self.constants), *key[2 * inputs :]]
        strides = [*key[1 : 2 * inputs : 2], *(c.strides for c in self.constants)]
        plan = self.plans[key] = Planner(self.frame, shapes, strides).plan()
        return plan

    def slow(self, plan: Plan, xs: tuple[Array, ...], ys: tuple[Array, ...]) -> None:
        """A call for several threads, or with an output that would overwrite an input too early."""
        call = Call(self, plan, xs, ys)
        if self.risky and call.refused():
            xs = tuple(x.copy() if i in self.risky else x for i, x in enumerate(xs))
            call = Call(self, plan, xs, ys)
        call.run(num_threads())


class Call:
    """One call of a kernel that may release the GIL."""

    def __init__(self, launcher: Launcher, plan: Plan, xs: tuple[Array, ...], ys: tuple[Array, ...]) -> None:
        self.plan = plan
        self.free = launcher.free
        self.stages = launcher.stages
        self.arrays = (*xs, *launcher.constants, *ys)
        self.ids = tuple(map(id, self.arrays))

    def part(self, span: tuple[int, ...]) -> int:
        words = (ctypes.c_int64 * len(SPAN))(*span)
        status: int = self.free(*self.ids, self.plan.address, ctypes.addressof(words))
        return status

    def refused(self) -> bool:
        return bool(self.part((0, 0, 0, 0, 0, 0, 0, 0)))

    def run(self, threads: int) -> None:
        """Give each thread rows, or pieces of a row when there are few rows."""
        plan = self.plan
        parts = threads * PARTS if threads > 1 and plan.span is None else 1
        if plan.rows >= threads or plan.chunks < threads:
            self.over_rows(max(1, min(parts, plan.rows)), threads)
        else:
            self.over_chunks(min(parts, plan.chunks), threads)

    def over_rows(self, parts: int, threads: int) -> None:
        plan = self.plan

        def work(part: int) -> None:
            _memory, address = scratch(plan.own + plan.shared)
            rows = plan.rows * part // parts, plan.rows * (part + 1) // parts
            self.part((0, self.stages, *rows, 0, plan.chunks, address, address + plan.own))

        pool.run(work, parts, threads)

    def over_chunks(self, parts: int, threads: int) -> None:
        """Few long rows: one after the other, stage by stage, all threads on one row."""
        plan = self.plan
        _memory, shared = scratch(plan.shared)
        for row in range(plan.rows):
            for k in range(self.stages):

                def work(part: int, row: int = row, k: int = k) -> None:
                    _memory, own = scratch(plan.own)
                    chunks = plan.chunks * part // parts, plan.chunks * (part + 1) // parts
                    self.part((k, k + 1, row, row + 1, *chunks, own, shared))

                pool.run(work, max(parts, 1), threads)
