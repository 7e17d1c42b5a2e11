"""Many small kernels in few launches: those that are alike share one, which finds its operands in a table."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from mgb.backend import Seen
from mgb_cuda import Packet

from .launch import Plan, Unit
from .variant import Kind, Variant

#: What `Unit.prepare` gives.
Call = tuple[Plan | None, list[int], Any]

#: A function of the stream and something else, and that.
Ready = tuple[Callable[[int, Any], None], Any]

#: Parameters of one launch; each launch copies all of them.
TABLE_BYTES = 4 << 10

#: Sets of plans that are kept for each call.
PROGRAMS = 64


@dataclass(frozen=True)
class Batch:
    """Plans of one variant that one launch runs.

    Attributes
    ----------
    members : tuple of int
        Which of the kernels.
    size : int
        Bytes of the parameters of each.
    content : bytes
        Those of all, with room for the addresses.
    launch : callable
        See `Device.launcher`.
    """

    members: tuple[int, ...]
    size: int
    content: bytes
    launch: Callable[[int, int], None]

    def filled(self, calls: Sequence[Call]) -> Packet:
        """The parameters, with the addresses of these calls."""
        packet = Packet(self.content)
        for at, k in enumerate(self.members):
            plan, pointers, _ = calls[k]
            assert plan is not None
            plan.pack(packet.buffer, at * self.size, *pointers)
        return packet


@dataclass(frozen=True)
class Program:
    """What one set of plans comes to: batches, and the numbers of those that run alone."""

    plans: tuple[Plan | None, ...]
    batches: tuple[Batch, ...]
    alone: tuple[int, ...]


class Joined:
    """``run`` of several kernels that are independent of each other.

    Parameters
    ----------
    units : sequence of Unit
        ``run`` takes the inputs of the first, of the second, ...; ``out`` is the outputs of the first, ...
    """

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units = tuple(units)
        inputs = accumulate((u.inputs for u in units), initial=0)
        outputs = accumulate((u.outputs for u in units), initial=0)
        self._inputs = [slice(a, b) for a, b in pairwise(inputs)]
        self._outputs = [slice(a, b) for a, b in pairwise(outputs)]
        self._programs: dict[tuple[int, ...], Program] = {}
        self._recent: tuple[Seen, list[Ready]] = Seen(), []

    def run(self, *arrays: Any, out: Sequence[Any]) -> None:
        """What a `Kernel` runs.

        A program hands its kernels the very arrays of its last call more often than not: what is in place is
        kept there, and what is temporary has its place. Then nothing is asked of them but who they are.
        """
        objects = (*arrays, *out)
        seen, ready = self._recent
        if not seen.same(objects):
            ready, lasting = self._prepare(arrays, out)
            if lasting:
                seen = Seen()
                seen.remember(objects)
                self._recent = seen, ready
        stream = self.units[0].device.stream()
        for run, argument in ready:
            run(stream, argument)

    def _prepare(self, arrays: tuple[Any, ...], out: Sequence[Any]) -> tuple[list[Ready], bool]:
        """What is to be run on these arrays, and whether that is so as long as they live."""
        cuts = [(unit, arrays[x], out[y]) for unit, x, y in zip(self.units, self._inputs, self._outputs)]
        calls = [unit.prepare(xs, ys) for unit, xs, ys in cuts]
        program = self._program([plan for plan, _, _ in calls])
        ready: list[Ready] = [(_launch, (batch.launch, batch.filled(calls))) for batch in program.batches]
        ready += [(_run, calls[k]) for k in program.alone]
        copied = any(used is not xs for (_, _, used), (_, xs, _) in zip(calls, cuts, strict=True))
        return ready, not copied

    def _program(self, plans: list[Plan | None]) -> Program:
        key = tuple(map(id, plans))  # a program keeps its plans alive, so that no other has their addresses
        program = self._programs.get(key)
        if program is None:
            if len(self._programs) >= PROGRAMS:
                self._programs.clear()
            program = self._programs[key] = self._build(tuple(plans))
        return program

    def _build(self, plans: tuple[Plan | None, ...]) -> Program:
        alike: dict[Any, list[int]] = {}
        for k, (unit, plan) in enumerate(zip(self.units, plans, strict=True)):
            variant = plan and _shared(plan.choice.variant)
            alike.setdefault((id(unit), variant) if variant is not None else k, []).append(k)
        groups = list(alike.values())
        batches = [b for members in groups if len(members) > 1 for b in self._batches(members, plans)]
        alone = tuple(members[0] for members in groups if len(members) == 1)
        return Program(plans, tuple(batches), alone)

    def _batches(self, members: Sequence[int], plans: Sequence[Plan | None]) -> Iterator[Batch]:
        """One launch for as many members as its parameters have room for."""
        unit, first = self.units[members[0]], plans[members[0]]
        assert first is not None
        variant, size = _shared(first.choice.variant), len(first.content)
        assert variant is not None
        most = max(1, (min(TABLE_BYTES, unit.device.properties.parameter_bytes) - 8) // (size + 4))
        variant = replace(variant, units=most)
        (function,) = unit.load(variant)
        for start in range(0, len(members), most):
            part = tuple(members[start : start + most])
            found = [plan for k in part if (plan := plans[k]) is not None]
            firsts = list(accumulate((plan.choice.blocks for plan in found), initial=0))
            filling = bytes(size * (most - len(part)))
            table = struct.pack(f"<{most + 1}i", *firsts[:-1], *[0] * (most - len(part)), len(part))
            content = b"".join((*(plan.content for plan in found), filling, table))
            content = content.ljust(-(-len(content) // 8) * 8, b"\0")
            launch = unit.device.launcher(function, (firsts[-1], 1), variant.threads)
            yield Batch(part, size, content, launch)


def _launch(stream: int, batch: tuple[Callable[[int, int], None], Packet]) -> None:
    launch, packet = batch
    launch(stream, packet.table)


def _run(stream: int, call: Call) -> None:
    plan, pointers, _ = call
    if plan is not None:
        plan.run(pointers, stream)


def _shared(variant: Variant) -> Variant | None:
    """The variant of a kernel that takes several sets of operands; None where it cannot be one of them."""
    if variant.kind is not Kind.FLAT or variant.wide:
        return None
    return replace(variant, tail=variant.lanes > 1 and len(variant.folded) == 1)
