"""What a kernel over whole rows is made of: ``python -m mgb_bench.row_parts``.

Memory alone is the limit program, which reads and writes the rows once; arithmetic alone is the same kernel
on a few rows, which stay in the cache, as often as there are more rows. Milliseconds, without a pause,
fastest and median.
"""

from __future__ import annotations

from .case import Case
from .limit import limits
from .machine import cores
from .measure import Timing, without_pause
from .peers import choose
from .plugin import contestants
from .suites.test_reductions import CASES

#: Of the suite: the case and its size.
RACES = (
    ("softmax", (4096, 4096)),
    ("layer norm", (4096, 4096)),
    ("RMS norm", (4096, 4096)),
    ("layer norm", (262144, 64)),
)

#: Elements of rows that stay in the caches of the cores.
FEW = 64 * 4096


def kernel(case: Case, shape: tuple[int, int]) -> Timing:
    """Of the case on a matrix of this shape."""
    calls, failed = contestants(case, case.inputs(shape), choose([], ["numpy"])[0])
    mine = [call for name, call in calls.items() if name.startswith("mgb")]
    assert mine, failed
    return without_pause(mine[0], rounds=40)


def main() -> None:
    """Print a table for each case."""
    for name, (rows, columns) in RACES:
        case = next(case for case in CASES if case.name == name)
        assert case.traffic is not None
        traffic = case.traffic((rows, columns))
        timings = [without_pause(call, rounds=40) for call, _ in limits(traffic, cores()).values()]
        few = FEW // columns
        parts = {
            "memory alone": (min(timings, key=lambda t: t.median), 1),
            "arithmetic alone": (kernel(case, (few, columns)), rows // few),
            "the kernel": (kernel(case, (rows, columns)), 1),
        }
        print(f"{name}, {rows}x{columns}")
        for part, (timing, times) in parts.items():
            print(f"  {part:20}{timing.min * times * 1e3:8.2f}{timing.median * times * 1e3:8.2f}", flush=True)


if __name__ == "__main__":
    main()
