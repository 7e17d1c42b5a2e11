"""How fast a backend is, beside EAGER and the best of the others that run here: ``--mgb-bench``.

``python -m mgb_conformance.bench NAME`` does nothing else. It says where to look: `mgb bench` measures
with care.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

#: Seconds for one contestant in one case, and rounds at most.
_SECONDS, _ROUNDS = 0.5, 40


def _cases() -> dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]]:
    """Map each name to what is computed, and the shapes of its arrays."""
    from mgb import functional as F

    def normalised(x: Any) -> Any:
        centred = x - x.mean(axis=1, keepdims=True)
        return centred / F.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5)

    rows = (1024, 2048)
    return {
        "x*y+1, 4 elements": (lambda x, y: x * y + 1, [(4,)] * 2),
        "x*y+1, 2 Mi": (lambda x, y: x * y + 1, [rows] * 2),
        "gelu, 2 Mi": (F.gelu, [rows]),
        "row + column, 2 Mi": (lambda x, y: F.exp(x + y) * 2, [(1024, 1), (1, 2048)]),
        "transposed, 2 Mi": (lambda x, y: F.transpose(x, (1, 0)) * y + y, [(2048, 1024), rows]),
        "sum of rows, 2 Mi": (lambda x: F.sum(x * x, axis=1), [rows]),
        "sum of columns, 2 Mi": (lambda x: F.sum(x * x, axis=0), [rows]),
        "softmax, 2 Mi": (lambda x: F.softmax(x, axis=1), [rows]),
        "layer norm, 2 Mi": (normalised, [rows]),
    }


def best_other(name: str) -> str | None:
    """Return the backend, except it and EAGER, of the highest priority for `name`'s device that runs here."""
    from mgb import plugins

    lines = plugins.status()
    devices = next(set(line.devices) for line in lines if line.name == name)
    able = [line for line in lines if not line.problem and devices & set(line.devices)]
    others = [line for line in able if line.name not in (name, "eager")]
    return max(others, key=lambda line: (line.priority, line.name)).name if others else None


def lines(name: str) -> Iterator[str]:
    """Yield a table.

    Each case with the median of `name`, of EAGER and of the best other one, in microseconds.
    """
    name = name.lower()
    other = best_other(name)
    contestants = list(dict.fromkeys([name, "eager", *([other] if other else [])]))
    heads = "".join(f"{c:>14}" for c in contestants) + "".join(f"{c + '/it':>14}" for c in contestants[1:])
    yield f"{'medians, microseconds':24}{heads}"
    for title, (function, shapes) in _cases().items():
        found = medians(function, shapes, contestants)
        times = "".join(f"{found[c]:14.1f}" for c in contestants)
        ratios = "".join(f"{found[c] / found[name]:14.2f}" for c in contestants[1:])
        yield f"{title:24}{times}{ratios}"


def medians(
    function: Callable[..., Any], shapes: Sequence[tuple[int, ...]], contestants: Sequence[str]
) -> dict[str, float]:
    """Return the median of the calls of each contestant, which take turns."""
    from mgb.backends.plugins import load_backend
    from mgb.executor import Options, compile_program
    from mgb.ir import Spec
    from mgb.tensor.tracing import graph_of

    from .places import place_of

    calls = {}
    for name in contestants:
        place = place_of(load_backend(name).traits)
        graph = graph_of(function, *(Spec(s, np.dtype("float32"), place.device) for s in shapes))
        program = compile_program(graph, Options(backend=name))
        random = np.random.default_rng(0)
        arrays = [place.put(random.standard_normal(s).astype("float32")) for s in shapes]
        calls[name] = (program.run, arrays, place)
        program.run(*arrays)  # imports, and first touches of memory
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(_ROUNDS):
        for name, (run, arrays, place) in calls.items():
            if sum(taken[name]) < _SECONDS:
                start = time.perf_counter()
                place.get(run(*arrays)[0])
                taken[name].append(time.perf_counter() - start)
    return {name: 1e6 * statistics.median(times) for name, times in taken.items()}


if __name__ == "__main__":
    for line in lines(sys.argv[1]):
        print(line, flush=True)
