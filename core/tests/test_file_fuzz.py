"""Mutated files of every kind that is read: no crash, no hang, no exception that is not ours.

The long run, 20,000 files of each kind: ``pytest -m slow core/tests/test_file_fuzz.py``. One file again, in
this folder: ``python file_fuzz.py KIND NUMBER 1``.
"""

from __future__ import annotations

import importlib.util
import io
import json
import queue
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path

import mgb
import numpy as np
import pytest
from mgb.errors import FileFormatError

if importlib.util.find_spec("onnx") is None:
    pytest.skip("the onnx package is not installed: pip install onnx", allow_module_level=True)

import file_fuzz

PROGRAM = Path(__file__).with_name("file_fuzz.py")

#: Seconds for one file on a busy machine, where the process itself allows `file_fuzz.SECONDS` of its own, and
#: for a process to begin.
PATIENCE, START = 60.0, 300.0


def faults(kind: str, first: int, count: int) -> dict[int, str]:
    """What went wrong, by the number of the file."""
    wrong: dict[int, str] = {}
    while count > 0:
        done = first
        for number, outcome in attempts(kind, first, count):
            done = number + 1
            if outcome not in ("ok", "refused"):
                wrong[number] = outcome
        if done == first:
            return {**wrong, first: "the process did not begin"}
        first, count = done, count - (done - first)
    return wrong


def attempts(kind: str, first: int, count: int) -> list[tuple[int, str]]:
    """The outcomes of one process, until it is done, dies or hangs."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), kind, str(first), str(count)],
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


@pytest.mark.parametrize("kind", [kind for kind in file_fuzz.KINDS if kind not in ("operators", "code")])
def test_mutated_files_do_no_harm(kind: str) -> None:
    assert faults(kind, 0, 40) == {}


def test_lengths_beyond_64_bits_are_damage() -> None:
    """Which the search found."""
    buffer = io.BytesIO()
    mgb.save([np.ones(3, np.float32)], buffer)
    data = buffer.getvalue()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    del header["__metadata__"]
    next(iter(header.values()))["shape"] = [1 << 70]
    text = json.dumps(header).encode()
    with pytest.raises(FileFormatError, match="are not there"):
        mgb.load(io.BytesIO(struct.pack("<Q", len(text)) + text + data[8 + length :]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", file_fuzz.KINDS)
def test_20000_mutated_files_do_no_harm(kind: str) -> None:
    if kind == "code":
        pytest.importorskip("mgb_cpu_numba", reason="a backend that keeps machine code")
    assert faults(kind, 0, 20_000) == {}


def test_what_the_search_looks_for_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process that hangs, one that dies and one that raises."""
    program = tmp_path / "fuzz.py"
    program.write_text(
        "import os, sys, time\n"
        "for n in range(int(sys.argv[2]), int(sys.argv[2]) + int(sys.argv[3])):\n"
        "    print(n, flush=True)\n"
        "    time.sleep(60 if n == 1 else 0)\n"
        "    if n == 2: os.abort()\n"
        "    print('raised ValueError' if n == 3 else 'ok', flush=True)\n"
    )
    monkeypatch.setattr(sys.modules[__name__], "PROGRAM", program)
    monkeypatch.setattr(sys.modules[__name__], "PATIENCE", 0.5)
    found = faults("any", 0, 5)
    assert (
        set(found) == {1, 2, 3} and "hangs" in found[1] and "kills" in found[2] and "ValueError" in found[3]
    )
