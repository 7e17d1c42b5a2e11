"""A profile as data: what each step of the programs took, and what the programs are."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...executor.profile import CallProfile, Measured, Run, Span
from ...executor.profile_bandwidth import copy_bandwidth
from ...executor.profile_cost import Cost
from ...executor.schedule import Call
from ...ir import Node


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
    spans : list of Span
        One for each run, in order.
    """

    id: str
    program: int
    call: Call
    cost: Cost
    spans: list[Span]

    @property
    def seconds(self) -> list[float]:
        """In the kernel, for each run."""
        return [(span.end - span.kern) / 1e9 for span in self.spans]

    @property
    def prepare(self) -> list[float]:
        """Before the kernel, for each run."""
        return [(span.kern - span.start) / 1e9 for span in self.spans]

    @property
    def device(self) -> str:
        """Where its results are."""
        return self.call.writes[0].spec.device

    @property
    def bytes_per_second(self) -> float:
        """In the median run."""
        return self.cost.nbytes / max(statistics.median(self.seconds), 1e-9)

    @property
    def fraction_of_copy(self) -> float:
        """Of what the machine copies at best; more than 1 is possible in a cache."""
        return self.bytes_per_second / copy_bandwidth(self.device)

    def as_dict(self) -> dict[str, Any]:
        """As it stands among the ``kernels`` of a profile."""
        return {
            "id": self.id,
            "name": self.cost.name,
            "by": self.cost.by,
            "program": self.program,
            "ops": list(self.cost.ops),
            "sources": list(self.cost.sources),
            "calls": len(self.spans),
            "time": _summary(self.seconds),
            "prepare": _summary(self.prepare),
            "bytes_read": self.cost.bytes_read,
            "bytes_written": self.cost.bytes_written,
            "gb_per_second": self.bytes_per_second / 1e9,
            "fraction_of_copy": self.fraction_of_copy,
            "flops": self.cost.flops,
            "gflop_per_second": self.cost.flops / max(statistics.median(self.seconds), 1e-9) / 1e9,
        }


def _summary(seconds: list[float]) -> dict[str, float]:
    return {"min": min(seconds), "median": statistics.median(seconds), "total": sum(seconds)}


def warm(calls: Iterable[CallProfile]) -> list[CallProfile]:
    """The calls that ran programs, without what is only done once.

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


def rows_of(calls: Iterable[CallProfile]) -> list[Row]:
    """A row for each call of each program that ran, in the order in which they first ran."""
    rows: dict[tuple[Measured, int], Row] = {}
    programs: dict[Measured, int] = {}
    for run in (run for call in calls for run in call.runs):
        program = run.program
        number = programs.setdefault(program, len(programs))
        for place, span in enumerate(run.spans):
            key = (program, place)
            if key not in rows:
                rows[key] = Row(str(len(rows)), number, program.calls[place], program.costs[place], [])
            rows[key].spans.append(span)
    return list(rows.values())


def report(calls: Sequence[CallProfile]) -> dict[str, Any]:
    """What `get_profile` of a traced function gives."""
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
            "opr_internal_pf": {row.id: _inside(row) for row in rows},
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
        "type": _type(row),
        "computation": row.cost.flops,
        "memory": row.cost.nbytes,
        "in_shapes": [list(n.spec.shape) for n in row.call.reads],
        "out_shapes": [list(n.spec.shape) for n in row.call.writes],
    }


def _inside(row: Row) -> dict[str, Any]:
    return {"ops": list(row.cost.ops), "sources": list(row.cost.sources), "steps": len(row.call.steps)}


def _type(row: Row) -> str:
    return row.cost.name if row.call.kernel is None else f"kernel of {row.cost.by}"


def _graph(programs: Sequence[Measured], rows: Mapping[Call, Row]) -> dict[str, Any]:
    """The programs, as what MegEngine calls oprs and vars."""
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
        "type": _type(row),
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
