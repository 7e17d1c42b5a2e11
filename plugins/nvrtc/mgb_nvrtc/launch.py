"""The kernels of one graph on one device, and calls that share a launch."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import accumulate

from mgb_cuda import Packet
from mgb_cuda.geometry import choose, smaller
from mgb_cuda.launch import Batch, Call, Plan
from mgb_cuda.launch import Unit as AnyUnit
from mgb_cuda.pattern import Choice
from mgb_cuda.steps import Steps
from mgb_cuda.variant import Kind, Variant

from .source import kernel_names, prelude, source

#: Bytes of the parameters of one launch, each of which copies all of them: the least that has room is taken.
TABLE_BYTES = (4 << 10, 8 << 10, 16 << 10, 32 << 10)


class Unit(AnyUnit):
    """Kernels of CUDA C++."""

    def choose(self, steps: Steps, askew: Set[int] = frozenset()) -> Choice:
        return choose(self.frame, steps, self.device.properties, askew)

    def smaller(self, first: Choice, found: Steps) -> Iterator[Choice]:
        return smaller(self.frame, found, self.device.properties, first)

    def source(self, variant: Variant) -> str:
        return source(self.frame, variant)

    def texts(self, variant: Variant) -> Sequence[tuple[str, tuple[str, ...]]]:
        return [(prelude() + source(self.frame, variant), kernel_names(self.frame, variant))]

    def shared(self, variant: Variant) -> Variant | None:
        """Return the variant of a kernel that takes several sets of operands; None where there is none."""
        if variant.kind is not Kind.FLAT or variant.wide:
            return None
        return replace(variant, tail=variant.lanes > 1 and (len(variant.folded) == 1 or bool(variant.whole)))

    def batches(self, members: Sequence[int], plans: Sequence[Plan | None]) -> Iterator[Batch]:
        """Yield one launch for as many members as its parameters have room for."""
        first = plans[members[0]]
        assert first is not None
        variant, size = self.shared(first.choice.variant), len(first.content)
        assert variant is not None
        rooms = [min(b, self.device.properties.parameter_bytes) - 8 for b in TABLE_BYTES]
        fitting = [room for room in rooms if room // (size + 4) >= len(members)]
        most = max(1, (fitting or rooms[-1:])[0] // (size + 4))
        variant = replace(variant, units=most)
        (function,) = self.load(variant)
        for start in range(0, len(members), most):
            part = tuple(members[start : start + most])
            found = [plan for k in part if (plan := plans[k]) is not None]
            firsts = list(accumulate((plan.choice.blocks for plan in found), initial=0))
            filling = bytes(size * (most - len(part)))
            table = struct.pack(f"<{most + 1}i", *firsts[:-1], *[0] * (most - len(part)), len(part))
            content = b"".join((*(plan.content for plan in found), filling, table))
            content = content.ljust(-(-len(content) // 8) * 8, b"\0")
            launch = self.device.launcher(function, (firsts[-1], 1), variant.threads)
            yield Structs(part, launch, size, content)


@dataclass(frozen=True)
class Structs(Batch):
    """Calls whose parameters stand side by side in one struct.

    Attributes
    ----------
    size : int
        Bytes of the parameters of each.
    content : bytes
        Those of all, with room for the addresses.
    """

    size: int
    content: bytes

    def filled(self, calls: Sequence[Call]) -> Packet:
        packet = Packet(self.content)
        for at, k in enumerate(self.members):
            plan, pointers, _ = calls[k]
            assert plan is not None
            plan.pack(packet.buffer, at * self.size, *pointers)
        return packet


__all__ = ["Plan", "Unit"]
