"""Proxies of NumPy arrays, which report when the body reads values.

An array that an op of mgb takes is an input: its shape and dtype are guarded, or its lengths are symbolic.
Any other use reads its values, which are guarded then.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..tensor import Tensor
from .tree import map_parts, parts_of


class ArrayProxy:
    """A proxy of an array. It passes for an array, and C code must ask it for the values.

    Parameters
    ----------
    array : array
    measured : callable
        Returns `array` as code of mgb receives it.
    looks : callable
        Called with `array` when its values are read.
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
        """Return the array for code of mgb, which does not read values."""
        return self._measured(self.array)

    def fixed(self) -> Any:
        """Return the array and guard its contents."""
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
        if name.startswith(("__array_", "__cuda_array_")):  # protocols of other array types
            raise AttributeError(name)
        return getattr(self.fixed(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ArrayProxy.__slots__:
            object.__setattr__(self, name, value)
        else:
            setattr(self.fixed(), name, value)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return np.asarray(self.fixed()).__array__(*args, **kwargs)

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **options: Any) -> Any:
        if (tensor := _tensor_among(given)) is not None:  # the Tensor takes it as an input
            return type(tensor).__array_ufunc__(tensor, ufunc, method, *given, **options)
        return getattr(ufunc, method)(*map(fixed, given), **{k: each(v) for k, v in options.items()})

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if (tensor := _tensor_among(args)) is not None:
            return type(tensor).__array_function__(tensor, function, types, args, kwargs)
        return function(*map(each, args), **{k: each(v) for k, v in kwargs.items()})


def fixed(value: Any) -> Any:
    """Return the array of a proxy, with its contents guarded; any other value itself."""
    return value.fixed() if type(value) is ArrayProxy else value


def _tensor_among(given: Iterable[Any]) -> Any:
    return next((value for value in given if issubclass(type(value), Tensor)), None)


def each(value: Any) -> Any:
    """Replace proxies in `value` by their arrays, also in containers, which keep their identity."""
    inside = parts_of(value)
    return fixed(value) if inside is None else map_parts(each, value, inside)


def _make_binary(ufunc: Any, function: Callable[..., Any], is_turned: bool = False) -> Callable[..., Any]:
    """Return an operator. A Tensor as the other operand takes the array as an input."""

    def operate(self: ArrayProxy, other: Any) -> Any:
        if issubclass(type(other), Tensor):
            given = (other, self) if is_turned else (self, other)
            return type(other).__array_ufunc__(other, ufunc, "__call__", *given)
        one, two = self.fixed(), fixed(other)
        return function(two, one) if is_turned else function(one, two)

    return operate


def _make_in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: function(self.fixed(), fixed(other))


def _with_fixed_operands(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *given: function(self.fixed(), *map(fixed, given))


_BOTH_WAYS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide,
    "floordiv": np.floor_divide, "mod": np.remainder, "pow": np.power, "matmul": np.matmul,
    "lshift": np.left_shift, "rshift": np.right_shift, "and_": np.bitwise_and, "or_": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip
_COMPARISONS = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
    "ne": np.not_equal,
}  # fmt: skip
for _name, _ufunc in _BOTH_WAYS.items():
    _function, _plain = getattr(operator, _name), _name.strip("_")
    setattr(ArrayProxy, f"__{_plain}__", _make_binary(_ufunc, _function))
    setattr(ArrayProxy, f"__r{_plain}__", _make_binary(_ufunc, _function, is_turned=True))
    setattr(ArrayProxy, f"__i{_plain}__", _make_in_place(getattr(operator, f"i{_plain}")))
for _name, _ufunc in _COMPARISONS.items():
    setattr(ArrayProxy, f"__{_name}__", _make_binary(_ufunc, getattr(operator, _name)))
setattr(ArrayProxy, "__divmod__", _make_binary(np.divmod, divmod))  # noqa: B010
setattr(ArrayProxy, "__rdivmod__", _make_binary(np.divmod, divmod, is_turned=True))  # noqa: B010
for _name, _function in (
    *((n, getattr(operator, n)) for n in "neg pos abs invert index getitem setitem delitem contains".split()),
    ("bool", bool), ("int", int), ("float", float), ("complex", complex), ("iter", iter), ("repr", repr),
    ("str", str), ("format", format), ("buffer", memoryview),
):  # fmt: skip
    setattr(ArrayProxy, f"__{_name}__", _with_fixed_operands(_function))

ArrayProxy.__name__ = ArrayProxy.__qualname__ = "ndarray"
