"""Every stage of a traced call as text."""

from __future__ import annotations

import re

from ..executor import Program
from ..executor.remat.peak import memory_report
from ..executor.schedule import is_loop
from ..runtime.shown import folded
from .variant import Segment, Variant


class Explanation(str):
    """The stages of a call as text. A notebook shows a foldable section for each."""

    def _repr_html_(self) -> str:
        parts = re.split(r"^(.+)\n[-=]+$", str(self), flags=re.MULTILINE)
        titles, bodies = parts[1::2], [body.strip("\n") for body in parts[2::2]]
        return folded(zip(titles, bodies))


def explain(variant: Variant) -> str:
    """Return the stages of a call: recorded, simplified, groups and why they end, kernels, memory.

    Parameters
    ----------
    variant : Variant

    Returns
    -------
    str
        One part for each segment. A segment ends where the body reads a value or leaves the trace.
    """
    count = len(variant.segments)
    parts = [_segment(variant, n, segment, count) for n, segment in enumerate(variant.segments)]
    return "\n\n".join(parts)


def _segment(variant: Variant, number: int, segment: Segment, count: int) -> str:
    cut = variant.record.entries[segment.stop]
    title = (
        "the call" if count == 1 else f"segment {number + 1} of {count}, up to {cut.op.name} ({cut.source})"
    )
    if not segment.outputs:
        return _heading(title) + "\nnothing of it is wanted"
    return explain_program(title, variant.program(number)[0])


def explain_program(title: str, program: Program) -> str:
    """Return every stage of one program as text, under a `title`."""
    return "\n\n".join(
        [
            _heading(title),
            _part("recorded", str(program.recorded)),
            _part("simplified", str(program.simplified)),
            _part("summary", _summary(program)),
            *_steps(program),
            _part("memory", f"{program.memory_plan}\n{memory_report(program)}"),
            _part("program", program.source),
        ]
    )


def _summary(program: Program) -> str:
    fused = sum(step.fused for step in program.steps)
    backend = program.backend.name if program.backend is not None else "none: opt_level does not fuse"
    loops = sum(is_loop(step) for step in program.steps)
    eager = len(program.steps) - fused - loops
    repeated = f"{loops} loops of compiled steps, " if loops else ""
    return f"backend {backend}; {fused} fused groups, {repeated}{eager} ops run eagerly; {program.joined}"


def _steps(program: Program) -> list[str]:
    parts = []
    for number, (step, kernel) in enumerate(zip(program.steps, program.kernels, strict=True)):
        how = f"fused by {step.backend}" if step.fused else "a loop" if is_loop(step) else step.by
        title = f"step {number}: {how}" + (f", {step.reason}" if step.reason else "")
        body = str(step.graph) if kernel is None else f"{step.graph}\n\n{kernel.text}"
        parts.append(_part(title, body))
    return parts


def _heading(text: str, rule: str = "=") -> str:
    return f"{text}\n{rule * len(text)}"


def _part(title: str, body: str) -> str:
    return f"{_heading(title, '-')}\n{body.rstrip()}"
