"""Kernels that run one after the other: all that a call needs is found once, then addresses are filled in."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import attrgetter, itemgetter, or_
from typing import Any

from .device import Device, LaunchGraph, Start
from .launch import Plan, Unit
from .packing import Packet
from .pattern import VECTOR

_log = logging.getLogger("mgb.cuda")

#: Sets of strides for which one chain keeps its launches.
KEPT = 64

#: Fewer launches whose addresses stay are no graph, and calls in a row before one is made: see `Packets`.
FEWEST, SETTLED = 4, 3

#: For each kernel the places of its inputs, and of its outputs, among the arrays of a call.
Wiring = Sequence[tuple[Sequence[int], Sequence[int]]]

_strides = attrgetter("strides")


class Links:
    """The launches of a chain for arrays of known shapes and strides.

    Parameters
    ----------
    device : Device
    steps : sequence of (Plan, sequence of int)
        A kernel's plan, and where its addresses stand among those of a call, the `fixed` ones and those of
        scratch memory, in this order.
    fixed : sequence of int
        The addresses of constants.
    places : sequence of int
        Where in scratch memory the partial results lie; at the end its size.
    launch_graph : bool or None
        See `mgb.backend.Backend.chain`.
    """

    def __init__(
        self,
        device: Device,
        steps: Sequence[tuple[Plan, Sequence[int]]],
        fixed: Sequence[int],
        places: Sequence[int],
        launch_graph: bool | None,
    ) -> None:
        self._device, self._steps, self._launch_graph = device, tuple(steps), launch_graph
        self._fixed = list(fixed)
        self._places, self._scratch = tuple(places[:-1]), places[-1]
        self._free: list[Packets] = []

    def run(self, addresses: list[int]) -> None:
        """Launch all on arrays at these addresses."""
        if self._fixed:
            addresses = addresses + self._fixed
        if self._scratch:
            first, _kept = self._device.scratch(self._scratch)
            addresses = addresses + [first + place for place in self._places]
        try:
            packets = self._free.pop()  # threads share none
        except IndexError:
            packets = Packets(self._device, self._steps, self._launch_graph)
        packets.run(addresses, self._device.stream())
        self._free.append(packets)


class Packets:
    """The parameters of the launches of a chain, for one call at a time, and how they are started.

    They are started one by one, or as a graph of the device where that is less work for the host. A graph
    costs as much as about two launches, and each launch whose addresses have changed since the last call
    about one more: the driver must be told. So something is gained from `FEWEST` launches on whose addresses
    stay. Making a graph costs as much as many launches: addresses must have stayed for `SETTLED` calls.

    Parameters
    ----------
    device, steps, launch_graph
        As for `Links`.
    """

    def __init__(
        self, device: Device, steps: Sequence[tuple[Plan, Sequence[int]]], launch_graph: bool | None
    ) -> None:
        self._device, self._demanded = device, launch_graph is True
        self._addresses: list[int] = []
        self._links: list[_Link] = []
        self._starts: list[Start] = []
        self._tables: list[int] = []
        for plan, places in steps:
            packet = Packet(plan.content, plan.places)
            pick = itemgetter(*places) if len(places) > 1 else partial(_only, places[0])
            numbers = range(len(self._starts), len(self._starts) + len(plan.starts))
            self._links.append(_Link(partial(plan.pack, packet.buffer, 0), pick, numbers, packet))
            self._starts += plan.starts
            self._tables += [packet.table] * len(plan.starts)
        self._start_each = device.sequence(self._starts, self._tables)
        self._refused = launch_graph is False or len(self._starts) < 2
        self._graph: LaunchGraph | None = None
        self._stale: set[int] = set()  # launches whose parameters the graph has not been told
        self._settled = 0

    def run(self, addresses: list[int], stream: int) -> None:
        """Launch all on these addresses."""
        changed = self._fill(addresses) if addresses != self._addresses else ()
        if self._refused or not self._started_as_graph(len(changed), stream):
            self._start_each(stream)

    def _fill(self, addresses: list[int]) -> list[int]:
        """Put addresses in their places, and tell the launches that have other ones than before."""
        changed: list[int] = []
        for link in self._links:
            picked = link.pick(addresses)
            if picked != link.picked:
                link.fill(*picked)
                link.picked = picked
                changed += link.numbers
        self._addresses = addresses
        self._stale.update(changed)
        return changed

    def _started_as_graph(self, changed: int, stream: int) -> bool:
        """Start all as a graph, where that pays."""
        if not self._demanded:
            if changed + FEWEST > len(self._starts):
                self._settled = 0
                return False
            self._settled += 1
            if self._settled < SETTLED:
                return False
        try:
            if self._graph is None:
                self._graph = self._device.graph(self._starts, self._tables)
                self._refused = self._graph is None
            elif self._stale:
                self._graph.update(self._stale)
        except (RuntimeError, AttributeError) as error:  # it refuses, or lacks a function
            level = logging.WARNING if self._demanded else logging.DEBUG
            _log.log(level, "the driver makes no graph of launches, which are started one by one: %s", error)
            self._graph, self._refused = None, True
        if self._graph is None:
            return False
        self._stale.clear()
        return self._graph.run(stream)


@dataclass(slots=True)
class _Link:
    """The parameters of one kernel, which several launches may have."""

    fill: Callable[..., None]
    pick: Callable[[Sequence[int]], tuple[int, ...]]
    numbers: range
    packet: Packet
    picked: tuple[int, ...] = ()


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
    launch_graph : bool or None
        See `mgb.backend.Backend.chain`.
    """

    def __init__(
        self,
        units: Callable[[Sequence[Any]], Sequence[Unit]],
        wiring: Wiring,
        varying: Sequence[int],
        launch_graph: bool | None = None,
    ) -> None:
        self._find, self._wiring, self._varying = units, tuple(wiring), tuple(varying)
        self._launch_graph = launch_graph
        self._units: Sequence[Unit] = ()
        self._hazards: tuple[tuple[int, int], ...] = ()
        self._known: dict[Any, Links | None] = {}
        self._usable: list[int] = []  # the addresses of the last call for which `_are_usable` held
        self._lock = threading.Lock()

    def run(self, arrays: Sequence[Any]) -> None:
        """Launch all kernels."""
        units = self._units or self._begin(arrays)
        device = units[0].device
        addresses = list(map(device.address, arrays))
        key = tuple([_strides(arrays[i]) for i in self._varying])
        try:
            found = self._known[key]
        except KeyError:
            found = self._learn(key, arrays, addresses)
        if found is None or not (addresses == self._usable or self._are_usable(addresses)):
            self._one_by_one(arrays)
        else:
            found.run(addresses)

    def _are_usable(self, addresses: list[int]) -> bool:
        """Do arrays at these addresses begin at multiples of `VECTOR`, and need none of them a copy?"""
        alike = any(addresses[i] == addresses[j] for i, j in self._hazards)
        if alike or reduce(or_, addresses) % VECTOR:
            return False
        self._usable = addresses
        return True

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
        return Links(self._units[0].device, steps, fixed, [*places, size], self._launch_graph)
