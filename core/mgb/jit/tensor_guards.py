"""Guards that check many Tensors or arrays in one call."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import attrgetter, is_
from typing import Any

import numpy as np

from ..ir import Spec
from ..runtime.ownership import Seen, picker
from .entry import Literal

_shape, _dtype, _device, _data = (attrgetter(name) for name in ("shape", "dtype", "_device", "_data"))


class CheckSpecs:
    """Checks whether arrays have the recorded specs: all at once, and only arrays that are new."""

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


class CheckArguments:
    """Checks whether Tensors are all different, and have the recorded classes and devices.

    Parameters
    ----------
    classes : sequence of type
    specs : sequence of Spec
    """

    def __init__(self, classes: Sequence[type], specs: Sequence[Spec]) -> None:
        self._classes, self._devices = list(classes), [spec.device for spec in specs]
        self._seen = Seen()

    def __call__(self, found: tuple[Any, ...]) -> bool:
        if not self._seen.same(found):
            if list(map(type, found)) != self._classes or len({*map(id, found)}) != len(found):
                return False
            self._seen.remember(found)
        return list(map(_device, found)) == self._devices

    def __str__(self) -> str:
        return "one Tensor stands for other arguments than recorded, or an argument is of another kind"


class CheckAliasing:
    """Checks whether the same arguments are the same Tensor as in the record.

    Parameters
    ----------
    same : sequence of int
        For each argument the first one that was the same Tensor in the recorded call.
    outside : collection of int
        The ids of Tensors that must not be arguments.
    apart : bool
        Different arguments must be different Tensors.
    """

    def __init__(self, same: Sequence[int], outside: Collection[int], apart: bool) -> None:
        self._same, self._outside, self._apart = list(same), frozenset(outside), apart
        self._seen = Seen()

    def __call__(self, found: tuple[Any, ...]) -> bool:
        if self._seen.same(found):
            return True
        ids = list(map(id, found))
        if self._apart:
            first: dict[int, int] = {}
            fits = [first.setdefault(key, index) for index, key in enumerate(ids)] == self._same
            fits = fits and self._outside.isdisjoint(ids)
        else:
            fits = all(ids[index] == key for index, key in zip(self._same, ids))
        if fits:
            self._seen.remember(found)
        return fits

    def __str__(self) -> str:
        return "a Tensor outside is another one than recorded"


class CheckConstants:
    """Checks whether Tensors that became constants have the same values.

    Parameters
    ----------
    literals : sequence of Literal
    """

    def __init__(self, literals: Sequence[Literal]) -> None:
        self._literals = literals
        self._arrays = [literal.array for literal in literals]

    def __call__(self, owners: tuple[Any, ...]) -> bool:
        now = list(map(_data, owners))
        if all(map(is_, now, self._arrays)):
            return True
        if any(a is None or not x.matches(a) for a, x in zip(now, self._literals)):
            return False
        self._arrays = now
        return True

    def __str__(self) -> str:
        return "a Tensor that capture_as_const=True holds constant has another value"
