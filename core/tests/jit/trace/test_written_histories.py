"""What a body appends to lists outside, and what it writes to their elements, though the body is skipped."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from mgb import jit, tensor
from states import ZERO, State, check, runs


def history(s: Any, x: Any) -> Any:
    s.row.append((x * x).mean())
    return s.row[0] * x


def history_alone(s: Any, x: Any) -> Any:
    loss = (x * x).mean()
    s.row.append(loss)
    return loss


def history_twice(s: Any, x: Any) -> Any:
    s.row.append(x * 2)
    s.row.append(x * 3)
    s.table["list"].append(x)
    return x


def history_in_a_dict(s: Any, x: Any) -> Any:
    s.table["list"].append((x * x).mean())
    return x * 2


def history_by_a_key(s: Any, x: Any) -> Any:
    name = "list"
    s.table[name].append(x * 2)
    return x * s.table["b"]


def history_in_a_dict_that_is_read(s: Any, x: Any) -> Any:
    s.table["list"].append(x * 2)
    return x * len(s.table["list"])


def history_and_state(s: Any, x: Any) -> Any:
    s.h = s.h + x
    s.row.append(s.h)
    return s.h


def history_read_after(s: Any, x: Any) -> Any:
    s.row.append(x * 2)
    return s.row[-1] + len(s.row)


def history_with_a_limit(s: Any, x: Any) -> Any:
    s.row.append(x * 2)
    if len(s.row) > 6:
        s.row.pop(0)
    return sum(s.row, x)


def history_and_the_last(s: Any, x: Any) -> Any:
    s.row[-1] = x * 5
    s.row.append(x * 2)
    return x


def history_and_then_the_last(s: Any, x: Any) -> Any:
    s.row.append(x * 2)
    s.row[-1] = x * 5
    s.row[0] = x
    return x


def last_element(s: Any, x: Any) -> Any:
    s.row[-1] = x * 5
    return x


def one_end_and_the_other(s: Any, x: Any) -> Any:
    s.row[0] = x * 5
    s.row[-1] = x * 3
    s.row[0] = x * 2
    return x


def history_of_numbers(s: Any, x: Any) -> Any:
    s.row.append(s.n)
    return x * 2


def history_replaced(s: Any, x: Any) -> Any:
    s.row = []
    s.row.append(x * 2)
    return x


BODIES: dict[str, Callable[[Any, Any], Any]] = {
    body.__name__: body
    for body in (
        history, history_alone, history_twice, history_and_state, history_read_after,
        history_with_a_limit, history_and_the_last, history_and_then_the_last, last_element,
        history_in_a_dict, history_by_a_key, history_in_a_dict_that_is_read,
        one_end_and_the_other, history_of_numbers, history_replaced,
    )
}  # fmt: skip


def disturb(s: Any, call: int) -> None:
    """What others do between two calls."""
    if call == 5:
        s.h = tensor(ZERO + 5)
    if call == 7:
        s.row[0] = tensor(ZERO - 1)
    if call == 9:
        del s.row[1:]


@pytest.mark.parametrize("symbolic", [False, True], ids=["default", "symbolic"])
@pytest.mark.parametrize("name", BODIES)
def test_lists_are_those_of_eager_code(name: str, symbolic: bool) -> None:
    check(BODIES[name], State, disturb, symbolic=symbolic)


@pytest.mark.parametrize("name", ["history_alone", "history_and_state", "history_in_a_dict"])
def test_body_that_appends_is_skipped(name: str) -> None:
    count, reasons = runs(BODIES[name], State())
    assert count <= 4, reasons


def test_one_tensor_in_several_places_is_one() -> None:
    s = State()
    traced = jit.trace(functools.partial(history_and_state, s))
    for _ in range(5):
        assert traced(tensor(ZERO + 1)) is s.h is s.row[-1]
