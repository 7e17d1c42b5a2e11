"""Kernels that run one after the other: all that a call needs is found once, then addresses are filled in."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import compress
from operator import itemgetter, ne, or_
from typing import Any

from mgb.runtime import forking

from .device import Device, LaunchGraph
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
        See `mgb.backends.Backend.chain`.
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
        self._fixed, self._stream = list(fixed), device.stream
        self._places, self._scratch = tuple(places[:-1]), places[-1]
        self._free: list[Packets] = []

    def run(self, addresses: list[int]) -> None:
        """Launch all on arrays at these addresses."""
        if not self._steps:  # all arrays are empty
            return
        if self._fixed:
            addresses = addresses + self._fixed
        if self._scratch:
            first, _kept = self._device.scratch(self._scratch)
            addresses = addresses + [first + place for place in self._places]
        try:
            packets = self._free.pop()  # threads share none
        except IndexError:
            packets = Packets(self._device, self._steps, self._launch_graph)
        packets.run(addresses, self._stream())
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
        self._layout = _Layout(steps)
        packet = self._packet = Packet(self._layout.content, self._layout.places)
        self._starts = [start for plan, _ in steps for start in plan.starts]
        self._tables = [packet.table + 8 * first for first in self._layout.tables]
        self._start_each = device.sequence(self._starts, self._tables)
        self._refused = launch_graph is False or len(self._starts) < 2
        self._graph: LaunchGraph | None = None
        self._ready: LaunchGraph | None = None  # the same while it knows all parameters
        self._addresses: list[Any] = [None] * len(self._layout.readers)
        self._stale = 0  # launches, as bits, whose parameters the graph has not been told
        self._settled = 0

    def run(self, addresses: list[int], stream: int) -> None:
        """Launch all on these addresses."""
        if self._refused:
            if addresses is not self._addresses and addresses != self._addresses:
                self._fill(addresses)
            self._start_each(stream)
            return
        changed = 0
        if addresses is not self._addresses and addresses != self._addresses:
            changed = self._layout.changed(addresses, self._addresses)
            self._fill(addresses)
        elif self._ready is not None:
            if not self._ready.run(stream):
                self._start_each(stream)
            return
        if not self._started_as_graph(changed, stream):
            self._start_each(stream)

    def _fill(self, addresses: list[int]) -> None:
        self._layout.fill(self._packet.buffer, addresses)
        self._addresses = addresses

    def _started_as_graph(self, changed: int, stream: int) -> bool:
        """Start all as a graph, where that pays."""
        self._stale |= changed
        self._ready = None
        if not self._demanded:
            if changed.bit_count() + FEWEST > len(self._starts):
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
                self._graph.update([k for k in range(len(self._starts)) if self._stale >> k & 1])
        except (RuntimeError, AttributeError) as error:  # it refuses, or lacks a function
            level = logging.WARNING if self._demanded else logging.DEBUG
            _log.log(level, "the driver makes no graph of launches, which are started one by one: %s", error)
            self._graph, self._refused = None, True
        if self._graph is None:
            return False
        self._stale, self._ready = 0, self._graph
        return self._graph.run(stream)


class _Layout:
    """Where the addresses of a call go in the parameters of all kernels, which lie one behind the other.

    One call fills them in, with what stands between them: that is faster than a call for each kernel.

    Parameters
    ----------
    steps : sequence of (Plan, sequence of int)
        As for `Links`.

    Attributes
    ----------
    content : bytes
        All parameters, with room for the addresses.
    places : tuple of int
        Where in them each parameter of each kernel begins.
    tables : tuple of int
        For each launch, which of `places` is the first one of its kernel.
    readers : tuple of int
        For each address of a call the launches that are given it, as bits.
    """

    def __init__(self, steps: Sequence[tuple[Plan, Sequence[int]]]) -> None:
        content, places, tables, codes, picked = b"", [], [], [], []
        rests = [plan.content[8 * len(given) :] for plan, given in steps]
        readers = [0] * (1 + max((i for _, given in steps for i in given), default=-1))
        for k, ((plan, given), rest) in enumerate(zip(steps, rests, strict=True)):
            for i in given:
                readers[i] |= (1 << len(tables) + len(plan.starts)) - (1 << len(tables))
            tables += [len(places)] * len(plan.starts)
            places += [len(content) + place for place in plan.places]
            codes.append(f"{len(given)}Q{len(rest)}s")
            picked += [*(len(steps) + i for i in given), k]
            content += plan.content
        self.content, self.places, self.tables = content, tuple(places), tuple(tables)
        self.readers = tuple(readers)
        self._rests: list[Any] = rests
        self._pick, self._pack = itemgetter(*picked), struct.Struct("<" + "".join(codes)).pack_into

    def fill(self, buffer: bytearray, addresses: list[int]) -> None:
        """Put the addresses of a call in their places."""
        self._pack(buffer, 0, *self._pick(self._rests + addresses))

    def changed(self, addresses: list[int], before: list[Any]) -> int:
        """Return the launches, as bits, with an address that is not the one of before."""
        return reduce(or_, compress(self.readers, map(ne, addresses, before)), 0)


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
        See `mgb.backends.Backend.chain`.
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
        self._last: tuple[Any, Links | None] = None, None  # the strides of the last call, and its launches
        several = len(self._varying) > 1
        self._pick: Any = itemgetter(*varying) if several else None if self._varying else lambda arrays: ()
        self._address: Callable[[Any], int] | None = None
        self._usable: list[int] = []  # the addresses of the last call for which `_are_usable` held
        self._lock = forking.lock()

    def run(self, arrays: Sequence[Any]) -> None:
        """Launch all kernels."""
        addresses = list(map(self._address or self._begin(arrays), arrays))
        pick = self._pick
        strides = [a.strides for a in pick(arrays)] if pick else arrays[self._varying[0]].strides
        before, found = self._last
        if strides != before:
            found = self._look_up(strides, arrays, addresses)
        usable = self._usable
        if addresses == usable:
            addresses = usable  # the very list: who compares it once more is done at once
        elif found is not None and not self._are_usable(addresses):
            found = None
        if found is None:
            self._one_by_one(arrays)
        else:
            found.run(addresses)

    def _look_up(self, strides: list[Any], arrays: Sequence[Any], addresses: Sequence[int]) -> Links | None:
        """Return the launches for strides that are not those of the last call."""
        key = tuple(strides)
        try:
            found = self._known[key]
        except KeyError:
            found = self._learn(key, arrays, addresses)
            if key not in self._known:  # it is about these addresses alone
                return found
        self._last = strides, found
        return found

    def _are_usable(self, addresses: list[int]) -> bool:
        """Return whether arrays at these addresses begin at multiples of `VECTOR`, and none needs a copy."""
        for i, j in self._hazards:
            if addresses[i] == addresses[j]:
                return False
        if reduce(or_, addresses) % VECTOR:
            return False
        self._usable = addresses
        return True

    def _begin(self, arrays: Sequence[Any]) -> Callable[[Any], int]:
        """Return the function that reads addresses, and set up what depends on the device of `arrays`."""
        units = self._find(arrays)
        pairs = zip(units, self._wiring, strict=True)
        self._hazards = tuple((reads[i], writes[j]) for u, (reads, writes) in pairs for i, j in u.hazards)
        self._units, self._address = units, units[0].device.address
        return self._address

    def _one_by_one(self, arrays: Sequence[Any]) -> None:
        for unit, (reads, writes) in zip(self._units, self._wiring, strict=True):
            unit.run(*[arrays[i] for i in reads], out=[arrays[i] for i in writes])

    def _learn(self, key: Any, arrays: Sequence[Any], addresses: Sequence[int]) -> Links | None:
        """Return the launches for strides like these; None where a kernel wants copies of its inputs.

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
