"""How fast kernels should be on a GPU that nobody has tried: predicted from their ledger and a few numbers.

Three things bound a kernel. Memory moves so many bytes a second. A multiprocessor executes so many
instructions in a cycle. And what it has asked for at once, over the time that an answer takes, is all that it
gets (Little's law): few blocks with few loads wait. Bounds that are near each other get in each other's way,
and a block that is alone on its multiprocessor does one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .device import Properties
from .ledger import Entry, Ledger
from .occupancy import WARP

#: Of what the memory of a GPU could move, what a copy moves.
COPY = 0.9

#: Seconds from asking memory that is busy to its answer.
ANSWER = 1e-6

#: Warps whose instructions a multiprocessor begins in each cycle, and the share of cycles in which it does.
WARPS, BUSY = 4, 0.85

#: Seconds that a launch takes beside its work: starting, and waiting for the last block.
LAUNCH = 3e-6

#: How much bounds get in each other's way: as a norm of so many dimensions. Alone: one after the other.
TOGETHER, ALONE = 4, 1

#: Cycles a second and bytes a second of a GPU of each generation, where its driver has said nothing.
TYPICAL: Mapping[int, tuple[float, float]] = {
    7: (1.59e9, 0.32e12),  # T4
    8: (1.41e9, 2.0e12),  # A100 80 GB
    9: (1.75e9, 4.8e12),  # H200
    10: (1.85e9, 8.0e12),  # B200
    12: (2.4e9, 1.79e12),  # RTX 5090
}


@dataclass(frozen=True, slots=True)
class Forecast:
    """The predicted time of a call.

    Attributes
    ----------
    seconds : float
    of_copy : float
        The time of a copy that moves the same bytes once, over this one.
    bound : str
        ``"memory"``, ``"issue"``, ``"waiting"`` or ``"launches"``: the slowest part.
    """

    seconds: float
    of_copy: float
    bound: str

    def __str__(self) -> str:
        text = f"predicted: {self.seconds * 1e6:.1f} us, {self.of_copy:.2f} of a copy, bound by {self.bound}"
        return text


def forecast(ledger: Ledger, elements: int, properties: Properties) -> Forecast:
    """Predict the time of the launches of a ledger.

    Parameters
    ----------
    ledger : Ledger
    elements : int
        Of the domain.
    properties : Properties
    """
    clock, moves = rates(properties)
    copy = ledger.least * elements / (COPY * moves)
    seconds, parts = 0.0, dict.fromkeys(("memory", "issue", "waiting"), 0.0)
    for entry in ledger.entries:
        found = _bounds(entry, elements, properties, clock, moves)
        power = ALONE if entry.resident == 1 else TOGETHER
        seconds += sum(bound**power for bound in found.values()) ** (1 / power)
        parts = {name: parts[name] + found[name] for name in parts}
    parts["launches"] = LAUNCH * len(ledger.entries)
    seconds += parts["launches"]
    return Forecast(seconds, copy / seconds, max(parts, key=parts.__getitem__))


def _bounds(e: Entry, elements: int, p: Properties, clock: float, moves: float) -> dict[str, float]:
    """Return the seconds that a launch takes at least, for each reason."""
    full = e.blocks / (p.multiprocessors * max(1, e.resident))
    uneven = -(-e.blocks // (p.multiprocessors * max(1, e.resident))) / full if full > 1 else 1
    issued = p.multiprocessors * WARPS * WARP * BUSY * clock
    return {
        "memory": (e.read + e.written) * elements / (COPY * moves),
        "issue": e.instructions * elements * uneven / issued,
        "waiting": e.read * elements * uneven * ANSWER / (p.multiprocessors * max(1, e.under_way)),
    }


def rates(properties: Properties) -> tuple[float, float]:
    """Return cycles and bytes of memory per second: as the driver says, else those of its generation."""
    known = max((g for g in TYPICAL if g <= properties.capability[0]), default=min(TYPICAL))
    clock, moves = TYPICAL[known]
    return properties.clock or clock, properties.bandwidth or moves
