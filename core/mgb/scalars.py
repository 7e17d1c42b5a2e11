"""Python numbers that are followed: what is computed of them in a call is computed anew at later ones.

A `Scalar` stands for a float where a call is recorded, a `Whole` for an int, and has its value there.
Arithmetic with numbers gives others, a comparison is noted with its outcome, and whatever looks at the value
itself *fixes* it: it has to be the same at later calls. Each of these its `Follower` is told.

A `Scalar` says that its class is `float`, and is none: C code would look at the value of a `float` without
asking.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from functools import cache, wraps
from inspect import unwrap
from numbers import Number
from typing import Any, NoReturn, Protocol

import numpy as np

from .dtypes import DTYPES, bool_
from .sizes import Size, fixed

#: Types of numbers that may be followed.
FOLLOWED = frozenset(
    {int, float, *(dtype.type for dtype in DTYPES if dtype.isbuiltin == 1 and dtype != bool_)}
)

_BOOLS = (bool, np.bool_)
_NUMBERS = FOLLOWED.union(_BOOLS)


class Follower(Protocol):
    """Who keeps what is asked of numbers: a recording.

    Attributes
    ----------
    open : bool
        Is it still being recorded? If not, a number is but its value.
    """

    open: bool

    def computed(self, function: Callable[..., Any], given: tuple[Any, ...], value: Any) -> Any:
        """What stands for ``function(*given)``, which is the number `value` now."""

    def decided(self, function: Callable[..., Any], given: tuple[Any, ...], outcome: bool) -> None:
        """Told that ``function(*given)`` decides what comes."""

    def fix(self, number: Scalar) -> None:
        """Told that the value of `number` decides what comes."""


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

    def __init__(self, follower: Follower, path: Any, value: Any) -> None:
        self.follower, self.path, self.value = follower, path, value

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.value)

    def fixed(self) -> Any:
        """The value, which later calls need to have as well."""
        if self.follower.open:
            self.follower.fix(self)
        return self.value

    def __bool__(self) -> bool:
        return _decided(operator.truth, (self,))

    def __hash__(self) -> int:
        return hash(self.fixed())

    def __int__(self) -> int:
        return int(self.fixed())

    def __float__(self) -> float:
        return float(self.fixed())

    def __complex__(self) -> complex:
        return complex(self.fixed())

    def __round__(self, *digits: Any) -> Any:
        return computed(round, (self, *digits))

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        if modulus is not None:
            return pow(self.fixed(), known(other), known(modulus))
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
        return getattr(ufunc, method)(*map(known, given), **options)

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


#: What stands for a number that is followed.
SCALARS = frozenset({Scalar, Whole})
_OPERANDS = _NUMBERS | SCALARS

#: What an operator is that a number of NumPy's hands on as a ufunc, which warns less.
_OPERATORS: dict[Any, Callable[..., Any]] = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul, np.power: operator.pow,
    np.true_divide: operator.truediv, np.floor_divide: operator.floordiv, np.remainder: operator.mod,
    np.left_shift: operator.lshift, np.right_shift: operator.rshift,
}  # fmt: skip


def are_numbers(values: Iterable[Any]) -> bool:
    """Are all of `values` numbers, followed or not?"""
    return all(type(value) in _OPERANDS for value in values)


def known(value: Any) -> Any:
    """`value`, fixed if it is followed."""
    return value.fixed() if type(value) in SCALARS else value


def all_known(value: Any) -> Any:
    """As `known`, also for what stands in tuples and mappings."""
    kind = type(value)
    if kind is tuple:
        return tuple(map(all_known, value))
    return {key: all_known(part) for key, part in value.items()} if kind is dict else known(value)


def plain(value: Any) -> Any:
    """`value`, or what it is here if it is followed; notes nothing."""
    return value.value if type(value) in SCALARS else value


@cache
def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` for numbers of NumPy's; what NumPy may tell in another way is an error."""

    @wraps(function)
    def call(*given: Any) -> Any:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            return function(*given)

    return call


def computed(function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """``function(*given)``, followed if it is a number; `function` has no effects but errors and warnings."""
    follower = next(g.follower for g in given if type(g) in SCALARS)
    here = tuple(map(plain, given))
    if any(isinstance(number, np.generic) for number in here):
        function = checked(function)
    try:
        value = function(*here)
    except Exception:  # it comes again, as it comes without us
        return unwrap(function)(*map(known, given))
    if not follower.open:
        return value
    if any(type(g) in SCALARS and g.follower is not follower for g in given):
        given = tuple([g if type(g) in SCALARS and g.follower is follower else known(g) for g in given])
    if type(value) in _BOOLS:
        follower.decided(function, given, value)
        return value
    if type(value) in FOLLOWED:
        return follower.computed(function, given, value)
    for number in given:
        known(number)
    return value


def _decided(function: Callable[..., Any], given: tuple[Any, ...]) -> bool:
    return bool(computed(function, given))


def _with(function: Callable[..., Any], given: tuple[Any, ...], other: Any) -> Any:
    """An operator, whose operand `other` may be anything; a length gives way, since it changes less often."""
    if type(other) is Size:
        given, other = tuple(map(fixed, given)), fixed(other)
    if type(other) in _OPERANDS:
        return computed(function, given)
    if not isinstance(other, Number):
        return NotImplemented
    return function(*map(known, given))


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
for _function in (operator.neg, operator.pos, operator.abs, math.floor, math.ceil, math.trunc):
    setattr(Scalar, f"__{_function.__name__}__", _unary(_function))
setattr(Whole, "__invert__", _unary(operator.invert))  # noqa: B010
