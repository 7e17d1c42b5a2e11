"""Where the observer that walks names differs from the one with hooks: ``python observer_differences.py``.

For each stale case and each training program it prints how often the body ran under either, and why.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

from mgb.jit import trace


def _of_cases() -> Iterator[tuple[str, dict[str, Any]]]:
    from stale_cases import compare, names

    for file, name in names():
        traced: list[Any] = []

        def wrap(function: Callable[..., Any], traced: list[Any] = traced) -> Any:
            traced.append(trace(function))
            return traced[0]

        outcome = compare(file, name, wrap)
        yield f"{file}.{name}", {**_said(traced[0]), "outcome": outcome.kind}


def _of_programs() -> Iterator[tuple[str, dict[str, Any]]]:
    from training_programs import PROGRAMS, live

    for name, make in PROGRAMS.items():
        traced: list[Any] = []

        def wrap(step: Callable[..., Any], traced: list[Any] = traced) -> Any:
            traced.append(trace(step))
            return traced[0]

        live(make(), wrap)
        yield f"program {name}", _said(traced[0])


def _said(traced: Any) -> dict[str, Any]:
    stats = traced.stats()
    return {"runs": stats["body_runs"], "calls": stats["calls"], "reasons": list(stats["reasons"])}


def _print() -> None:
    for name, said in (*_of_cases(), *_of_programs()):
        print(json.dumps([name, said]), flush=True)


def _under(observer: str) -> dict[str, dict[str, Any]]:
    environment = {**os.environ, "MGB_OBSERVER": observer, "MGB_JIT_BACKEND": "EAGER"}
    command = [sys.executable, __file__, "print"]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return dict(json.loads(line) for line in output.splitlines() if line.startswith("["))


def main() -> None:
    """Print what differs."""
    old, new = _under("hooks"), _under("names")
    differing = [name for name in old if old[name]["runs"] != new[name]["runs"]]
    for name in differing:
        print(f"{name}: the body ran {old[name]['runs']} times with hooks, {new[name]['runs']} by names")
        for reason in new[name]["reasons"][-3:]:
            print(f"    {reason}")
    runs = [sum(said["runs"] for said in found.values()) for found in (old, new)]
    print(f"{len(old)} cases, {len(differing)} differ; bodies ran {runs[0]} and {runs[1]} times")


if __name__ == "__main__":
    if sys.argv[1:] == ["print"]:
        _print()
    else:
        main()
