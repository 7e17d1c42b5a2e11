"""The sequences of ops that were deferred, as a tree whose links lead from op to op."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...ir import Node, Op, Spec
from ...sizes import plain
from ...tensor import Tensor
from ..entry import Literal
from .operands import Ref, Varying, compared

#: An op, and the shapes of its operands.
Key = tuple[Op, tuple[tuple[int, ...], ...]]


class _Nothing:
    op = None

    def is_alike(self, op: Op, params: dict[str, Any], arity: int) -> bool:
        return False


#: What comes after a link that nothing came after.
NOTHING: Any = _Nothing()


#: In what a call that is matched with a record may differ from it: see `Link`.
NOT_AT_ALL, IN_NUMBERS, IN_ALL = range(3)


def signs_of(params: Any) -> tuple[float, ...]:
    """The signs of the zeros among the floats in parameters."""
    kind = type(params)
    if kind is dict or kind is tuple or kind is list:
        parts = params.values() if kind is dict else params
        return tuple([sign for part in parts for sign in signs_of(part)])
    return (math.copysign(1.0, params),) if kind is float and not params else ()


class Link:
    """One op after all those before it: it stands for the sequence that ends with it.

    Attributes
    ----------
    op, params, args
        As in a recorded `Entry`; the root, which begins all sequences, has none.
    node : Node or None
        With the nodes it reads, the graph of the sequence.
    index : int
        The number of ops before it; -1 for the root.
    feeds : tuple of Node
        The external inputs that it is the first to read.
    fed : int
        How many external inputs the sequence has.
    nbytes : int
        Their size.
    next : Link or NOTHING
        What came after it last time.
    children : list of Link
        All that ever came after it; `alike` finds those that an op may be.
    may_differ : int
        Where a call is matched with a record, what may differ from it after this op: `NOT_AT_ALL`,
        `IN_NUMBERS`, or `IN_ALL`.
    signs : tuple of float
        Those of the zeros in its parameters, which equality does not tell from each other.
    seen : int
        How often a sequence that was recorded elsewhere ended here.
    restless : tuple of Op
        What came after it with so many different parameters that it runs at once.
    endings : dict
        For sets of results that were alive where the sequence ended the `Ending` that computes them.
    """

    __slots__ = (
        "_alike",
        "args",
        "arity",
        "children",
        "endings",
        "fed",
        "feeds",
        "index",
        "may_differ",
        "nbytes",
        "next",
        "node",
        "op",
        "params",
        "parent",
        "restless",
        "seen",
        "signs",
        "spec",
        "varied",
    )

    def __init__(
        self,
        parent: Link | None = None,
        op: Op | None = None,
        params: dict[str, Any] | None = None,
        args: tuple[Ref, ...] = (),
        node: Node | None = None,
        feeds: tuple[Node, ...] = (),
    ) -> None:
        self.parent, self.op, self.params, self.args, self.node = parent, op, params, args, node
        self.feeds = feeds
        self.arity = len(args)
        self.spec: Spec | None = node.spec if node is not None else None
        self.index: int = -1 if parent is None else parent.index + 1
        self.fed: int = len(feeds) + (0 if parent is None else parent.fed)
        self.nbytes: int = sum(n.spec.nbytes for n in feeds) + (0 if parent is None else parent.nbytes)
        self.children: list[Link] = []
        self._alike: dict[Key, list[Link]] | None = None  # the children, once there are several
        self.endings: dict[frozenset[int], Any] = {}
        self.varied = False
        self.seen = 0
        self.signs = signs_of(params)
        self.may_differ = NOT_AT_ALL
        self.restless: tuple[Op, ...] = ()
        self.next = NOTHING

    @property
    def source(self) -> str:
        """The user's line that it stands for."""
        return "" if self.node is None else self.node.source

    def is_alike(self, op: Op, params: dict[str, Any], arity: int) -> bool:
        """Has it this op, with these parameters and as many operands?"""
        return (
            self.op is op
            and self.arity == arity
            and self.params == params
            and (not self.signs or signs_of(params) == self.signs)
        )

    @property
    def key(self) -> Key:
        """Its op and the shapes of the operands."""
        assert self.node is not None
        return self.node.op, tuple([plain(node.spec.shape) for node in self.node.inputs])

    def alike(self, op: Op, operands: Sequence[Any]) -> Sequence[Link]:
        """The children, if there are several, with this op on Tensors, numbers and arrays of these shapes."""
        if len(self.children) < 2:
            return ()
        found = self._alike
        if found is None:
            found = {}
            for child in self.children:
                found.setdefault(child.key, []).append(child)
            self._alike = found
        shapes: list[tuple[int, ...]] = []
        for a in operands:
            if isinstance(a, Tensor):
                shapes.append(a._data.shape if a._data is not None else a.spec.shape)
            else:
                shapes.append(a.shape if a.__class__ is np.ndarray else ())
        return found.get((op, tuple(shapes)), ())

    def called_with(self, operands: Sequence[Any]) -> None:
        """Know it by the Python numbers among `operands`: by 2, where it was 2.0 that gave the same."""
        args = list(self.args)
        for place, (ref, a) in enumerate(zip(self.args, operands)):
            if isinstance(ref, Varying):
                if a.__class__ is not ref.kind:
                    args[place] = replace(ref, kind=a.__class__)
            elif isinstance(ref, Literal):
                raw = compared(a)
                if raw.__class__ is not ref.raw.__class__ or raw != ref.raw:
                    args[place] = replace(ref, raw=raw)
        self.args = tuple(args)

    def add(self, child: Link) -> Link:
        """Let `child` come after this link."""
        self.children.append(child)
        if self._alike is not None:
            self._alike.setdefault(child.key, []).append(child)
        self.next = child
        return child

    def remove(self, child: Link) -> None:
        """Forget `child` and what comes after it."""
        self.children.remove(child)
        self._alike = None
        if self.next is child:
            self.next = self.children[-1] if self.children else NOTHING

    def sequence(self) -> list[Link]:
        """The ops from the first to this one."""
        links, link = [], self
        while link.parent is not None:
            links.append(link)
            link = link.parent
        return links[::-1]
