"""Views of array arguments with symbolic lengths, which ops and mgb's own code receive in a recording."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .array_proxy import ArrayProxy


class SymbolicArray(np.ndarray[Any, Any]):
    """A view of an array with symbolic lengths. NumPy's functions of it return plain arrays.

    Attributes
    ----------
    given : array
        What it is a view of.
    """

    given: Any = None
    _lengths: tuple[Any, ...] | None = None

    @classmethod
    def of(cls, array: Any, lengths: tuple[Any, ...]) -> SymbolicArray:
        """Return the view of `array` with these lengths."""
        view: SymbolicArray = array.view(cls)
        view.given, view._lengths = array, lengths
        return view

    @property  # type: ignore[misc]
    def shape(self) -> tuple[Any, ...]:
        plain: tuple[Any, ...] = np.ndarray.shape.__get__(self)
        return plain if self._lengths is None else self._lengths

    @property
    def size(self) -> Any:
        return math.prod(self.shape)

    def __len__(self) -> int:
        return operator.index(self.shape[0])

    def __getitem__(self, key: Any) -> Any:
        return self.view(np.ndarray)[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.view(np.ndarray))

    def __array_ufunc__(self, ufunc: Any, method: Any, *args: Any, **options: Any) -> Any:
        if "out" in options:
            options["out"] = tuple(map(given, options["out"]))
        return super().__array_ufunc__(ufunc, method, *map(given, args), **options)


#: So that errors are those of arrays.
SymbolicArray.__name__ = SymbolicArray.__qualname__ = "ndarray"


def given(value: Any) -> Any:
    """Return the array of a view; any other value itself."""
    return value.given if type(value) is SymbolicArray and value.given is not None else value


def unwrap_array(value: Any) -> Any:
    """Return the array of a view or a proxy; any other value itself."""
    return value.array if type(value) is ArrayProxy else given(value)


def replace_by_views(value: Any, views: Sequence[tuple[Any, SymbolicArray]]) -> Any:
    """Return `value` with `views` in place of their arrays, in lists and tuples too."""
    if type(value) is np.ndarray:
        return next((view for array, view in views if array is value), value)
    if type(value) in (list, tuple):
        parts = [replace_by_views(part, views) for part in value]
        return value if all(map(operator.is_, parts, value)) else type(value)(parts)
    return value
