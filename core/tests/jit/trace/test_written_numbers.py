"""Numbers, flags and texts that a body puts outside: they are written though the body is skipped."""

from typing import Any

import numpy as np
import pytest
from mgb import jit, tensor
from states import Computed, Layer, Notified, Slotted, State, bodies, check, runs

BODIES = bodies(
    """
### count
s.n += 1
return x * s.n
### count_before
y = x * s.n
s.n = s.n + 1
return y + s.n
### count_unread
s.n += 1
return x * 2
### decay
s.lr *= 0.9
return x * s.lr
### twice
s.n += 1
s.n += 2
return x * s.n
### two
s.n, s.k = s.k, s.n + s.k
return x * s.n - s.k
### of_another
s.n += 1
s.k = s.n * 2 + 1
return x * s.k
### element
s.table["n"] += 1
s.table["lr"] = s.table["lr"] * 0.5
return x * s.table["n"] + s.table["lr"]
### place
s.numbers[0] += 1
return x * s.numbers[0] + s.numbers[1]
### new_key
s.table["new"] = s.n
s.n += 1
return x * s.table["new"]
### with_a_branch
s.n += 1
if s.n % 3 == 0:
    return x * 10
return x * s.n
### flag
s.flag = not s.flag
return x if s.flag else -x
### mode
s.mode = {"a": "b", "b": "c", "c": "a"}[s.mode]
return x * len(s.mode) + ord(s.mode)
### once
if s.maybe is None:
    s.maybe = 5.0
return x * s.maybe
### by_vars
s.n += 1
return x * vars(s)["n"]
### by_getattr
s.n += 1
return x * getattr(s, "n", 9)
### by_setattr
setattr(s, "n", s.n + 1)
return x * s.n
### in_a_text
s.n += 1
return x * float(f"{s.n}")
### as_an_index
s.n += 1
return x * [1.0, 2.0, 3.0][s.n % 3]
### as_a_length
s.n += 1
return x * len(range(s.n))
### in_a_tuple
s.seen = (s.n, s.n + 1)
s.n += 1
return x * s.seen[1]
### in_a_list
s.n += 1
s.numbers.append(s.n)
return x
### returned
s.n += 1
return x * 2, s.n
### compared
before = s.n
s.n += 1
return x * (s.n > before) + (before == 0)
### of_a_shape
s.k = x.shape[0]
s.n += x.shape[0]
return x * s.n + s.k
### restored
s.n += 1
y = x * s.n
s.n -= 1
return y
### other_types
s.n = s.n + 0.5
return x * s.n
### class_attribute
s.total += 1
return x * s.total
### deleted
s.gone = 1
del s.gone
s.n += 1
return x * s.n
### with_a_tensor
s.n += 1
y = (x * s.n).sum()
s.maybe = y if s.maybe is None else s.maybe * 0.5 + y
return s.maybe
### by_numpy
s.lr = float(np.float32(s.lr) * np.float32(0.5))
return x * s.lr
### limited
s.n = min(s.n + 1, 4)
return x * s.n
""",
    globals(),
)
SKIPPED = (
    "count",
    "count_before",
    "count_unread",
    "decay",
    "twice",
    "two",
    "of_another",
    "element",
    "place",
    "flag",
)


def arguments(call: int) -> Any:
    return np.full(3 + (call == 12), call + 0.5, np.float32)


def disturb(s: Any, call: int) -> None:
    """What others do between two calls."""
    if call == 8:
        s.n = 100
    if call == 10 and isinstance(s, State):
        s.lr, s.flag, s.mode, s.maybe, s.table = 2.0, not s.flag, "c", None, {"lr": 1.0, "n": 5}


@pytest.mark.parametrize("symbolic", [False, True], ids=["default", "symbolic"])
@pytest.mark.parametrize("name", BODIES)
def test_state_is_that_of_eager_code(name: str, symbolic: bool) -> None:
    check(BODIES[name], State, disturb, arguments, symbolic=symbolic)


@pytest.mark.parametrize("kind", [Slotted, Computed, Notified, Layer])
@pytest.mark.parametrize("name", ["count", "count_before", "twice", "restored"])
def test_state_of_other_classes(kind: type, name: str) -> None:
    check(BODIES[name], kind, disturb, arguments)


@pytest.mark.parametrize("name", SKIPPED)
def test_body_that_counts_is_skipped(name: str) -> None:
    count, reasons = runs(BODIES[name], State())
    assert count <= 4, reasons


def test_counter_of_the_function_around_and_global() -> None:
    n = 0

    @jit.trace
    def f(x: Any) -> Any:
        nonlocal n
        n += 1
        return x * n

    for call in range(20):
        assert f(tensor(1.0)).item() == call + 1 == n
