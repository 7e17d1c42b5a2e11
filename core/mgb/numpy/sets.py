"""NumPy's functions of sets, whose size depends on the values; the arguments are NumPy's."""

from __future__ import annotations

from typing import Any

from ..functional import tensor
from ..ops.methods import flatten
from ..ops.order import searchsorted_
from ..ops.primitives import eq, logical_not, minimum
from ..tensor import Tensor
from ..tensor.apply import tensors
from . import compositions as c

__all__ = [
    "intersect1d", "isin", "setdiff1d", "setxor1d", "union1d",
]  # fmt: skip


def isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Return whether each element is one of the others. NaN is none."""
    element, others = tensors("isin", (element, test_elements))
    if not others.size:
        found = tensor.zeros(element.shape, "bool", element.device)
    else:
        others = c.sort(others, None)
        flat = flatten(element)
        places = minimum(searchsorted_(others, flat, right=False), others.size - 1)
        found = tensor.reshape(eq(tensor.take(others, places, 0), flat), element.shape)
    return logical_not(found) if invert else found


def _both(name: str, *arrays: Any) -> list[Tensor]:
    return [flatten(x) for x in tensors(name, arrays)]


def union1d(ar1: Any, ar2: Any) -> Tensor:
    """Return the different elements of both, in order."""
    every: Tensor = c.unique(tensor.concat(_both("union1d", ar1, ar2)))
    return every


def intersect1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Tensor:
    """Return the different elements of one that are in the other too, in order."""
    one, other = _both("intersect1d", ar1, ar2)
    one = c.sort(one) if assume_unique else c.unique(one)
    return one[isin(one, other)]


def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Tensor:
    """Return the different elements of the first that are not in the second."""
    one, other = _both("setdiff1d", ar1, ar2)
    one = one if assume_unique else c.unique(one)
    return one[isin(one, other, invert=True)]


def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Tensor:
    """Return the different elements that are in one alone, in order."""
    one, other = _both("setxor1d", ar1, ar2)
    return c.sort(tensor.concat([setdiff1d(one, other), setdiff1d(other, one)]))
