"""Warn about long Python loops in a body: they are recorded and compiled step by step."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

from ..errors import UnrolledLoopWarning
from .record import Record

#: One line may record the very same op so often before it is taken for a loop that should not be unrolled.
MANY = 1000


def warn_unrolled_loops(record: Record) -> None:
    """Warn if one line of the body recorded the same op, of one type, at least `MANY` times."""
    if len(record.entries) < MANY:
        return
    counts: Counter[Any] = Counter(
        (entry.source, entry.op, entry.spec.ndim, entry.spec.dtype) for entry in record.entries if entry.args
    )
    (source, op, *_), count = counts.most_common(1)[0]
    if count >= MANY and source:
        warnings.warn(
            f"the loop at {source} was recorded step by step: {count} times {op.name} among "
            f"{len(record.entries)} ops, which take long to compile; mgb.jit.scan, fori_loop and while_loop "
            "record one step",
            UnrolledLoopWarning,
            stacklevel=2,
        )
