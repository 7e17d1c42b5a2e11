"""Guards: the instruction inside meets defined operands alone, and gives what is right for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mgb import dtypes
from mgb.codegen import OPS, expression, guard, guarded, scalar
from mgb.ir import CONST, Node

GUARDED = sorted(name for name, op in OPS.items() if op.guard is not None)


def wrapped(value: int, dtype: np.dtype[Any]) -> int:
    """A number of Python as `dtype` holds it."""
    bits = 8 * dtype.itemsize
    value %= 1 << bits
    return value - (1 << bits) if dtype.kind == "i" and value >> (bits - 1) else value


def instruction(name: str, a: int, b: int, dtype: np.dtype[Any]) -> int:
    """What a processor has, in Python's integers; it refuses what processors trap at or leave undefined."""
    bits = 8 * dtype.itemsize
    if name == "quotient":
        assert b != 0 and not (dtype.kind == "i" and b == -1 and a == np.iinfo(dtype).min)
        return abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1)
    assert 0 <= b < bits
    return wrapped(a << b, dtype) if name == "shl" else a >> b


def meaning(name: str, a: int, b: int, dtype: np.dtype[Any]) -> int:
    """What the row of the op says."""
    bits = 8 * dtype.itemsize
    if name == "quotient":
        return 0 if b == 0 else wrapped(abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1), dtype)
    return wrapped(a << b % bits, dtype) if name == "shl" else a >> b % bits


@given(data=st.data())
@pytest.mark.parametrize("dtype", dtypes.INTEGERS, ids=str)
@pytest.mark.parametrize("name", GUARDED)
def test_guard_gives_what_the_row_says_of_an_instruction(
    name: str, dtype: np.dtype[Any], data: st.DataObject
) -> None:
    info = np.iinfo(dtype)
    edge = st.sampled_from([info.min, info.max, 0, 1, max(info.min, -1), 8 * dtype.itemsize])
    a, b = (data.draw(edge | st.integers(int(info.min), int(info.max))) for _ in range(2))
    words = {
        "eq": lambda x, y: x == y,
        "logical_or": lambda x, y: x or y,
        "where": lambda c, x, y: x if c else y,
        "neg": lambda x: wrapped(-x, dtype),
        "bit_and": lambda x, y: x & y,
        name: lambda x, y: instruction(name, x, y, dtype),
    }

    def rule(node: Node, *xs: int) -> int:
        return scalar(node).item() if node.op is CONST else words[node.op.name](*xs)

    (found,) = guard(OPS[name], dtype).fold(rule, (int(a), int(b)))
    assert found == meaning(name, int(a), int(b), dtype)


def test_guarded_table_prints_each_guard_around_the_instruction() -> None:
    table = {
        "quotient": "({0} / {1})", "where": "({0} ? {1} : {2})", "eq": "({0} == {1})", "neg": "(-{0})",
        "const": lambda node: str(scalar(node)), "add": "({0} + {1})",
    }  # fmt: skip
    node = guard(OPS["quotient"], dtypes.uint8).outputs[0].inputs[2]
    text = expression(node, "ab", guarded(table))
    assert text == "((b == 0) ? 0 : (a / ((b == 0) ? 1 : b)))"
    assert guarded(table)["add"] == table["add"]
