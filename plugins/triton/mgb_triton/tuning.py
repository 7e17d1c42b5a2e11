"""The choice between variants by measuring them, which is kept on disk.

Where nothing can be measured, as in a stream that captures, on few bytes, or when the user asks for it, the
rule of `geometry` decides.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

from mgb.runtime import cache, forking
from mgb.runtime.config import Variable
from mgb_cuda import LaunchError
from mgb_cuda.launch import Plan, Unit
from mgb_cuda.pattern import Choice
from mgb_cuda.steps import Steps

from .compiler import TritonError
from .geometry import candidates

_log = logging.getLogger("mgb.triton")

#: ``0``: choose by rule, measure nothing.
SETTING = Variable("MGB_TRITON_TUNE", "1", "0: no variants of a kernel are measured, a rule chooses one")

#: A call that moves fewer bytes is served by the rule: its time is that of the launch.
WORTH_IT = 1 << 20

#: Another variant must be so much faster than that of the rule.
GAIN = 0.97

_FOLDER = "triton"
_known: dict[str, int] = {}
_lock = forking.lock()


@runtime_checkable
class Clock(Protocol):
    """A device that can tell how long its work takes."""

    def elapsed(self, run: Callable[[int], None]) -> float:
        """Measure seconds of device time of ``run(stream)``."""


def is_on() -> bool:
    """Return whether variants may be measured."""
    return SETTING.on()


def pick(unit: Unit, found: Steps, askew: Set[int], inputs: Sequence[Any], out: Sequence[Any]) -> Choice:
    """Return the variant for a call: what was found to be the fastest for calls of its size."""
    first = unit.choose(found, askew)
    if not _is_worth_it(unit, inputs, out):
        return first
    key = _key(unit, first)
    tried = list(candidates(unit.frame, found, unit.device.properties, first))
    with _lock:
        which = _known.get(key)
        if which is None:
            kept = cache.load(_FOLDER, key)
            which = int.from_bytes(kept, "little") if kept else -1
            if not 0 <= which < len(tried):
                if unit.device.is_capturing():
                    return first
                which = fastest(unit, tried, inputs, out)
                cache.store(_FOLDER, key, which.to_bytes(2, "little"))
            _known[key] = which
    return tried[which]


def _is_worth_it(unit: Unit, inputs: Sequence[Any], out: Sequence[Any]) -> bool:
    if not is_on() or not isinstance(unit.device, Clock):
        return False
    return sum(a.nbytes for a in (*inputs, *out)) >= WORTH_IT


def _key(unit: Unit, first: Choice) -> str:
    """Return a key that is equal for calls that one measurement serves: of one text, and of like sizes."""
    sizes = [first.numbers[name].bit_length() for name in ("rows", "length")]
    parts = (unit.device.key(), unit.device.properties.name, unit.device.toolchain(), str(sizes))
    return hashlib.sha256("\n".join((*parts, unit.source(first.variant))).encode()).hexdigest()


def fastest(unit: Unit, tried: Sequence[Choice], inputs: Sequence[Any], out: Sequence[Any]) -> int:
    """Return which of these variants is the fastest on these inputs; what they write is thrown away."""
    device = unit.device
    assert isinstance(device, Clock)
    best, least = 0, float("inf")
    with suppress(LaunchError, MemoryError):
        room = [device.scratch(max(1, a.nbytes)) for a in out]
        pointers = [*map(device.address, inputs), *(place for place, _ in room)]
        for which, choice in enumerate(tried):
            with suppress(LaunchError, TritonError):  # too much for this GPU
                plan = Plan(unit, choice, unit.starts(choice))
                seconds = device.elapsed(lambda stream, plan=plan: plan.run(pointers, stream))  # type: ignore[misc]
                _log.debug("%d: %.1f us with %s", which, 1e6 * seconds, choice.variant)
                if seconds < (GAIN if best == 0 and which else 1.0) * least:
                    best, least = which, seconds
    return best
