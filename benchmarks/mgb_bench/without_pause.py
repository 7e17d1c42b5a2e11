"""Calls that follow each other at once beside calls after a pause: ``python -m mgb_bench.without_pause``.

Each sample of a race is the second call after a pause, when threads have just been woken and code and data
are partly out of the caches. The table has both, in microseconds: fastest and median of the race, and of
calls without a pause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from .case import MI, Case, Size, label
from .measure import interleave, without_pause
from .peers import choose
from .plugin import contestants
from .suites import test_elementwise, test_updates

#: Of the suites: the case, its size, who takes part.
RACES: tuple[tuple[Any, str, Size, tuple[str, ...]], ...] = (
    (test_elementwise, "a*b*c", 1 << 16, ("numba",)),
    (test_elementwise, "a*b*c", MI, ("numba",)),
    (test_updates, "SGD with momentum, one tensor", MI, ("numba", "torch")),
    (test_updates, "Adam, one tensor", MI, ("numba", "torch")),
    (test_updates, "SGD with momentum, small tensors", 200, ("numba", "torch")),
    (test_updates, "Adam, small tensors", 200, ("numba", "torch")),
)

#: Nanoseconds of work from which the second table asks for several threads.
EARLY = 8_000

#: Elements of `a*b*c` in that table.
SHORT = (1 << 15, 1 << 16)

Calls = Mapping[str, Callable[[], Any]]


def calls_of(case: Case, size: Size, peers: tuple[str, ...]) -> Calls:
    """What is raced, mgb first."""
    found, _ = choose([], list(peers))
    calls, failed = contestants(case, case.inputs(size), found)
    for name, why in failed.items():
        print(f"  {name} left out: {why}")
    return calls


def ours(case: Case, size: Size) -> Callable[[], Any]:
    """The call of mgb's first backend."""
    return next(call for name, call in calls_of(case, size, ("numpy",)).items() if name.startswith("mgb"))


@contextmanager
def threads_from(nanoseconds: int) -> Iterator[None]:
    """Launches that are planned here take several threads from so much work on."""
    from mgb_native import launch, plan

    with mock.patch.object(plan, "PARALLEL", nanoseconds), mock.patch.object(launch, "PARALLEL", nanoseconds):
        yield


def early(case: Case, size: Size) -> Calls:
    """The call with threads from where they start, and from `EARLY` on."""
    calls = {"threads as planned": ours(case, size)}
    with threads_from(EARLY):
        calls[f"threads from {EARLY // 1000} us on"] = ours(case, size)
    return calls


def show(title: str, calls: Calls) -> None:
    """Print a row for each contestant."""
    print(f"{title}: after a pause, without one; fastest and median")
    race = interleave(calls, seconds=1.0)
    for name, call in calls.items():
        cold, hot = race[name], without_pause(call)
        figures = (cold.min, cold.median, hot.min, hot.median)
        print(f"  {name:24}" + "".join(f"{seconds * 1e6:9.1f}" for seconds in figures), flush=True)


def main() -> None:
    """Print all tables."""
    for suite, name, size, peers in RACES:
        case = next(case for case in suite.CASES if case.name == name)
        show(f"{name}, {label(size)}", calls_of(case, size, peers))
    case = next(case for case in test_elementwise.CASES if case.name == "a*b*c")
    for size in SHORT:
        show(f"a*b*c, {label(size)}", early(case, size))


if __name__ == "__main__":
    main()
