"""A snapshot of arguments restores what lists, dicts and dataclasses held, in their order."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from mgb import tensor
from mgb.jit import trace
from mgb.jit.watch.undoing import Snapshot


@dataclass(frozen=True)
class Pair:
    one: Any
    other: Any = field(init=False)


def held() -> list[Any]:
    return [[1, [2, 3]], {"a": 1, "b": {"c": 2}}, OrderedDict(x=1, y=2), Pair([4]), ([5],)]


CHANGES: dict[str, Callable[[list[Any]], object]] = {
    "an item": lambda v: v[0].__setitem__(0, 9),
    "an inner list": lambda v: v[0][1].append(4),
    "a list": lambda v: v[0].clear(),
    "a value": lambda v: v[1]["b"].__setitem__("c", 9),
    "a key": lambda v: v[1].pop("a"),
    "the order": lambda v: v[2].move_to_end("x"),
    "a key more": lambda v: v[2].__setitem__("z", 3),
    "a field": lambda v: object.__setattr__(v[3], "one", 9),
    "a field more": lambda v: object.__setattr__(v[3], "other", 9),
    "a field less": lambda v: object.__delattr__(v[3], "one"),
    "within a tuple": lambda v: v[4][0].append(6),
    "another container": lambda v: v.__setitem__(0, [1, [2, 3]]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_held_is_restored(change: str) -> None:
    values = held()
    snapshot, before = Snapshot(values), [*values]
    own = Snapshot([values])
    assert own.is_current()
    CHANGES[change](values)
    assert not own.is_current()
    snapshot.restore()
    own.restore()
    assert own.is_current() and all(now is then for now, then in zip(values, before, strict=True))
    assert repr([vars(v) if isinstance(v, Pair) else v for v in values]) == repr(
        [vars(v) if isinstance(v, Pair) else v for v in held()]
    )


def test_who_goes_through_a_dict_goes_on_when_values_are_restored() -> None:
    values = {"a": 1, "gone": 2, "b": 3, "c": 4}
    del values["gone"]
    snapshot, seen = Snapshot([values]), []
    for key in values:
        if key == "b":
            values[key] += 10
            snapshot.restore()
        seen.append(key)
    assert seen == ["a", "b", "c"] and values == {"a": 1, "b": 3, "c": 4}


@pytest.mark.parametrize("held_in", [lambda n: [n], lambda n: {0: n}], ids=["list", "dict"])
def test_number_that_stood_there_by_chance_is_written(
    held_in: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MGB_JIT_BACKEND", "EAGER")

    @trace
    def body(x: Any, n: Any, v: Any) -> Any:
        v[0] = n
        return x * n

    for n, before in ((1, 1), (2, 2), (3, 3), (4, 9), (5, 7)):
        values = held_in(before)
        assert body(tensor(1.0), n, values).item() == values[0] == n
