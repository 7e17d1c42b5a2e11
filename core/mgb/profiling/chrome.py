"""A profile in the Trace Event Format, which Perfetto and ``chrome://tracing`` show.

The format is described in "Trace Event Format" of the Chromium project: a JSON object whose ``traceEvents``
are complete events (``ph`` is ``X``), with ``ts`` and ``dur`` in microseconds, and metadata (``M``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..executor.profile import CallProfile, Measured, Span
from ..executor.profile_cost import Cost
from ..runtime.files import replace_file
from .report import numbers_of


def save(name: str, calls: Sequence[CallProfile], path: str | os.PathLike[str]) -> None:
    """Write the calls of the function `name` to a file, in one go."""
    text = json.dumps(trace_of(name, calls), allow_nan=False)
    replace_file(Path(path), [text.encode()])


def trace_of(name: str, calls: Sequence[CallProfile]) -> dict[str, Any]:
    """Return the calls of the function `name` as an object in the format; time starts with the first call."""
    return {"traceEvents": list(_events(name, calls)), "displayTimeUnit": "ns"}


def _events(function: str, calls: Sequence[CallProfile]) -> Iterator[dict[str, Any]]:
    """Yield events in the order in which they began on each thread."""
    origin, pid = min(call.begin for call in calls), os.getpid()
    tracks = {thread: n for n, thread in enumerate(dict.fromkeys(call.thread for call in calls), 1)}
    numbers = numbers_of(run for call in calls for run in call.runs)
    names = [("process_name", 0, f"mgb: {function}")]
    names += [("thread_name", track, name) for (_, name), track in tracks.items()]
    for what, track, name in names:
        yield {"name": what, "ph": "M", "ts": 0, "pid": pid, "tid": track, "args": {"name": name}}
    for call in calls:
        for name, kind, begin, end, args in _parts_of(function, call, numbers):
            times = {"ts": (begin - origin) / 1e3, "dur": (end - begin) / 1e3}
            event = {"name": name, "cat": kind, "ph": "X", **times}
            yield {**event, "pid": pid, "tid": tracks[call.thread], "args": args}


def _parts_of(
    function: str, call: CallProfile, numbers: Mapping[Measured, int]
) -> Iterator[tuple[str, str, int, int, dict[str, Any]]]:
    """Yield a call, its programs and their steps: name, kind, begin, end, and what is said of it."""
    told = {
        "call": call.number,
        "recorded": call.recorded,
        "compiled": len(call.compiled),
        "compile_seconds": sum(call.compiled),
        "reasons": list(call.reasons),
    }
    yield function, "call", call.begin, call.end, told
    for run in call.runs:
        number = numbers[run.program]
        steps = {"program": number, "steps": len(run.program.calls)}
        yield f"program {number}", "program", run.times[0], run.times[-1], steps
        for span, cost in zip(run.spans, run.program.costs, strict=True):
            yield cost.name or "step", "step", span.kern, span.end, _args(span, cost)


def _args(span: Span, cost: Cost) -> dict[str, Any]:
    return {
        "by": cost.by,
        "ops": list(cost.ops),
        "sources": list(cost.sources),
        "reads": list(cost.reads),
        "writes": list(cost.writes),
        "bytes": cost.nbytes,
        "gb_per_second": cost.nbytes / max(span.end - span.kern, 1),
        "flops": cost.flops,
        "prepare_us": (span.kern - span.start) / 1e3,
    }
