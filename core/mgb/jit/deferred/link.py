"""The tree of sequences of deferred ops: each link is one op after all those before it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...ir import Node, Op, Spec
from ...ir.sizes import plain
from ...tensor import Tensor
from ..entry import Literal
from .operands import Ref, Varying, normalize_scalar

#: An op, and the shapes of its operands.
Key = tuple[Op, tuple[tuple[int, ...], ...]]


class _Nothing:
    op = None

    def matches(self, op: Op, params: dict[str, Any], arity: int) -> bool:
        return False


#: The next link of a link without children.
NOTHING: Any = _Nothing()


#: How a call that is matched with a record may differ from it: see `Link`.
NOT_AT_ALL, IN_NUMBERS, IN_ALL = range(3)


def signs_of(params: Any) -> tuple[float, ...]:
    """Return the signs of the zeros among the floats in parameters."""
    kind = type(params)
    if kind is dict or kind is tuple or kind is list:
        parts = params.values() if kind is dict else params
        return tuple([sign for part in parts for sign in signs_of(part)])
    return (math.copysign(1.0, params),) if kind is float and not params else ()


class Link:
    """One op after all those before it. It stands for the sequence that ends with it.

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
        The size of these inputs.
    next : Link or NOTHING
        The child that came last time.
    children : list of Link
        Every link that ever came after it.
    may_differ : int
        How a call that is matched with a record may differ from it after this op: `NOT_AT_ALL`,
        `IN_NUMBERS`, or `IN_ALL`.
    signs : tuple of float
        The signs of the zeros in its parameters: 0.0 == -0.0.
    seen : int
        How often a recorded sequence ended here.
    megamorphic : tuple of Op
        Ops that came after it with so many different parameters that they run at once.
    plans : dict
        The `SequencePlan` for each set of results that was alive when a sequence ended here.
    has_merged_plans : bool
        One plan serves all sets of results.
    """

    __slots__ = (
        "_by_key",
        "args",
        "arity",
        "children",
        "fed",
        "feeds",
        "has_merged_plans",
        "index",
        "may_differ",
        "megamorphic",
        "nbytes",
        "next",
        "node",
        "op",
        "params",
        "parent",
        "plans",
        "seen",
        "signs",
        "spec",
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
        self._by_key: dict[Key, list[Link]] | None = None  # the children, once there are several
        self.plans: dict[frozenset[int], Any] = {}
        self.has_merged_plans = False
        self.seen = 0
        self.signs = signs_of(params)
        self.may_differ = NOT_AT_ALL
        self.megamorphic: tuple[Op, ...] = ()
        self.next = NOTHING

    @property
    def source(self) -> str:
        """Return the user's line that called the op."""
        return "" if self.node is None else self.node.source

    def matches(self, op: Op, params: dict[str, Any], arity: int) -> bool:
        """Check whether this link has this op, these parameters and this number of operands."""
        return (
            self.op is op
            and self.arity == arity
            and self.params == params
            and (not self.signs or signs_of(params) == self.signs)
        )

    @property
    def key(self) -> Key:
        """Return the op and the shapes of its operands."""
        assert self.node is not None
        return self.node.op, tuple([plain(node.spec.shape) for node in self.node.inputs])

    def candidates(self, op: Op, operands: Sequence[Any]) -> Sequence[Link]:
        """Return the children with this op and operands of these shapes; () if there is only one child."""
        if len(self.children) < 2:
            return ()
        found = self._by_key
        if found is None:
            found = {}
            for child in self.children:
                found.setdefault(child.key, []).append(child)
            self._by_key = found
        shapes: list[tuple[int, ...]] = []
        for a in operands:
            if isinstance(a, Tensor):
                shapes.append(a._data.shape if a._data is not None else a.spec.shape)
            else:
                shapes.append(a.shape if a.__class__ is np.ndarray else ())
        return found.get((op, tuple(shapes)), ())

    def called_with(self, operands: Sequence[Any]) -> None:
        """Match the Python numbers among `operands` from now on, such as 2 where 2.0 gave the same array."""
        args = list(self.args)
        for place, (ref, a) in enumerate(zip(self.args, operands)):
            if isinstance(ref, Varying):
                if a.__class__ is not ref.kind:
                    args[place] = replace(ref, kind=a.__class__)
            elif isinstance(ref, Literal):
                raw = normalize_scalar(a)
                if raw.__class__ is not ref.raw.__class__ or raw != ref.raw:
                    args[place] = replace(ref, raw=raw)
        self.args = tuple(args)

    def add(self, child: Link) -> Link:
        """Add `child` after this link."""
        self.children.append(child)
        if self._by_key is not None:
            self._by_key.setdefault(child.key, []).append(child)
        self.next = child
        return child

    def remove(self, child: Link) -> None:
        """Remove `child` and all links after it."""
        self.children.remove(child)
        if self._by_key is not None:
            same = self._by_key[child.key]
            same.remove(child)
            if not same:
                del self._by_key[child.key]
        if self.next is child:
            self.next = self.children[-1] if self.children else NOTHING

    def sequence(self) -> list[Link]:
        """Return the ops from the first to this one."""
        links, link = [], self
        while link.parent is not None:
            links.append(link)
            link = link.parent
        return links[::-1]
