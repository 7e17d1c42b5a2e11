"""What a backend costs on this machine: its first calls, a call, its size, and its conformance."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from packaging.requirements import Requirement

#: A program of one kernel on one element, called many times in a new process.
CALL = """
import sys, timeit
import numpy as np
from mgb.executor import compile_program, Options
from mgb.backends.plugins import load_backend
from mgb_conformance.cases import of
x = np.ones(1, np.float32)
program = compile_program(of(lambda x: x * 0.5 + x, x), Options(backend=sys.argv[1]))
assert program.backends == (sys.argv[1],), program
print(min(timeit.repeat(lambda: program.call([x]), number=5000, repeat=9)) / 5000)
"""
REPEATS = 5


def conformance(name: str) -> list[dict[str, Any]]:
    """The tests of one run of the suite, with their outcomes."""
    with TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--pyargs",
            "mgb_conformance",
            "-p",
            "no:cacheprovider",
        ]
        subprocess.run([*command, "--mgb-backend", name, "--mgb-report", folder], cwd=folder)
        tests: list[dict[str, Any]] = json.loads(Path(folder, "conformance.json").read_text())["tests"]
        return tests


def first_calls(name: str) -> tuple[float, float]:
    """Milliseconds of the first call in a new process, with an empty cache and with a filled one; medians."""
    cold, warm = [], []
    for _ in range(REPEATS):
        with TemporaryDirectory() as folder:
            cold.append(_first_call(name, folder))
            warm.append(_first_call(name, folder))
    return median(cold) * 1e3, median(warm) * 1e3


def _first_call(name: str, cache: str) -> float:
    environment = os.environ | {"MGB_CACHE_DIR": cache}
    command = [sys.executable, "-m", "mgb_bench.first_call", f"mgb:{name}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seconds: float = json.loads(done.stdout.splitlines()[-1])["call"]
    return seconds


def call_microseconds(name: str) -> float:
    """Microseconds of a call, at best."""
    done = subprocess.run([sys.executable, "-c", CALL, name], capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1]) * 1e6


def megabytes(package: str) -> float:
    """The size of a distribution and of all that it needs and `mgb` alone does not."""
    return sum(_size(name) for name in _closure(package) - _closure("mgb")) / 1e6


def _closure(name: str, seen: frozenset[str] = frozenset()) -> frozenset[str]:
    """The names of a distribution and of all that it requires here."""
    name = name.lower().replace("_", "-")
    if name in seen:
        return seen
    try:
        required = distribution(name).requires or []
    except PackageNotFoundError:
        return seen
    seen |= {name}
    for requirement in map(Requirement, required):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            seen = _closure(requirement.name, seen)
    return seen


def _size(name: str) -> int:
    files = distribution(name).files or []
    paths = (Path(str(file.locate())) for file in files)
    return sum(path.stat().st_size for path in paths if path.is_file() and path.suffix != ".pyc")


def machine() -> str:
    """The processor, the number of cores, and the day."""
    from mgb_bench.machine import describe
    from mgb_bench.report import processor

    return f"{processor(describe({}, {}))}, Python {sys.version.split()[0]}"
