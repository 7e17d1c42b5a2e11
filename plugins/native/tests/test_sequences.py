"""Sequences of copies, which need no compiler: what native code does, and what Python has to do instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from mgb.backends import Turn
from mgb_native.native import note
from mgb_native.sequences import KEPT, Follower

pytestmark = pytest.mark.skipif(note is not None, reason="no launcher in C")

R = np.random.default_rng(3)


def copies(*cuts: Callable[[Any, Any], tuple[Any, Any]]) -> Follower:
    """Return what copies from the first to the second array that each function makes of `x` and `y`."""

    def layout(arrays: Sequence[Any]) -> list[Turn]:
        return [Turn(None, (cut(*arrays),), (0, 0), bases=(0, 1)) for cut in cuts]

    return Follower(layout, 2, 2)


def checked(follower: Follower, x: Any, y: Any, *cuts: Callable[[Any, Any], tuple[Any, Any]]) -> None:
    want = y.copy()
    for cut in cuts:
        source, target = cut(x, want)
        target[...] = source
    for _ in range(2):
        found = y.copy(order="K")
        follower.run(x, found)
        np.testing.assert_array_equal(found, want)


NATIVE = {
    "windows": [lambda x, y: (x[1:, 2:], y[:-1, :-2]), lambda x, y: (x[::2], y[::-2])],
    "columns": [lambda x, y: (x[:, 3], y[:, 0]), lambda x, y: (x[:1], y[2:3])],
    "a number": [lambda x, y: (np.broadcast_to(x[:1, :1], y.shape), y)],
    "turned": [lambda x, y: (x[:4, :4].T, y[:4, 1:5])],
}

PYTHON = {
    "a copy": [lambda x, y: (x[::-1].copy(), y)],
    "nothing": [lambda x, y: (x[:0], y[:0]), lambda x, y: (x, y)],
}


@pytest.mark.parametrize("name", NATIVE)
def test_copies_are_native_for_arrays_that_lie_in_any_way(name: str) -> None:
    cuts = NATIVE[name]
    follower = copies(*cuts)
    for dtype in (np.float64, np.int16, np.complex128, np.bool_):
        x, y = (R.normal(size=(2, 6, 8)) * 9).astype(dtype)
        for given in (x, np.asfortranarray(x), x[::-1, ::-1], x):
            checked(follower, given, y, *cuts)
    assert follower.made and None not in follower.made.values()


@pytest.mark.parametrize("name", PYTHON)
def test_python_copies_what_native_code_cannot(name: str) -> None:
    cuts = PYTHON[name]
    follower = copies(*cuts)
    for _ in range(2):
        x, y = R.normal(size=(2, 6, 8))
        checked(follower, x, y, *cuts)
    assert set(follower.made.values()) == {None}


def test_windows_with_elements_in_common_are_moved_as_numpy_does() -> None:
    def layout(arrays: Sequence[Any]) -> list[Turn]:
        (x,) = arrays
        return [Turn(None, ((x[:-1], x[1:]),), (0, 0), bases=(0, 0))]

    follower = Follower(layout, 1, 1)
    x = np.arange(20.0)
    want = x.copy()
    want[1:] = want[:-1].copy()
    follower.run(x)
    np.testing.assert_array_equal(x, want)


def test_many_lengths_keep_few_sequences() -> None:
    follower = copies(lambda x, y: (x[1:], y[:-1]))
    for length in range(2, 3 * KEPT):
        x, y = np.arange(float(length)), np.zeros(length)
        follower.run(x, y)
        np.testing.assert_array_equal(y[:-1], x[1:])
    assert len(follower.made) <= KEPT
