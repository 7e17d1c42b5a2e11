"""Which Tensors a body made, which it found outside and where, and what it did to these."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from ..tensor import Tensor
from .source import Argument, Grad, Held, Object, Source


class Provenance:
    """Of the Tensors of one call.

    Parameters
    ----------
    leaves : sequence
        The flattened arguments.
    names : sequence of str
        Of them, in messages.

    Attributes
    ----------
    arguments : dict
        By the ids of Tensors among the arguments: where they stand.
    own : dict of weak references
        The Tensors that the body made, by their ids.
    rebound : list of weak references
        The Tensors outside that took new values.
    grads : dict
        By the ids of Tensors outside: what was found in their ``grad``, and was it looked at?
    holders : dict
        By the id of a gradient that was looked at: the Tensor that had it as its ``grad``.
    """

    def __init__(self, leaves: Sequence[Any], names: Sequence[str] = ()) -> None:
        named = zip(leaves, names or [""] * len(leaves), strict=True)
        tensors = ((n, t, name) for n, (t, name) in enumerate(named) if isinstance(t, Tensor))
        self.arguments = {id(t): Argument(n, name) for n, t, name in tensors}
        self.rebound: list[weakref.ref[Tensor]] = []
        self.grads: dict[int, tuple[Tensor, Tensor | None, bool]] = {}
        self.holders: dict[int, Tensor] = {}
        self.own: dict[int, weakref.ref[Tensor]] = {}
        self._originals: dict[int, tuple[Tensor, Any]] = {}  # of an alias: what it was made of
        self._before: dict[int, tuple[Tensor, Any, Any]] = {}
        self._given: set[int] = set()  # the ids of Tensors that were given a ``grad``, maybe the old one
        self._watched: dict[int, weakref.ref[Tensor]] = {}

    # what happens

    def makes(self, tensor: Tensor) -> None:
        """The body makes `tensor`."""
        self.own[id(tensor)] = weakref.ref(tensor)

    def adopts(self, alias: Tensor, original: Tensor) -> None:
        """The body makes one more Tensor of the value of `original`."""
        self.makes(alias)
        self._trace_back(alias, original)

    def rebinds(self, tensor: Tensor, value: Tensor) -> None:
        """`tensor` takes the value of another one."""
        self._trace_back(tensor, value)
        if not self.is_own(tensor):
            self.rebound.append(weakref.ref(tensor))
            self.remember(tensor)

    def touches_grad(self, tensor: Tensor, reads: bool) -> bool:
        """The ``grad`` of `tensor` is about to be read, or else replaced; is it the first time, outside?"""
        if self.is_own(tensor):
            return False
        is_new = id(tensor) not in self.grads
        if is_new:
            self.grads[id(tensor)] = tensor, tensor._grad, reads
            if reads and tensor._grad is not None:
                self.holders[id(tensor._grad)] = tensor
        if not reads:
            self._given.add(id(tensor))
        return is_new

    def watches(self, tensor: Tensor) -> None:
        """A tape of the body wants the gradient of `tensor`."""
        if not self.is_own(tensor):
            self._watched[id(tensor)] = weakref.ref(tensor)

    def remember(self, tensor: Tensor) -> None:
        """Know the value that a Tensor outside has, before it takes another one."""
        if tensor._session is None and not self.is_own(tensor):
            self._before.setdefault(id(tensor), (tensor, tensor._data, tensor._tape))

    def _trace_back(self, alias: Tensor, value: Tensor) -> None:
        """Know what `alias` is, if that is a Tensor outside: what the body makes is not kept alive here."""
        if value._session is None and not self.is_own(root := self.root(value)):
            self._originals[id(alias)] = (root, value._data)

    # what is known

    def is_own(self, tensor: Tensor) -> bool:
        """Did the body make it? Something that was made outside of the trace since may have an id again."""
        reference = self.own.get(id(tensor))
        return reference is not None and reference() is tensor

    def root(self, tensor: Tensor) -> Tensor:
        """The Tensor outside that `tensor` is an alias of; itself when it is none."""
        original, array = self._originals.get(id(tensor), (tensor, None))
        return original if array is tensor._data else tensor

    def source_of(self, tensor: Tensor) -> Source:
        """Where a Tensor stands that is no ``grad`` which the body found."""
        return self.arguments.get(id(tensor)) or Object(Held(tensor))

    def tensor_source(self, tensor: Tensor) -> Source:
        """Where a Tensor outside stands."""
        holder = self.holders.get(id(tensor))
        return self.source_of(tensor) if holder is None else Grad(self.source_of(holder))

    def identity(self, tensor: Tensor | None) -> int | Source | None:
        """Which Tensor it is: a number, if the body made it, or where it stands outside."""
        if tensor is None:
            return None
        return id(tensor) if self.is_own(tensor) else self.tensor_source(tensor)

    def given(self) -> list[Tensor]:
        """The Tensors outside that were given a ``grad``."""
        return [tensor for key, (tensor, _, _) in self.grads.items() if key in self._given]

    def given_grads(self) -> frozenset[int]:
        """The ids of the gradients that these have now."""
        return frozenset([id(tensor._grad) for tensor in self.given()])

    def rebound_tensors(self) -> list[Tensor]:
        """The Tensors outside that took new values, each once."""
        return list({id(t): t for reference in self.rebound if (t := reference()) is not None}.values())

    def watched_outside(self) -> list[Tensor]:
        """The Tensors outside whose gradients a tape of the body wanted; it need not have met them."""
        return [tensor for reference in self._watched.values() if (tensor := reference()) is not None]

    def escaped(self, but: Collection[int] = ()) -> list[Tensor]:
        """The Tensors of the body that are alive, `but` for those of these ids.

        This is asked when it has ended and its result is gone.
        """
        for generation in (1, 2):  # what only refers to itself is nowhere; to ask what is old takes long
            if self._alive(but):
                gc.collect(generation)
        return self._alive(but)

    def _alive(self, but: Collection[int]) -> list[Tensor]:
        given = self.given_grads().union(but)
        found = (reference() for reference in list(self.own.values()))
        return [tensor for tensor in found if tensor is not None and id(tensor) not in given]

    # the end

    def changed(self) -> Iterator[tuple[Tensor, Any, Any]]:
        """The Tensors outside of which something was taken, with the values and tapes that they had."""
        rebound = {id(reference()) for reference in self.rebound}
        for tensor, data, tape in self._before.values():
            if id(tensor) in rebound:  # of others another thread may have begun to watch one
                yield tensor, data, tape

    def forget(self) -> None:
        """Hold no Tensor from outside any more: what nobody else holds goes."""
        self._before.clear()
        self._originals.clear()
        self.grads.clear()
        self.holders.clear()
