"""Kernels that run one after the other: all that a call needs is found once, then addresses are filled in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import attrgetter, itemgetter, or_
from typing import Any

from .launch import Plan, Unit
from .packing import Packet
from .pattern import VECTOR

#: Sets of strides for which one chain keeps its launches.
KEPT = 64

#: For each kernel the places of its inputs, and of its outputs, among the arrays of a call.
Wiring = Sequence[tuple[Sequence[int], Sequence[int]]]

_strides = attrgetter("strides")


class Links:
    """The launches of a chain for arrays of known shapes and strides.

    Parameters
    ----------
    steps : sequence of (Plan, sequence of int)
        A kernel's plan, and where its addresses stand among those of a call, the `fixed` ones and those of
        scratch memory, in this order.
    fixed : sequence of int
        The addresses of constants.
    places : sequence of int
        Where in scratch memory the partial results lie; at the end its size.
    """

    def __init__(
        self, steps: Sequence[tuple[Plan, Sequence[int]]], fixed: Sequence[int], places: Sequence[int]
    ) -> None:
        self._steps = tuple(steps)
        self._fixed = list(fixed)
        self._places, self._scratch = tuple(places[:-1]), places[-1]
        self._free: list[list[tuple[Any, ...]]] = []

    def run(self, addresses: list[int], stream: int, scratch: Callable[[int], tuple[int, object]]) -> None:
        """Launch all on arrays at these addresses; the list is used up."""
        addresses += self._fixed
        if self._scratch:
            first, _kept = scratch(self._scratch)
            addresses += [first + place for place in self._places]
        try:
            links = self._free.pop()  # threads share none
        except IndexError:
            links = self._new()
        for fill, pick, launches, table, _packet in links:
            fill(*pick(addresses))
            for launch in launches:
                launch(stream, table)
        self._free.append(links)

    def _new(self) -> list[tuple[Any, ...]]:
        links = []
        for plan, places in self._steps:
            packet = Packet(plan.content, plan.places)
            pick = itemgetter(*places) if len(places) > 1 else partial(_only, places[0])
            links.append((partial(plan.pack, packet.buffer, 0), pick, plan.launches, packet.table, packet))
        return links


def _only(place: int, addresses: Sequence[int]) -> tuple[int]:
    return (addresses[place],)


class Chain:
    """One call for several kernels on one device.

    Parameters
    ----------
    units : callable
        ``units(arrays)``: the kernels, on the device of `arrays`.
    wiring : Wiring
    varying : sequence of int
        The arrays whose strides differ from call to call; the others are row-major. Shapes never differ.
    """

    def __init__(
        self, units: Callable[[Sequence[Any]], Sequence[Unit]], wiring: Wiring, varying: Sequence[int]
    ) -> None:
        self._find, self._wiring, self._varying = units, tuple(wiring), tuple(varying)
        self._units: Sequence[Unit] = ()
        self._hazards: tuple[tuple[int, int], ...] = ()
        self._known: dict[Any, Links | None] = {}
        self._lock = threading.Lock()

    def run(self, arrays: Sequence[Any]) -> None:
        """Launch all kernels."""
        units = self._units or self._begin(arrays)
        device = units[0].device
        addresses = list(map(device.address, arrays))
        key = tuple([_strides(arrays[i]) for i in self._varying])
        found = self._known.get(key, self)
        if found is self:
            found = self._learn(key, arrays, addresses)
        alike = any(addresses[i] == addresses[j] for i, j in self._hazards)
        if found is None or alike or reduce(or_, addresses) % VECTOR:
            self._one_by_one(arrays)
        else:
            found.run(addresses, device.stream(), device.scratch)  # type: ignore[union-attr]

    def _begin(self, arrays: Sequence[Any]) -> Sequence[Unit]:
        units = self._find(arrays)
        pairs = zip(units, self._wiring, strict=True)
        self._hazards = tuple((reads[i], writes[j]) for u, (reads, writes) in pairs for i, j in u.hazards)
        self._units = units
        return units

    def _one_by_one(self, arrays: Sequence[Any]) -> None:
        for unit, (reads, writes) in zip(self._units, self._wiring, strict=True):
            unit.run(*[arrays[i] for i in reads], out=[arrays[i] for i in writes])

    def _learn(self, key: Any, arrays: Sequence[Any], addresses: Sequence[int]) -> Links | None:
        """The launches for strides like these; None where a kernel wants copies of its inputs.

        An array that begins at no multiple of `VECTOR` would give plans for such arrays alone.
        """
        if reduce(or_, addresses) % VECTOR:
            return None
        with self._lock:
            if len(self._known) >= KEPT:
                self._known.clear()
            found = self._known[key] = self._links(arrays)
        return found

    def _links(self, arrays: Sequence[Any]) -> Links | None:
        fixed: list[int] = []
        planned = []
        for unit, (reads, writes) in zip(self._units, self._wiring, strict=True):
            given = tuple(arrays[i] for i in reads)
            plan, pointers, used = unit.prepare(given, [arrays[i] for i in writes])
            if any(a is not b for a, b in zip(given, used, strict=True)):
                return None
            if plan is not None:
                constants = pointers[len(reads) : len(pointers) - len(writes)]
                planned.append((plan, reads, range(len(fixed), len(fixed) + len(constants)), writes))
                fixed += constants
        places: list[int] = []
        size, steps = 0, []
        after = len(arrays) + len(fixed)
        for plan, reads, constants_at, writes in planned:
            own = [after + len(places) + k for k in range(max(0, len(plan.scratch) - 1))]
            steps.append((plan, [*reads, *(len(arrays) + c for c in constants_at), *writes, *own]))
            places += plan.scratch[:-1]  # kernels of one stream take turns at the same memory
            size = max(size, plan.scratch[-1] if plan.scratch else 0)
        return Links(steps, fixed, [*places, size])
