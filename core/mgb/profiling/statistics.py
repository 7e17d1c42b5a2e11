"""Statistics of one traced function: its cost so far, and the reasons of recompilation."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from ..executor import Program, kernels
from ..executor.profile import PROFILED, CallProfile
from ..runtime import forking

logger = logging.getLogger("mgb.jit")

#: Reasons that are kept, the latest.
_REASONS = 16


class Statistics:
    """Counts of one traced function. Several threads may add to them at once.

    Attributes
    ----------
    calls : int
        Added to without a lock, at each call: in CPython no thread loses another's.
    body_runs : int
        How often the body was run; likewise.
    records : int
        How often it was run to be recorded.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.body_runs = 0
        self.records = 0
        self._seconds = 0.0
        self._kernels = kernels.Stats()
        self._reasons: deque[str] = deque(maxlen=_REASONS)
        self._lock = forking.lock()

    def compiled(self, compile: Callable[[], Program]) -> Program:
        """Call `compile`, and count its time and its kernels."""
        start = time.perf_counter()
        with kernels.counting() as counted:
            program = compile()
        seconds = time.perf_counter() - start
        call = self._profiled()
        if call is not None:
            call.compiled += (seconds,)
        with self._lock:
            self._seconds += seconds
            self._kernels = self._kernels + counted.total
        return program

    def recorded(self) -> None:
        """Count a body that was recorded."""
        call = self._profiled()
        if call is not None:
            call.recorded = True
        with self._lock:
            self.records += 1

    def again(self, reason: str, level: int = logging.INFO) -> None:
        """Count a re-recording or recompilation, for a `reason` in the user's terms; logged at `level`."""
        logger.log(level, "%s", reason)
        call = self._profiled()
        if call is not None:
            call.reasons += (reason,)
        with self._lock:
            self._reasons.append(reason)

    def _profiled(self) -> CallProfile | None:
        """Return the call of this function that is profiled here; not that of one which calls it."""
        call = PROFILED.get()
        return call if call is not None and call.of is self else None

    def as_dict(self) -> dict[str, Any]:
        """Return the counts under the names that ``stats()`` of a traced function has."""
        with self._lock:
            return {
                "calls": self.calls,
                "body_runs": self.body_runs,
                "records": self.records,
                "compile_seconds": self._seconds,
                "kernel_compiles": self._kernels.compiles,
                "kernel_memory_hits": self._kernels.memory_hits,
                "kernel_disk_hits": self._kernels.disk_hits,
                "reasons": list(self._reasons),
            }
