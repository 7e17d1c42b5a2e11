"""The array API standard's functions that search, sort, and tell elements apart."""

from __future__ import annotations

from typing import NamedTuple

from ..functional.math import argmax, argmin
from ..functional.math import argsort as _argsort
from ..functional.math import sort as _sort
from ..functional.tensor import nonzero, where
from ..tensor import Tensor
from .compositions import count_nonzero, unique
from .sequences import searchsorted

__all__ = [
    "argmax", "argmin", "argsort", "count_nonzero", "nonzero", "searchsorted", "sort", "unique_all",
    "unique_counts", "unique_inverse", "unique_values", "where",
]  # fmt: skip


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return the int32 indices that put `x` in order along `axis`; what is equal keeps its order in any case.

    Examples
    --------
    >>> mgb.numpy.argsort(mgb.tensor([2.0, -1.0, 0.0]))
    Tensor([1, 2, 0], dtype=int32, device=xpux:0)
    """
    return _argsort(x, descending, axis)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return `x` in order along `axis`.

    Examples
    --------
    >>> mgb.numpy.sort(mgb.tensor([2.0, -1.0, 0.0]))
    Tensor([-1.,  0.,  2.], device=xpux:0)
    """
    return _sort(x, descending, axis)[0]


class UniqueAll(NamedTuple):
    """The result of `unique_all`."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`."""

    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Tensor, /) -> UniqueAll:
    """Return the unique elements in order, their first indices, the inverse indices and the counts.

    A NaN differs from all others. The values are read: inside a trace that ends one program.

    Examples
    --------
    >>> mgb.numpy.unique_all(mgb.tensor([3, 1, 3])).indices
    Tensor([1, 0], dtype=int32, device=xpux:0)
    """
    return UniqueAll(*unique(x, True, True, True, equal_nan=False))


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Return the different elements in order, and how often each stands; see `unique_all`.

    Examples
    --------
    >>> mgb.numpy.unique_counts(mgb.tensor([3, 1, 3])).counts
    Tensor([1, 2], dtype=int32, device=xpux:0)
    """
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Return the different elements in order, and which of them each element is; see `unique_all`.

    Examples
    --------
    >>> mgb.numpy.unique_inverse(mgb.tensor([3, 1, 3])).inverse_indices
    Tensor([1, 0, 1], dtype=int32, device=xpux:0)
    """
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """Return the different elements in order; see `unique_all`.

    Examples
    --------
    >>> mgb.numpy.unique_values(mgb.tensor([2.0, 1.0, 2.0]))
    Tensor([1., 2.], device=xpux:0)
    """
    return unique_all(x).values
