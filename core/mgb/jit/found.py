"""Whether a call that runs its body finds outside what the recorded one found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..tensor import Tensor
from .record import Record
from .tree import flatten


class Found:
    """What decides which ops a body does and is no argument of these.

    That is, of some Tensors, a ``grad`` or none, and which Tensors its GradManagers and Optimizers work for.

    Parameters
    ----------
    record : Record
    """

    __slots__ = ("_leaves", "_owners", "_trainers")

    def __init__(self, record: Record) -> None:
        self._leaves = [(e.leaf, e.is_none) for e in record.expected if e.leaf is not None]
        self._owners = [(e.owner, e.is_none) for e in record.expected if e.leaf is None]
        self._trainers = tuple(record.trainers)

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
        return not self._leaves or self._is_in(flatten((args, kwargs))[0])

    def _is_in(self, leaves: list[Any]) -> bool:
        tensors = [(leaves[place], is_none) for place, is_none in self._leaves if place < len(leaves)]
        return all((t._grad is None) is is_none for t, is_none in tensors if isinstance(t, Tensor))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Found):
            return NotImplemented
        mine = self._leaves, self._owners, self._trainers
        return mine == (other._leaves, other._owners, other._trainers)

    __hash__ = None  # type: ignore[assignment]
