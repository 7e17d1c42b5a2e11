"""A case: what is computed, on which data, how each peer says it, and what has to come out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .arrays import Array, Arrays, aligned_copy

#: A number of elements, or a shape.
Size = int | tuple[int, ...]

KI, MI = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Traffic:
    """The data that a case has to move between memory and cores, whichever peer computes it.

    Attributes
    ----------
    reads, writes : int
        Bytes.
    streams : pair of int
        Large arrays that are read and written; the limit program moves as many.
    in_place : bool
        The written arrays were also read.
    """

    reads: int
    writes: int
    streams: tuple[int, int]
    in_place: bool = False

    @property
    def nbytes(self) -> int:
        return self.reads + self.writes


@dataclass(frozen=True, slots=True)
class Tolerance:
    """``|got - truth| <= relative * |truth| + absolute``, element by element."""

    relative: float
    absolute: float


#: By the dtype of a result, for values of about 1: a few roundings of a chain, more for what was a sum.
TOLERANCES = {
    "float64": Tolerance(1e-10, 1e-10),
    "float32": Tolerance(2e-5, 2e-5),
    "float16": Tolerance(4e-3, 4e-3),
    "bfloat16": Tolerance(3e-2, 3e-2),
}


@dataclass(frozen=True, slots=True)
class Stateful:
    """A way that holds state or has a form of its own: `build(peer, arrays)` gives the call to time.

    The call does all its work before it returns, and returns values that ``peer.get`` understands.
    """

    build: Callable[[Any, Arrays], Callable[[], Any]]


@dataclass(frozen=True)
class Case:
    """One computation at several sizes.

    Attributes
    ----------
    name, suite : str
    sizes : sequence of Size
        Numbers of elements or shapes; `make` says which.
    make : callable
        ``(size, generator) -> tuple of NumPy arrays``: the inputs.
    truth : callable
        The result in NumPy, given the inputs in float64: an array, or a tuple of arrays.
    ways : mapping of str to callable or Stateful
        By dialect (see `mgb_bench.peers`), what that peer calls or compiles; takes the inputs.
    traffic : callable, optional
        ``size -> Traffic``; None where memory is not the point.
    tolerances : mapping of str to Tolerance
        By the dtype of a result.
    calls : int
        How many calls `truth` stands for, where each call goes on from the one before.
    quick : sequence of Size
        The sizes of a quick run.
    """

    name: str
    suite: str
    sizes: Sequence[Size]
    make: Callable[[Any, np.random.Generator], Arrays]
    truth: Callable[..., Any]
    ways: Mapping[str, Any]
    traffic: Callable[[Any], Traffic] | None
    tolerances: Mapping[str, Tolerance] = field(default_factory=lambda: TOLERANCES)
    calls: int = 1
    quick: Sequence[Size] = ()

    def inputs(self, size: Size) -> Arrays:
        """Return the same inputs in every process, in aligned memory."""
        return tuple(map(aligned_copy, self.make(size, np.random.default_rng(20260101))))

    def expected(self, arrays: Arrays) -> Arrays:
        """Return the truth for these inputs, computed in float64; integers stay as they are."""
        values = self.truth(*(a if a.dtype.kind in "iub" else a.astype(np.float64) for a in arrays))
        return values if isinstance(values, tuple) else (values,)

    def check(self, name: str, got: Any, expected: Arrays) -> None:
        """Compare what contestant `name` gave with the truth.

        Raises
        ------
        AssertionError
            The number of results, a shape or a value differs; names the contestant and the worst element.
        """
        values = got if isinstance(got, tuple | list) else (got,)
        assert len(values) == len(expected), f"{name}: {len(values)} results instead of {len(expected)}"
        for place, (value, truth) in enumerate(zip(values, expected, strict=True)):
            array = np.asarray(value)
            assert array.shape == truth.shape, (
                f"{name}: result {place} has shape {array.shape}, not {truth.shape}"
            )
            _compare(f"{self.name}: {name}: result {place}", array, truth, self.tolerances[array.dtype.name])


def _compare(what: str, got: Array, truth: Array, tolerance: Tolerance) -> None:
    """Compare by blocks that stay in cache: the arrays may have hundreds of megabytes."""
    flat, right = got.reshape(-1), truth.reshape(-1)
    for start in range(0, flat.size, MI // 4):
        ours, theirs = flat[start : start + MI // 4].astype(np.float64), right[start : start + MI // 4]
        error = np.abs(ours - theirs) - tolerance.relative * np.abs(theirs)
        if not (error <= tolerance.absolute).all():  # said so that NaN is an error
            worst = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
            raise AssertionError(f"{what}: {ours[worst]} instead of {theirs[worst]} at {start + worst}")


def elements(size: Size) -> int:
    """Return how many elements a size has."""
    return size if isinstance(size, int) else math.prod(size)


def label(size: Size) -> str:
    """Return a size as a reader writes it: ``64 Ki``, ``4096x4096``."""
    if isinstance(size, tuple):
        return "x".join(map(str, size))
    for unit, name in ((MI, "Mi"), (KI, "Ki")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return str(size)
