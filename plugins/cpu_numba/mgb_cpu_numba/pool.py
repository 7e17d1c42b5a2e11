"""Threads for ranges of compiled code, which releases the GIL.

Numba's own threads abort the process when two Python threads enter them. Here the caller works too, and
helpers join when they are free: any number of callers may come at once, and none ever waits for another's
work.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[int], None]


class _Job:
    """``work(0) ... work(parts - 1)``, by whoever comes."""

    def __init__(self, work: Work, parts: int) -> None:
        self.work = work
        self.parts = iter(range(parts))
        self.left = parts
        self.lock = threading.Lock()
        self.done = threading.Event()

    def help(self) -> None:
        for part in self.parts:
            self.work(part)
            with self.lock:
                self.left -= 1
                if self.left == 0:
                    self.done.set()


class _Pool:
    def __init__(self) -> None:
        self.jobs: SimpleQueue[_Job] = SimpleQueue()
        self.lock = threading.Lock()
        self.size = 0

    def grow(self, size: int) -> None:
        with self.lock:
            for _ in range(self.size, size):
                threading.Thread(target=self.serve, name="mgb-cpu-numba", daemon=True).start()
            self.size = max(self.size, size)

    def serve(self) -> None:
        while True:
            self.jobs.get().help()


_pool = _Pool()


def run(work: Work, parts: int, threads: int) -> None:
    """Call ``work(0) ... work(parts - 1)`` on up to `threads` threads, and return when all are done."""
    helpers = min(threads, parts) - 1
    if helpers < 1:
        for part in range(parts):
            work(part)
        return
    if _pool.size < helpers:
        _pool.grow(helpers)
    job = _Job(work, parts)
    for _ in range(helpers):
        _pool.jobs.put(job)
    job.help()
    job.done.wait()


def _after_fork() -> None:
    global _pool
    _pool = _Pool()


os.register_at_fork(after_in_child=_after_fork)
