"""The first call in a new process: with nothing compiled yet, and with an earlier one's files."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mgb_bench.first_call import CONTESTANTS
from mgb_bench.plugin import Run

#: Each contestant's on-disk cache.
CACHES = (
    "MGB_CACHE_DIR",
    "NUMBA_CACHE_DIR",
    "JAX_COMPILATION_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
)


def _first_call(name: str, folder: Path) -> dict[str, float]:
    """Run one new process; its caches are in `folder`."""
    caches = {variable: str(folder / variable.lower()) for variable in CACHES}
    words = [sys.executable, "-m", "mgb_bench.first_call", name]
    done = subprocess.run(
        words, env={**os.environ, **caches}, capture_output=True, text=True, check=True, timeout=120
    )
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


@pytest.mark.parametrize("start", ["cold", "from disk"])
def test_compile(benchmark: Any, run: Run, tmp_path: Path, start: str) -> None:
    names = [name for name in run.peers if name.partition(":")[0] in CONTESTANTS]
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    turns = iter(range(1000))
    if start == "from disk":
        for name in names:
            _first_call(name, tmp_path)

    def turn() -> None:
        folder = tmp_path if start == "from disk" else tmp_path / str(next(turns))
        for name in names:
            samples[name].append(_first_call(name, folder))

    benchmark.pedantic(turn, rounds=1 if run.quick else 3, iterations=1)
    benchmark.extra_info.update(
        suite="compile",
        case="10-op chain",
        size=start,
        timings={name: _timing([s["own"] + s["call"] for s in taken]) for name, taken in samples.items()},
        notes=["seconds beyond importing what the contestant stands on: its own import and its first call"],
        absent=[name for name in run.peers if name not in names],
        table={
            "columns": ["contestant", "imports what it stands on", "imports itself", "first call"],
            "rows": [[name, *(_text(taken, what) for what in ("libraries", "own", "call"))]
                     for name, taken in samples.items()],
        },
    )  # fmt: skip


def _timing(seconds: list[float]) -> dict[str, float]:
    return {
        "min": min(seconds),
        "median": statistics.median(seconds),
        "mean": statistics.fmean(seconds),
        "rounds": len(seconds),
        "repeats": 1,
    }


def _text(samples: list[dict[str, float]], what: str) -> str:
    return f"{statistics.median(sample[what] for sample in samples) * 1e3:.0f} ms"
