"""Scripts that each run in a process of their own, forked from one that has imported what they need."""

from __future__ import annotations

import atexit
import json
import linecache
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from contextlib import suppress
from typing import IO, Any

#: Seconds that a script may take.
LIMIT = 100


class Forks:
    """A process that waits for scripts.

    Parameters
    ----------
    prepared : str
        What it runs at first; each script finds the names that this has made.
    **variables : str
        Of its environment.
    """

    def __init__(self, prepared: str, **variables: str) -> None:
        command = [sys.executable, "-c", f"from {__name__} import serve; serve()"]
        pipe, environment = subprocess.PIPE, os.environ | variables
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
        atexit.register(self.close)
        try:
            self._ask(prepared, {})
        except AssertionError:
            self.close()
            raise

    def run(self, script: str, **variables: str) -> str:
        """Run `script` with these variables in its environment and return its output.

        Raises
        ------
        AssertionError
            The script failed; the message is its error output.
        """
        return self._ask(script, variables)

    def close(self) -> None:
        """End the process."""
        with suppress(OSError):
            self._process.communicate()

    def _ask(self, script: str, variables: dict[str, str]) -> str:
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        print(json.dumps([script, variables]), file=process.stdin, flush=True)
        answer = process.stdout.readline()
        assert answer, "the process that scripts are forked from has ended"
        status, out, problem = json.loads(answer)
        assert status == 0, problem or f"ended by signal {-status}"
        return str(out)


def serve() -> None:
    """Run the first script that is asked for here, and each other one in a fork."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing else is written among the answers
    names: dict[str, Any] | None = None
    for line in sys.stdin:
        script, variables = json.loads(line)
        if names is None:
            names = {"__name__": "__main__"}
            found: tuple[int, str, str] = (0, "", "")
            try:
                _execute(script, names, "<prepared>")
            except Exception:
                found = 1, "", traceback.format_exc()
        else:
            found = _forked(script, variables, names)
        print(json.dumps(found), file=answers, flush=True)


def _forked(script: str, variables: dict[str, str], names: dict[str, Any]) -> tuple[int, str, str]:
    """Return the status of a script, and what it wrote."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as problem:
        child = os.fork()
        if child == 0:
            _run(script, variables, names, out, problem)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = []
        for file in (out, problem):
            file.seek(0)
            texts.append(file.read().decode())
    return status, texts[0], texts[1]


def _execute(script: str, names: dict[str, Any], called: str) -> None:
    """Run it as a file of that name is run, whose text can be read."""
    linecache.cache[called] = len(script), None, script.splitlines(keepends=True), called
    exec(compile(script, called, "exec"), names)


def _run(
    script: str, variables: dict[str, str], names: dict[str, Any], out: IO[bytes], problem: IO[bytes]
) -> None:
    """Become the process of a script."""
    status = 1
    try:
        os.dup2(out.fileno(), 1)
        os.dup2(problem.fileno(), 2)
        signal.alarm(LIMIT)
        os.environ.update(variables)
        _execute(script, names, "<script>")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
