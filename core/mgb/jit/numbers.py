"""Symbolic Python numbers of a recording: each has a source, or is computed from others."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from inspect import unwrap
from typing import Any

import numpy as np

from ..ir.scalars import FOLLOWED, SCALARS, Scalar, Whole, are_numbers, computed, fixed, plain
from ..tensor import Tensor
from ..tensor.apply import follow_exact
from .guard import Guard, Guards
from .source import ObjectRef, Scope, Source, format_value
from .tree import exact_key

#: Functions that are written as operators.
_SIGNS = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//",
    operator.mod: "%", operator.pow: "**", operator.lt: "<", operator.le: "<=", operator.gt: ">",
    operator.ge: ">=", operator.eq: "==", operator.ne: "!=", operator.lshift: "<<", operator.rshift: ">>",
    operator.and_: "&", operator.or_: "|", operator.xor: "^",
}  # fmt: skip

#: Functions whose result may have another type for other numbers.
_OF_ANY_TYPE = frozenset({operator.pow, pow})


#: Functions and types in C that compute a number from numbers, and would read their values without a hook.
_OF_NUMBERS = frozenset({bool, *FOLLOWED, *(f for f in vars(math).values() if callable(f))})


class _Constant(Source):
    """A number of the program."""

    __slots__ = ("_key", "value")

    def __init__(self, value: Any) -> None:
        self.value, self._key = value, exact_key(value)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Constant) and self._key == other._key

    def read(self, leaves: Sequence[Any]) -> Any:
        return self.value

    def code(self, scope: Scope) -> str:
        return scope.name(self.value)

    def __str__(self) -> str:
        return format_value(self.value)


@dataclass(frozen=True, slots=True)
class Computed(Source):
    """The result of a pure function of numbers."""

    function: Callable[..., Any]
    of: tuple[Source, ...]

    def read(self, leaves: Sequence[Any]) -> Any:
        return self.function(*[part.read(leaves) for part in self.of])

    def code(self, scope: Scope) -> str:
        parts = [part.code(scope) if type(part) is _Constant else scope.local(part) for part in self.of]
        sign = _SIGNS.get(self.function)
        return f" {sign} ".join(parts) if sign else f"{scope.name(self.function)}({', '.join(parts)})"

    def __str__(self) -> str:
        parts = [text.split("`")[1] if "`" in (text := str(part)) else text for part in self.of]
        sign = _SIGNS.get(unwrap(self.function))
        name = self.function.__name__
        return f"`{f' {sign} '.join(parts)}`" if sign else f"`{name}({', '.join(parts)})`"


@functools.cache
def with_numpy_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` for NumPy's numbers, with NumPy's warnings turned into errors."""

    @functools.wraps(function)
    def call(*given: Any) -> Any:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            return function(*given)

    return call


class Numbers:
    """The symbolic numbers of one recording: see `scalars.Follower`.

    Parameters
    ----------
    guards : Guards
        Receives the guards.
    """

    def __init__(self, guards: Guards) -> None:
        self.open = True
        self._guards = guards
        self._made: dict[Source, Scalar] = {}

    def at(self, source: Source, value: Any) -> Any:
        """Return the symbolic number for `value` at `source`. NaN stays NaN, which is known by identity."""
        if value != value:
            self._guards.add(Guard(source, "same", value))
            return value
        if source not in self._made:
            self._guards.add(Guard(source, "type", ObjectRef(type(value))))
        return self._of(source, value)

    def sources(self) -> Iterator[Source]:
        """Yield the sources of the numbers that are not computed."""
        return (source for source in self._made if not isinstance(source, Computed))

    def computed(self, function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        given = tuple([g if type(g) in SCALARS and g.follower is self else fixed(g) for g in given])
        here = tuple(map(plain, given))
        if any(isinstance(number, np.generic) for number in here):
            function = with_numpy_errors(function)
        try:
            value = function(*here)
        except Exception:  # raise it again from plain numbers, without our frames
            return unwrap(function)(*fixed(given))
        source = Computed(function, tuple([g.path if type(g) in SCALARS else _Constant(g) for g in given]))
        if type(value) in (bool, np.bool_):
            self._guards.add(Guard(source, "same", value))
        elif type(value) in FOLLOWED:
            if unwrap(function) in _OF_ANY_TYPE:
                self._guards.add(Guard(source, "type", ObjectRef(type(value))))
            return self._of(source, value)
        else:
            fixed(given)
        return value

    def fix(self, number: Scalar) -> None:
        self._guards.add(Guard(number.path, "same", number.value))

    def _of(self, source: Source, value: Any) -> Scalar:
        if source not in self._made:
            kind = Whole if isinstance(value, int | np.integer) else Scalar
            self._made[source] = kind(self, source, value)
        return self._made[source]


def computed_by(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any] | None:
    """Return what makes the call ``function(*args)``, if its result can be symbolic."""
    if function is Tensor and args and type(args[0]) in SCALARS:
        return functools.partial(make_tensor, *args, **kwargs)
    if kwargs or not any(type(a) in SCALARS for a in args):
        return None
    if function is type and len(args) == 1:
        return functools.partial(type, args[0].value)
    if isinstance(function, np.ufunc):
        return functools.partial(computed, function, args) if are_numbers(args) else None
    is_of_numbers = isinstance(function, Hashable) and function in _OF_NUMBERS
    if not is_of_numbers or not all(type(a) in (int, float, bool) or type(a) in SCALARS for a in args):
        return None
    return functools.partial(computed, function, args)


def make_tensor(number: Scalar, *args: Any, **kwargs: Any) -> Tensor:
    """Return the Tensor of a symbolic number, symbolic where that is exact."""
    return follow_exact(Tensor(number.value, *args, **kwargs), number)
