"""What whole training steps are made of, beside torch.compile: ``python -m mgb_bench.step_parts``.

First a race of the two, then a profile of each; milliseconds. A profile makes a step slower, the race has its
time.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from torch.profiler import ProfilerActivity, profile

from .measure import interleave
from .models import WORKLOADS, Workload, mgb_step, torch_step

NAMES, CALLS = ("MLP", "transformer block"), 20

#: What a step of a program or an op of PyTorch counts as, by the first text found in its name.
PARTS = (
    ("attention", "attention and its gradient"),
    ("matmul", "matrix products"),
    ("addmm", "matrix products"),
    ("mm", "matrix products"),
)
REST, PYTHON = "element-wise, reductions, update", "Python and all else"


def part_of(name: str) -> str:
    """The part that the work of this name belongs to."""
    return next((part for text, part in PARTS if text in name), REST)


def ours(workload: Workload) -> tuple[float, Counter[str]]:
    """Milliseconds of a step, and of its parts."""
    call = mgb_step.make(workload, profiling=True)
    for _ in range(CALLS):
        call()
    traced: Any = call.traced  # type: ignore[attr-defined]
    found = traced.get_profile()
    parts: Counter[str] = Counter()
    for kernel in found["kernels"]:
        parts[part_of(" ".join((kernel["name"], *kernel["ops"])))] += kernel["time"]["median"] * 1e3
    whole = statistics.median(c.seconds for c in traced._history.calls()) * 1e3
    return whole, parts


def theirs(call: Callable[[], Any]) -> tuple[float, Counter[str]]:
    """The same of a compiled step of PyTorch; an op's own time, without that of ops it calls."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(CALLS):
            call()
    events = found.key_averages()
    parts: Counter[str] = Counter()
    for event in events:
        if event.key.startswith(("aten::", "graph_", "cpp_", "mkldnn", "onednn")):
            parts[part_of(event.key)] += event.self_cpu_time_total / 1e3 / CALLS
    return sum(event.self_cpu_time_total for event in events) / 1e3 / CALLS, parts


def show(name: str, whole: float, parts: Mapping[str, float]) -> None:
    """Print a profile."""
    print(f"  {name}, profiled: {whole:.2f}")
    for part, milliseconds in (*parts.items(), (PYTHON, whole - sum(parts.values()))):
        print(f"    {part:36}{milliseconds:8.2f}", flush=True)


def main() -> None:
    """Print a race and two profiles of each workload."""
    for name in NAMES:
        workload = WORKLOADS[name]
        weights = mgb_step.weights(mgb_step.build(workload))
        compiled = torch_step.make(workload, weights, compiled=True)
        timings = interleave({"mgb": mgb_step.make(workload), "torch.compile": compiled}, seconds=5.0)
        print(f"{name}: a race, fastest and median")
        for contestant, timing in timings.items():
            print(f"  {contestant:38}{timing.min * 1e3:8.2f}{timing.median * 1e3:8.2f}", flush=True)
        show("mgb", *ours(workload))
        show("torch.compile", *theirs(compiled))


if __name__ == "__main__":
    main()
