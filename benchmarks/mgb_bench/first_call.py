"""A new process that calls a compiled 10-operation chain once and says what took how long.

``python -m mgb_bench.first_call CONTESTANT`` prints, as JSON, the seconds of importing what the contestant
stands on (``libraries``), of importing itself (``own``) and of the first call (``call``).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

SIZE = 1024


def chain(a: Any, b: Any, c: Any) -> Any:
    """Apply ten operations."""
    x = (a + b) * c - a
    x = x * b + c
    x = (x - b) * 0.5 + a
    return x * x - c


def loop(out: Any, a: Any, b: Any, c: Any) -> None:
    """Write the same as a loop, for Numba."""
    for i in range(out.size):
        x = (a[i] + b[i]) * c[i] - a[i]
        x = x * b[i] + c[i]
        x = (x - b[i]) * out.dtype.type(0.5) + a[i]
        out[i] = x * x - c[i]


def _mgb(backend: str) -> Callable[..., Any]:
    import mgb
    from mgb.backends.plugins import load_backend
    from mgb.jit import trace

    load_backend(backend)
    traced = trace(chain, without_host=True, symbolic=True, backend=backend)
    return lambda *arrays: traced(*map(mgb.tensor, arrays)).numpy()


def _numba() -> Callable[..., Any]:
    import numba
    import numpy as np

    compiled = numba.njit(cache=True)(loop)
    return lambda *arrays: compiled(np.empty_like(arrays[0]), *arrays)


def _jax() -> Callable[..., Any]:
    import jax

    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return lambda *arrays: jax.jit(chain)(*arrays).block_until_ready()


def _torch_compile() -> Callable[..., Any]:
    import torch

    return lambda *arrays: torch.compile(chain)(*map(torch.from_numpy, arrays))


#: Contestants by the name of the peer: what they stand on, and what imports them and gives the call.
CONTESTANTS: dict[str, tuple[Sequence[str], Callable[..., Callable[..., Any]]]] = {
    "mgb": (("numpy", "llvmlite.binding"), _mgb),
    "numba": (("numpy", "llvmlite.binding"), _numba),
    "jax": (("numpy",), _jax),
    "torch_compile": (("numpy",), _torch_compile),
}


def main(name: str) -> dict[str, float]:
    """Import, call once, and time both; ``mgb:NAME`` is mgb with that backend."""
    kind, _, backend = name.partition(":")
    libraries, load = CONTESTANTS[kind]
    marks = [time.perf_counter()]
    for library in libraries:
        __import__(library)
    marks.append(time.perf_counter())
    call = load(backend) if backend else load()
    marks.append(time.perf_counter())
    import numpy as np

    generator = np.random.default_rng(0)
    arrays = [generator.random(SIZE, np.float32) for _ in range(3)]
    start = time.perf_counter()
    call(*arrays)
    stop = time.perf_counter()
    return {"libraries": marks[1] - marks[0], "own": marks[2] - marks[1], "call": stop - start}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
