"""What a body appends to lists outside, and what it writes to their elements, though the body is skipped."""

import collections
import functools
import operator
from collections.abc import Callable
from typing import Any

import pytest
from mgb import jit, tensor
from states import ZERO, State, bodies, check, runs

BODIES = bodies(
    """
### history
s.row.append((x * x).mean())
return s.row[0] * x
### history_alone
loss = (x * x).mean()
s.row.append(loss)
return loss
### history_twice
s.row.append(x * 2)
s.row.append(x * 3)
s.table["list"].append(x)
return x
### history_and_state
s.h = s.h + x
s.row.append(s.h)
return s.h
### history_read_after
s.row.append(x * 2)
return s.row[-1] + len(s.row)
### history_with_a_limit
s.row.append(x * 2)
if len(s.row) > 6:
    s.row.pop(0)
return sum(s.row, x)
### history_and_the_last
s.row[-1] = x * 5
s.row.append(x * 2)
return x
### history_and_then_the_last
s.row.append(x * 2)
s.row[-1] = x * 5
s.row[0] = x
return x
### last_element
s.row[-1] = x * 5
return x
### history_in_a_dict
s.table["list"].append((x * x).mean())
return x * 2
### history_by_a_key
name = "list"
s.table[name].append(x * 2)
return x * s.table["b"]
### history_in_a_dict_that_is_read
s.table["list"].append(x * 2)
return x * len(s.table["list"])
### one_end_and_the_other
s.row[0] = x * 5
s.row[-1] = x * 3
s.row[0] = x * 2
return x
### history_of_numbers
s.row.append(s.n)
return x * 2
### history_replaced
s.row = []
s.row.append(x * 2)
return x
""",
    globals(),
)


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
    traced = jit.trace(functools.partial(BODIES["history_and_state"], s))
    for _ in range(5):
        assert traced(tensor(ZERO + 1)) is s.h is s.row[-1]


#: Other ways to the dict whose list a body appends to.
READERS: dict[str, Callable[[Any], Any]] = {
    "a second name": lambda table: table.__getitem__,
    "partial": lambda table: functools.partial(operator.getitem, table),
    "get": lambda table: table.get, "ChainMap": lambda table: collections.ChainMap(table).__getitem__,
    "in a list": lambda table: [table].copy, "its list": lambda table: lambda key, row=table["list"]: row,
}  # fmt: skip


@pytest.mark.parametrize("way", READERS)
def test_list_in_a_dict_that_is_read_in_another_way_has_its_length(way: str) -> None:
    table: dict[str, Any] = {"list": []}
    read = READERS[way](table)
    look = read if way != "in a list" else lambda key: read()[0][key]

    def body(x: Any) -> Any:
        table["list"].append(x * 2)
        return x * len(look("list"))

    traced = jit.trace(body)
    assert [traced(tensor(1.0)).item() for _ in range(4)] == [1, 2, 3, 4]


@pytest.mark.parametrize("kind", [collections.ChainMap, collections.UserDict])
def test_list_in_an_object_of_a_library_has_its_length(kind: Any) -> None:
    table = kind({"list": []})

    def body(x: Any) -> Any:
        table["list"].append(x)
        return x * len(table["list"])

    traced = jit.trace(body)
    assert [traced(tensor(1.0)).item() for _ in range(4)] == [1, 2, 3, 4]


def test_data_of_a_user_list_is_read_by_its_methods() -> None:
    row: Any = collections.UserList()

    def body(x: Any) -> Any:
        row.data.append(x)
        return x * len(row)

    traced = jit.trace(body)
    assert [traced(tensor(1.0)).item() for _ in range(4)] == [1, 2, 3, 4]
