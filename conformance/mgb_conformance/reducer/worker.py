"""Cases are tried in another process, which may crash or hang: then there is a new one."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from mgb.executor import Options
from mgb.tools.targets import load_file

from .case import Array, Case
from .judge import Verdict, judged, with_backend

#: Seconds that a process has to start, for it imports what the script imports.
_START = 120.0


def _serve(connection: Any, script: str | None) -> None:
    """Serve in the other process: paths of cases come, verdicts go."""
    with suppress(EOFError, OSError, KeyboardInterrupt):
        if script is not None:
            load_file(Path(script))
        connection.send(None)
        while True:
            path, options = connection.recv()
            connection.send(judged(Case.load(path), options))


def _context() -> Any:
    """Return how processes are made.

    Where one can, from one that has imported mgb and nothing of the user's.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


class Worker:
    """Tries cases on a backend, in a process of its own.

    Parameters
    ----------
    options : Options
        With the backend's name.
    script : path, optional
        A Python file that registers the backend, or ops, when it is imported.
    seconds : float
        What takes longer hangs.

    Examples
    --------
    >>> from mgb.executor import Options
    >>> from mgb_conformance.reducer import Case, op
    >>> case = Case.of(lambda x: [op("neg", op("abs", x))], [np.ones((2, 3), "float32")])
    >>> with Worker(Options(backend="eager")) as worker:
    ...     print(worker.verdict(case))
    None
    """

    def __init__(self, options: Options, script: str | os.PathLike[str] | None = None, seconds: float = 60.0):
        self._options, self._seconds = options, seconds
        self._script = None if script is None else os.fspath(script)
        self._context = _context()
        self._process: Any = None
        self._connection: Any = None
        self._folder = tempfile.TemporaryDirectory(prefix="mgb-reduce-")
        self.tried = 0

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._end()
        self._folder.cleanup()

    def verdict(self, case: Case) -> Verdict | None:
        """Run `case` on the backend and return its failure; None where it is right."""
        name = self._options.backend
        path = Path(self._folder.name) / f"{self.tried}.case"
        self.tried += 1
        case.save(path)
        if self._process is None:
            self._begin()
        try:
            self._connection.send((os.fspath(path), self._options))
            if not self._connection.poll(self._seconds):
                self._end()
                return Verdict("hangs", f"{name} takes more than {self._seconds:g} s")
            found: Verdict | None = self._connection.recv()
            return found
        except (EOFError, OSError):
            return Verdict("crashes", f"{name} ends the process: {self._ended()}")
        finally:
            path.unlink()

    def _begin(self) -> None:
        self._connection, theirs = self._context.Pipe()
        self._process = self._context.Process(target=_serve, args=(theirs, self._script), daemon=True)
        self._process.start()
        theirs.close()
        if not self._connection.poll(_START):
            self._end()
            raise TimeoutError(f"no process that could try a backend has started in {_START:g} s")
        self._connection.recv()

    def _ended(self) -> str:
        self._process.join(self._seconds)
        code = self._process.exitcode
        self._end()
        if code is not None and code < 0:
            with suppress(ValueError):
                return signal.Signals(-code).name
        return f"exit status {code}"

    def _end(self) -> None:
        if self._process is not None:
            self._connection.close()
            self._process.kill()
            self._process.join()
            self._process = None


def check(
    function: Callable[..., Any],
    arrays: Sequence[Array],
    backend: str,
    script: str | os.PathLike[str] | None = None,
    options: Options | None = None,
    seconds: float = 60.0,
) -> None:
    """Fail where `backend` gets a case wrong: the tests that ``mgb reduce`` writes end in this.

    Parameters
    ----------
    function : callable
        The graph, written with `op` and `constant`.
    arrays : sequence of ndarray
        Its inputs.
    backend : str
        Its name.
    script : path, optional
        A Python file that registers the backend when it is imported.
    options : Options, optional
        How the graph is compiled.
    seconds : float
        What takes longer hangs.

    Raises
    ------
    AssertionError
        It differs from EAGER, raises, crashes or hangs.

    Examples
    --------
    >>> import numpy as np
    >>> from mgb_conformance.reducer import check, op
    >>> check(lambda x: [op("neg", op("abs", x))], [np.ones(3, "float32")], backend="eager")
    """
    case = Case.of(function, arrays)
    with Worker(with_backend(options or Options(), backend), script, seconds) as worker:
        verdict = worker.verdict(case)
    assert verdict is None, f"{verdict.text}, of\n{case.graph}"
