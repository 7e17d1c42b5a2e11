"""The cost of a call's kernels for each element, read from their machine code: no GPU is needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mgb.ir import Node

from .image import Resources, resources
from .occupancy import resident
from .sass import Region, kernels

if TYPE_CHECKING:
    from .launch import Unit
    from .pattern import Choice


@dataclass(frozen=True, slots=True)
class Entry:
    """One launch.

    Attributes
    ----------
    name : str
        Of the kernel.
    blocks, threads : int
        Of the grid, and of a block.
    registers, spills, shared : int
        Registers of a thread, bytes of local memory that its code moves, bytes of shared memory of a block.
    resident : int
        Blocks that a multiprocessor has at once.
    instructions : float
        That a thread executes for each element.
    read, written : float
        Bytes of memory for each element.
    under_way : int
        Bytes that a multiprocessor has asked for at once.
    loads : int
        Bytes of the widest load of a thread.
    """

    name: str
    blocks: int
    threads: int
    registers: int
    spills: int
    shared: int
    resident: int
    instructions: float
    read: float
    written: float
    under_way: int
    loads: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """All launches of a call.

    Attributes
    ----------
    entries : tuple of Entry
    loaded, stored : int
        Bytes for each element of the domain that have to be read, and written, once.
    """

    entries: tuple[Entry, ...]
    loaded: int
    stored: int

    @property
    def least(self) -> int:
        """Bytes that have to be moved."""
        return self.loaded + self.stored

    @property
    def instructions(self) -> float:
        """For each element, in all launches."""
        return sum(e.instructions for e in self.entries)

    @property
    def read(self) -> float:
        """Bytes for each element, in all launches."""
        return sum(e.read for e in self.entries)

    @property
    def written(self) -> float:
        """Bytes for each element, in all launches."""
        return sum(e.written for e in self.entries)

    @property
    def main(self) -> Entry:
        """The launch that moves most."""
        return max(self.entries, key=lambda e: e.read + e.written)


def ledger(unit: Unit, choice: Choice) -> Ledger:
    """Return the ledger of the launches of a choice.

    Parameters
    ----------
    unit : Unit
        Its device compiles; images are of machine code.
    choice : Choice

    Raises
    ------
    RuntimeError
        There is no tool that reads machine code.
    ValueError
        The images are PTX.
    """
    entries: list[Entry] = []
    for text, names in unit.texts(choice.variant):
        image, asked = unit.machine_code(text)
        of_name, code = {r.name: r for r in resources(image)}, kernels(image)
        for name in names:
            entries.append(_entry(unit, choice, len(entries), of_name[name], code[name], asked))
    return Ledger(tuple(entries), _moved(unit, choice, False), _moved(unit, choice, True))


def _moved(unit: Unit, choice: Choice, stored: bool) -> int:
    """Return bytes that an element takes of inputs, or outputs, of the domain's size: the rest is cached."""
    arrays = enumerate(unit.frame.operands)
    return sum(
        o.itemsize for i, o in arrays if o.is_output is stored and _is_full(choice, i) and not o.is_iota
    )


def _is_full(choice: Choice, operand: int) -> bool:
    """Return whether an array varies along every loop."""
    v = choice.variant
    return v.class_of[operand] >= 0 and "0" not in v.classes[v.class_of[operand]]


def _entry(unit: Unit, choice: Choice, stage: int, of: Resources, code: Region, asked: int) -> Entry:
    threads, blocks = choice.variant.threads, math.prod(unit.grids(choice)[stage])
    shared = of.shared + asked
    at_once = resident(unit.device.properties.capability, threads, of.registers, shared)
    every = list(code.walk())
    least = choice.variant.own * min(_reads(unit, choice), default=1)
    # less is of no row: what blocks have found for others
    regions = [r for r in every[1:] if r.loaded >= least or r.stored >= least] or every[:1]
    if stage:  # one pass, after loops over what blocks have found; or these alone
        last = unit.grids(choice)[stage][1] < choice.chunks
        regions = [] if last else [max(regions, key=lambda r: (r.stored, r.loaded))]
    counts = [_elements(unit, choice, r) if r is not code else choice.variant.own for r in regions]
    there = min(at_once, -(-blocks // unit.device.properties.multiprocessors))
    return Entry(
        of.name, blocks, threads, of.registers, sum(i.nbytes for r in every for i in r.way if i.spills),
        shared, at_once,
        sum(sum(len(x.way) for x in r.walk()) / n for r, n in zip(regions, counts)),
        sum(_read(unit, choice, r.loaded / n) for r, n in zip(regions, counts)),
        sum(r.stored / n for r, n in zip(regions, counts)),
        max(r.under_way for r in every) * threads * there,
        max((i.nbytes for r in every for i in r.way if i.loads), default=0),
    )  # fmt: skip


def _read(unit: Unit, choice: Choice, loaded: float) -> float:
    """Return bytes of memory that a region loads for each element: those of smaller arrays are cached."""
    inputs = [i for i, o in enumerate(unit.frame.operands) if not o.is_output and not o.is_iota]
    smaller = any(choice.variant.class_of[i] >= 0 and not _is_full(choice, i) for i in inputs)
    return min(loaded, _moved(unit, choice, stored=False)) if smaller else loaded


def _elements(unit: Unit, choice: Choice, region: Region) -> int:
    """Return how many a thread works on in a region.

    Those of a tile, times as often as a loop is unrolled.
    """
    own = choice.variant.own
    found = [region.loaded // (own * n) for n in _reads(unit, choice) if region.loaded % (own * n) == 0]
    return own * max(1, min(found, default=1))


def _reads(unit: Unit, choice: Choice) -> set[int]:
    """Return bytes of an element of all that a pass loads, for each pass."""
    return {n for p in unit.frame.schedule.passes if (n := _bytes(unit, choice, p.reads))}


def _bytes(unit: Unit, choice: Choice, nodes: Sequence[Node]) -> int:
    frame = unit.frame
    index = {o: i for i, o in enumerate(frame.operands)}
    of = [frame.source_of[n] for n in dict.fromkeys(nodes)]
    return sum(o.itemsize for o in of if not o.is_iota and choice.variant.moves(index[o]))
