"""All 2**32 arguments of the functions of one float32, against float64: exact maxima for docs/accuracy.md.

The arguments are cut into 8 parts by their leading three bits, so that a run can be short:

    python docs/every_float32.py                     what is known
    python docs/every_float32.py exp log             measure; seconds to minutes a function
    python docs/every_float32.py exp --parts 0 1     only some parts

What is found is kept in docs/every_float32.json beside a digest of the function's body: a figure counts as
long as the body is the same. The float64 functions of NumPy and SciPy that are the reference are themselves
compared with mpmath in ``docs/tests/test_accuracy.py``.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numba
import numpy as np
from accuracy import BACKEND, ROWS, Row, compiled
from mgb.backends.plugins import load_backend
from mgb.ir import Spec
from mgb.passes.lower import lower
from mgb.tensor.tracing import graph_of

FOUND = Path(__file__).with_suffix(".json")
PARTS = 8
BLOCK = 1 << 18
THREADS = 2
LARGEST = float(np.finfo(np.float32).max)
#: The unit in the last place of float32 by the exponent bits of a float64.
UNITS = np.ldexp(1.0, np.maximum(np.arange(2048) - 1023, -126) - 23)


@numba.njit(nogil=True)
def worst_of(got: Any, want: Any, units: Any) -> tuple[float, int]:
    """The largest error of a float32 array against a float64 one, and its place: `accuracy.errors`, fast."""
    worst, place = 0.0, 0
    exponents = want.view(np.uint64) >> np.uint64(52)
    for i in range(got.size):
        g, w = np.float64(got[i]), want[i]
        if np.isfinite(g) and abs(w) <= LARGEST:
            error = abs(g - w) / units[exponents[i] & np.uint64(0x7FF)]
        elif got[i] == np.float32(w) or (g != g and w != w):
            error = 0.0
        else:
            error = 1.0 if g * w > 0 and min(abs(g), abs(w)) >= LARGEST else np.inf
        if error > worst:
            worst, place = error, i
    return worst, place


def digest(row: Row) -> str:
    """Of what the backend compiles for `row`."""
    graph = lower(graph_of(row.function, Spec((8,), np.dtype(np.float32))), load_backend(BACKEND).traits)
    return graph.key[:16]


def worst_in(row: Row, part: int) -> tuple[float, float]:
    """The largest error in one part, and where it is."""
    call = compiled(row)

    def block(x: Any) -> tuple[float, float]:
        with np.errstate(all="ignore"):
            error, place = worst_of(call(x), row.double(x.astype(np.float64)), UNITS)
        return float(error), float(x[place])

    size = (1 << 32) // PARTS
    starts = range(part * size, (part + 1) * size, BLOCK)
    call(np.zeros(BLOCK, np.float32))
    with ThreadPoolExecutor(THREADS) as threads:
        return max(
            threads.map(lambda s: block(np.arange(s, s + BLOCK, dtype=np.uint32).view(np.float32)), starts)
        )


def known() -> dict[str, Any]:
    """What was found so far: of each function the digest of its body and the worst of each part."""
    return json.loads(FOUND.read_text()) if FOUND.exists() else {}


def largest(row: Row) -> float | None:
    """The largest error of all, if it was measured for the present body."""
    entry = known().get(row.name)
    if entry is None or len(entry["parts"]) < PARTS or entry["body"] != digest(row):
        return None
    return float(max(error for error, _ in entry["parts"].values()))


def measure(row: Row, parts: list[int]) -> None:
    """Measure some parts and keep what is found."""
    body = digest(row)
    for part in parts:
        worst = worst_in(row, part)
        found = known()
        entry = found.setdefault(row.name, {"body": body, "parts": {}})
        if entry["body"] != body:
            entry.update(body=body, parts={})
        entry["parts"][str(part)] = worst
        FOUND.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
        print(row.name, part, *worst, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--parts", metavar="PART", type=int, nargs="+", default=list(range(PARTS)))
    options = parser.parse_args()
    rows = [row for row in ROWS if row.inputs == 1]
    for name in options.names:
        (row,) = (row for row in rows if row.name == name)
        measure(row, options.parts)
    if not options.names:
        for row in rows:
            print(row.name, largest(row))


if __name__ == "__main__":
    main()
