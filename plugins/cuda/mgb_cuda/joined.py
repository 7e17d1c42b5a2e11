"""Many small kernels in few launches: those that are alike share one, which finds its operands in a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from mgb.backends import Seen

from .arrays import PER_THREAD
from .launch import Batch, Plan, Unit
from .packing import Packet

#: A function of the stream and something else, and that.
Ready = tuple[Callable[[int, Any], None], Any]

#: Sets of plans that are kept for each call.
PROGRAMS = 64


@dataclass(frozen=True)
class Program:
    """The program of one set of plans: batches, and the numbers of those that run alone."""

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
        self._recent: tuple[Seen, list[Ready], int] = Seen(), [], PER_THREAD

    def run(self, *arrays: Any, out: Sequence[Any]) -> None:
        """Run all units on these arrays.

        A program usually passes the same array objects as in its last call: state is updated in place, and
        temporaries have fixed buffers. Then only the identity of the arrays is compared. A prepared call may
        have a table on the device, which was sent on one stream: it is used on no other one.
        """
        objects = (*arrays, *out)
        seen, ready, last = self._recent
        stream = self.units[0].device.stream()
        if stream != last or not seen.same(objects):
            ready, copies = self._prepare(arrays, out)  # the copies live until all is started
            if not copies and stream != PER_THREAD:
                seen = Seen()
                seen.remember(objects)
                self._recent = seen, ready, stream
        for run, argument in ready:
            run(stream, argument)

    def _prepare(self, arrays: tuple[Any, ...], out: Sequence[Any]) -> tuple[list[Ready], list[Any]]:
        """Return the calls for these arrays, without keeping them alive, and the copies that were made.

        Without copies, the calls stay valid as long as the arrays live.
        """
        cuts = [(unit, arrays[x], out[y]) for unit, x, y in zip(self.units, self._inputs, self._outputs)]
        calls = [unit.prepare(xs, ys) for unit, xs, ys in cuts]
        program = self._program([plan for plan, _, _ in calls])
        ready: list[Ready] = [(_launch, (batch.launch, batch.filled(calls))) for batch in program.batches]
        ready += [(_run, calls[k][:2]) for k in program.alone]
        return ready, [used for (_, _, used), (_, xs, _) in zip(calls, cuts, strict=True) if used is not xs]

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
            shared = None if plan is None else unit.shared(plan.choice.variant)
            alike.setdefault((id(unit), shared) if shared is not None else k, []).append(k)
        groups = list(alike.values())
        batches = [b for g in groups if len(g) > 1 for b in self.units[g[0]].batches(g, plans)]
        alone = tuple(members[0] for members in groups if len(members) == 1)
        return Program(plans, tuple(batches), alone)


def _launch(stream: int, batch: tuple[Callable[[int, int], None], Packet]) -> None:
    launch, packet = batch
    launch(stream, packet.table)


def _run(stream: int, call: tuple[Plan | None, list[int]]) -> None:
    plan, pointers = call
    if plan is not None:
        plan.run(pointers, stream)
