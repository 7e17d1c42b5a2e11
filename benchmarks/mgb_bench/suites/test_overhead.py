"""The cost of a call: chains of 1, 10 and 100 operations on arrays so small that nothing else counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mgb_bench.arrays import Arrays
from mgb_bench.case import KI, Case, Size
from mgb_bench.formula import truth, ways
from mgb_bench.peers import Mgb
from mgb_bench.plugin import Run


def _chain(count: int) -> Callable[..., Any]:
    def formula(w: Any, a: Any, b: Any, c: Any) -> Any:
        x = a
        for i in range(count):
            x = x + (b, c)[i % 2]
        return x

    return formula


def _make(size: int, generator: np.random.Generator) -> Arrays:
    return tuple(generator.random(size, np.float32) for _ in range(3))


def _case(count: int) -> Case:
    formula = _chain(count)
    name = f"{count} op" + "s" * (count > 1)
    return Case(name, "overhead", (KI,), _make, truth(formula), ways(formula), None)


CASES = [_case(count) for count in (1, 10, 100)]


def test_overhead(race: Any, run: Run, case: Case, size: Size) -> None:
    """Measure beside ``without_host=True`` also the replay, which runs the Python body in each call."""
    replays = [Mgb(peer.backend, without_host=False) for peer in run.peers.values() if isinstance(peer, Mgb)]
    race(case, size, {peer.name: peer for peer in replays} | dict(run.peers))
