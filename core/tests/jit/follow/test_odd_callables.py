"""Classes and objects that say themselves what a call does are called by copies as without hooks."""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
import re
import types
from typing import Any, Generic, NamedTuple, TypeVar
from unittest import mock

import pytest
from mgb.ir.sizes import plain, settled
from mgb.jit.follow.calls import Calls
from mgb.jit.guard import Guards
from mgb.jit.numbers import Numbers
from mgb.jit.source import Argument


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise AssertionError("nobody compares it")

    def __call__(self, n: Any) -> Any:
        return abs(n)


class Disguised:
    @property
    def __class__(self) -> type:  # type: ignore[override]
        return types.FunctionType

    def __call__(self, n: Any) -> Any:
        return abs(n) + 1


class Raising:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __call__(self, n: Any) -> Any:
        return abs(n) + 2


class Static:
    __slots__ = ()
    __call__ = staticmethod(lambda n: max(n, 2))


class Described:
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return lambda n: abs(n)


class HasDescribed:
    method = Described()
    __call__ = Described()
    partial = functools.partialmethod(lambda self, a, n: (a, max(n, 0)), 3)


class Color(enum.Enum):
    RED = 1

    def value_of(self) -> int:
        return abs(self.value)


class Meta(type):
    def __call__(cls, *args: Any) -> Any:
        return "meta", abs(super().__call__(*args).n)

    def __getattr__(cls, name: str) -> Any:
        raise AttributeError(name)


class WithMeta(metaclass=Meta):
    def __init__(self, n: Any) -> None:
        self.n = max(n, 1)


class New:
    def __new__(cls, n: Any) -> Any:
        self = super().__new__(cls)
        self.k = abs(n)
        return self

    def __init__(self, n: Any) -> None:
        self.n = max(n, self.k)


class Abstract(abc.ABC):
    def __init__(self, n: Any) -> None:
        self.n = abs(n)

    @abc.abstractmethod
    def made(self) -> Any: ...


class Concrete(Abstract):
    def made(self) -> Any:
        return super().__init__(5), self.n


class Boxed(Generic[TypeVar("T")]):  # type: ignore[misc]
    def __init__(self, n: Any) -> None:
        self.n = abs(n)


@dataclasses.dataclass
class Data:
    n: Any
    xs: list[Any] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.n = max(self.n, 3)


class Named(NamedTuple):
    a: int

    def up(self) -> Any:
        return self._replace(a=abs(self.a) + 1)


class Wrong:
    def __init__(self, n: Any) -> None:
        abs(n)
        return n


class Failed(Exception):
    def __init__(self, n: Any) -> None:
        super().__init__(str(n))
        self.n = abs(n)


class Stopped:
    def __init__(self, n: Any) -> None:
        raise StopIteration(abs(n))


@functools.singledispatch
def dispatched(n: Any) -> Any:
    return "object", abs(3)


@dispatched.register
def _(n: int) -> Any:
    return "int", abs(n)


def objects(n: Any) -> Any:
    mocked, described = mock.Mock(return_value=4), HasDescribed()
    callables = Unhashable()(n), Disguised()(n), Raising()(n), Static()(n), dispatched(n), dispatched("a")
    return callables, mocked(n), mocked.call_args, described(n), described.method(n), described.partial(n)


def instances(n: Any) -> Any:
    made = type("Made", (), {"__init__": lambda self, k: setattr(self, "k", abs(k))})
    kinds = Color(1).value_of(), Color["RED"], WithMeta(n), New(n).n, Concrete(n).made(), Boxed[int](n).n
    return kinds, Boxed(n).n, Data(n), Named(n).up(), Failed(n).n, made(n).k, types.SimpleNamespace(a=abs)


def failures(n: Any) -> Any:
    found: list[Any] = []
    for wrong in (Abstract, Wrong, 3, None, "a", object, Static, Stopped):
        try:
            found.append(wrong(n))
        except (TypeError, StopIteration) as error:
            found.append(type(error))
    return found


@pytest.mark.parametrize("body", [objects, instances, failures])
def test_odd_callables_are_called_as_without_hooks(body: Any) -> None:
    calls = Calls(lambda function, frame: None, lambda value: value)
    copy = calls.copy_of(body)
    assert copy is not body
    for n in (0, 1, 2):
        assert shown(copy(n)) == shown(body(n))
    number = Numbers(Guards()).at(Argument(0), 2)
    assert shown(settled(copy(number), plain)) == shown(body(2))


def shown(value: Any) -> str:
    """Without addresses."""
    return re.sub("0x[0-9a-f]+", "", repr(value))
