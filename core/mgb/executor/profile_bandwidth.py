"""The memory bandwidth of this machine: an upper bound for kernels that miss the caches."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np

from ..backends import num_threads
from ..runtime.device import array_module, device_type

#: Larger than any cache.
_BYTES = 128 << 20

#: The best of so many copies.
_TRIES = 5


def copy_bandwidth(device: str = "xpux:0") -> float:
    """Measure bytes read and written per second by copies of 128 MiB with all threads that a kernel may use.

    It is measured when first asked for in a process, in less than a second, and kept. What fits in
    a cache may run faster.

    Parameters
    ----------
    device : str

    Returns
    -------
    float
    """
    return _measured(device_type(device))


@lru_cache
def _measured(kind: str) -> float:
    count = num_threads()
    with ThreadPoolExecutor(count) as pool:
        copy = _gpu_copy() if kind == "gpu" else _cpu_copy(pool, count)
        copy()  # takes the page faults
        return 2 * _BYTES / min(_seconds(copy) for _ in range(_TRIES))


def _cpu_copy(pool: ThreadPoolExecutor, count: int) -> Callable[[], object]:
    source, target = (np.array_split(np.ones(_BYTES, np.uint8), count) for _ in range(2))
    return lambda: list(pool.map(np.copyto, target, source))


def _gpu_copy() -> Callable[[], object]:
    xp = array_module("gpu0:0")
    source, target = (xp.ones(_BYTES, np.uint8) for _ in range(2))

    def copy() -> None:
        target[...] = source
        xp.cuda.Device().synchronize()

    return copy


def _seconds(copy: Callable[[], object]) -> float:
    start = time.perf_counter()
    copy()
    return time.perf_counter() - start
