"""Short rows and lines by each CPU backend that is here: ``python -m mgb_bench.short_rows``.

Microseconds, fastest and median of a race.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
from mgb.backends import Scope
from mgb.errors import BackendError
from mgb.jit import trace
from mgb.plugins import import_backend, installed

from .measure import interleave

#: Elements of each array, roughly; the lengths of rows.
ELEMENTS, LENGTHS = 200_000, (10, 36, 64, 100, 250, 1000)

#: Images over which a mean is taken along axes 0 and 2.
IMAGES = ((64, 128, 49), (64, 50, 100), (32, 64, 784))


def backends() -> list[str]:
    """Those that compile loops for the CPU and can do so here."""
    found = []
    for name in installed():
        try:
            backend = import_backend(name)
        except BackendError as error:  # one that is broken keeps nobody from racing the others
            print(f"without {name}: {error}", file=sys.stderr)
            continue
        loops = "cpu" in backend.traits.devices and backend.traits.scope is Scope.DOMAIN
        if loops and backend.probe() is None:
            found.append(name)
    return found


def show(title: str, function: Callable[..., Any], shape: tuple[int, ...], names: list[str]) -> None:
    """Print a race."""
    x = mgb.tensor(np.random.default_rng(0).random(shape, np.float32))
    calls = {name: partial(trace(function, without_host=True, backend=name), x) for name in names}
    print(title)
    for name, timing in interleave(calls, seconds=0.6).items():
        print(f"  {name:14}{timing.min * 1e6:9.1f}{timing.median * 1e6:9.1f}", flush=True)


def main() -> None:
    """Print a race for each length and image."""
    names = backends()
    for length in LENGTHS:
        shape = (ELEMENTS // length, length)
        show(f"softmax, {shape[0]} rows of {length}", lambda x: F.softmax(x, axis=1), shape, names)
    for shape in IMAGES:
        title = f"mean of {'x'.join(map(str, shape))} over axes 0 and 2"
        show(title, lambda x: x.mean(axis=(0, 2)), shape, names)


if __name__ == "__main__":
    main()
