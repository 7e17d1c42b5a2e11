"""What a recording sees of Tensors: which the body made, which of those outside it changed, what stays."""

from __future__ import annotations

import gc
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from ..tensor import Tensor
from .record import Binding, Expected, Outside, Pin, Record, Ref
from .session import CallSession


class Observing(CallSession, ABC):
    """A session that tells the Tensors of the body from those outside, and what it does to these.

    Parameters
    ----------
    leaves : sequence
        The flattened arguments of the call.
    """

    def __init__(self, leaves: Sequence[Any]) -> None:
        super().__init__(Record())
        self._leaf_tensors = {id(t): n for n, t in enumerate(leaves) if isinstance(t, Tensor)}
        self._leaf_references = {id(t): weakref.ref(t) for t in leaves if isinstance(t, Tensor)}
        self._rebound: list[weakref.ref[Tensor]] = []
        self._own: dict[int, weakref.ref[Tensor]] = {}  # Tensors made in the body, by their ids
        self._originals: dict[int, tuple[Tensor, Any]] = {}  # of an alias: what it was made of
        self._before: dict[int, tuple[Tensor, Any, Any]] = {}
        self._grads: dict[int, tuple[Tensor, Tensor | None, bool]] = {}  # found, and was it looked at?
        self._given_grads: set[int] = set()  # the ids of those that were given one, which may be the old one
        self._own_grads: list[weakref.ref[Tensor]] = []  # Tensors of the body that were given one
        self._watched: dict[int, weakref.ref[Tensor]] = {}
        self._returned: list[Any] = []
        #: The ids of Tensors that the body also came by in another way than as arguments or as a ``grad``.
        self.found_elsewhere: frozenset[int] = frozenset()

    @abstractmethod
    def ref(self, tensor: Tensor) -> Ref:
        """Where the value of `tensor` comes from."""

    def _made_by_body(self, tensor: Tensor) -> weakref.ref[Tensor]:
        reference = self._own[id(tensor)] = weakref.ref(tensor)
        return reference

    def is_own(self, tensor: Tensor) -> bool:
        """Did the body make it? Something that was made outside of the trace since may have an id again."""
        reference = self._own.get(id(tensor))
        return reference is not None and reference() is tensor

    def adopt(self, alias: Tensor, original: Tensor) -> None:
        super().adopt(alias, original)
        self._made_by_body(alias)
        self._trace_back(alias, original)

    def _trace_back(self, alias: Tensor, value: Tensor) -> None:
        """Know what `alias` is, if that is a Tensor outside: what the body makes is not kept alive here."""
        if value._session is None and not self.is_own(root := self._root(value)):
            self._originals[id(alias)] = (root, value._data)

    def rebound(self, tensor: Tensor, value: Tensor) -> None:
        super().rebound(tensor, value)
        self._trace_back(tensor, value)
        if not self.is_own(tensor):
            self._rebound.append(weakref.ref(tensor))
            self._remember(tensor)

    def touched_grad(self, tensor: Tensor, reads: bool) -> None:
        if not self.is_own(tensor):
            self._grads.setdefault(id(tensor), (tensor, tensor._grad, reads))
            if not reads:
                self._given_grads.add(id(tensor))
        elif not reads:
            self._own_grads.append(weakref.ref(tensor))

    def grads_before(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        return ((tensor, grad) for tensor, grad, _ in self._grads.values())

    def watched(self, tensor: Tensor) -> None:
        if not self.is_own(tensor):
            self._watched[id(tensor)] = weakref.ref(tensor)

    def returned(self, tensors: Iterable[Any]) -> None:
        """Told of the Tensors in the result, before `finish`."""
        self._returned += tensors

    def escaped(self) -> str | None:
        """Where a Tensor was made that is alive although the body has ended and its result is gone."""
        given = {id(t._grad) for key, (t, _, _) in self._grads.items() if key in self._given_grads}
        for _ in range(2):
            found = [reference() for reference in list(self._own.values())]
            alive = [t for t in found if t is not None and id(t) not in given]
            if not alive:
                return None
            steps = [t._index for t in alive if t._session is self]
            found, alive = [], []
            gc.collect(1)  # what only refers to itself is nowhere; what is old is not asked
        return self.entry(min(steps)).source if steps else self.record.entries[-1].source

    def _value_bindings(self) -> list[Binding]:
        owners = {}
        for number, external in enumerate(self.record.externals):
            owner = external.owner() if external.owner is not None else None
            if owner is not None:
                owners[id(owner)] = number
        found = {id(t): t for r in self._rebound if (t := r()) is not None}
        holders = self._holders()
        bindings = []
        for key, t in found.items():
            holder = holders.get(key, t)
            leaf, old, of_grad = self._leaf_tensors.get(id(holder)), owners.get(key), holder is not t
            bindings.append(Binding(self.ref(t), weakref.ref(holder), leaf, old, of_grad=of_grad))
        return bindings

    def _grad_bindings(self) -> list[Binding]:
        bindings = []
        for tensor, _, _ in self._grads.values():
            grad = tensor._grad
            if id(tensor) in self._given_grads:
                place = self._identity(grad)
                source = self.ref(grad) if grad is not None and isinstance(place, int) else place
                leaf = self._leaf_tensors.get(id(tensor))
                made = place if isinstance(place, int) else None
                bindings.append(Binding(source, weakref.ref(tensor), leaf, is_grad=True, made=made))
        return bindings

    def _identity(self, tensor: Tensor | None) -> int | Outside | None:
        """Which Tensor it is: a number, if the body made it, or where it stands outside."""
        if tensor is None:
            return None
        return id(tensor) if self.is_own(tensor) else self._place(tensor)

    def _place(self, tensor: Tensor) -> Outside:
        holder = self._holders().get(id(tensor), tensor)
        return Outside(weakref.ref(holder), self._leaf_tensors.get(id(holder)), holder is not tensor)

    def _holders(self) -> dict[int, Tensor]:
        """By the id of a gradient that was found: the Tensor that had it as its ``grad``."""
        found = ((tensor, grad) for tensor, grad, reads in self._grads.values() if reads)
        return {id(grad): tensor for tensor, grad in found if grad is not None}

    def _used(self, returned: Iterable[Any]) -> frozenset[int]:
        """The ids of the Tensors outside that the body took, gave a value or a ``grad``, or handed on."""
        owners = (e.owner() for e in self.record.externals if e.owner is not None)
        handed = (t._grad for key, (t, _, _) in self._grads.items() if key in self._given_grads)
        rebound = (reference() for reference in self._rebound)
        return frozenset([*map(id, (*owners, *handed, *rebound, *returned)), *self._grads])

    def _expect_grads(self, used: frozenset[int]) -> None:
        """Another call may find another ``grad``, or none, in the same Tensor."""
        same = list(self._leaf_tensors)
        for tensor, grad, reads in self._grads.values():
            if reads:
                leaf = self._leaf_tensors.get(id(tensor))
                is_used = grad is not None and id(grad) in used
                self.record.expected.append(Expected(weakref.ref(tensor), leaf, grad is None, is_used))
                same += [id(grad)] if is_used else []
        first: dict[int, int] = {}
        self.record.same = tuple([first.setdefault(key, place) for place, key in enumerate(same)])
        holders = self._holders()
        for external in self.record.externals:
            holder = holders.get(id(external.owner())) if external.owner is not None else None
            if holder is not None:
                external.owner, external.of_grad = weakref.ref(holder), True
                external.leaf = self._leaf_tensors.get(id(holder))

    def _pin(self, used: frozenset[int]) -> None:
        """What the body came by in two ways is the same Tensor at each call."""
        both = used & self.found_elsewhere
        for key, reference in self._leaf_references.items():
            if key in both:
                place = Outside(reference, self._leaf_tensors[key])
                self.record.pins.append(Pin(reference, place))
        for holder, grad, reads in self._grads.values():
            if reads and grad is not None and (id(grad) in both or id(grad) in self._grads):
                place = Outside(weakref.ref(holder), self._leaf_tensors.get(id(holder)), of_grad=True)
                self.record.pins.append(Pin(weakref.ref(grad), place))

    def _root(self, tensor: Tensor) -> Tensor:
        """The Tensor outside that `tensor` is an alias of; itself when it is none."""
        original, array = self._originals.get(id(tensor), (tensor, None))
        return original if array is tensor._data else tensor

    def _remember(self, tensor: Tensor) -> None:
        if tensor._session is None and not self.is_own(tensor):
            self._before.setdefault(id(tensor), (tensor, tensor._data, tensor._tape))

    def compute_living(self) -> None:
        """Give all that Python has of a call that was only noted its value, as if the body had run."""
        for tensor in filter(self.is_own, self.alive()):
            with suppress(Exception):  # that op raises where it is wanted, as it does in eager code
                self.evaluate((tensor._index,))

    def forget(self) -> None:
        """Hold no Tensor from outside any more: what nobody else holds goes."""
        self._before.clear()
        self._originals.clear()
        self._grads.clear()
