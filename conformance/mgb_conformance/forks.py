"""A process that forks while its threads trace, compile, multiply and run kernels, all for one backend.

It prints what each child said: ``fine``, ``told`` by a `ForkedProcessError`, ``hangs``, or its error.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable

import numpy as np
from mgb import functional as F
from mgb import tensor
from mgb.errors import ForkedProcessError
from mgb.jit import trace

LARGE = np.linspace(-1, 1, 1 << 18, dtype=np.float32)
MATRIX = np.ones((200, 200), np.float32)
IMAGES, WEIGHT = np.ones((2, 3, 24, 24), np.float32), np.ones((8, 3, 3, 3), np.float32)


class Work:
    """The tasks that threads run, and each child once.

    Parameters
    ----------
    backend : str
    """

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._shared = trace(lambda x: x * 2.0 + 1.0, backend=backend)
        self._skipping = trace(lambda x: (x * 0.5 + 1.0) * x, backend=backend, without_host=True)

    def all(self) -> list[Callable[[int], None]]:
        """Return them in the order in which a child does them."""
        return [self.calls, self.records, self.kernels, self.products, self.convolutions]

    def calls(self, number: int) -> None:
        """Call functions that are recorded, with shapes that may be new."""
        x = np.ones(2 + number % 9, np.float32)
        for _ in range(2):
            assert (self._shared(tensor(x)).numpy() == 3).all()
            assert (self._skipping(tensor(x)).numpy() == 1.5).all()

    def records(self, number: int) -> None:
        """Record and compile a new function."""
        factor = 1 + number % 100 / 128
        traced = trace(lambda x: (x + factor) * x - factor, backend=self._backend)
        for _ in range(2):
            assert (traced(tensor(np.ones(3, np.float32))).numpy() == 1).all()

    def kernels(self, _number: int) -> None:
        """Run a kernel that is worth several threads."""
        np.testing.assert_allclose(self._shared(tensor(LARGE)).numpy(), LARGE * 2 + 1, rtol=1e-6)

    def products(self, _number: int) -> None:
        """Multiply in float32 and in float64, which may be another library's."""
        for dtype in ("float32", "float64"):
            x = tensor(MATRIX, dtype=dtype)
            assert (F.matmul(x, x).numpy() == len(MATRIX)).all()

    def convolutions(self, number: int) -> None:
        """Convolve in sizes that may be new."""
        images = tensor(IMAGES[..., : 12 + number % 12])
        assert (F.conv2d(images, tensor(WEIGHT)).numpy() == WEIGHT[0].size).all()


def child(work: Work, number: int) -> str:
    """Run all tasks in a child and return its report."""
    try:
        for task in work.all():
            task(number)
    except ForkedProcessError as error:
        return "told" if "get_context" in str(error) else f"no remedy in {error}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return "fine"


def answer(fork: Callable[[], int], say: Callable[[], str], seconds: float) -> str:
    """Fork a child and return its report, or how it failed to report within so many seconds."""
    reading, writing = os.pipe()
    pid = fork()
    if not pid:
        try:
            os.write(writing, say().encode()[:4000])
        finally:
            os._exit(0)
    os.close(writing)
    os.set_blocking(reading, False)
    end, text, done = time.monotonic() + seconds, b"", 0
    while not done and time.monotonic() < end:
        time.sleep(0.005)
        done, _ = os.waitpid(pid, os.WNOHANG)
    if done:
        text = os.read(reading, 4096)
    else:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    os.close(reading)
    return text.decode() if done else "hangs"


def main(backend: str, children: int, seconds: float) -> list[str]:
    """Fork so many children while threads work."""
    warnings.simplefilter("ignore")  # Python's own, of processes with threads that fork
    random.seed(0)
    work, stop = Work(backend), threading.Event()
    for task in work.all():
        task(0)  # once in the thread that forks: its libraries have threads now

    def go_on(task: Callable[[int], None]) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            task(number)

    threads = [threading.Thread(target=go_on, args=(task,), daemon=True) for task in work.all()]
    for thread in threads:
        thread.start()
    said = []
    for number in range(children):
        time.sleep(random.random() / 50)
        said.append(answer(os.fork, lambda number=number: child(work, number), seconds))  # type: ignore[misc]
    stop.set()
    for thread in threads:
        thread.join()
    return said


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))))
