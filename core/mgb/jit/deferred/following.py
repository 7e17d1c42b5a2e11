"""From link to link of the tree: is the next op the one that came next before?"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import device as devices
from ... import dtypes
from ...apply import constant
from ...apply import record as tell_tapes
from ...ir import Op
from ...tensor import Session, Tensor, place
from ..entry import Literal
from .link import NOTHING, Link, signs_of
from .operands import Ref, Varying, array_of_number, as_it_is_now, is_number, same_bits
from .results import Rebound

_reference = weakref.ref


class Following(Session[Tensor]):
    """A session that follows the tree of the sequences of ops that it has seen.

    Where an op is the one that came next the last time, it is known already: nothing is inferred or hashed.
    """

    _as_it_is_now = staticmethod(as_it_is_now)
    _gives = False  # has each result its value at once?

    def __init__(self) -> None:
        self._at, self._root = Link(), Link()
        self._fed: list[Any] = []
        self._tensors: list[weakref.ref[Tensor]] = []
        self._rebound: list[Rebound] = []
        self._raw: tuple[Op, tuple[Any, ...]] | None = None  # what the op to come was called with

    def shortcut(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Tensor | None:
        """The result, when `op` is what came next the last time."""
        at, fed, others = self._at, self._fed, None
        link = at.next
        while len(fed) == at.fed:  # else a finalizer calls this in the midst of another op
            if (
                link.op is op
                and link.arity == len(args)
                and link.params == params
                and (not link.signs or signs_of(params) == link.signs)
            ):
                tracked = False
                for a, ref in zip(args, link.args):
                    if ref.__class__ is Literal:  # no Tensor is told by what it was made of
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
                            elif self._feeds(link, ref, a, fed):
                                continue
                    elif self._feeds_data(ref, a, link, fed):
                        continue
                    break
                else:
                    if others is not None:
                        at.next = link
                    if tracked or self._gives:
                        return self._taped_result(link, args) if tracked else self._result(link)
                    out = place(self, link.index, link.spec)  # as `_result`, without a call more
                    reference = _reference(out)
                    if self._at is not at or self._fed is not fed:
                        return None
                    self._tensors.append(reference)
                    self._at = link
                    return out
                del fed[self._at.fed :]
            if others is None:
                others = iter(() if op in at.restless else at.alike(op, args))
            link = next(others, NOTHING)
            if link is NOTHING or self._at is not at or self._fed is not fed:
                break
        self._raw = op, args
        return None

    def _taped_result(self, link: Link, args: tuple[Any, ...]) -> Tensor | None:
        """The result of `link`, of which gradient tapes are told; None when they want the body instead."""
        op = link.op
        assert op is not None and link.spec is not None and link.params is not None
        if not op.differentiable:
            return self._result(link)
        if op.under_tape is not None:
            del self._fed[self._at.fed :]
            return None
        inputs = [
            a if isinstance(a, Tensor) else constant(self._array_of(ref), link.spec.device)
            for a, ref in zip(args, link.args)
        ]
        out = self._result(link)
        if out is not None:
            tell_tapes(op, inputs, out, link.params)
        return out

    def _array_of(self, ref: Ref) -> Any:
        return ref.array if isinstance(ref, Literal) else self._fed[ref.number]  # type: ignore[union-attr]

    def _result(self, link: Link) -> Tensor | None:
        """A Tensor for `link`, which is next; None if a finalizer that just ran wanted values here."""
        out = place(self, link.index, link.spec)  # type: ignore[arg-type]
        reference = weakref.ref(out)
        if self._at is not link.parent:
            return None
        self._tensors.append(reference)
        self._at = link
        return out

    def _feeds(self, link: Link, ref: int, tensor: Tensor, fed: list[Any]) -> bool:
        """Take `tensor` as an external input that `link` is the first to read, if it looks as then."""
        array = tensor._data
        if tensor._session is not None or self._fed is not fed:
            return False
        spec = link.feeds[-1 - ref - link.fed].spec  # counted from the end
        if array.shape != spec.shape or array.dtype != spec.dtype or tensor._device != spec.device:
            return False
        fed.append(self._as_it_is_now(array))
        return True

    def _feeds_data(self, ref: Ref, data: Any, link: Link, fed: list[Any]) -> bool:
        """Take a number that varies, or an array of NumPy's as it is now, as an external input of `link`."""
        if ref.__class__ is Varying:
            return self._varies(ref, data, fed)
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

    def _varies(self, ref: Varying, value: Any, fed: list[Any]) -> bool:
        """Take the Python number `value` as an external input."""
        if value.__class__ is not ref.kind:
            return False
        try:
            fed.append(array_of_number(value, ref.dtype))
        except OverflowError:  # other operands may have room for it
            return False
        return True

    def _known(self, op: Op, inputs: Sequence[Tensor], params: dict[str, Any]) -> Link | None:
        """The link for this op on exact inputs, if it came here before."""
        at = self._at
        link: Link
        for link in (at.next, *at.alike(op, inputs)):
            if link.is_alike(op, params, len(inputs)):
                for tensor, ref in zip(inputs, link.args):
                    if not self._is(tensor, ref, link):
                        break
                else:
                    at.next = link
                    return link
                del self._fed[at.fed :]
        return None

    def _is(self, tensor: Tensor, ref: Ref, link: Link) -> bool:
        """Is `tensor` the operand `ref` of `link`? It is fed if it is."""
        if tensor._session is self:
            return tensor._index == ref
        if isinstance(ref, Literal):
            return is_number(tensor) and same_bits(ref.array, tensor._data)
        if isinstance(ref, Varying):
            if not is_number(tensor) or tensor._data.dtype != ref.dtype:
                return False
            self._fed.append(tensor._data)
            return True
        if ref >= 0:
            return False
        if -1 - ref < len(self._fed):
            return self._fed[-1 - ref] is tensor._data
        return self._feeds(link, ref, tensor, self._fed)
