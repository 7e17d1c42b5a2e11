"""Every environment variable that mgb reads, one row each."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable; it is read at each use, never at import, unless its meaning says so."""

    name: str
    default: str
    meaning: str

    def get(self) -> str:
        """The value in force now."""
        return os.environ.get(self.name, self.default)

    def on(self) -> bool:
        """The value in force now, as a switch."""
        return self.get().strip().lower() in {"1", "true", "yes", "on"}


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

VARIABLES = (
    AUTO,
    BACKEND,
    CACHE,
    CACHE_DIR,
    DEBUG,
    NUM_THREADS,
    OP_LIBRARIES,
    POOL_BYTES,
    SUBLINEAR_THRESH_NR_TRY,
    SUBLINEAR_GENETIC_NR_ITER,
    SUBLINEAR_GENETIC_POOL_SIZE,
    SUBLINEAR_LOWER_BOUND_MB,
    SUBLINEAR_WORKERS,
    VERIFY,
)
