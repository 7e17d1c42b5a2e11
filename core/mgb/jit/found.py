"""Whether a call that runs its body finds outside what the recorded one found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..tensor import Tensor
from .record import Record
from .tree import Structure, flatten


class Found:
    """What decides which ops a body does and is no argument of these.

    That is, of some Tensors, a ``grad`` or none, and which Tensors its GradManagers and Optimizers work for.

    Parameters
    ----------
    record : Record
    """

    __slots__ = ("_arrangement", "_leaves", "_owners", "_trainers")

    def __init__(self, record: Record) -> None:
        self._leaves = [(e.leaf, e.is_none) for e in record.expected if e.leaf is not None]
        self._owners = [(e.owner, e.is_none) for e in record.expected if e.leaf is None]
        self._trainers = tuple(record.trainers)
        self._arrangement = record.arrangement if self._leaves else None

    @classmethod
    def of(cls, record: Record) -> Found | None:
        """What the body of `record` found; None if nothing."""
        return cls(record) if record.expected or record.trainers else None

    def is_there(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Would a call with these arguments find it again? What is gone is not asked for."""
        for reference, revision in self._trainers:
            trainer = reference()
            if trainer is not None and trainer._revision != revision:
                return False
        for owner, is_none in self._owners:
            tensor = owner()
            if tensor is not None and (tensor._grad is None) is not is_none:
                return False
        return not self._leaves or self._is_in(*flatten((args, kwargs)))

    def _is_in(self, leaves: list[Any], arrangement: Structure) -> bool:
        if self._arrangement not in (None, arrangement):  # another argument stands at that place
            return False
        tensors = [(leaves[place], is_none) for place, is_none in self._leaves if place < len(leaves)]
        return all((t._grad is None) is is_none for t, is_none in tensors if isinstance(t, Tensor))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Found):
            return NotImplemented
        if self._leaves != other._leaves or self._arrangement != other._arrangement:
            return False
        return _same(self._owners, other._owners) and _same(self._trainers, other._trainers)

    __hash__ = None  # type: ignore[assignment]


def _same(one: Sequence[tuple[Any, int]], two: Sequence[tuple[Any, int]]) -> bool:
    """Do both refer to the same objects, whatever these are equal to, with the same numbers?"""
    if len(one) != len(two):
        return False
    pairs = zip(one, two)
    return all(
        found == then and (r is s or (r() is not None and r() is s())) for (r, found), (s, then) in pairs
    )
