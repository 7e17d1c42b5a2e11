"""``MGB_DEBUG``: what traced functions print to stderr, from a line a call up to the sources of kernels."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TextIO

from ..errors import VariableError
from ..executor import Program
from ..executor.profile import CallProfile
from ..runtime import config, forking
from .report import rows_of
from .table import bytes_text, copy_text, time_text

#: Lines go to stderr unless this logger has handlers already.
logger = logging.getLogger("mgb.debug")

CALLS, STEPS, GRAPHS, SOURCES = 1, 2, 3, 4


def level() -> int:
    """Return the level: 0 (nothing), `CALLS`, `STEPS`, `GRAPHS` or `SOURCES`; each has those below it.

    Raises
    ------
    VariableError
    """
    text = config.DEBUG.get().strip() or "0"
    if text not in {"0", "1", "2", "3", "4"}:
        raise VariableError(f"MGB_DEBUG={text!r}: {config.DEBUG.meaning}; set it to 0, 1, 2, 3 or 4")
    return int(text)


class Ladder:
    """Prints what happens to one traced function, as far as `level` says."""

    def __init__(self, name: str, level: int) -> None:
        self._name, self._level = name, level
        _prepare_logger()

    def call(self, call: CallProfile) -> None:
        """Report a call that has returned."""
        lines = [self._call_line(call)]
        if self._level >= STEPS:
            lines += _step_lines(call)
        logger.debug("%s", "\n".join(lines))

    def compiled(self, program: Program) -> None:
        """Report a program that was compiled."""
        if self._level >= GRAPHS:
            logger.debug("%s compiled\n%s", self._name, "\n".join(_graph_lines(program)))
        if self._level >= SOURCES:
            logger.debug("%s", "\n".join(_source_lines(program)))

    def _call_line(self, call: CallProfile) -> str:
        parts = [f"{self._name} call {call.number}: {time_text(call.seconds)}"]
        if call.runs:
            steps = sum(len(run.program.calls) for run in call.runs)
            parts.append(f"{_count(len(call.runs), 'program')} of {_count(steps, 'step')}")
        if call.recorded:
            parts.append("recorded")
        if call.compiled:
            seconds = time_text(sum(call.compiled))
            parts.append(f"{_count(len(call.compiled), 'program')} compiled in {seconds}")
        if call.reasons:
            parts.append("again because " + "; ".join(call.reasons))
        return ", ".join(parts)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _step_lines(call: CallProfile) -> Iterator[str]:
    alone = (replace(call, runs=[run]) for run in call.runs)
    for row in (row.as_dict() for run in alone for row in rows_of([run])):
        line = f"  step {row['id']}: {row['name']} by {row['by']}: {time_text(row['time']['median'])}"
        if moved := row["bytes_read"] + row["bytes_written"]:
            line += f", {bytes_text(moved)}, {row['gb_per_second']:.2f} GB/s"
            line += f", {copy_text(row['fraction_of_copy'], ' of copy')}"
        yield line


def _graph_lines(program: Program) -> Iterator[str]:
    yield f"recorded: {program.recorded}"
    yield f"simplified: {program.simplified}"
    for number, step in enumerate(program.steps):
        how = f"fused by {step.backend}" if step.fused else step.by
        yield f"step {number}, {how}{f' ({step.reason})' if step.reason else ''}: {step.graph}"
    yield program.joined


def _source_lines(program: Program) -> Iterator[str]:
    kernels = dict.fromkeys(kernel for kernel in program.kernels if kernel is not None)
    yield from (kernel.text for kernel in kernels)
    yield program.source


class _Stderr(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to what ``sys.stderr`` is at the time."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stderr


_preparing = forking.lock()


def _prepare_logger() -> None:
    with _preparing:
        logger.setLevel(logging.DEBUG)
        if not logger.handlers:
            logger.addHandler(_rich_handler() if sys.stderr.isatty() else _Stderr())
            logger.propagate = False


def _rich_handler() -> logging.Handler:
    from rich.console import Console
    from rich.logging import RichHandler

    return RichHandler(
        console=Console(stderr=True), show_time=False, show_level=False, show_path=False, keywords=[]
    )
