"""``python -m mgb_bench.gpu``: mgb and its peers on a GPU, beside the bandwidth of a copy on that GPU.

Times are those of the GPU between two events around a few calls, the median of many. Who works on a stream of
its own, as JAX does, is waited for once in these few calls. Every result is compared with NumPy's in float64
before it is timed, and a backend of mgb is timed only if it is what compiled the case.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .gpu_cases import CASES, Case, Words
from .gpu_peers import Contestant, Way, contestants

ROUNDS, WARM, TOGETHER = 50, 5, 5


def no_gpu() -> str | None:
    """Return why nothing can be timed here; None when it can."""
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed: pip install 'mgb[cuda13]' (or cuda12)"
    import cupy

    return None if cupy.cuda.is_available() else "CuPy finds no GPU here: see that nvidia-smi works"


def seconds(way: Way, rounds: int = ROUNDS) -> float:
    """Return the median time of one call: between two events on the GPU, around `TOGETHER` of them."""
    import cupy

    for _ in range(WARM):
        way.wait(way.call())
    begin, end, times = cupy.cuda.Event(), cupy.cuda.Event(), []
    for _ in range(rounds):
        begin.record()
        for _ in range(TOGETHER):
            result = way.call()
        way.wait(result)
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begin, end) / 1e3 / TOGETHER)
    return statistics.median(times)


def copy_bandwidth() -> float:
    """Measure bytes per second of a copy of 256 MiB, read and written."""
    import cupy

    source, target = (cupy.ones(1 << 28, np.uint8) for _ in range(2))
    return 2 * source.nbytes / seconds(Way(lambda: cupy.copyto(target, source), cupy.asnumpy))


def truth(case: Case, arrays: Sequence[Any]) -> Any:
    """Return the first rows in float64."""
    words = Words(np)
    return case.rule(words, *(a[:64].astype(np.float64) for a in case.views(words, arrays)))


@dataclass(frozen=True)
class Line:
    """One row of the table; without a time, `problem` says why, and `absent` that it cannot run here."""

    case: str
    contestant: str
    microseconds: float | None = None
    of_copy: float | None = None
    problem: str = ""
    absent: bool = False


def measure(case: Case, bandwidth: float, contestants: Sequence[Contestant], rounds: int) -> list[Line]:
    """Return a line for each contestant."""
    arrays = case.arrays()
    want, lines = truth(case, arrays), []
    for contestant in contestants:
        problem = contestant.missing()
        if problem is not None:
            lines.append(Line(case.name, contestant.name, problem=problem, absent=True))
            continue
        try:
            way = contestant.build(case, arrays)
            np.testing.assert_allclose(way.get(way.call())[:64], want, rtol=1e-4, atol=1e-5)
            time = seconds(way, rounds)
            share = case.nbytes() / time / bandwidth
            lines.append(Line(case.name, contestant.name, round(time * 1e6, 1), round(share, 3)))
        except Exception as error:  # a peer that fails is a line, not the end
            problem = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            lines.append(Line(case.name, contestant.name, problem=problem))
    return lines


def table(lines: Sequence[Line], about: Mapping[str, Any]) -> str:
    """Return the lines as Markdown."""
    head = [
        f"{about['gpu']}: a copy moves {about['copy']} GB/s",
        "",
        "| case | contestant | us | of the copy |",
    ]
    rows = [
        f"| {x.case} | {x.contestant} | {x.microseconds or x.problem} | {x.of_copy or ''} |" for x in lines
    ]
    return "\n".join([*head, "| --- | --- | --- | --- |", *rows, ""])


def bench(
    out: Path,
    quick: bool = False,
    backends: Sequence[str] = (),
    peers: Sequence[str] = (),
    match: str = "",
) -> int:
    """Time cases and write ``gpu.json`` and ``gpu.md`` into `out`.

    Parameters
    ----------
    out : Path
    quick : bool, optional
        Fewer rounds.
    backends, peers : sequence of str, optional
        See `contestants`.
    match : str, optional
        Texts, by commas: only cases whose names have one of them.

    Returns
    -------
    int
        0; 1 when a contestant that is here failed; 2 where there is no GPU.

    Raises
    ------
    ValueError
        There is no such peer or case.
    """
    chosen = contestants(backends, peers)
    texts = [text.strip() for text in match.split(",")]
    cases = [case for case in CASES if any(text in case.name for text in texts)]
    if not cases:
        raise ValueError(f"no case has {match!r} in its name; there are {', '.join(c.name for c in CASES)}")
    problem = no_gpu()
    if problem is not None:
        print(f"mgb bench: no GPU: {problem}", file=sys.stderr)
        return 2
    import cupy

    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX would take most of the memory
    bandwidth = copy_bandwidth()
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    about = {"gpu": name, "copy": round(bandwidth / 1e9, 1)}
    lines = [line for case in cases for line in measure(case, bandwidth, chosen, 10 if quick else ROUNDS)]
    out.mkdir(parents=True, exist_ok=True)
    (out / "gpu.json").write_text(json.dumps({"about": about, "lines": [asdict(x) for x in lines]}, indent=1))
    (out / "gpu.md").write_text(table(lines, about))
    print(table(lines, about))
    return int(any(x.problem and not x.absent for x in lines))


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m mgb_bench.gpu", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench"))
    parser.add_argument("--quick", action="store_true")
    for option in ("--backend", "--peers", "--match"):
        parser.add_argument(option, default="", help="by commas; all of them if none is named")
    given = parser.parse_args()
    named = [
        [word.strip() for word in text.split(",") if word.strip()] for text in (given.backend, given.peers)
    ]
    try:
        return bench(given.out, given.quick, *named, given.match)
    except ValueError as error:
        print(f"mgb bench: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
