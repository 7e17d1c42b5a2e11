"""The kernels of one graph on one device, and calls that share a launch."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
from mgb_cuda import Device, Packet, Packing
from mgb_cuda.launch import Batch, Call, Plan
from mgb_cuda.launch import Unit as AnyUnit
from mgb_cuda.pattern import Choice
from mgb_cuda.steps import Steps

from .compiler import Compiled
from .geometry import choose, smaller
from .source import source, texts
from .tuning import pick
from .variant import Variant

#: Sets of operands that one launch takes.
UNITS = 256

#: Greater than the number of any program.
NEVER = 1 << 31


class Unit(AnyUnit):
    """Kernels of Triton."""

    def choose(self, steps: Steps, askew: Set[int] = frozenset()) -> Choice:
        return choose(self.frame, steps, self.device.properties, askew)

    def pick(self, found: Steps, askew: Set[int], inputs: Sequence[Any], out: Sequence[Any]) -> Choice:
        return pick(self, found, askew, inputs, out)

    def smaller(self, first: Choice, found: Steps) -> Iterator[Choice]:
        return smaller(self.frame, found, self.device.properties, first)

    def source(self, variant: Variant) -> str:
        return source(self.frame, variant)

    def texts(self, variant: Variant) -> Sequence[tuple[str, tuple[str, ...]]]:
        return [(text, (name,)) for text, name in texts(self.frame, variant)]

    def machine_code(self, text: str) -> tuple[bytes, int]:
        packed, _ = super().machine_code(text)
        kernel = Compiled.unpack(packed)
        return kernel.image, kernel.shared

    def shared(self, variant: Variant) -> Hashable | None:
        """Return the variant of a kernel that takes several sets of operands; None where there is none."""
        if not variant.is_flat(self.frame) or variant.wide:
            return None
        return replace(variant, tail=True, units=UNITS)

    def batches(self, members: Sequence[int], plans: Sequence[Plan | None]) -> Iterator[Batch]:
        """Yield one launch for as many members as its table has room for."""
        first = plans[members[0]]
        assert first is not None
        variant = self.shared(first.choice.variant)
        assert isinstance(variant, Variant)
        (function,) = self.load(variant)
        for start in range(0, len(members), UNITS):
            part = tuple(members[start : start + UNITS])
            found = [plan for k in part if (plan := plans[k]) is not None]
            firsts = list(accumulate((plan.choice.blocks for plan in found), initial=0))
            launch = self.device.launcher(function, (firsts[-1], 1), variant.threads)
            names = [name for _, name in variant.numbers]
            numbers = [[plan.choice.numbers[name] for name in names] for plan in found]
            yield Tabled(part, launch, self.device, (*firsts[:-1],), tuple(map(tuple, numbers)))


@dataclass(frozen=True)
class Tabled(Batch):
    """Calls whose operands stand in a table on the device.

    Attributes
    ----------
    device : Device
    firsts : tuple of int
        The first program of each member.
    numbers : tuple of tuple of int
        What each member is passed beside addresses.
    """

    device: Device
    firsts: tuple[int, ...]
    numbers: tuple[tuple[int, ...], ...]

    def filled(self, calls: Sequence[Call]) -> Packet:
        rows = [(*calls[k][1], *n) for k, n in zip(self.members, self.numbers, strict=True)]
        table = np.full(UNITS + sum(map(len, rows)), NEVER, np.int64)
        table[: len(self.firsts)] = self.firsts
        table[UNITS:] = np.array(rows, np.uint64).view(np.int64).ravel()
        return TablePacket(self.device, self.device.upload(table))


class TablePacket(Packet):
    """The parameters of a launch that has a table, which it keeps."""

    __slots__ = ("array",)

    def __init__(self, device: Device, array: Any) -> None:
        packing = Packing(1, (), apart=True, nulls=2)
        super().__init__(packing.pack({}), packing.places)
        packing.pointers.pack_into(self.buffer, 0, device.address(array))
        self.array = array
