"""An array that an op takes, and nothing else looks at, is an input from the second call on."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from mgb import tensor
from mgb.jit import trace


class Looks:
    """Its operators look at what they are given, and hand it on."""

    __array_ufunc__ = None

    def __mul__(self, other: Any) -> Any:
        return tensor(1.0) * other if other[0] > 0 else tensor(2.0) * other

    __rmul__ = __mul__


LOOKS = Looks()


def in_place(x: Any, a: Any) -> Any:
    a += 1.0
    return x * a


def added(x: Any, a: Any) -> Any:
    x += a
    return x


def unpacked(x: Any, a: Any) -> Any:
    first, _ = a
    return x * first


def in_a_list(x: Any, a: Any) -> Any:
    return x * ([1.0, 2.0] + a)


def twice(x: Any, a: Any) -> Any:
    return x * a if a.sum() > 0 else x - a


INPUTS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, a: x * a,
    lambda x, a: a * x,
    lambda x, a: ((F.relu(x) - a) ** 2).mean(),
    lambda x, a: (x * 2.0 + 1.0) * a + 1.0,
    lambda x, a: x[0] * a,
    lambda x, a: x * a + a,
    lambda x, a: [x, a][1] * x,
    lambda x, a: ((a,) * 2)[0] * x,
    added,
)
LOOKED_AT: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, a: x * (a * 2.0),
    lambda x, a: LOOKS * a + x,
    lambda x, a: a * LOOKS + x,
    lambda x, a: x * a[0],
    lambda x, a: x * 2.0 if a[0] > 0 else x,
    lambda x, a: x * -a,
    in_place, unpacked, in_a_list, twice,
)  # fmt: skip


def runs(body: Callable[[Any, Any], Any]) -> int:
    """How often the body runs for six arrays, where the results are those without a trace."""
    traced = trace(body)
    for call in range(6):
        one = np.array([1.0, 2.0], np.float32) * (call + 1) * (-1) ** call
        two = one.copy()
        expected = body(tensor([1.0, 2.0]), one)
        np.testing.assert_allclose(traced(tensor([1.0, 2.0]), two).numpy(), expected.numpy(), rtol=1e-6)
        np.testing.assert_array_equal(one, two)
    return int(traced.stats()["body_runs"])


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("body", INPUTS)
def test_array_is_an_input(body: Callable[[Any, Any], Any]) -> None:
    assert runs(body) == 2


@pytest.mark.parametrize("body", LOOKED_AT)
def test_array_that_is_looked_at_is_not(body: Callable[[Any, Any], Any]) -> None:
    assert runs(body) == 6


INDEXING: dict[str, Callable[[Any, Any], Any]] = {
    "index": lambda x, a: x[a],
    "index and operand": lambda x, a: x[a] * a,
    "mask": lambda x, a: x[a > 1],
    "in a tuple": lambda x, a: F.stack([x, x])[(0, a)],
    "shift": lambda x, a: F.roll(x, int(a[0])),
    "filled": lambda x, a: F.full((2,), float(a[0])),
}


@pytest.mark.parametrize("name", INDEXING)
def test_arrays_that_ops_look_at_decide(name: str) -> None:
    body, x = INDEXING[name], tensor([1.0, 2.0, 3.0])
    traced = trace(body)
    for index in (0, 1, 2, 0, 2):
        a = np.array([index, 2, 0])
        np.testing.assert_allclose(traced(x, a).numpy(), body(x, a).numpy())


@pytest.mark.parametrize("order", [(0, 0, 1, 0), (0, 1, 1, 0), (1, 0, 1, 0)])
def test_arrays_that_become_one_are_told_apart(order: tuple[int, ...]) -> None:
    state = types.SimpleNamespace()
    one, other = trace(_one_or_two), trace(_memory)
    for n, same in enumerate(order):
        state.array = np.full(1, n, np.float32)
        state.other = state.array if same else state.array.copy()
        x = tensor([1.0])
        for traced, body in ((one, _one_or_two), (other, _memory)):
            assert traced(x, state).tolist() == body(x, state).tolist()


def _one_or_two(x: Any, s: Any) -> Any:
    return x * s.array if s.array is s.other else x + 100.0


def _memory(x: Any, s: Any) -> Any:
    return x * s.array if np.shares_memory(s.array, s.other) else x + 100.0


WRITES: dict[str, Callable[[Any, Any], object]] = {
    "append": lambda v, n: v.append(n),
    "pop": lambda v, n: v.pop(),
    "insert": lambda v, n: v.insert(0, n),
    "reverse": lambda v, n: v.reverse(),
    "item": lambda v, n: v.__setitem__(0, v[0] + n),
    "nested": lambda v, n: v[1].append(n),
    "in a dict": lambda v, n: v[2].__setitem__("a", v[2]["a"] + n),
    "popped of a dict": lambda v, n: v[2].pop("b"),
    "of a deque": lambda v, n: v[3].__setitem__(0, v[3][0] + n),
}


@pytest.mark.parametrize("by", ["number", "length", "array"])
@pytest.mark.parametrize("name", WRITES)
def test_arguments_are_written_once(name: str, by: str) -> None:
    def body(x: Any, n: Any, a: Any, v: Any) -> Any:
        if n > 2 or x.shape[0] > 2 or a[0] > 2:
            WRITES[name](v, n)
        return x * n

    traced = trace(body)
    for call in (1, 1, 5, 6):
        held: list[Any] = [[4, [1, 2], {"a": 1, "b": 2}, deque([1, 2, 3])] for _ in range(2)]
        n, length, a = (call if by == kind else 1 for kind in ("number", "length", "array"))
        x, given = tensor(np.ones(length, np.float32)), np.array([a, 2])
        assert traced(x, n, given, held[0]).tolist() == body(x, n, given, held[1]).tolist()
        assert held[0] == held[1]
