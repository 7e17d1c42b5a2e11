"""Numbers that are followed: each stands for a value, and its `Follower` is told what is asked of it.

A `Scalar` stands for a float, a `Whole` for an int, a `Size` for a length, and each has its value here.
Arithmetic with numbers gives others, a comparison is noted with its outcome, and whatever looks at the value
itself *fixes* it: it has to be the same at later calls.

What is followed says that its class is that of its value, and is none: C code would look at the value of a
number without asking.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from numbers import Number
from typing import Any, NoReturn, Protocol

import numpy as np

from .dtypes import DTYPES, bool_

#: Types of numbers that may be followed.
FOLLOWED = frozenset(
    {int, float, *(dtype.type for dtype in DTYPES if dtype.isbuiltin == 1 and dtype != bool_)}
)


class Holding(Protocol):
    """An immutable container of numbers, some of which may be symbolic: see `HOLDING`."""

    @property
    def numbers(self) -> tuple[Scalar, ...]:
        """Those that are followed."""

    def mapped(self, rule: Callable[[Any], Any]) -> Any:
        """Return the same with ``rule(number)`` for each of them."""


class Follower(Protocol):
    """The recorder of every query of symbolic numbers.

    Attributes
    ----------
    open : bool
        Is anything noted still? If not, a number is but its value.
    """

    @property
    def open(self) -> bool: ...

    def computed(self, function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        """Return ``function(*given)``, followed as far as that is possible; `function` has no effects."""

    def fix(self, number: Scalar) -> None:
        """Note that the value of `number` decides what follows."""


class Scalar:
    """A float that is followed.

    Attributes
    ----------
    follower : Follower
    path : object
        What the follower knows it by.
    value : float
        What it is here; taking it notes nothing.
    """

    __slots__ = ("follower", "path", "value")

    follower: Any
    path: Any
    value: Any

    def __init__(self, follower: Follower, path: Any, value: Any) -> None:
        self.follower, self.path, self.value = follower, path, value

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.value)

    def fixed(self) -> Any:
        """Return the value, which later calls need to have as well."""
        if self.follower.open:
            self.follower.fix(self)
        return self.value

    def __bool__(self) -> bool:
        return bool(computed(operator.truth, (self,)))

    def __hash__(self) -> int:
        return hash(self.fixed())

    def __int__(self) -> int:
        return int(self.fixed())

    def __float__(self) -> float:
        return float(self.fixed())

    def __complex__(self) -> complex:
        return complex(self.fixed())

    def __neg__(self) -> Any:
        return computed(operator.neg, (self,))

    def __round__(self, *digits: Any) -> Any:
        return computed(round, (self, *digits))

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        if modulus is not None:
            return pow(self.fixed(), fixed(other), fixed(modulus))
        return _with(operator.pow, (self, other), other)

    def __repr__(self) -> str:
        return repr(self.fixed())

    def __str__(self) -> str:
        return str(self.fixed())

    def __format__(self, spec: str) -> str:
        return format(self.fixed(), spec)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self.value), (self.fixed(),)

    def __copy__(self) -> Scalar:
        return self

    def __deepcopy__(self, memo: Any) -> Scalar:
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.fixed(), dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **options: Any) -> Any:
        if method == "__call__" and not options and are_numbers(given):
            is_operator = isinstance(given[0], np.generic)  # on its left; of calls the hooks have told
            return computed(_OPERATORS.get(ufunc, ufunc) if is_operator else ufunc, given)
        return getattr(ufunc, method)(*map(fixed, given), **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__array_"):  # NumPy asks what else it could be
            raise AttributeError(name)
        return getattr(self.fixed(), name)

    def __setstate__(self, state: Any) -> NoReturn:
        raise TypeError("a number that is followed becomes a plain one where it is stored")


class Whole(Scalar):
    """An int that is followed."""

    __slots__ = ()

    def __index__(self) -> int:
        return operator.index(self.fixed())


class Size(Whole):
    """The length of an axis, or what is made of such: see `mgb.ir.sizes`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self.follower.text(self.path)) if self.follower.prints else super().__repr__()

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self) if self.follower.prints else super().__format__(spec)


#: So that errors of Python are those of numbers.
for _kind, _name in ((Scalar, "float"), (Whole, "int"), (Size, "int")):
    _kind.__name__ = _kind.__qualname__ = _name

#: What stands for a number that is followed.
SCALARS = frozenset({Scalar, Whole, Size})
_OPERANDS = FOLLOWED | SCALARS | {bool, np.bool_}
#: Types of values in which numbers are looked for; beside tuples and mappings, those that are `Holding`.
HOLDING: set[type] = {*SCALARS, tuple, dict}

#: What an operator is that a number of NumPy's hands on as a ufunc, which warns less.
_OPERATORS: dict[Any, Callable[..., Any]] = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul, np.power: operator.pow,
    np.true_divide: operator.truediv, np.floor_divide: operator.floordiv, np.remainder: operator.mod,
    np.left_shift: operator.lshift, np.right_shift: operator.rshift,
}  # fmt: skip


def are_numbers(values: Iterable[Any]) -> bool:
    """Return whether all of `values` are numbers, followed or not."""
    return all(type(value) in _OPERANDS for value in values)


def mapped(rule: Callable[[Any], Any], value: Any) -> Any:
    """Return `value` with `rule(number)` for each symbolic number, in tuples and mappings too."""
    kind = type(value)
    if kind in SCALARS:
        return rule(value)
    if kind is tuple:
        return tuple([mapped(rule, v) if type(v) in HOLDING else v for v in value])
    if kind is dict:
        return {k: mapped(rule, v) if type(v) in HOLDING else v for k, v in value.items()}
    if kind in HOLDING and any(rule(number) is not number for number in value.numbers):
        return value.mapped(rule)
    return value


def numbers_of(value: Any) -> Iterator[Scalar]:
    """Yield the numbers in a value, in tuples and mappings too, that are followed; some may come again."""
    kind = type(value)
    if kind in SCALARS:
        yield value
    elif kind is tuple or kind is dict:
        for part in value if kind is tuple else value.values():
            if type(part) in HOLDING:
                yield from numbers_of(part)
    elif kind in HOLDING:
        yield from value.numbers


def holds_followed(values: Iterable[Any]) -> bool:
    """Return whether one of `values`, or of what stands in tuples among them, is a followed number."""
    return any(type(v) in SCALARS or (type(v) is tuple and holds_followed(v)) for v in values)


def plain(value: Any) -> Any:
    """Return `value` with what its numbers stand for; notes nothing."""
    return mapped(operator.attrgetter("value"), value)


def fixed(value: Any) -> Any:
    """Return `value` like `plain`; the numbers have to be the same at later calls."""
    return mapped(Scalar.fixed, value)


def computed(function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """Return ``function(*given)``, symbolic if it is a number; its only effects are errors and warnings."""
    for number in given:
        if type(number) in SCALARS and number.follower.open:
            return number.follower.computed(function, given)
    return function(*map(plain, given))


def _with(function: Callable[..., Any], given: tuple[Any, ...], other: Any) -> Any:
    """Return an operator, whose operand `other` may be anything."""
    if type(other) in _OPERANDS:
        return computed(function, given)
    if function in (operator.eq, operator.ne) and isinstance(other, str | bytes | None):
        return function(*map(plain, given))  # whichever number it is
    return function(*map(fixed, given)) if isinstance(other, Number) else NotImplemented


def _operator(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: _with(function, (self, other), other)


def _turned(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: _with(function, (other, self), other)


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: computed(function, (self,))


_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod")
_BITS = ("lshift", "rshift", "and_", "or_", "xor")
for _kind, _names in ((Scalar, _ARITHMETIC), (Whole, _BITS)):
    for _name in _names:
        setattr(_kind, f"__{_name.strip('_')}__", _operator(getattr(operator, _name)))
        setattr(_kind, f"__r{_name.strip('_')}__", _turned(getattr(operator, _name)))
Scalar.__rpow__ = _turned(operator.pow)  # type: ignore[attr-defined]
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Scalar, f"__{_name}__", _operator(getattr(operator, _name)))
for _function in (operator.pos, operator.abs, math.floor, math.ceil, math.trunc):
    setattr(Scalar, f"__{_function.__name__}__", _unary(_function))
setattr(Whole, "__invert__", _unary(operator.invert))  # noqa: B010
