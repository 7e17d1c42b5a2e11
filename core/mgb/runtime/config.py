"""Every environment variable that the core reads, one row each; see `Backend.variables` for others."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..errors import VariableError

__all__ = ["VARIABLES", "Variable"]

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}

_ON, _OFF = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}


def processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux alone
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable; it is read at each use, never at import, unless its meaning says so."""

    name: str
    default: str
    meaning: str

    def get(self) -> str:
        """Return the value in force now; an empty one is none."""
        return os.environ.get(self.name) or self.default

    def on(self) -> bool:
        """Return the value in force now, as a switch.

        Raises
        ------
        VariableError
            It is none.
        """
        text = self.get().strip().lower()
        if text not in _ON | _OFF:
            raise self.error("1 or 0")
        return text in _ON

    def whole(self, least: int = 0) -> int:
        """Return the value in force now, as a whole number of at least `least`.

        Raises
        ------
        VariableError
            It is none.
        """
        try:
            found = whole(self.get())
            if found >= least:
                return found
        except ValueError:
            pass
        raise self.error(f"a whole number of at least {least}")

    def error(self, wanted: str) -> VariableError:
        """Return the error for a current value that is not `wanted`."""
        return VariableError(
            f"{self.name}={self.get()!r}: {self.meaning}; set it to {wanted}, or unset {self.name}"
        )


def whole(text: str) -> int:
    """Return the whole number that `text` says, such as ``"1000"``, ``"1_000"`` or ``"1e3"``.

    Raises
    ------
    ValueError
        It says none.
    """
    try:
        return int(text)
    except ValueError:
        found = float(text)
    if not found.is_integer() or abs(found) >= 1 << 63:
        raise ValueError(f"{text!r} is not a whole number")
    return int(found)


RUN_BODY = Variable(
    "MGB_RUN_BODY", "0", "1: traced functions run their body at every call; read when a function is traced"
)
BACKEND = Variable(
    "MGB_JIT_BACKEND", "", "backend names in order of preference, case does not matter; empty: the best one"
)
AUTO = Variable("MGB_JIT_AUTO", "0", "1 is `mgb.jit.auto` for the whole process; it is read at import")
CACHE = Variable("MGB_CACHE", "1", "0 turns the on-disk cache of compiled kernels off")
CACHE_DIR = Variable("MGB_CACHE_DIR", "", "folder of the on-disk cache; empty: the user's cache folder")
DEBUG = Variable(
    "MGB_DEBUG",
    "",
    "1: a line on stderr for each call of a traced function; 2: and for each step; 3: and graphs and groups "
    "when they are compiled; 4: and sources; read at a function's first call",
)
DISTRIBUTED_BACKEND = Variable(
    "MGB_DISTRIBUTED_BACKEND", "", "the communicator between processes; empty: the only one that is installed"
)
DISTRIBUTED_CHECK = Variable(
    "MGB_DISTRIBUTED_CHECK",
    "1",
    "1: the ranks compare every collective before they make it; 0: the first 100 of each group; read by "
    "init_process_group, and the same on all ranks",
)
DISTRIBUTED_OVERLAP = Variable(
    "MGB_DISTRIBUTED_OVERLAP",
    "1",
    "1: compiled programs compute while exchanges between ranks are under way; 0: they wait for each",
)
DISTRIBUTED_STATUS = Variable(
    "MGB_DISTRIBUTED_STATUS",
    "",
    "the file for the status of a job that a rank ends; mgb.distributed.run sets it",
)
DISTRIBUTED_TIMEOUT = Variable(
    "MGB_DISTRIBUTED_TIMEOUT", "600", "seconds that a rank waits for the others before it raises an error"
)
NUM_THREADS = Variable("MGB_NUM_THREADS", "", "threads a kernel may use; empty: one for each core")
OP_LIBRARIES = Variable(
    "MGB_OP_LIBRARIES",
    "",
    "libraries that may implement ops, in order; empty: all; none: NumPy alone",
)
POOL_BYTES = Variable(
    "MGB_POOL_BYTES", str(1 << 30), "bytes that freed buffers may keep before they go back to the system"
)
SUBLINEAR_THRESH_NR_TRY = Variable(
    "MGB_SUBLINEAR_MEMORY_THRESH_NR_TRY", "", "thresholds tried by sublinear checkpointing"
)
SUBLINEAR_GENETIC_NR_ITER = Variable(
    "MGB_SUBLINEAR_MEMORY_GENETIC_NR_ITER", "", "rounds of its genetic search"
)
SUBLINEAR_GENETIC_POOL_SIZE = Variable(
    "MGB_SUBLINEAR_MEMORY_GENETIC_POOL_SIZE", "", "candidates in a round of that search"
)
SUBLINEAR_LOWER_BOUND_MB = Variable(
    "MGB_SUBLINEAR_MEMORY_LOWER_BOUND_MB", "", "MiB below which it stops saving memory"
)
SUBLINEAR_WORKERS = Variable("MGB_SUBLINEAR_MEMORY_WORKERS", "", "threads of that search")
VERIFY = Variable("MGB_VERIFY", "0", "1 checks every graph after every pass")

VARIABLES = tuple(value for value in list(globals().values()) if isinstance(value, Variable))


def __dir__() -> list[str]:
    return __all__
