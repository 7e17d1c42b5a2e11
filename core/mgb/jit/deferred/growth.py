"""A deferred op that is new where it comes: another link of the tree."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from ...apply import caller
from ...ir import Node, Op, Spec, const_node, input_node
from ...tensor import Session, Tensor
from ...tracing import make_node
from ..entry import Literal
from .link import Link
from .operands import Ref, Varying, compared, is_number, same_bits


class Growth:
    """Makes links after those of one sequence, from its beginning to where a value is wanted.

    Parameters
    ----------
    session : Session[Tensor]
        Tensors of it stand for ops of the sequence.
    as_it_is_now : callable
        Gives an array that nobody changes until the op runs.
    """

    def __init__(self, session: Session[Tensor], as_it_is_now: Callable[[Any], Any]) -> None:
        self._session = session
        self._as_it_is_now = as_it_is_now
        self._sequence: list[Link] = []
        self._numbers: dict[int, int] = {}  # of external inputs, by the id of their array
        self._like: tuple[Link, Link] | None = (
            None  # the newest link, and one that it was made in the place of
        )

    def link(
        self,
        at: Link,
        fed: list[Any],
        op: Op,
        inputs: Sequence[Tensor],
        params: dict[str, Any],
        scalars: Sequence[Any],
    ) -> Link:
        """A new link after `at`, whose external inputs are `fed`; new ones are added there.

        Parameters
        ----------
        inputs : sequence of Tensor
            What `op` is applied to.
        scalars : sequence
            The same as the caller gave it: Tensors, and Python numbers.

        Raises
        ------
        MgbError
            `op` cannot take these operands; nothing has changed then.
        """
        source = caller()
        self._catch_up(at, fed)
        varying = self._varying(at, op, inputs, params, source)
        args: list[Ref] = []
        nodes: list[Node] = []
        feeds: list[Node] = []
        try:
            for position, tensor in enumerate(inputs):
                ref, node = self._operand(
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

    def _operand(
        self,
        tensor: Tensor,
        scalar: Any,
        varies: bool,
        at: Link,
        fed: list[Any],
        feeds: list[Node],
        source: str,
    ) -> tuple[Ref, Node]:
        index = tensor._index  # before the session: another thread may give it its value now
        if tensor._session is self._session:
            node = self._sequence[index].node
            assert node is not None
            return index, node
        array = self._as_it_is_now(tensor._data)
        if is_number(tensor) and not varies:
            literal = Literal(array, compared(scalar), device=tensor._device)
            return literal, const_node(array, array.dtype, tensor._device)
        known = self._numbers.get(id(array))
        if known is not None and not varies:
            return -1 - known, self._external(known, at, feeds)
        self._numbers[id(array)] = new = len(fed)
        fed.append(array)
        feeds.append(input_node(Spec(array.shape, array.dtype, tensor._device), source))
        return (Varying(new, scalar.__class__, array.dtype) if varies else -1 - new), feeds[-1]

    def _external(self, number: int, at: Link, feeds: list[Node]) -> Node:
        """The node of an external input of the sequence so far, or of the op at hand."""
        if number >= at.fed:
            return feeds[number - at.fed]
        link = self._sequence[bisect_right(self._sequence, number, key=_fed)]
        return link.feeds[number - link.fed]

    def _catch_up(self, at: Link, fed: Sequence[Any]) -> None:
        """Bring what only new links need up to where the sequence is."""
        sequence, missing, link = self._sequence, [], at
        while link.index >= len(sequence) or (link.index >= 0 and sequence[link.index] is not link):
            missing.append(link)
            assert link.parent is not None
            link = link.parent
        sequence[link.index + 1 :] = reversed(missing)
        for n in range(len(self._numbers), len(fed)):
            self._numbers.setdefault(id(fed[n]), n)

    def _varying(
        self, at: Link, op: Op, inputs: Sequence[Tensor], params: dict[str, Any], source: str
    ) -> frozenset[int]:
        """The operands that are Python numbers, and other ones than the last time."""
        near = (at.next,)
        if self._like is not None and self._like[0] is at:
            near = (self._like[1].next,)
        self._like = None
        here = (link for link in reversed(at.children) if link.source == source)  # sequences share their root
        like = next((like for like in (*near, *here) if like.is_alike(op, params, len(inputs))), None)
        if like is None:
            return frozenset()
        self._like = at, like
        return frozenset(
            position
            for position, (tensor, ref) in enumerate(zip(inputs, like.args))
            if is_number(tensor)
            and (
                isinstance(ref, Varying)
                or (isinstance(ref, Literal) and not same_bits(ref.array, tensor._data))
            )
        )


def _fed(link: Link) -> int:
    return link.fed
