"""Loops and branches as Python: what they carry, against Python itself."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from mgb_cpu_numba.builder import NumbaBuilder
from mgb_cpu_numba.pipeline import build
from mgb_native.nest import INDEX, WORD

COUNTS = (0, 1, 2, 10)


def results(write: Any, *given: int) -> list[int]:
    """What the function stores that `write` has the builder write: a list of values, of arguments."""
    builder = NumbaBuilder()
    arguments = [builder.load("%plan", str(k), INDEX, name=f"g{k}") for k in range(len(given))]
    found = write(builder, *arguments)
    for k, value in enumerate(found):
        builder.store(value, "arrays", str(k), WORD)
    code = build(builder.module("kernel"))
    function = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 4)(code.address)
    out, plan = np.zeros(len(found), np.int64), np.array(given, np.int64)
    assert function(out.ctypes.data, plan.ctypes.data, 0) == 0
    return out.tolist()


@pytest.mark.parametrize("count", COUNTS)
def test_a_loop_changes_what_it_carries_all_at_once(count: int) -> None:
    def write(b: NumbaBuilder, end: str) -> list[str]:
        start = [("0", INDEX), ("1", INDEX), ("7", INDEX)]
        return b.loop("0", end, "1", start, lambda i, given: [given[1], b.add(*given[:2]), given[0]])

    a, b, c = 0, 1, 7
    for _ in range(count):
        a, b, c = b, a + b, a
    assert results(write, count) == [a, b, c]


@pytest.mark.parametrize("count", COUNTS)
def test_a_loop_within_a_loop_begins_again(count: int) -> None:
    def write(b: NumbaBuilder, end: str) -> list[str]:
        def outer(i: str, given: list[str]) -> list[str]:
            inner = b.loop("0", i, "2", [(i, INDEX)], lambda j, now: [b.add(now[0], j)])
            return [b.add(given[0], inner[0]), given[0]]

        return b.loop("0", end, "1", [("0", INDEX), ("5", INDEX)], outer)

    a, b = 0, 5
    for i in range(count):
        a, b = a + i + sum(range(0, i, 2)), a
    assert results(write, count) == [a, b]


@pytest.mark.parametrize(("x", "y"), [(3, 4), (4, 3), (3, 3)])
def test_a_branch_chooses_values(x: int, y: int) -> None:
    def write(b: NumbaBuilder, x: str, y: str) -> list[str]:
        less = b.compare("slt", x, y)
        b.when(less, lambda: None)
        return b.when(less, lambda: [y, b.add(x, y)], [(x, INDEX), ("9", INDEX)])

    assert results(write, x, y) == ([y, x + y] if x < y else [x, 9])
