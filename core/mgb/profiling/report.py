"""A profile as data: what each step of the programs took, and what the programs are."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..executor.profile import CallProfile, Measured, Run, Span
from ..executor.profile_bandwidth import copy_bandwidth
from ..executor.profile_cost import Cost
from ..executor.schedule import Call
from ..ir import Node


@dataclass(frozen=True, slots=True)
class Row:
    """One call of a program, over all its runs.

    Attributes
    ----------
    id : str
    program : int
        Which of the programs, in the order in which they first ran.
    call : Call
    cost : Cost
    spans : tuple of Span
        One for each run, in order.
    """

    id: str
    program: int
    call: Call
    cost: Cost
    spans: tuple[Span, ...]

    @property
    def device(self) -> str:
        """Return where its results are."""
        return self.call.writes[0].spec.device

    @property
    def type(self) -> str:
        """The op, or who made the kernel."""
        return self.cost.name if self.call.kernel is None else f"kernel of {self.cost.by}"

    @property
    def origin(self) -> dict[str, Any]:
        """The ops in it, and their lines."""
        return {"ops": list(self.cost.ops), "sources": list(self.cost.sources)}

    def as_dict(self) -> dict[str, Any]:
        """Return the entry among the ``kernels`` of a profile; speeds are those of the median run."""
        seconds = [(span.end - span.kern) / 1e9 for span in self.spans]
        median = max(statistics.median(seconds), 1e-9)
        speed = self.cost.nbytes / median
        return {
            "id": self.id,
            "name": self.cost.name,
            "by": self.cost.by,
            "program": self.program,
            **self.origin,
            "calls": len(self.spans),
            "time": _summary(seconds),
            "prepare": _summary([(span.kern - span.start) / 1e9 for span in self.spans]),
            "bytes_read": self.cost.bytes_read,
            "bytes_written": self.cost.bytes_written,
            "gb_per_second": speed / 1e9,
            "fraction_of_copy": speed / copy_bandwidth(self.device),  # more than 1 is possible in a cache
            "flops": self.cost.flops,
            "gflop_per_second": self.cost.flops / median / 1e9,
        }


def _summary(seconds: list[float]) -> dict[str, float]:
    return {"min": min(seconds), "median": statistics.median(seconds), "total": sum(seconds)}


def warm(calls: Iterable[CallProfile]) -> list[CallProfile]:
    """Return the calls that ran programs, without what is only done once.

    A program's first run, where there are others, counts neither for it nor for the call, and compiling never
    does.
    """
    calls = list(calls)
    usual = {run.program for call in calls for run in call.runs if not run.first}
    kept = []
    for call in calls:
        runs = [run for run in call.runs if not run.first or run.program not in usual]
        left_out = sum(call.compiled) + sum(run.seconds for run in call.runs if run not in runs)
        if runs:
            kept.append(replace(call, runs=runs, end=call.end - round(left_out * 1e9)))
    return kept


def numbers_of(runs: Iterable[Run]) -> dict[Measured, int]:
    """Return the programs that ran, numbered in the order in which they first did."""
    return {program: n for n, program in enumerate(dict.fromkeys(run.program for run in runs))}


def rows_of(calls: Iterable[CallProfile]) -> list[Row]:
    """Return a row for each call of each program that ran, in the order in which they first ran."""
    runs = [run for call in calls for run in call.runs]
    rows: list[Row] = []
    for program, number in numbers_of(runs).items():
        spans = zip(*(run.spans for run in runs if run.program is program), strict=True)
        for call, cost, times in zip(program.calls, program.costs, spans, strict=True):
            rows.append(Row(str(len(rows)), number, call, cost, times))
    return rows


def report(calls: Sequence[CallProfile]) -> dict[str, Any]:
    """Return the result of `get_profile` for a traced function."""
    calls = warm(calls)
    rows = rows_of(calls)
    latest = {run.program: (call, run) for call in calls for run in call.runs}
    by_call = {row.call: row for row in rows}
    times: dict[str, dict[str, dict[str, dict[str, float]]]] = {"device": {}, "host": {}}
    for call, run in latest.values():
        for executed, seconds in zip(run.program.calls, _since_start(run), strict=True):
            row = by_call[executed]
            times["device"][row.id] = {row.device: seconds}
            times["host"][row.id] = {call.thread[1]: seconds}
    return {
        "graph_exec": _graph(list(latest), by_call),
        "profiler": {
            **times,
            "opr_footprint": {row.id: _footprint(row) for row in rows},
            "opr_internal_pf": {row.id: {**row.origin, "steps": len(row.call.steps)} for row in rows},
        },
        "kernels": [row.as_dict() for row in rows],
        "calls": len(calls),
        "copy_bandwidth": copy_bandwidth(rows[0].device) if rows else None,
    }


def _since_start(run: Run) -> list[dict[str, float]]:
    start = run.times[0]
    return [{name: (t - start) / 1e9 for name, t in span._asdict().items()} for span in run.spans]


def _footprint(row: Row) -> dict[str, Any]:
    return {
        "type": row.type,
        "computation": row.cost.flops,
        "memory": row.cost.nbytes,
        "in_shapes": [list(n.spec.shape) for n in row.call.reads],
        "out_shapes": [list(n.spec.shape) for n in row.call.writes],
    }


def _graph(programs: Sequence[Measured], rows: Mapping[Call, Row]) -> dict[str, Any]:
    """Return the programs, as what MegEngine calls oprs and vars."""
    ids: dict[Node, str] = {}
    owner = {node: rows[call].id for p in programs for call in p.calls for node in call.writes}
    for program in programs:
        met = [n for call in program.calls for n in (*call.reads, *call.writes)]
        for node in (*program.graph.inputs, *met, *program.graph.outputs):
            ids.setdefault(node, str(len(ids)))
    return {
        "operator": {row.id: _operator(row, ids) for row in rows.values()},
        "var": {name: _var(node, owner.get(node)) for node, name in ids.items()},
    }


def _operator(row: Row, ids: Mapping[Node, str]) -> dict[str, Any]:
    return {
        "node_type": "operator",
        "id": row.id,
        "name": row.cost.name,
        "type": row.type,
        "program": row.program,
        "input": [ids[n] for n in row.call.reads],
        "output": [ids[n] for n in row.call.writes],
        "graph": [str(step.graph) for step in row.call.steps],
    }


def _var(node: Node, owner: str | None) -> dict[str, Any]:
    return {
        "node_type": "var",
        "shape": list(node.spec.shape),
        "dtype": node.spec.dtype.name,
        "comp_node": node.spec.device,
        "owner_opr": owner,
        "source": node.source,
    }
