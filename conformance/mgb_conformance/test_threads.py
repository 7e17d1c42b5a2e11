"""A kernel may be entered by many threads, and their number changes no result."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from mgb import config
from mgb.ir import Kind
from mgb.ops.bodies.transcendental import tanh
from mgb.ops.reduce import reduce_sum

from .cases import check, of, require, samples
from .drive import FILL, Driver

#: Calls that must have written all when they return, or as many as these seconds hold.
CALLS, SECONDS = 40, 5.0


def program(x: Any) -> list[Any]:
    return [tanh(x * 0.5) + x, x * x]


@contextmanager
def busy() -> Iterator[None]:
    """Keep the processors busy by other threads, so that a worker for which nobody waits is late."""
    stop, block = threading.Event(), bytes(1 << 20)

    def work() -> None:
        while not stop.is_set():
            hashlib.sha256(block)

    threads = [threading.Thread(target=work) for _ in range(2 * (os.cpu_count() or 1))]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


class TestThreads:
    @pytest.mark.parametrize("size", [100, 300_000])
    def test_eight_threads_run_one_kernel(self, driver: Driver, size: int) -> None:
        arrays = [samples("float32", (size,), seed) for seed in range(8)]
        graph = of(program, arrays[0])
        alone = [check(driver, graph, [x]) for x in arrays]
        kernel = driver.compile(graph)

        def work(x: np.ndarray) -> list[list[np.ndarray]]:
            return [driver.fill(kernel, graph, [x]) for _ in range(10)]

        with ThreadPoolExecutor(8) as pool:
            together = list(pool.map(work, arrays, timeout=driver.timeout))
        for want, results in zip(alone, together, strict=True):
            for got in results:
                assert all(np.array_equal(g, w, equal_nan=True) for g, w in zip(got, want, strict=True))

    @pytest.mark.parametrize("axis", [(0,), (1,), (0, 1)])
    def test_thread_count_does_not_change_results(
        self, driver: Driver, axis: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        x = samples("float32", (600, 701))
        folds = Kind.REDUCE in driver.backend.traits.kinds
        graph = of(lambda x: [tanh(x), reduce_sum(x, axis=axis)] if folds else tanh(x), x)
        results = []
        for threads in ("1", "2", "5"):
            monkeypatch.setenv(config.NUM_THREADS.name, threads)
            results.append(check(driver, graph, [x]))
        for other in results[1:]:
            assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))

    def test_outputs_are_complete_when_the_call_returns(self, driver: Driver) -> None:
        x = np.resize(samples("float32", (4093,)), (1 << 12, 1 << 10))
        graph = of(lambda x: x * x, x)
        require(driver, graph)
        kernel, given, end = driver.compile(graph), driver.place.put(x), time.monotonic() + SECONDS
        with busy():
            for call in range(CALLS):
                for part in driver.at_once(kernel, graph, [given], 509):
                    late = (part.view(np.uint32) == FILL * 0x01010101).mean()
                    assert not late, f"call {call} returned with {late:.0%} of an output unwritten"
                if time.monotonic() > end:
                    break
