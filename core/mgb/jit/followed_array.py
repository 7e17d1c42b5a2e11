"""Arrays of NumPy's that a body may find with other values: who looks at these is noticed.

What an op of mgb's takes is an input. Shape and dtype have to stay, or lengths are followed. Whatever else is
asked of the array looks at its values, which have to stay then.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..sizes import tuple_like
from ..tensor import Tensor
from .tree import parts_of, put


class FollowedArray:
    """Stands for an array; it says that it is one, and C code has to ask it for the values.

    Parameters
    ----------
    array : array
    measured : callable
        Gives `array` as code of mgb's is given it.
    looks : callable
        Told that the values of `array` decide what comes.
    """

    __slots__ = ("_looks", "_measured", "array")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, array: Any, measured: Callable[[Any], Any], looks: Callable[[Any], object]) -> None:
        self.array, self._measured, self._looks = array, measured, looks

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return np.ndarray

    @property
    def measured(self) -> Any:
        """The array as code of mgb's is given it, which does not look at values."""
        return self._measured(self.array)

    def fixed(self) -> Any:
        """The array, which later calls need to have as well."""
        self._looks(self.array)
        return self.array

    @property
    def shape(self) -> tuple[Any, ...]:
        shape: tuple[Any, ...] = self.measured.shape
        return shape

    @property
    def size(self) -> Any:
        return self.measured.size

    @property
    def ndim(self) -> int:
        return int(self.array.ndim)

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    @property
    def itemsize(self) -> int:
        return int(self.array.itemsize)

    def __len__(self) -> int:
        return operator.index(self.shape[0]) if self.ndim else len(self.array)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fixed(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in FollowedArray.__slots__:
            object.__setattr__(self, name, value)
        else:
            setattr(self.fixed(), name, value)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return np.asarray(self.fixed()).__array__(*args, **kwargs)

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **options: Any) -> Any:
        rule = _rule(given)
        return getattr(ufunc, method)(*map(rule, given), **{k: each(v, fixed) for k, v in options.items()})

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        rule = _rule(args)
        return function(*[each(a, rule) for a in args], **{k: each(v, rule) for k, v in kwargs.items()})


def fixed(value: Any) -> Any:
    """Of what stands for an array the array, whose values decide what comes; all else itself."""
    return value.fixed() if type(value) is FollowedArray else value


def measured(value: Any) -> Any:
    """Of what stands for an array what code of mgb's is given; all else itself."""
    return value.measured if type(value) is FollowedArray else value


def _rule(given: Iterable[Any]) -> Callable[[Any], Any]:
    """What becomes of arrays among operands: an op takes them where one is a Tensor."""
    return measured if any(issubclass(type(value), Tensor) for value in given) else fixed


def each(value: Any, rule: Callable[[Any], Any] = fixed) -> Any:
    """`value` with ``rule(array)`` for what stands for arrays, in containers too, which stay the same."""
    if type(value) is FollowedArray:
        return rule(value)
    inside = parts_of(value)
    if inside is None:
        return value
    parts = [each(part, rule) for part in inside]
    if all(map(operator.is_, parts, inside)):
        return value
    if isinstance(value, tuple):
        return tuple_like(value, parts)
    put(value, parts)
    return value


def _binary(function: Callable[..., Any], is_turned: bool) -> Callable[..., Any]:
    def operate(self: FollowedArray, other: Any) -> Any:
        rule = _rule((other,))
        one, two = rule(self), rule(other)
        return function(two, one) if is_turned else function(one, two)

    return operate


def _in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: function(self.fixed(), fixed(other))


def _asked(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *given: function(self.fixed(), *map(fixed, given))


_BOTH_WAYS = "add sub mul truediv floordiv mod pow matmul lshift rshift and_ or_ xor".split()
for _name in _BOTH_WAYS:
    _function, _plain = getattr(operator, _name), _name.strip("_")
    setattr(FollowedArray, f"__{_plain}__", _binary(_function, False))
    setattr(FollowedArray, f"__r{_plain}__", _binary(_function, True))
    setattr(FollowedArray, f"__i{_plain}__", _in_place(getattr(operator, f"i{_plain}")))
for _name in "lt le gt ge eq ne".split():
    setattr(FollowedArray, f"__{_name}__", _binary(getattr(operator, _name), False))
setattr(FollowedArray, "__divmod__", _binary(divmod, False))  # noqa: B010
setattr(FollowedArray, "__rdivmod__", _binary(divmod, True))  # noqa: B010
for _name, _function in (
    *((n, getattr(operator, n)) for n in "neg pos abs invert index getitem setitem delitem contains".split()),
    ("bool", bool), ("int", int), ("float", float), ("complex", complex), ("iter", iter), ("repr", repr),
    ("str", str), ("format", format), ("buffer", memoryview),
):  # fmt: skip
    setattr(FollowedArray, f"__{_name}__", _asked(_function))

FollowedArray.__name__ = FollowedArray.__qualname__ = "ndarray"
