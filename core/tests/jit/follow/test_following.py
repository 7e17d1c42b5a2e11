"""A call with another number or length is noted once more: nothing that this does may stay."""

from __future__ import annotations

import collections
import contextlib
import functools
import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from mgb import Parameter, Tensor, tensor
from mgb.autodiff import GradManager
from mgb.errors import ImpureBodyError
from mgb.jit import trace
from mgb.optimizer import SGD, Adam


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_JIT_BACKEND", "EAGER")


class Slots:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0


class Counted:
    count = 0

    def __init__(self) -> None:
        self.kept = 0


class Quiet(dict[str, Any]):
    """A dict with methods of its own."""

    def __getitem__(self, key: str) -> Any:
        return dict.__getitem__(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        dict.__setitem__(self, key, value)


@dataclass
class State:
    """What bodies write."""

    n: int = 0
    log: list[Any] = field(default_factory=list)
    table: dict[str, Any] = field(default_factory=lambda: {"b": 1, "a": 2})
    seen: set[Any] = field(default_factory=set)
    last: collections.deque[Any] = field(default_factory=lambda: collections.deque(maxlen=2))
    array: Any = field(default_factory=lambda: np.zeros(3, np.float32))
    slots: Slots = field(default_factory=Slots)
    tensor: Any = field(default_factory=lambda: tensor(np.zeros(3, np.float32)))
    stream: Any = field(default_factory=lambda: iter(range(1000)))
    counted: Any = field(default_factory=Counted)
    ordered: Any = field(default_factory=lambda: collections.OrderedDict(n=0, m=0))
    default: Any = field(default_factory=lambda: collections.defaultdict(int, n=0))
    quiet: Any = field(default_factory=lambda: Quiet(n=0))
    bytes: Any = field(default_factory=lambda: bytearray(b"ab"))
    by_object: Any = field(default_factory=lambda: {Slots: 0})
    function: Any = field(default_factory=lambda: lambda: None)

    def values(self) -> Any:
        table = list(self.table.items())
        last = [v.tolist() if isinstance(v, Tensor) else v for v in self.last]
        rest = self.log, self.seen, self.array.tolist(), self.slots.n, self.tensor.tolist()
        others = self.counted.count, vars(self.counted), list(self.ordered.items()), dict(self.default)
        more = dict(self.quiet), bytes(self.bytes), list(self.by_object.values())
        kinds = type(self.n), [type(v) for v in self.log], vars(self.function)
        return self.n, table, last, *rest, *others, *more, *kinds


def counts(s: State, x: Any, n: Any) -> Any:
    s.n += 1
    return x * n * s.n


def counts_in_slots(s: State, x: Any, n: Any) -> Any:
    s.slots.n = s.slots.n + n
    return x * s.slots.n


def appends(s: State, x: Any, n: Any) -> Any:
    s.log.append(n)
    return x * n


def inserts(s: State, x: Any, n: Any) -> Any:
    s.log.insert(0, n)
    return x * n


def sorts(s: State, x: Any, n: Any) -> Any:
    s.log += [n, 0]
    s.log.sort()
    return x * n


def reorders(s: State, x: Any, n: Any) -> Any:
    s.table["b"] = s.table.pop("b") + n
    return x * n


def adds_a_key(s: State, x: Any, n: Any) -> Any:
    s.table[f"k{len(s.table)}"] = n
    return x * n


def remembers(s: State, x: Any, n: Any) -> Any:
    s.seen.add(n)
    s.last.append(n)
    return x * n


def fills(s: State, x: Any, n: Any) -> Any:
    s.array[0] += n
    return x * s.array


def averages(s: State, x: Any, n: Any) -> Any:
    s.tensor = s.tensor * 0.5 + x * n
    return s.tensor + 1.0


def rebinds(s: State, x: Any, n: Any) -> Any:
    s.tensor[...] = s.tensor * 0.5 + x * n
    return s.tensor + 1.0


def draws_next(s: State, x: Any, n: Any) -> Any:
    return x * next(s.stream) * n


def shadows_the_class(s: State, x: Any, n: Any) -> Any:
    s.counted.count += n
    return x * s.counted.count


def in_an_ordered_dict(s: State, x: Any, n: Any) -> Any:
    s.ordered["n"] += n
    return x * s.ordered["n"]


def moves_to_the_end(s: State, x: Any, n: Any) -> Any:
    if n > 1:
        s.ordered.move_to_end(next(iter(s.ordered)))
    return x * n


def in_a_default_dict(s: State, x: Any, n: Any) -> Any:
    s.default["n"] += n
    s.default[f"k{n}"] += 1
    return x * s.default["n"]


def in_a_dict_of_ones_own(s: State, x: Any, n: Any) -> Any:
    s.quiet["n"] += n
    return x * s.quiet["n"]


def in_bytes(s: State, x: Any, n: Any) -> Any:
    if n > 1:
        s.bytes[0] = (s.bytes[0] + 1) % 200
        s.bytes.append(7)
    return x * n


def by_an_object(s: State, x: Any, n: Any) -> Any:
    s.by_object[Slots] = s.by_object[Slots] + n
    return x * n


def in_a_full_deque(s: State, x: Any, n: Any) -> Any:
    s.last.append(x * n)
    return s.last[0] * 1.0


def of_a_function(s: State, x: Any, n: Any) -> Any:
    if n > 1:
        s.function.calls = getattr(s.function, "calls", 0) + 1
        s.log.append(s.function.calls)
    return x * n


def at_first_small(s: State, x: Any, n: Any) -> Any:
    if n > 1:
        s.log.append("large")
        s.last.append(next(s.stream))
    return x * n


def fails_for_some(s: State, x: Any, n: Any) -> Any:
    s.log.append(n)
    s.n = n
    if n == 2:
        raise ValueError("two")
    return x * n


def warns(s: State, x: Any, n: Any) -> Any:
    if n > 1:
        warnings.warn("large", stacklevel=1)
    return x * n


def shows_what_it_catches(s: State, x: Any, n: Any) -> Any:
    try:
        if n > 1:
            print("large")
    except Exception:
        print("failed")
        s.log.append("failed")
    return x * n


BODIES = [
    counts, counts_in_slots, appends, inserts, sorts, reorders, adds_a_key, remembers, fills,
    averages, rebinds, shadows_the_class, in_an_ordered_dict, moves_to_the_end, in_a_default_dict,
    in_a_dict_of_ones_own, in_bytes, by_an_object, draws_next, at_first_small, fails_for_some,
    in_a_full_deque, of_a_function, warns, shows_what_it_catches,
]  # fmt: skip
NUMBERS = (1, 2, 3, 3, 5, 8, 2, 1, 9)


def outcome(function: Callable[..., Any], *given: Any) -> Any:
    with warnings.catch_warnings(record=True) as told, contextlib.redirect_stdout(io.StringIO()) as shown:
        warnings.simplefilter("always")
        try:
            result = function(*given).tolist()
        except ValueError as error:
            result = str(error)
    return result, shown.getvalue(), [str(warning.message) for warning in told]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_what_a_body_writes_is_written_once(body: Callable[..., Any], symbolic: bool) -> None:
    one, other = State(), State()
    traced = trace(lambda x, n: body(one, x, n), symbolic=symbolic)
    for n in NUMBERS:
        x = np.full(3, n, np.float32)
        got, wanted = outcome(traced, tensor(x), n), outcome(body, other, tensor(x), n)
        np.testing.assert_allclose(got[0], wanted[0]) if got[0] != wanted[0] else None
        assert got[1:] == wanted[1:] and one.values() == other.values()


def test_what_a_cache_holds_was_made_by_a_call_of_its_own() -> None:
    made: list[int] = []

    class Owner:
        @functools.cache  # noqa: B019
        def method(self, n: int) -> int:
            made.append(n)
            return n

    @functools.lru_cache
    def function(n: int) -> int:
        made.append(n)
        return n

    owner = Owner()
    by_function = trace(lambda x, n: x * (function(n) if n > 1 else 1))
    by_method = trace(lambda x, n: x * owner.method(n))
    for traced, wanted in ((by_function, [2, 3, 4]), (by_method, [1, 2, 3, 4])):
        made.clear()
        for n in (1, 1, 2, 3, 3, 4, 2):
            assert traced(tensor(1.0), n).item() == n
        assert made == wanted
    assert function.cache_info().misses == 3


def test_branch_taken_by_other_lengths_runs_once() -> None:
    shown: list[int] = []

    def body(x: Any) -> Any:
        if x.shape[0] > 3:
            print("long")
            shown.append(x.shape[0])
        return x * 2.0

    traced, printed = trace(body), io.StringIO()
    with contextlib.redirect_stdout(printed):
        for n in (2, 3, 4, 5, 2):
            assert traced(tensor(np.ones(n, np.float32))).shape == (n,)
    assert printed.getvalue() == "long\nlong\n" and shown == [4, 5]
    assert set(map(type, shown)) == {int}


@pytest.mark.parametrize("kind", [SGD, Adam])
def test_training_step_at_other_lengths_is_done_once(kind: Any) -> None:
    def train(wrap: Callable[..., Any]) -> list[float]:
        weight = Parameter(np.full(3, 0.5, np.float32))
        manager = GradManager().attach(weight)
        optimizer = kind([weight], lr=0.1)

        @wrap
        def step(x: Any, scale: Any) -> Any:
            with manager:
                loss = ((x * weight).sum() * scale) ** 2
                manager.backward(loss)
                optimizer.step().clear_grad()
            return loss

        return [step(tensor(np.ones((n, 3), np.float32)), 0.1 * n).item() for n in (2, 2, 3, 4, 4, 1, 5)]

    np.testing.assert_allclose(train(trace), train(lambda f: f), rtol=1e-5)


def test_refused_body_has_written_nothing() -> None:
    log: list[int] = []

    @trace(run_body=False)
    def body(x: Any, n: Any) -> Any:
        if n > 1:
            log.append(n)
            print("large")
        return x * n

    body(tensor([1.0]), 1)
    with contextlib.redirect_stdout(io.StringIO()) as shown, pytest.raises(ImpureBodyError, match="print"):
        body(tensor([1.0]), 2)
    assert not log and not shown.getvalue()


@pytest.mark.parametrize("kind", [SGD, Adam])
def test_scheduled_rate_is_that_of_its_own_step(kind: Any) -> None:
    def train(wrap: Callable[..., Any]) -> list[float]:
        weight = Parameter(np.ones(1, np.float32))
        optimizer = kind([weight], lr=0.5)
        weight.grad = tensor([1.0])

        @wrap
        def step(n: int) -> None:
            optimizer.param_groups[0]["lr"] = 1.0 / n
            optimizer.step()

        return [(step(n), weight.item())[1] for n in (1, 2, 1, 2, 5, 2, 6, 7, 2)]

    np.testing.assert_allclose(train(trace), train(lambda f: f), rtol=1e-5)
