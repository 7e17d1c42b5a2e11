"""Numbers and arrays that bodies decide by are never stale, and no symbolic number stays outside."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from mgb import Tensor, tensor
from mgb.jit import trace


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_JIT_BACKEND", "EAGER")


class Slots:
    __slots__ = ("n",)


@dataclass
class State:
    """What bodies read."""

    n: int = 0
    log: list[Any] = field(default_factory=lambda: [1.0, (2.0, 3)])
    table: dict[str, Any] = field(default_factory=lambda: {"b": 1, "a": 2, "rate": 0.5})
    array: Any = field(default_factory=lambda: np.zeros(3, np.float32))
    slots: Slots = field(default_factory=Slots)


def _without_source(text: str) -> Any:
    space: dict[str, Any] = {}
    exec(text, space)
    return space["asked"]


DECIDING = {
    "type": "def asked(x, n): return x * 2.0 if type(n) is int and n > 2 else x",
    "is": "K = 3\ndef asked(x, n): return x * 2.0 if n is K else x",
    "isinstance": "def asked(x, n): return x * 2.0 if isinstance(n, int) and n > 2 else x",
    "a key": "T = {1: 2.0, 2: 3.0}\ndef asked(x, n): return x * T.get(n, 5.0)",
    "a text": "def asked(x, n): return x * len(f'{n}' * 2)",
    "a root": "import math\ndef asked(x, n): return x * math.sqrt(n)",
    "a loop": "def asked(x, n):\n for _ in range(n): x = x + 1.0\n return x",
    "an error": "def asked(x, n):\n try: return x * [1.0, 2.0, 3.0][n]\n except IndexError: return x",
    "a match": "def asked(x, n):\n match n:\n  case 3: return x * 2.0\n  case int(): return x\n",
    "all": "def asked(x, n): return x * (n and 2.0) * (n or 3.0) * (-n) * (n // 2) * (7 % n)",
}


@pytest.mark.parametrize("name", DECIDING)
def test_what_python_decides_is_never_stale(name: str) -> None:
    body = _without_source(DECIDING[name])
    traced = trace(body)
    for n in (1, 2, 3, 3, 4, 7, 12, 2, 300, 1):
        x = tensor([1.0, 2.0])
        np.testing.assert_allclose(traced(x, n).numpy(), body(x, n).numpy(), rtol=1e-6)


def test_array_in_an_attribute_is_an_input_until_it_is_looked_at() -> None:
    state = State()
    taken, looked = trace(lambda x: x * state.array), trace(lambda x: x if state.array[0] > 0 else -x)
    for n in (0.0, 1.0, -2.0, 3.0, -1.0):
        state.array[...] = n
        assert taken(tensor([1.0, 2.0, 3.0])).tolist() == [n, 2 * n, 3 * n]
        assert looked(tensor(1.0)).item() == (1.0 if n > 0 else -1.0)
    assert taken.stats()["body_runs"] == 2
    state.array = np.full(3, 4.0, np.float32)
    assert taken(tensor([1.0, 2.0, 3.0])).tolist() == [4.0, 8.0, 12.0]


def test_no_symbolic_number_is_left_where_numbers_stood() -> None:
    state = State()

    @trace
    def body(x: Tensor) -> Any:
        return x * state.n * state.table["rate"] * state.log[0] * state.log[1][0] * state.slots.n

    for n in range(1, 7):
        state.n, state.table["rate"], state.slots.n = n, 0.5 * n, n + 1
        state.log[0], state.log[1] = 1.5 * n, (2.5 * n, 3)
        assert body(tensor(1.0)).item() == pytest.approx(n * 0.5 * n * 1.5 * n * 2.5 * n * (n + 1))
        found = [state.n, state.table["rate"], *state.log, *state.log[1], state.slots.n]
        assert [type(v).__module__ for v in found] == ["builtins"] * len(found)
        kinds = [type(v) for v in found]
        assert kinds == [int, float, float, tuple, float, int, int]
    assert body.stats()["body_runs"] == 2
