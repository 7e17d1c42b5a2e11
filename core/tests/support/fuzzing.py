"""Processes that read mutated files, and what became of each file."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

#: Seconds for one file on a busy machine, where the process itself allows `file_fuzz.SECONDS` of its own, and
#: for a process to begin.
PATIENCE, START = 60.0, 300.0


def faults(program: Path, kind: str, first: int, count: int) -> dict[int, str]:
    """What went wrong, by the number of the file."""
    wrong: dict[int, str] = {}
    while count > 0:
        done = first
        for number, outcome in _attempts(program, kind, first, count):
            done = number + 1
            if outcome not in ("ok", "refused"):
                wrong[number] = outcome
        if done == first:
            return {**wrong, first: "the process did not begin"}
        first, count = done, count - (done - first)
    return wrong


def _attempts(program: Path, kind: str, first: int, count: int) -> list[tuple[int, str]]:
    """The outcomes of one process, until it is done, dies or hangs."""
    process = subprocess.Popen(
        [sys.executable, str(program), kind, str(first), str(count)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    lines: queue.Queue[str] = queue.Queue()
    assert process.stdout is not None
    stream = process.stdout
    reader = threading.Thread(target=lambda: [lines.put(line.strip()) for line in stream] + [lines.put("")])
    reader.start()
    found: list[tuple[int, str]] = []
    number: int | None = None
    try:
        while line := lines.get(timeout=PATIENCE if found or number is not None else START):
            if number is None:
                number = int(line)
            else:
                found.append((number, line))
                number = None
    except queue.Empty:
        found += [(number, f"hangs for more than {PATIENCE} s")] if number is not None else []
    else:
        ended = process.wait()
        died = "computes for too long" if ended == -signal.SIGPROF else f"kills the process: {ended}"
        found += [(number, died)] if number is not None else []
    finally:
        process.kill()
        process.wait()
        reader.join()
    return found
