"""Build links for deferred ops that are new where they come."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from ...ir import Node, Op, Spec, const_node, input_node
from ...tensor import Session, Tensor
from ...tensor.apply import caller
from ...tensor.tracing import make_node
from ..entry import Literal, has_same_bits
from .link import Link
from .operands import Ref, Varying, is_number, normalize_scalar


class LinkBuilder:
    """Builds links at the end of one sequence, from its beginning to where a value is needed.

    Parameters
    ----------
    session : Session[Tensor]
        Its Tensors stand for ops of the sequence.
    snapshot : callable
        Returns an array that does not change until the op runs.
    """

    def __init__(self, session: Session[Tensor], snapshot: Callable[[Any], Any]) -> None:
        self._session = session
        self._snapshot = snapshot
        self._sequence: list[Link] = []
        self._numbers: dict[int, int] = {}  # of external inputs, by the id of their array
        self._like: tuple[Link, Link] | None = None  # the newest link, and the older one that it varies

    def build(
        self,
        at: Link,
        fed: list[Any],
        op: Op,
        inputs: Sequence[Tensor],
        params: dict[str, Any],
        scalars: Sequence[Any],
    ) -> Link:
        """Return a new link after `at`, and add its new external inputs to `fed`.

        Parameters
        ----------
        inputs : sequence of Tensor
            The operands after promotion.
        scalars : sequence
            The operands as the caller passed them: Tensors and Python numbers.

        Raises
        ------
        MgbError
            `op` cannot take these operands. The tree is unchanged.
        """
        source = caller()
        self._sync(at, fed)
        varying = self._find_varying(at, op, inputs, params, source)
        args: list[Ref] = []
        nodes: list[Node] = []
        feeds: list[Node] = []
        try:
            for position, tensor in enumerate(inputs):
                ref, node = self._bind_operand(
                    tensor, scalars[position], position in varying, at, fed, feeds, source
                )
                args.append(ref)
                nodes.append(node)
            spec = make_node(op, tuple(nodes), params).spec
        except BaseException:
            del fed[at.fed :]
            self._numbers.clear()
            raise
        link = at.add(
            Link(at, op, params, tuple(args), Node(op, tuple(nodes), params, spec, source), tuple(feeds))
        )
        self._sequence.append(link)
        if self._like is not None:
            self._like = link, self._like[1]
        return link

    def _bind_operand(
        self,
        tensor: Tensor,
        scalar: Any,
        varies: bool,
        at: Link,
        fed: list[Any],
        feeds: list[Node],
        source: str,
    ) -> tuple[Ref, Node]:
        index = tensor._index  # read before the session: another thread may compute the tensor now
        if tensor._session is self._session:
            node = self._sequence[index].node
            assert node is not None
            return index, node
        array = self._snapshot(tensor._data)
        if is_number(tensor) and not varies:
            literal = Literal(array, normalize_scalar(scalar), device=tensor._device)
            return literal, const_node(array, array.dtype, tensor._device)
        known = self._numbers.get(id(array))
        if known is not None and not varies:
            return -1 - known, self._external_node(known, at, feeds)
        self._numbers[id(array)] = new = len(fed)
        fed.append(array)
        feeds.append(input_node(Spec(array.shape, array.dtype, tensor._device), source))
        return (Varying(new, scalar.__class__, array.dtype) if varies else -1 - new), feeds[-1]

    def _external_node(self, number: int, at: Link, feeds: list[Node]) -> Node:
        """Return the node of an external input of the sequence so far, or of the current op."""
        if number >= at.fed:
            return feeds[number - at.fed]
        link = self._sequence[bisect_right(self._sequence, number, key=_fed)]
        return link.feeds[number - link.fed]

    def _sync(self, at: Link, fed: Sequence[Any]) -> None:
        """Update the state that only new links need to the current end of the sequence."""
        sequence, missing, link = self._sequence, [], at
        while link.index >= len(sequence) or (link.index >= 0 and sequence[link.index] is not link):
            missing.append(link)
            assert link.parent is not None
            link = link.parent
        sequence[link.index + 1 :] = reversed(missing)
        for n in range(len(self._numbers), len(fed)):
            self._numbers.setdefault(id(fed[n]), n)

    def _find_varying(
        self, at: Link, op: Op, inputs: Sequence[Tensor], params: dict[str, Any], source: str
    ) -> frozenset[int]:
        """Return the operands that are Python numbers and differ from those of the last time."""
        near = self._like[1].next if self._like is not None and self._like[0] is at else at.next
        self._like = None
        here = (link for link in reversed(at.children) if link.source == source)  # sequences share their root
        like = next((like for like in chain((near,), here) if like.matches(op, params, len(inputs))), None)
        if like is None:
            return frozenset()
        self._like = at, like
        return frozenset(
            position
            for position, (tensor, ref) in enumerate(zip(inputs, like.args))
            if is_number(tensor)
            and (
                isinstance(ref, Varying)
                or (isinstance(ref, Literal) and not has_same_bits(ref.array, tensor._data))
            )
        )


def _fed(link: Link) -> int:
    return link.fed
