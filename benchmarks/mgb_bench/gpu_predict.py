"""``mgb bench --suite gpu --predict``: what the machine code of kernels promises, and what a GPU makes of it.

Each case is compiled for the GPU that is there, else for a H200. Its ledger gives a prediction, see
`mgb_cuda.forecast`. Where there is a GPU the very kernels are timed beside it.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

#: Backends whose images are machine code.
BACKENDS = ("nvrtc", "triton")


@dataclass(frozen=True)
class Promise:
    """One case by one backend.

    Attributes
    ----------
    case, backend : str
    predicted : float or None
        The part of a copy.
    measured : float or None
        The same on the GPU that is there.
    bound : str
    instructions : float
        For each element.
    under_way : int
        Bytes that a multiprocessor has asked for at once.
    problem : str
    """

    case: str
    backend: str
    predicted: float | None = None
    measured: float | None = None
    bound: str = ""
    instructions: float = 0
    under_way: int = 0
    problem: str = ""


def predict(out: Path, quick: bool, backends: Sequence[str], match: str) -> int:
    """Write ``predicted.json`` and ``predicted.md`` into `out`, and print them.

    Parameters
    ----------
    out : Path
    quick : bool
        Fewer rounds of what is measured.
    backends : sequence of str
        Of `BACKENDS`; empty: all that are installed.
    match : str
        Texts, by commas: only cases whose names have one of them.

    Returns
    -------
    int
        0; 1 when a case could not be compiled; 2 where nothing can be read.

    Raises
    ------
    ValueError
        There is no such backend or case.
    """
    from mgb_cuda import sass
    from mgb_cuda.testing.table import CASES

    unknown = [name for name in backends if name not in BACKENDS]
    texts = [text.strip() for text in match.split(",")]
    chosen = [name for name in CASES if any(text in name for text in texts)]
    if unknown or not chosen:
        raise ValueError(
            f"nothing is predicted of {unknown or match!r}; there are {', '.join((*BACKENDS, *CASES))}"
        )
    problem = sass.missing()
    if problem is not None:
        print(f"mgb bench: machine code cannot be read: {problem}", file=sys.stderr)
        return 2
    found = [p for name in backends or BACKENDS for p in _promises(name, chosen, quick)]
    out.mkdir(parents=True, exist_ok=True)
    (out / "predicted.json").write_text(json.dumps([asdict(p) for p in found], indent=1))
    (out / "predicted.md").write_text(table(found))
    print(table(found))
    return int(any(p.problem for p in found))


def _promises(backend: str, cases: Sequence[str], quick: bool) -> Iterator[Promise]:
    """Yield the promise of each case."""
    from mgb_cuda.testing.table import CASES

    try:
        module = importlib.import_module(f"mgb_{backend}.backend")
    except ImportError as error:
        yield Promise("all", backend, problem=f"{error}: python -m pip install mgb-{backend}")
        return
    for name in cases:
        try:
            yield _promise(module, backend, name, CASES[name], quick)
        except Exception as error:  # a case that fails is a line, not the end
            yield Promise(name, backend, problem=f"{type(error).__name__}: {str(error).splitlines()[0]}")


def _promise(module: Any, backend: str, name: str, case: Any, quick: bool) -> Promise:
    from mgb_cuda.generated import expected_of, usual
    from mgb_cuda.testing.ledgers import unit_on_scales

    from . import gpu

    here = gpu.no_gpu() is None
    unit = unit_on_scales(module, case, here)
    found, choice = usual(unit)
    promised = expected_of(unit, found, choice)
    from mgb_cuda.ledger import ledger

    cost = ledger(unit, choice)
    measured = _measured(module, case, cost.least * found.rows * found.length, quick) if here else None
    return Promise(
        name, backend, round(promised.of_copy, 2), measured, promised.bound,
        round(cost.instructions, 1), cost.main.under_way,
    )  # fmt: skip


def _measured(module: Any, case: Any, nbytes: int, quick: bool) -> float:
    """Return the part of a copy that the kernels reach on the GPU that is there."""
    import cupy
    from mgb.backends.plugins import load_backend
    from mgb_cuda.testing.bench import traced

    from . import gpu
    from .gpu_peers import Way

    backend = load_backend(module.__name__.partition(".")[0].removeprefix("mgb_"))
    arrays = [cupy.random.standard_normal(shape, dtype="float32").astype(case.dtype) for shape in case.shapes]
    graph = traced(case.function, arrays, backend.traits)
    run = backend.compile(graph).run
    out = tuple(cupy.empty(o.spec.shape, o.spec.dtype) for o in graph.outputs)
    time = gpu.seconds(Way(lambda: run(*arrays, out=out), lambda _: None), 10 if quick else gpu.ROUNDS)
    return round(nbytes / time / gpu.copy_bandwidth(), 2)


def table(promises: Sequence[Promise]) -> str:
    """Return the lines as Markdown."""
    rows = [
        f"| {p.case} | {p.backend} | {p.predicted or p.problem} | {p.measured or 'not measured'} | {p.bound} "
        f"| {p.instructions} | {p.under_way / 1024:.0f} |"
        for p in promises
    ]
    head = "| case | backend | of a copy, predicted | measured | bound | instructions | KiB under way |"
    return "\n".join([head, "| --- | --- | --- | --- | --- | --- | --- |", *rows, ""])
