"""Guards of a call that skips its body which ask many objects at once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import attrgetter, is_
from typing import Any

import numpy as np

from ..ir import Spec
from ..ownership import Seen, picker
from .record import Literal, Pin

_shape, _dtype, _device, _data = (attrgetter(name) for name in ("shape", "dtype", "_device", "_data"))


class Fits:
    """Whether arrays are of the recorded specs, asked of all at once and only of those that are new."""

    def __init__(self, positions: Sequence[int], specs: Sequence[Spec]) -> None:
        self._pick = picker(positions)
        self._shapes = [spec.shape for spec in specs]
        self._dtypes = [spec.dtype for spec in specs]
        self._seen = Seen()

    def __call__(self, arrays: Sequence[Any]) -> bool:
        found = self._pick(arrays)
        if self._seen.same(found):
            return True
        if list(map(_shape, found)) != self._shapes or list(map(_dtype, found)) != self._dtypes:
            return False
        if set(map(type, found)) == {np.ndarray}:
            self._seen.remember(found)
        return True


class Arguments:
    """Whether the Tensors among the arguments are all different, of the recorded classes and devices.

    Parameters
    ----------
    positions : sequence of int
        Where they stand.
    leaves : sequence
        The recorded arguments, with the ``kind`` and ``spec`` of each Tensor.
    outside : collection of int
        The ids of Tensors that none of them may be.
    """

    def __init__(self, positions: Sequence[int], leaves: Sequence[Any], outside: Collection[int]) -> None:
        self._pick = picker(positions)
        self._outside = frozenset(outside)
        self._classes = [leaf.kind for leaf in self._pick(leaves)]
        self._devices = [leaf.spec.device for leaf in self._pick(leaves)]
        self._seen = Seen()

    def __call__(self, leaves: Sequence[Any]) -> bool:
        found = self._pick(leaves)
        if not self._seen.same(found):
            ids = set(map(id, found))
            if list(map(type, found)) != self._classes or len(ids) != len(found):
                return False
            if not self._outside.isdisjoint(ids):
                return False
            self._seen.remember(found)
        return list(map(_device, found)) == self._devices


class Same:
    """Whether the same Tensors stand in the same places, and the pinned ones in theirs.

    Parameters
    ----------
    same : sequence of int
        For each place the first one where the recorded call found the same Tensor.
    pins : sequence of (int, Pin)
        Places with the Tensors that must stand there.
    outside : collection of int
        The ids of Tensors that must not stand in any.
    apart : bool
        Must other Tensors stand in other places?
    """

    def __init__(
        self, same: Sequence[int], pins: Sequence[tuple[int, Pin]], outside: Collection[int], apart: bool
    ) -> None:
        self._same, self._pins, self._outside, self._apart = list(same), pins, frozenset(outside), apart
        self._seen = Seen()

    def __call__(self, found: tuple[Any, ...]) -> bool:
        if self._seen.same(found):
            return True
        if any(found[place] is not pin.tensor() for place, pin in self._pins):
            return False
        ids = list(map(id, found))
        if self._apart:
            first: dict[int, int] = {}
            fits = [first.setdefault(key, place) for place, key in enumerate(ids)] == self._same
            fits = fits and self._outside.isdisjoint(ids)
        else:
            fits = all(ids[place] == key for place, key in zip(self._same, ids))
        if fits:
            self._seen.remember(found)
        return fits


class Constants:
    """Whether Tensors that became constants have the values that they had."""

    def __init__(self, literals: Sequence[Literal]) -> None:
        found = [(owner, x) for x in literals if x.owner is not None and (owner := x.owner()) is not None]
        self._owners = [owner for owner, _ in found]
        self._literals = [literal for _, literal in found]
        self._arrays = [literal.array for literal in self._literals]

    def __call__(self) -> bool:
        now = list(map(_data, self._owners))
        if all(map(is_, now, self._arrays)):
            return True
        if any(a is None or not x.matches(a) for a, x in zip(now, self._literals)):
            return False
        self._arrays = now
        return True
