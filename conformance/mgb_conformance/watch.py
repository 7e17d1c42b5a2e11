"""A process beside the tests that ends them when one of them hangs, and says which.

A thread could not do so: a kernel may hang in machine code that holds Python's lock.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

#: Seconds that a process has to print its stacks, and to end when its tests have.
GRACE = 5.0


class Watch:
    """The messages of the tests to the process that watches them.

    Parameters
    ----------
    seconds : float
        How long one test may take; 0: for ever.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; what it prints goes where this process prints now."""
        words = [sys.executable, "-m", __name__, str(os.getpid())]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE)

    @property
    def started(self) -> bool:
        """Return whether there is a process already."""
        return self._process is not None

    def tell(self, **news: Any) -> None:
        """Send what a report of a hang will hold; ``seconds`` begins to count from now, 0 stops."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):  # it was ended by somebody else: the tests go on without it
                self._process.stdin.write(json.dumps(news).encode() + b"\n")
                self._process.stdin.flush()

    def begin(self, test: str, backend: str) -> None:
        """Note that a test begins."""
        self.tell(seconds=self._seconds, test=test, backend=backend, doing="")

    def end(self) -> None:
        """Note that the test has ended."""
        self.tell(seconds=0)

    def close(self, hung: bool) -> None:
        """End the watch: no test follows. A process in which one hung has a while to end."""
        if hung:
            self.tell(seconds=GRACE, test="")
        elif self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()


def _lines(found: queue.Queue[dict[str, Any] | None]) -> None:
    for line in sys.stdin.buffer:
        found.put(json.loads(line))
    found.put(None)


def main(watched: int) -> None:
    """Read what the tests tell until they end, or until one of them takes too long."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the tests end by it, and say so
    said: queue.Queue[dict[str, Any] | None] = queue.Queue()
    threading.Thread(target=_lines, args=(said,), daemon=True).start()
    known: dict[str, Any] = {"tests": []}
    deadline = None
    while True:
        try:
            news = said.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        if news is None:
            return
        known["tests"] += [news.pop("record")] if "record" in news else []
        known |= news
        if "seconds" in news:
            deadline = time.monotonic() + news["seconds"] if news["seconds"] else None
    _report(known)
    os.kill(watched, signal.SIGABRT)  # pytest has had `faulthandler` print all stacks then
    with suppress(queue.Empty, ProcessLookupError):
        while said.get(timeout=GRACE) is not None:
            pass
        return
    with suppress(ProcessLookupError):
        os.kill(watched, signal.SIGKILL)


def _report(known: dict[str, Any]) -> None:
    what = known["test"] or "the process, where a kernel hung before,"
    text = f"{what} of backend {known['backend']} has not ended in {known['seconds']} s"
    print(
        f"\n\nHANG: {text}\nat {known['doing'] or 'no kernel that the test called'}\n",
        file=sys.stderr,
        flush=True,
    )
    if known["test"] and "folder" in known:
        from .report import record, write

        hung = record(known["test"], "failed", f"it hung: {text}", known["seconds"])
        write(Path(known["folder"]), known["head"], [*known["tests"], hung])


if __name__ == "__main__":
    main(int(sys.argv[1]))
