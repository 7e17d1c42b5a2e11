"""Numbers, flags and texts that a body puts outside: they are written though the body is skipped."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mgb import jit, tensor
from states import Computed, Layer, Notified, Slotted, State, check, runs


def count(s: Any, x: Any) -> Any:
    s.n += 1
    return x * s.n


def count_before(s: Any, x: Any) -> Any:
    y = x * s.n
    s.n = s.n + 1
    return y + s.n


def count_unread(s: Any, x: Any) -> Any:
    s.n += 1
    return x * 2


def decay(s: Any, x: Any) -> Any:
    s.lr *= 0.9
    return x * s.lr


def twice(s: Any, x: Any) -> Any:
    s.n += 1
    s.n += 2
    return x * s.n


def two(s: Any, x: Any) -> Any:
    s.n, s.k = s.k, s.n + s.k
    return x * s.n - s.k


def of_another(s: Any, x: Any) -> Any:
    s.n += 1
    s.k = s.n * 2 + 1
    return x * s.k


def element(s: Any, x: Any) -> Any:
    s.table["n"] += 1
    s.table["lr"] = s.table["lr"] * 0.5
    return x * s.table["n"] + s.table["lr"]


def place(s: Any, x: Any) -> Any:
    s.numbers[0] += 1
    return x * s.numbers[0] + s.numbers[1]


def new_key(s: Any, x: Any) -> Any:
    s.table["new"] = s.n
    s.n += 1
    return x * s.table["new"]


def with_a_branch(s: Any, x: Any) -> Any:
    s.n += 1
    if s.n % 3 == 0:
        return x * 10
    return x * s.n


def flag(s: Any, x: Any) -> Any:
    s.flag = not s.flag
    return x if s.flag else -x


def mode(s: Any, x: Any) -> Any:
    s.mode = {"a": "b", "b": "c", "c": "a"}[s.mode]
    return x * len(s.mode) + ord(s.mode)


def once(s: Any, x: Any) -> Any:
    if s.maybe is None:
        s.maybe = 5.0
    return x * s.maybe


def by_vars(s: Any, x: Any) -> Any:
    s.n += 1
    return x * vars(s)["n"]


def by_getattr(s: Any, x: Any) -> Any:
    s.n += 1
    return x * getattr(s, "n", 9)


def by_setattr(s: Any, x: Any) -> Any:
    setattr(s, "n", s.n + 1)  # noqa: B010
    return x * s.n


def in_a_text(s: Any, x: Any) -> Any:
    s.n += 1
    return x * float(f"{s.n}")


def as_an_index(s: Any, x: Any) -> Any:
    s.n += 1
    return x * [1.0, 2.0, 3.0][s.n % 3]


def as_a_length(s: Any, x: Any) -> Any:
    s.n += 1
    return x * len(range(s.n))


def in_a_tuple(s: Any, x: Any) -> Any:
    s.seen = (s.n, s.n + 1)
    s.n += 1
    return x * s.seen[1]


def in_a_list(s: Any, x: Any) -> Any:
    s.n += 1
    s.numbers.append(s.n)
    return x


def returned(s: Any, x: Any) -> Any:
    s.n += 1
    return x * 2, s.n


def compared(s: Any, x: Any) -> Any:
    before = s.n
    s.n += 1
    return x * (s.n > before) + (before == 0)


def of_a_shape(s: Any, x: Any) -> Any:
    s.k = x.shape[0]
    s.n += x.shape[0]
    return x * s.n + s.k


def restored(s: Any, x: Any) -> Any:
    s.n += 1
    y = x * s.n
    s.n -= 1
    return y


def other_types(s: Any, x: Any) -> Any:
    s.n = s.n + 0.5
    return x * s.n


def class_attribute(s: Any, x: Any) -> Any:
    s.total += 1
    return x * s.total


def deleted(s: Any, x: Any) -> Any:
    s.gone = 1
    del s.gone
    s.n += 1
    return x * s.n


def with_a_tensor(s: Any, x: Any) -> Any:
    s.n += 1
    y = (x * s.n).sum()
    s.maybe = y if s.maybe is None else s.maybe * 0.5 + y
    return s.maybe


def by_numpy(s: Any, x: Any) -> Any:
    s.lr = float(np.float32(s.lr) * np.float32(0.5))
    return x * s.lr


def limited(s: Any, x: Any) -> Any:
    s.n = min(s.n + 1, 4)
    return x * s.n


BODIES: dict[str, Callable[[Any, Any], Any]] = {
    body.__name__: body
    for body in (
        count, count_before, count_unread, decay, twice, two, of_another, element, place, new_key,
        with_a_branch, flag, mode, once, by_vars, by_getattr, by_setattr, in_a_text, as_an_index,
        as_a_length, in_a_tuple, in_a_list, returned, compared, of_a_shape, restored, other_types,
        class_attribute, deleted, with_a_tensor, by_numpy, limited,
    )
}  # fmt: skip
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
