"""Calling a kernel: a plan for each new set of shapes and strides, then C calls on one or more threads."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from mgb.backend import num_threads
from mgb.codegen import aligned, broadcast_strides, collapse, row_major

from . import pool
from .frame import HEAD, LANES, SPAN, Buffer, Frame, Operand
from .hazards import hazards

Array = np.ndarray[Any, Any]

#: Elements of a piece of the inner loop, of one that is gathered, of a chunk that is summed on its own.
PIECE, GATHERED, CHUNK = 1 << 14, 1 << 11, 1 << 14

#: The same when an input's elements lie `FAR` bytes apart or more: few enough lines to stay in cache.
SPREAD, FAR = 1 << 6, 1 << 8

#: Columns of a block, the fewest that are worth a block, and the bytes that several passes find in cache.
COLUMNS, NARROW, CACHED = 512, 16, 1 << 18

#: Rows of columns that are summed before the sums are.
GROUP = 128

#: Elements from which several threads are worth waking; to wake one costs tens of microseconds.
PARALLEL = 1 << 18

#: Parts for each thread, so that a late one does not keep the others waiting.
PARTS = 4

#: Plans kept for each kernel.
PLANS = 1024


@dataclass(frozen=True, slots=True)
class Plan:
    """One kernel on one set of shapes and strides.

    Attributes
    ----------
    words : array of int64
        What the kernel reads by ``slot``.
    address : int
        Of `words`.
    span : ctypes array or None
        The whole work, for a call on this thread that keeps the GIL; None when the work is for several
        threads.
    span_address : int
        Of `span`, or 0.
    rows, chunks, own, shared : int
        The number of rows, of chunks in a row, and bytes of scratch memory.
    memory : array or None
        Scratch memory of `span`. The GIL is held, so no other call uses it at the same time.
    """

    words: Array
    address: int
    span: Any
    span_address: int
    rows: int
    chunks: int
    own: int
    shared: int
    memory: Array | None


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


def scratch(size: int) -> tuple[Array, int]:
    """Memory of `size` bytes and its first address on a cache line; the memory lives as long as the array."""
    memory = np.empty(size + 64, np.uint8)
    return memory, -(-memory.ctypes.data // 64) * 64


class Planner:
    """Fills the plan for one set of shapes and strides, in bytes."""

    def __init__(self, frame: Frame, shapes: list[tuple[int, ...]], strides: list[tuple[int, ...]]) -> None:
        self.frame = frame
        known = np.broadcast_shapes(*shapes) if shapes else ()
        given = frame.schedule.shape
        self.domain = tuple(
            k if k != 1 else g for k, g in zip(aligned(known, len(given)), given, strict=True)
        )
        steps = [self.strides(o, i, shapes, strides) for i, o in enumerate(frame.operands)]
        self.loops = collapse(self.domain, steps, frame.folded_axes)
        inner = len(self.loops.shape) - 1
        self.kept = [a for a in range(inner - 1, -1, -1) if not self.loops.folded[a]]
        self.folded = [a for a in range(inner - 1, -1, -1) if self.loops.folded[a]]
        self.n = self.loops.shape[inner] if self.loops.shape else 1
        self.words = np.zeros(frame.buffers_at + len(frame.buffers) + 1, np.int64)

    def strides(self, o: Operand, i: int, shapes: Any, strides: Any) -> tuple[int, ...]:
        if o.is_iota:
            own = aligned(o.node.spec.shape, len(self.domain))
            shape = tuple(1 if d == 1 else full for d, full in zip(own, self.domain, strict=True))
            return row_major(shape)
        steps = row_major(shapes[i], o.itemsize) if o.is_output else strides[i]
        return broadcast_strides(shapes[i], steps, self.domain)

    def plan(self) -> Plan:
        sizes = self.sizes()
        own, shared = self.fill(sizes)
        rows, chunks = sizes["rows"], sizes["chunks"]
        address = self.words.ctypes.data
        if math.prod(self.domain) >= PARALLEL:
            return Plan(self.words, address, None, 0, rows, chunks, own, shared, None)
        memory, start = scratch(own + shared) if own + shared else (None, 0)
        span = (ctypes.c_int64 * len(SPAN))(0, self.frame.stages, 0, rows, 0, chunks, start, start + own)
        return Plan(self.words, address, span, ctypes.addressof(span), rows, chunks, own, shared, memory)

    def sizes(self) -> dict[str, int]:
        """The head of the plan, and the number of rows."""
        steps = math.prod(self.loops.shape[a] for a in self.folded)
        rows = math.prod(self.loops.shape[a] for a in self.kept)
        n = self.n
        piece = max(1, min(n, self.piece(steps)))
        if self.frame.columns:
            group, units, extent = max(GROUP, math.isqrt(steps)), steps, steps
        else:
            group, units, extent = max(1, CHUNK // piece), steps * -(-n // piece), steps * n
        pieces = -(-n // piece)
        return {
            "n": n, "piece": piece, "pieces": pieces, "steps": steps, "group": group, "units": units,
            "chunks": -(-units // group), "lanes": min(LANES, piece), "extent": extent,
            "rows": rows * pieces if self.frame.columns else rows,
        }  # fmt: skip

    def piece(self, steps: int) -> int:
        """The most elements of the innermost loop that are worked on at once."""
        moving = (i for i, o in enumerate(self.frame.operands) if o.moves and not o.is_iota)
        far = max((abs(self.inner_step(i)) for i in moving), default=0) >= FAR
        if not self.frame.columns:
            return SPREAD if far else GATHERED if self.gathers() else PIECE
        fits = CACHED // 8 // max(steps, 1)  # columns that the next pass still finds in cache
        if len(self.frame.schedule.passes) > 1 and fits >= NARROW:
            return min(COLUMNS, fits)
        return SPREAD if far else COLUMNS

    def inner_step(self, i: int) -> int:
        return self.loops.strides[i][-1] if self.loops.shape else 0

    def gathers(self) -> bool:
        operands = enumerate(self.frame.operands)
        return any(o.moves and self.inner_step(i) != o.itemsize for i, o in operands)

    def fill(self, sizes: dict[str, int]) -> tuple[int, int]:
        """Write every slot; returns the bytes of scratch memory, each thread's own and shared."""
        frame, words = self.frame, self.words
        words[: len(HEAD)] = [sizes[name] for name in HEAD]
        for kind, axes in (("kept", self.kept), ("folded", self.folded)):
            at = frame.lengths_at[kind]
            words[at : at + frame.ndim] = 1
            words[at : at + len(axes)] = [self.loops.shape[a] for a in axes]
        for i, o in enumerate(frame.operands):
            steps = self.loops.strides[i]
            words[o.at] = self.inner_step(i)
            for at, axes in ((o.at + 1, self.kept), (o.at + 1 + frame.ndim, self.folded)):
                words[at : at + len(axes)] = [steps[a] for a in axes]
        used = {True: 0, False: 0}
        for k, b in enumerate(frame.buffers):
            words[frame.buffers_at + k] = used[b.shared]
            used[b.shared] += -(-self.count(b, sizes) * b.itemsize // 64) * 64
        return used[False], used[True]

    def count(self, b: Buffer, sizes: dict[str, int]) -> int:
        """How many elements buffer `b` holds."""
        if b.name.startswith("g") and not self.gathers():
            return 0
        return {
            "lanes": sizes["lanes"], "piece": sizes["piece"], "chunks": sizes["chunks"],
            "row": sizes["extent"], "chunks * piece": sizes["chunks"] * sizes["piece"],
            "units * piece": sizes["units"] * sizes["piece"],
        }[b.size]  # fmt: skip
