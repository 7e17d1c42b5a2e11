"""What `auto` remembers: the sequences of ops that it saw, as a tree whose links lead from op to op."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from ...ir import Node, Op, Spec
from .ending import Ending
from .operands import Ref

#: At most so many links may end sequences, and so many ops may lie on the ways to them, those shared by
#: several counted for each. An op takes about a kilobyte.
_MOST_ENDS, _MOST_OPS = 256, 1 << 16

#: Sets of living results that one end tells apart; beyond, it computes what any of them needs.
_SETS = 4


class _Nothing:
    op = None


#: What comes after a link that nothing came after.
NOTHING: Any = _Nothing()


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
        All that ever came after it.
    endings : dict
        For sets of results that were alive where the sequence ended: how to compute them.
    """

    __slots__ = (
        "args",
        "arity",
        "children",
        "endings",
        "fed",
        "feeds",
        "index",
        "nbytes",
        "next",
        "node",
        "op",
        "params",
        "parent",
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
        self.endings: dict[frozenset[int], Ending] = {}
        self.varied = False
        self.next = NOTHING

    def add(self, child: Link) -> Link:
        """Let `child` come after this link."""
        self.children.append(child)
        self.next = child
        return child

    def sequence(self) -> list[Link]:
        """The ops from the first to this one."""
        links, link = [], self
        while link.parent is not None:
            links.append(link)
            link = link.parent
        return links[::-1]

    def ending(self, wanted: frozenset[int]) -> Ending:
        """How to compute the results `wanted`."""
        found = self.endings.get(wanted)
        if found is not None:
            return found
        if self.varied or len(self.endings) == _SETS:
            return self._common_ending(wanted)
        self.endings[wanted] = new = Ending(self.sequence(), wanted)
        return new

    def _common_ending(self, wanted: frozenset[int]) -> Ending:
        """One for every set there was: what lives on is another thing each time, as with cyclic garbage."""
        self.varied = True
        for outputs, ending in self.endings.items():
            if wanted <= outputs and len(self.endings) == 1:
                return ending
        outputs = wanted.union(*self.endings)
        self.endings = {outputs: Ending(self.sequence(), outputs)}
        return self.endings[outputs]


class Ends:
    """The links where sequences ended, the latest used last; the oldest are forgotten with their ways."""

    def __init__(self) -> None:
        self._links: OrderedDict[Link, None] = OrderedDict()
        self._ops = 0

    def __len__(self) -> int:
        return len(self._links)

    def used(self, link: Link) -> None:
        """A sequence has ended at `link`, and nothing follows any now."""
        if link in self._links:
            self._links.move_to_end(link)
            return
        self._links[link] = None
        self._ops += link.index + 1
        while len(self._links) > _MOST_ENDS or (self._ops > _MOST_OPS and len(self._links) > 1):
            oldest, _ = self._links.popitem(last=False)
            self._ops -= oldest.index + 1
            _forget(oldest)


def _forget(link: Link) -> None:
    """Remove the end `link`, and the way to it as far as it leads nowhere else."""
    link.endings = {}
    while link.parent is not None and not link.children and not link.endings:
        parent = link.parent
        parent.children.remove(link)
        if parent.next is link:
            parent.next = parent.children[-1] if parent.children else NOTHING
        link = parent


def crossing(sequence: Sequence[Link]) -> list[int]:
    """For each place between two ops: the bytes that are made before it and read after it."""
    last = list(range(len(sequence)))
    for link in sequence:
        for ref in link.args:
            if isinstance(ref, int) and ref >= 0:
                last[ref] = link.index
    change = [0] * (len(sequence) + 1)
    for link in sequence:
        assert link.spec is not None
        change[link.index + 1] += link.spec.nbytes
        change[last[link.index] + 1] -= link.spec.nbytes
    total, held = 0, []
    for step in change:
        total += step
        held.append(total)
    return held
