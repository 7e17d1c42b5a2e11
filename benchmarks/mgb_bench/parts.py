"""What a short call is made of: ``python -m mgb_bench.parts``; the parts are raced against each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any

import mgb
import numpy as np
from mgb import memory
from mgb.jit import trace

from .measure import interleave

#: Elements of `a*b*c`; operations of the chains on `SHORT` elements.
SIZES = (1 << 10, 1 << 15, 1 << 16, 1 << 20)
COUNTS, SHORT = (1, 10, 100), 1 << 10

FLOAT32 = np.dtype(np.float32)


def product(a: Any, b: Any, c: Any) -> Any:
    """Two operations, one kernel."""
    return a * b * c


def chain(count: int) -> Callable[[Any, Any], Any]:
    """So many operations."""

    def function(x: Any, y: Any) -> Any:
        for _ in range(count):
            x = x + y
        return x

    return function


def tensors(count: int, size: int) -> list[Any]:
    """Random numbers."""
    generator = np.random.default_rng(0)
    return [mgb.tensor(generator.random(size, np.float32)) for _ in range(count)]


def of_product(size: int) -> dict[str, Callable[[], Any]]:
    """The call, and its parts: memory for the result, the kernel into one array and into two in turn."""
    inputs = tensors(3, size)
    arrays = [t._data for t in inputs]
    traced = trace(product, without_host=True)
    for _ in range(2):  # the first call is recorded, the second one compiled
        traced(*inputs)
    (program,) = traced.programs()
    (kernel,) = (k.run for k in program.kernels if k is not None)
    ready = [(memory.empty((size,), FLOAT32),) for _ in range(2)]
    turns = cycle(ready)
    return {
        "kernel": lambda: kernel(*arrays, out=ready[0]),
        "kernel, two results in turn": lambda: kernel(*arrays, out=next(turns)),
        "memory": partial(memory.empty, (size,), FLOAT32),
        "program": lambda: program.call(arrays),
        "call": partial(traced, *inputs),
    }


def of_chain(count: int) -> dict[str, Callable[[], Any]]:
    """The chain with and without its Python."""
    inputs = tensors(2, SHORT)
    return {
        "without_host": partial(trace(chain(count), without_host=True), *inputs),
        "replay": partial(trace(chain(count), run_body=True), *inputs),
    }


def main() -> None:
    """Print microseconds, minimum and median."""
    for title, calls in (
        *((f"a*b*c, {size >> 10} Ki", of_product(size)) for size in SIZES),
        *((f"{count} operations", of_chain(count)) for count in COUNTS),
    ):
        print(title)
        for name, timing in interleave(calls, seconds=1.0).items():
            print(f"  {name:30}{timing.min * 1e6:9.2f}{timing.median * 1e6:9.2f}")


if __name__ == "__main__":
    main()
