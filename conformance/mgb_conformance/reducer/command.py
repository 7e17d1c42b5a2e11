"""``mgb reduce``: what of a traced call fails, and how little of it does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mgb.backends.plugins import GROUP
from mgb.errors import ArgumentError
from mgb.executor import Options, Program
from mgb.executor.resized import plain_graph
from mgb.ir import Graph
from mgb.jit import trace
from mgb.runtime.device import to_host
from mgb.runtime.entry_points import announced

from .case import Array, Case
from .judge import Verdict, with_backend
from .script import written
from .search import smallest
from .worker import Worker


class _Noting(trace[..., Any]):
    """Runs by EAGER, and notes each program with what it was given."""

    cases: list[Case]

    def _compile(self, graph: Graph, updates: Mapping[int, int]) -> Program:
        program = super()._compile(graph, updates)
        call = program.call

        def noting(arrays: Sequence[Any]) -> tuple[Any, ...]:
            self.cases.append(Case(plain_graph(program.recorded), tuple(_kept(a) for a in arrays)))
            return call(arrays)

        program.call = noting
        return program


def _kept(array: Any) -> Array:
    host: Array = to_host(array)
    return np.copy(host, order="K")


def recorded(function: Callable[..., Any], inputs: Sequence[Any]) -> tuple[list[Case], Options]:
    """Return the programs of a call with what they were given, by EAGER; and how the function is compiled.

    Parameters
    ----------
    function : callable
        A traced function, or one that can be.
    inputs : sequence
        Its arguments.
    """
    options = getattr(function, "options", None)
    noting = _Noting(inspect.unwrap(function), backend="eager")
    noting.cases = []
    for _ in range(2):  # the first call records, op by op; the second one runs programs
        noting(*inputs)
    return noting.cases, options if isinstance(options, Options) else Options()


def reduce_call(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    backend: str,
    output: Path,
    origin: str,
    script: str | None = None,
    seconds: float = 60.0,
    say: Callable[[str], None] = print,
) -> int:
    """Reduce a call that `backend` gets wrong to a small test; the exit status, 1 where it gets none wrong.

    Parameters
    ----------
    function, inputs
        As for `recorded`.
    backend : str
        Its name; `script` registers it where it is not installed.
    output : Path
        Where the test goes; what is there is not overwritten.
    origin : str
        What the test says it comes from.
    script : str, optional
        The Python file in which the function stands.
    seconds : float
        What a try may take.
    say : callable
        Told how far it is.

    Raises
    ------
    ArgumentError
        There is something at `output`.

    Examples
    --------
    >>> from pathlib import Path
    >>> reduce_call(lambda x: F.exp(x) * 2, [F.ones((4,))], "EAGER", Path("no_test.py"), "an example")
    EAGER agrees with EAGER in all 1 programs of the call: nothing to reduce
    1
    """
    if output.exists():
        raise ArgumentError(f"{output} exists already and is not overwritten: give --output another name")
    cases, options = recorded(function, inputs)
    options = with_backend(options, backend.lower())
    with Worker(options, script, seconds) as worker:
        tried = ((number, case, worker.verdict(case)) for number, case in enumerate(cases, 1))
        number, case, verdict = next((found for found in tried if found[2]), (0, None, None))
        if case is None or verdict is None:
            say(f"{backend} agrees with EAGER in all {len(cases)} programs of the call: nothing to reduce")
            return 1
        say(f"program {number} of {len(cases)}, {_size(case)}: {verdict.text}")
        found, said = _reduced(case, verdict, worker, say)
    registered = None if backend.lower() in announced(GROUP) else script
    text = written(found, said, options, output, f"{origin}, {_size(case)}", registered)
    output.write_text(text, "utf-8")
    say(f"{found.graph}\n{said.text}")
    say(f"wrote {output}, {_size(found)}, after {worker.tried} tries: pytest {output}")
    return 0


def _reduced(
    case: Case, verdict: Verdict, worker: Worker, say: Callable[[str], None]
) -> tuple[Case, Verdict]:
    found = {"verdict": verdict}

    def fails(smaller: Case) -> bool:
        said = worker.verdict(smaller)
        if said is None or said.kind != verdict.kind:
            return False
        found["verdict"] = said
        return True

    least = smallest(case, fails, lambda smaller: say(f"  {_size(smaller)}"))
    return least, found["verdict"]


def _size(case: Case) -> str:
    nodes, elements, _ = case.size
    return f"{nodes} nodes on {elements} elements"
