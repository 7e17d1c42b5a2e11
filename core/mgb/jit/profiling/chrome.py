"""A profile in the Trace Event Format, which Perfetto and ``chrome://tracing`` show.

The format is described in "Trace Event Format" of the Chromium project: a JSON object whose ``traceEvents``
are complete events (``ph`` is ``X``), with ``ts`` and ``dur`` in microseconds, and metadata (``M``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...executor.profile import CallProfile, Run, Span
from ...executor.profile_cost import Cost
from ...serialization import replace_file


def save(name: str, calls: Sequence[CallProfile], path: str | os.PathLike[str]) -> None:
    """Write the calls of the function `name` to a file, in one go."""
    text = json.dumps(trace_of(name, calls), allow_nan=False)
    replace_file(Path(path), [text.encode()])


def trace_of(name: str, calls: Sequence[CallProfile]) -> dict[str, Any]:
    """The calls of the function `name` as an object in the format; time starts with the first call."""
    return {"traceEvents": list(_Events(name, calls)), "displayTimeUnit": "ns"}


class _Events:
    """The events, in the order in which they began on each thread."""

    def __init__(self, name: str, calls: Sequence[CallProfile]) -> None:
        self._name, self._calls = name, calls
        self._origin = min(call.begin for call in calls)
        self._tracks = {thread: n for n, thread in enumerate(dict.fromkeys(c.thread for c in calls), 1)}
        programs = dict.fromkeys(run.program for call in calls for run in call.runs)
        self._programs = {program: number for number, program in enumerate(programs)}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        yield self._metadata("process_name", 0, f"mgb: {self._name}")
        for (_, name), track in self._tracks.items():
            yield self._metadata("thread_name", track, name)
        for call in self._calls:
            yield self._call(call)
            for run in call.runs:
                yield from self._run(run, self._tracks[call.thread])

    def _metadata(self, what: str, track: int, name: str) -> dict[str, Any]:
        return {"name": what, "ph": "M", "ts": 0, "pid": os.getpid(), "tid": track, "args": {"name": name}}

    def _call(self, call: CallProfile) -> dict[str, Any]:
        args = {
            "call": call.number,
            "recorded": call.recorded,
            "compiled": len(call.compiled),
            "compile_seconds": sum(call.compiled),
            "reasons": list(call.reasons),
        }
        return self._event(self._name, "call", call.begin, call.end, self._tracks[call.thread], args)

    def _run(self, run: Run, track: int) -> Iterator[dict[str, Any]]:
        number = self._programs[run.program]
        args = {"program": number, "steps": len(run.program.calls)}
        yield self._event(f"program {number}", "program", run.times[0], run.times[-1], track, args)
        for span, cost in zip(run.spans, run.program.costs, strict=True):
            args = _args(span, cost)
            yield self._event(cost.name or "step", "step", span.kern, span.end, track, args)

    def _event(
        self, name: str, kind: str, begin: int, end: int, track: int, args: dict[str, Any]
    ) -> dict[str, Any]:
        ts, dur = (begin - self._origin) / 1e3, (end - begin) / 1e3
        times = {"ts": ts, "dur": dur}
        return {"name": name, "cat": kind, "ph": "X", **times, "pid": os.getpid(), "tid": track, "args": args}


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
