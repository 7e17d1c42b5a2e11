"""Mutated files of every kind that is read: no crash, no hang, no exception that is not ours.

The long run, 20,000 files of each kind: ``pytest -m slow core/tests/limits/test_file_fuzz.py``. One file
again, in the folder above: ``python file_fuzz.py KIND NUMBER 1``.
"""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path

import file_fuzz
import fuzzing
import mgb
import numpy as np
import pytest
from fuzzing import faults
from mgb.errors import FileFormatError

PROGRAM = Path(__file__).parent.parent / "support" / "file_fuzz.py"


@pytest.mark.parametrize("kind", [kind for kind in file_fuzz.KINDS if kind != "code"])
def test_mutated_files_never_crash_or_hang(kind: str) -> None:
    assert faults(PROGRAM, kind, 0, 40) == {}


def test_shape_beyond_64_bits_is_rejected() -> None:
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
def test_20000_mutated_files_never_crash_or_hang(kind: str) -> None:
    if kind == "code":
        pytest.importorskip("mgb_cpu_llvm", reason="a backend that keeps machine code")
    assert faults(PROGRAM, kind, 0, 20_000) == {}


def test_fuzzer_detects_hang_crash_and_exception(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
    monkeypatch.setattr(fuzzing, "PATIENCE", 0.5)
    found = faults(program, "any", 0, 5)
    assert (
        set(found) == {1, 2, 3} and "hangs" in found[1] and "kills" in found[2] and "ValueError" in found[3]
    )
