"""Provenance of Tensors: those that a body made, those that it captured and where, and their changes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from ..tensor import Tensor
from .source import Argument, Grad, Object, ObjectRef, Source


class Provenance:
    """The origins of the Tensors of one call.

    Parameters
    ----------
    leaves : sequence
        The flattened arguments.
    names : sequence of str
        The names of the arguments, in messages.

    Attributes
    ----------
    arguments : dict
        The sources of the Tensors among the arguments, by id.
    own : dict of weak references
        The Tensors that the body made, by id.
    rebound : list of weak references
        The Tensors outside that took new values.
    grads : dict
        By the ids of Tensors outside: the Tensor, its old ``grad``, and whether the body read that.
    grad_owners : dict
        By the id of a gradient that the body read: the Tensor whose ``grad`` it is.
    """

    def __init__(self, leaves: Sequence[Any], names: Sequence[str] = ()) -> None:
        named = zip(leaves, names or [""] * len(leaves), strict=True)
        tensors = ((n, t, name) for n, (t, name) in enumerate(named) if isinstance(t, Tensor))
        self.arguments = {id(t): Argument(n, name) for n, t, name in tensors}
        self.rebound: list[weakref.ref[Tensor]] = []
        self.grads: dict[int, tuple[Tensor, Tensor | None, bool]] = {}
        self.grad_owners: dict[int, Tensor] = {}
        self.own: dict[int, weakref.ref[Tensor]] = {}
        self._originals: dict[int, tuple[Tensor, Any]] = {}  # by the id of an alias
        self._before: dict[int, tuple[Tensor, Any, Any]] = {}
        self._with_new_grad: set[int] = set()  # the ids of Tensors whose ``grad`` was set
        self._watched: dict[int, weakref.ref[Tensor]] = {}

    # events

    def add(self, tensor: Tensor) -> None:
        """Add a Tensor that the body makes."""
        self.own[id(tensor)] = weakref.ref(tensor)

    def add_alias(self, alias: Tensor, original: Tensor) -> None:
        """Add a Tensor that the body makes of the value of `original`."""
        self.add(alias)
        self._trace_back(alias, original)

    def rebind(self, tensor: Tensor, value: Tensor) -> None:
        """Note that `tensor` takes the value of another one."""
        self._trace_back(tensor, value)
        if not self.is_own(tensor):
            self.rebound.append(weakref.ref(tensor))
            self.remember(tensor)

    def touch_grad(self, tensor: Tensor, reads: bool) -> bool:
        """Note a read or a replacement of the ``grad`` of `tensor`; return whether it is a new one."""
        if self.is_own(tensor):
            return False
        is_new = id(tensor) not in self.grads
        if is_new:
            self.grads[id(tensor)] = tensor, tensor._grad, reads
            if reads and tensor._grad is not None:
                self.grad_owners[id(tensor._grad)] = tensor
        if not reads:
            self._with_new_grad.add(id(tensor))
        return is_new

    def watch(self, tensor: Tensor) -> None:
        """Note that a tape of the body differentiates with respect to `tensor`."""
        if not self.is_own(tensor):
            self._watched[id(tensor)] = weakref.ref(tensor)

    def remember(self, tensor: Tensor) -> None:
        """Save the value of a Tensor outside before it takes another one."""
        if tensor._session is None and not self.is_own(tensor):
            self._before.setdefault(id(tensor), (tensor, tensor._data, tensor._tape))

    def _trace_back(self, alias: Tensor, value: Tensor) -> None:
        """Note which Tensor outside `alias` is, if any; one that the body makes is not kept alive."""
        if value._session is None and not self.is_own(root := self.root(value)):
            self._originals[id(alias)] = (root, value._data)

    # queries

    def is_own(self, tensor: Tensor) -> bool:
        """Check whether the body made it. A Tensor made elsewhere may reuse the id of one that is gone."""
        reference = self.own.get(id(tensor))
        return reference is not None and reference() is tensor

    def root(self, tensor: Tensor) -> Tensor:
        """Return the Tensor outside that `tensor` is an alias of; itself if it is not an alias."""
        original, array = self._originals.get(id(tensor), (tensor, None))
        return original if array is tensor._data else tensor

    def source_of(self, tensor: Tensor) -> Source:
        """Return the source of a Tensor that is not a ``grad`` which the body read."""
        return self.arguments.get(id(tensor)) or Object(ObjectRef(tensor))

    def tensor_source(self, tensor: Tensor) -> Source:
        """Return the source of a Tensor outside."""
        holder = self.grad_owners.get(id(tensor))
        return self.source_of(tensor) if holder is None else Grad(self.source_of(holder))

    def identity(self, tensor: Tensor | None) -> int | Source | None:
        """Return which Tensor it is: a number if the body made it, else its source."""
        if tensor is None:
            return None
        return id(tensor) if self.is_own(tensor) else self.tensor_source(tensor)

    def list_with_new_grad(self) -> list[Tensor]:
        """Return the Tensors outside whose ``grad`` the body set."""
        return [tensor for key, (tensor, _, _) in self.grads.items() if key in self._with_new_grad]

    def new_grad_ids(self) -> frozenset[int]:
        """Return the ids of the gradients that these have now."""
        return frozenset([id(tensor._grad) for tensor in self.list_with_new_grad()])

    def rebound_tensors(self) -> list[Tensor]:
        """Return the Tensors outside that took new values, each once."""
        return list({id(t): t for reference in self.rebound if (t := reference()) is not None}.values())

    def watched_outside(self) -> list[Tensor]:
        """Return the Tensors outside that a tape of the body differentiates with respect to."""
        return [tensor for reference in self._watched.values() if (tensor := reference()) is not None]

    def escaped(self, but: Collection[int] = ()) -> list[Tensor]:
        """Return the Tensors of the body that are still alive, except those of the ids in `but`.

        This is called when the body has ended and its result is released.
        """
        for generation in (1, 2):  # free reference cycles; generation 2 is slow
            if self._alive(but):
                gc.collect(generation)
        return self._alive(but)

    def _alive(self, but: Collection[int]) -> list[Tensor]:
        given = self.new_grad_ids().union(but)
        found = (reference() for reference in list(self.own.values()))
        return [tensor for tensor in found if tensor is not None and id(tensor) not in given]

    # the end

    def changed(self) -> Iterator[tuple[Tensor, Any, Any]]:
        """Yield the Tensors outside that took new values, with their old values and tapes."""
        rebound = {id(reference()) for reference in self.rebound}
        for tensor, data, tape in self._before.values():
            if id(tensor) in rebound:  # of others, another thread may have changed the tape
                yield tensor, data, tape

    def forget(self) -> None:
        """Release every Tensor outside."""
        self._before.clear()
        self._originals.clear()
        self.grads.clear()
        self.grad_owners.clear()
