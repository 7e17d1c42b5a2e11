"""A session that walks the tree of links: it checks whether the next op is one that came next before."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir import Op, dtypes
from ...runtime import device as devices
from ...tensor import Session, Tensor, place
from ...tensor.apply import constant
from ...tensor.apply import record as record_on_tapes
from ..entry import Literal, has_same_bits
from .link import NOTHING, Link, signs_of
from .operands import Ref, Varying, is_number, number_to_array, snapshot
from .results import Rebound

_reference = weakref.ref


class TreeSession(Session[Tensor]):
    """A session that walks the tree of the sequences of ops that it has seen.

    If an op is the one that came next last time, its link is known: nothing is inferred or hashed.
    """

    _snapshot = staticmethod(snapshot)
    _is_imperative = False  # each op runs at once

    def __init__(self) -> None:
        self._at, self._root = Link(), Link()
        self._fed: list[Any] = []
        self._tensors: list[weakref.ref[Tensor]] = []
        self._rebound: list[Rebound] = []
        self._raw: tuple[Op, tuple[Any, ...]] | None = None  # the arguments of the op before promotion

    def shortcut(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Tensor | None:
        """Return the result if `op` is one that came next before."""
        at, fed, others = self._at, self._fed, None
        link = at.next
        while len(fed) == at.fed:  # else a finalizer calls this while another op is being noted
            if (
                link.op is op
                and link.arity == len(args)
                and link.params == params
                and (not link.signs or signs_of(params) == link.signs)
            ):
                tracked = False
                for a, ref in zip(args, link.args):
                    if ref.__class__ is Literal:  # a Tensor never matches, whatever it was made of
                        if ref.raw.__class__ is a.__class__ and ref.raw == a:
                            continue
                    elif isinstance(a, Tensor):
                        if a._tape:
                            tracked = True
                        if a._session is self:
                            if a._index == ref:
                                continue
                        elif ref.__class__ is int and ref < 0:
                            if -1 - ref < len(fed):
                                if fed[-1 - ref] is a._data:
                                    continue
                            elif self._feed_tensor(link, ref, a, fed):
                                continue
                    elif self._feed_data(ref, a, link, fed):
                        continue
                    break
                else:
                    if others is not None:
                        at.next = link
                    if tracked or self._is_imperative:
                        return self._make_taped_result(link, args) if tracked else self._make_result(link)
                    out = place(self, link.index, link.spec)  # `_make_result` inlined, for speed
                    reference = _reference(out)
                    if self._at is not at or self._fed is not fed:
                        return None
                    self._tensors.append(reference)
                    self._at = link
                    return out
                del fed[self._at.fed :]
            if others is None:
                others = iter(() if op in at.megamorphic else at.candidates(op, args))
            link = next(others, NOTHING)
            if link is NOTHING or self._at is not at or self._fed is not fed:
                break
        self._raw = op, args
        return None

    def _make_taped_result(self, link: Link, args: tuple[Any, ...]) -> Tensor | None:
        """Return the result of `link` and record it on gradient tapes; None if they need the op's body."""
        op = link.op
        assert op is not None and link.spec is not None and link.params is not None
        if not op.differentiable:
            return self._make_result(link)
        if op.under_tape is not None:
            del self._fed[self._at.fed :]
            return None
        inputs = [
            a if isinstance(a, Tensor) else constant(self._array_of(ref), link.spec.device)
            for a, ref in zip(args, link.args)
        ]
        out = self._make_result(link)
        if out is not None:
            record_on_tapes(op, inputs, out, link.params)
        return out

    def _array_of(self, ref: Ref) -> Any:
        """Return the array of an operand that no op of the sequence makes."""
        if isinstance(ref, Literal):
            return ref.array
        return self._fed[-1 - ref if isinstance(ref, int) else ref.number]

    def _make_result(self, link: Link) -> Tensor | None:
        """Return a Tensor for `link`, which is next; None if a finalizer ended the sequence meanwhile."""
        out = place(self, link.index, link.spec)  # type: ignore[arg-type]
        reference = weakref.ref(out)
        if self._at is not link.parent:
            return None
        self._tensors.append(reference)
        self._at = link
        return out

    def _feed_tensor(self, link: Link, ref: int, tensor: Tensor, fed: list[Any]) -> bool:
        """Add `tensor` as an external input that `link` is the first to read, if its type matches."""
        array = tensor._data
        if tensor._session is not None or self._fed is not fed:
            return False
        spec = link.feeds[-1 - ref - link.fed].spec  # counted from the end
        if array.shape != spec.shape or array.dtype != spec.dtype or tensor._device != spec.device:
            return False
        fed.append(self._snapshot(array))
        return True

    def _feed_data(self, ref: Ref, data: Any, link: Link, fed: list[Any]) -> bool:
        """Add a number that varies, or a copy of a NumPy array, as an external input of `link`."""
        if ref.__class__ is Varying:
            return self._feed_number(ref, data, fed)
        if ref.__class__ is not int or data.__class__ is not np.ndarray:
            return False
        if ref >= 0 or -1 - ref < len(fed) or self._fed is not fed:
            return False
        spec = link.feeds[-1 - ref - link.fed].spec
        if data.shape != spec.shape or data.dtype != spec.dtype or spec.device != devices.HOST:
            return False
        if dtypes.constructed(data.dtype) != data.dtype:
            return False
        fed.append(data.copy())
        return True

    def _feed_number(self, ref: Varying, value: Any, fed: list[Any]) -> bool:
        """Add the Python number `value`, or an array of NumPy's without axes, as an external input."""
        if value.__class__ is not ref.kind or (value.__class__ is np.ndarray and value.ndim):
            return False
        try:
            fed.append(number_to_array(value, ref.dtype))
        except OverflowError:  # with other operands the dtype may be larger
            return False
        return True

    def _find_link(self, op: Op, inputs: Sequence[Tensor], params: dict[str, Any]) -> Link | None:
        """Return the link for this op on exact inputs, if it came here before."""
        at = self._at
        link: Link
        for link in (at.next, *at.candidates(op, inputs)):
            if link.matches(op, params, len(inputs)):
                for tensor, ref in zip(inputs, link.args):
                    if not self._match_operand(tensor, ref, link):
                        break
                else:
                    at.next = link
                    return link
                del self._fed[at.fed :]
        return None

    def _match_operand(self, tensor: Tensor, ref: Ref, link: Link) -> bool:
        """Check whether `tensor` is the operand `ref` of `link`; if it is an input, add it."""
        if tensor._session is self:
            return tensor._index == ref
        if isinstance(ref, Literal):
            return is_number(tensor) and has_same_bits(ref.array, tensor._data)
        if isinstance(ref, Varying):
            if not is_number(tensor) or tensor._data.dtype != ref.dtype:
                return False
            self._fed.append(tensor._data)
            return True
        if ref >= 0:
            return False
        if -1 - ref < len(self._fed):
            return self._fed[-1 - ref] is tensor._data
        return self._feed_tensor(link, ref, tensor, self._fed)
