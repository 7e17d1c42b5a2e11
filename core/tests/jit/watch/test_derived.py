"""Classes of users that are derived from Python's own, and what the library makes of numbers lazily."""

from __future__ import annotations

import functools
import statistics
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import mgb.module as M
import numpy as np
import pytest
from mgb import errors, tensor
from mgb.autodiff import GradManager
from mgb.jit import partial_trace, trace, xla_trace

ONE = tensor(1.0)
MODES = {
    "trace": trace,
    "partial_trace": partial_trace,
    "xla_trace": functools.partial(xla_trace, backend="eager"),
    "run_body": functools.partial(trace, run_body=False),
}


def check(body: Callable[..., Any], *changes: Callable[[], Any], mode: str = "trace") -> Any:
    """Twice before and after each change a traced `body` gives what the body gives."""
    traced = MODES[mode](body)
    for change in (lambda: None, *changes):
        change()
        for _ in range(2):
            assert traced(ONE).item() == body(ONE).item()
    return traced


class Own(list[Any]):
    """A list whose methods are those of lists, called in Python."""

    def __len__(self) -> int:
        return list.__len__(self)

    def __iter__(self) -> Any:
        return list.__iter__(self)

    def __getitem__(self, key: Any) -> Any:
        return list.__getitem__(self, key)

    def __contains__(self, key: Any) -> bool:
        return list.__contains__(self, key)


class OwnDict(dict[Any, Any]):
    """A dict likewise."""

    def __len__(self) -> int:
        return dict.__len__(self)

    def __iter__(self) -> Any:
        return dict.__iter__(self)

    def __getitem__(self, key: Any) -> Any:
        return dict.__getitem__(self, key)

    def keys(self) -> Any:
        return dict.keys(self)

    def values(self) -> Any:
        return dict.values(self)

    def items(self) -> Any:
        return dict.items(self)

    def get(self, *key: Any) -> Any:
        return dict.get(self, *key)


LISTS = {
    "len": lambda values: len(values),
    "sum": lambda values: sum(values),
    "loop": lambda values: sum([value + 1 for value in values]),
    "item": lambda values: values[0],
    "in": lambda values: 7.0 in values,
    "index": lambda values: values.index(2.0),
    "sorted": lambda values: sorted(values)[-1],
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LISTS)
def test_list_subclass_is_guarded(name: str, mode: str) -> None:
    values = Own([1.0, 2.0])
    check(
        lambda x: x * LISTS[name](values),
        lambda: values.append(7.0),
        lambda: list.__setitem__(values, 0, 5.0),
        mode=mode,
    )


DICTS = {
    "len": lambda d: len(d),
    "keys": lambda d: len(list(d.keys())),
    "values": lambda d: sum(d.values()),
    "items": lambda d: sum(value for _, value in d.items()),
    "get": lambda d: d.get("c", 9.0),
    "item": lambda d: d["a"],
    "loop": lambda d: sum(d[key] for key in d),
    "copy": lambda d: sum(dict.values(d.copy())),
}


@pytest.mark.parametrize("name", DICTS)
def test_dict_subclass_is_guarded(name: str) -> None:
    values = OwnDict(a=1.0, b=2.0)
    check(
        lambda x: x * DICTS[name](values),
        lambda: values.update(c=3.0),
        lambda: dict.__setitem__(values, "a", 4.0),
    )


@pytest.mark.parametrize("make", [OrderedDict, lambda pairs: defaultdict(float, pairs), OwnDict])
def test_dict_subclass_as_an_argument(make: Any) -> None:
    traced = trace(lambda x, d: x * d["a"] + d["b"])
    for a in (1.0, 2.0, 3.0):
        given = make([("a", a), ("b", 2.0)])
        assert traced(ONE, given).item() == a + 2.0
        assert list(given.items()) == [("a", a), ("b", 2.0)]


class Attributes(dict[str, Any]):
    """A dict whose elements are attributes, which raises KeyError for others."""

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def test_dict_that_raises_key_errors_for_attributes() -> None:
    config = Attributes(scale=2.0, n=1)
    check(
        lambda x: x * config.scale + sum(config.values()),
        lambda: setattr(config, "scale", 3.0),
        lambda: setattr(config, "extra", 1.0),
        lambda: config.pop("extra"),
    )


class Equal(int):
    """An int that says it equals everything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return "the same"


class Shown(float):
    """A float that looks like others."""

    def __repr__(self) -> str:
        return "the same"


def test_number_subclasses_are_distinguished_by_value() -> None:
    traced = trace(lambda x, n: x * n)
    for number in (Equal(1), 5, 4, Equal(5), Equal(1), Equal(2), 3, Shown(4), Shown(4.5), 6.0, Shown(1)):
        assert traced(ONE, number).item() == tensor(1.0).item() * float(number)


def test_list_in_an_external_tuple_preserves_its_identity() -> None:
    history = [0.0]
    state = ("history", history)
    for traced in (trace(lambda x: (x * 2.0, state)), trace(lambda x: (x * 2.0, state), run_body=True)):
        for _ in range(3):
            assert traced(ONE)[1][1] is history


@pytest.mark.parametrize("options", [{}, {"run_body": True}, {"symbolic": True}])
def test_external_list_returned_next_to_a_shape(options: dict[str, Any]) -> None:
    log: list[Any] = []
    traced = trace(lambda x: (x * 2.0, x.shape, log), **options)
    for _ in range(3):
        result = traced(tensor([1.0, 2.0]))
        assert result[2] is log and result[1] == (2,) and type(result[1][0]) is int


@pytest.mark.parametrize("options", [{}, {"run_body": True}, {"symbolic": True}])
def test_tuple_returned_in_several_positions_is_one_object(options: dict[str, Any]) -> None:
    def body(x: Any) -> Any:
        pair = (x.shape[0], 1)
        return x * 2.0, pair, [pair, {"again": pair}]

    traced = trace(body, **options)
    for length in (2, 2, 3, 4, 4):
        _, pair, (first, again) = traced(tensor([1.0] * length))
        assert pair is first is again["again"] and pair == (length, 1)


@pytest.mark.parametrize("mode", MODES)
def test_classes_defined_in_the_body(mode: str) -> None:
    factor = [1.0]

    class Base:
        bias = 1.0

        def shift(self, x: Any) -> Any:
            return x + self.bias

    def body(x: Any) -> Any:
        class Scale(Base):
            scale = factor[0]

            def apply(self, x: Any) -> Any:
                return self.shift(x * self.scale) + Scale.bias

        return Scale().apply(x)

    check(
        body,
        lambda: factor.__setitem__(0, 2.0),
        lambda: setattr(Base, "bias", 3.0),
        lambda: setattr(Base, "shift", lambda self, x: x - self.bias),
        mode=mode,
    )


def test_captured_constants_under_a_tape_raise() -> None:
    net = M.Linear(4, 2)
    manager = GradManager().attach(net.parameters())
    x = tensor(np.ones((3, 4), "float32"))
    traced = xla_trace(lambda x: net(x), backend="eager", capture_as_const=True)
    for _ in range(2):
        with manager, pytest.raises(errors.UnsupportedError):
            traced(x)
    assert np.allclose(traced(x).numpy(), net(x).numpy())
    with manager, pytest.raises(errors.UnsupportedError):
        traced(x)


@pytest.mark.parametrize("mode", MODES)
def test_tensor_in_an_lru_cache_is_guarded(mode: str) -> None:
    factor = [2.0]

    @functools.lru_cache
    def table(n: int) -> Any:
        return tensor(np.arange(n) * factor[0])

    def again(number: float) -> None:
        factor[0] = number
        table.cache_clear()
        table(2)

    again(2.0)
    is_whole = {"capture_as_const": True} if mode == "xla_trace" else {}
    traced = MODES[mode](lambda x: (x * table(2)).sum(), **is_whole)
    for number in (2.0, 3.0, 4.0):
        again(number)
        for _ in range(2):
            assert traced(ONE).item() == number


# exceptions


def test_message_of_an_external_exception_is_guarded() -> None:
    last = ValueError(0, "m")
    traced = trace(lambda x: (x * 1.0, str(last), repr(last), f"{last}"))
    for args in ((0, "m"), (1,), ("a", 2)):
        last.args = args
        for _ in range(2):
            assert traced(ONE)[1:] == (str(last), repr(last), str(last))


def test_note_added_to_an_external_exception_is_a_side_effect() -> None:
    error = ValueError("v")

    @trace
    def noted(x: Any) -> Any:
        error.add_note("n")
        return x * 2

    for _ in range(4):
        noted(ONE)
    assert error.__notes__ == ["n"] * 4


# numbers that the library is given one after the other


def test_lazy_iterators_passed_to_the_library_are_guarded() -> None:
    rate = 1.5

    @trace
    def mean(x: Any) -> Any:
        return x * statistics.mean(value * rate for value in [1, 2]), statistics.fmean(map(rate.__add__, [1]))

    for rate in (1.5, 2.5, 3.5, 2):
        assert [part.item() if hasattr(part, "item") else part for part in mean(ONE)] == [
            1.5 * rate,
            rate + 1,
        ]
