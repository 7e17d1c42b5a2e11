"""Results that kernels write into their places in a larger one, so that nobody copies them there.

Where an op, such as ``concat``, does nothing but put its operands side by side (`Op.parts`), what a kernel
computes for it is written where it will stand: the memory of the whole is there before the first part is.
Reshapes and transposes in between, as those of ``stack``, are views both ways. What no kernel writes is
copied when the op's turn comes.

An assignment to a window is such an op too: its first operand stands wherever the window is not. Where nobody
looks at that any more, the result lies in its memory, and nothing of it is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from ..backends import Backend
from ..ir import Node, Op
from ..ir.sizes import At, about, count, same_shape
from ..ir.strides import row_major
from ..ops.layout import BROADCAST_TO, RESHAPE, SLICE, TRANSPOSE, Window, are_apart, slices
from ..runtime import memory
from .schedule import Call, is_given_memory, may_alias, overwritten

Shape = tuple[int, ...]

#: Ops that read nothing: their results are views, whatever their operands are.
_VIEWS = frozenset({BROADCAST_TO, SLICE, TRANSPOSE})

#: An op that makes views, and its parameters.
Move = tuple[Op, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Part:
    """Where a value lies in a larger one.

    Attributes
    ----------
    whole : Node
        The larger one; it may be a part itself.
    window : Window or None
        Its ranges there; None: it takes all of the memory, whose value nobody needs any more.
    moves : tuple of (Op, dict)
        What makes a view of the window that is like it, with the parameters.
    """

    whole: Node
    window: Window | None
    moves: tuple[Move, ...] = ()

    def view(self, at: At) -> Callable[[Any], Any]:
        """Return a function that takes the array of the whole and returns that of the part."""
        assert self.window is not None
        cut = itemgetter(slices(at(self.window)))
        moves = [partial(op.eager, **at(dict(params))) for op, params in self.moves if op.eager is not None]
        if not moves:
            return cut

        def view(whole: Any) -> Any:
            array = cut(whole)
            for move in moves:
                array = move(array)
            return array

        return view


@dataclass(frozen=True, slots=True)
class Parts:
    """Values that are written directly into larger ones.

    Attributes
    ----------
    places : mapping
        Each such value, with its place.
    copies : mapping
        For each of the larger values, the numbers of the operands of its op that are copied into it.
    """

    places: Mapping[Node, Part] = field(default_factory=dict)
    copies: Mapping[Node, tuple[int, ...]] = field(default_factory=dict)
    _roots: dict[Node, Node] = field(default_factory=dict, repr=False, compare=False)

    def root(self, node: Node) -> Node:
        """Return the value in whose memory `node` lies."""
        path = []
        while node in self.places and node not in self._roots:
            path.append(node)
            node = self.places[node].whole
        root = self._roots.get(node, node)
        self._roots.update(dict.fromkeys(path, root))  # steps of a loop that is unrolled are a long chain
        return root

    @property
    def taken(self) -> frozenset[Node]:
        """Values that take the memory of another one, and those."""
        found = ((n, part.whole) for n, part in self.places.items() if part.window is None)
        return frozenset(n for pair in found for n in pair)


def find_parts(calls: Sequence[Call], backend: Backend | None, kept: frozenset[Node]) -> Parts:
    """Return the results of kernels that may be written into a larger value.

    Parameters
    ----------
    calls : sequence of Call
        In the order in which they run.
    backend : Backend or None
        Whose kernels they are.
    kept : frozenset of Node
        Values that need memory of their own, as those that leave the program.
    """
    finder = _Finder(calls, kept, backend is not None and backend.traits.sequences)
    if backend is not None and backend.traits.strided_outputs:
        for k in reversed(range(len(calls))):  # what is part of a larger one is known before its own parts
            finder.place(k)
    return Parts(finder.places, finder.copies)


class _Finder:
    def __init__(self, calls: Sequence[Call], kept: frozenset[Node], sequences: bool) -> None:
        self.kept, self.sequences = set(kept), sequences
        self.places: dict[Node, Part] = {}
        self.copies: dict[Node, tuple[int, ...]] = {}
        self.ordered = calls
        self.at = {n: k for k, call in enumerate(calls) for n in call.writes}
        self.calls = {n: call for call in calls for n in call.writes}
        self.uses = uses(calls, kept) if any(overwritten(call.steps[0]) is not None for call in calls) else {}
        self.strides: dict[Node, Shape] = {}

    def place(self, k: int) -> None:
        """Have the operands of call `k` written into its result, if it is one that puts them side by side."""
        call = self.ordered[k]
        (node, *_), (whole, *_) = call.steps[0].graph.outputs, call.writes
        if call.kernel is not None or node.op.parts is None:
            return
        values = call.steps[0].outside.inputs
        windows = node.op.parts(*(i.spec.shape for i in node.inputs), **node.params)
        is_large = about(whole.spec.nbytes) >= memory.SMALL
        if not (whole in self.places or None in windows or is_large or self.sequences):
            return
        if None in windows and whole not in self.places:
            (assigned,) = (w for w in windows if w is not None)
            self._take(values[windows.index(None)], whole, k, assigned)
        copies = []
        for number, (value, window) in enumerate(zip(values, windows, strict=True)):
            if not self._goes_into(whole, value, value.spec.shape, window, None in windows):
                copies.append(number)
        if whole in self.places or len(copies) < len(windows) or self.sequences:
            self.copies[whole] = tuple(copies)

    def _goes_into(
        self, whole: Node, value: Node, shape: Shape, window: Window | None, overwrites: bool
    ) -> bool:
        """Return whether nothing is left to be copied of an operand that stands in this window of `whole`."""
        place = self.places.get(whole)
        taken = place.whole if place is not None and place.window is None else None
        if window is None:
            return value is taken
        if overwrites and not same_shape(shape, tuple(count(*w) for w in window)):
            return False
        if overwrites and taken is None and any(step != 1 for *_, step in window):
            return False  # the rest would be too many ranges
        strides = self.strides.get(whole, row_major(whole.spec.shape))
        steps = tuple(s * step for s, (*_, step) in zip(strides, window, strict=True))
        is_free = partial(self._is_free, taken) if overwrites else None
        return self._settled(value, shape, Part(whole, window), steps, is_free)

    # memory that is taken over

    def _take(self, old: Node, new: Node, k: int, window: Window) -> None:
        """Let the result `new` of call `k` take the memory of `old`, if nobody needs that any more.

        What is assigned to the window may be elsewhere in it.
        """
        call, found = self.calls.get(old), self.uses.get(old, [])
        owns = call is not None and (overwritten(call.steps[0]) is not None or is_given_memory(call))
        others = [read for u, read in found if u == k and read is not old]
        once = [u for u, _ in found].count(k) == 1 + len(others)
        outside = all(_is_apart(read, old, window) for read in others)
        if owns and old not in self.kept and found[-1][0] == k and once and outside:
            self.places[new] = Part(old, None)
            self.kept.add(old)

    def _is_free(self, old: Node | None, value: Node, part: Part) -> bool:
        """Return whether `value` may be written where it belongs at once: `old` is not read there later.

        Nobody else may want `value`: what is assigned next may take the memory.
        """
        at, end = self.at[value], self.at[part.whole]
        if any(u != end for u, _ in self.uses.get(value, [])):
            return False
        if old is None or self.at[old] >= at:
            return old is None
        call = self.calls[value]
        hazards = call.hazards if len(call.steps) == 1 else None
        for u, read in self.uses[old]:
            its_own = u == at and hazards is not None and (read, value) not in hazards
            aligned = read.op is SLICE and read.inputs[0] is old and read.params["window"] == part.window
            if at <= u < end and not (its_own and aligned and not part.moves):
                return False
        return True

    def _settled(
        self,
        value: Node,
        shape: Shape,
        part: Part,
        steps: Shape,
        is_free: Callable[[Node, Part], bool] | None,
    ) -> bool:
        """Return whether `value` is written into this part of a whole, over which one goes by `steps`."""
        while value not in self.kept and (call := self.calls.get(value)) is not None:
            if _is_written(call, value):
                if value in self.places or value.spec.device != part.whole.spec.device:
                    return False
                if is_free is not None and not is_free(value, part):
                    return False
                self.places[value] = part
                self.strides[value] = steps
                return True
            back = _back(call)
            moved = None if back is None or back[0].moves is None else back[0].moves(shape, steps, **back[1])
            if back is None or moved is None:
                return False
            (value,), steps, part = call.reads, moved, replace(part, moves=(*part.moves, back))
            shape = value.spec.shape
        return False


def uses(calls: Sequence[Call], kept: frozenset[Node]) -> dict[Node, list[tuple[int, Node]]]:
    """Map each value to the calls that read its memory, in order, each with the value or view that it reads.

    What is `kept` is read behind the last call, and so is the memory that a view of it shows.
    """
    found: dict[Node, list[tuple[int, Node]]] = {}
    bases: dict[Node, frozenset[Node]] = {}
    for k, call in enumerate(calls):
        node = call.steps[0].graph.outputs[0]
        if not (call.kernel is None and node.op in _VIEWS):
            for n in call.reads:
                for base in (n, *bases.get(n, ())):
                    found.setdefault(base, []).append((k, n))
        if call.kernel is None and may_alias(call.steps[0]):
            owners = frozenset(call.reads).union(*(bases.get(n, ()) for n in call.reads))
            bases |= dict.fromkeys(call.writes, owners)
    for n in kept:
        for base in bases.get(n, ()):
            found.setdefault(base, []).append((len(calls), n))
    return found


def rest(window: Window, shape: Shape) -> list[tuple[slice, ...]]:
    """Return the ranges of an array of `shape` that are outside of a window.

    Of one with steps it is all: then what belongs into the window is written later.
    """
    if any(step != 1 for *_, step in window):
        return [(slice(None),) * len(shape)]
    found, inside = [], [slice(start, stop) for start, stop, _ in window]
    for a, (start, stop, _) in enumerate(window):
        ends = [(0, start), (stop, shape[a])] if start < stop else [(0, shape[a])]
        for first, last in ends:
            if first < last:
                found.append((*inside[:a], slice(first, last), *(slice(None) for _ in shape[a + 1 :])))
    return found


def fill_rest(window: Window, shape: Shape, at: At) -> Callable[[Any, Any], None]:
    """Return a function of two arrays of `shape` that copies the second into the first, but for a window."""
    cuts = rest(at(window), at(shape))

    def fill(whole: Any, source: Any) -> None:
        for cut in cuts:
            whole[cut] = source[cut]

    return fill


def _is_apart(read: Node, old: Node, window: Window) -> bool:
    """Return whether `read` is a window of `old` that has nothing in common with this one."""
    return read.op is SLICE and read.inputs[0] is old and are_apart(read.params["window"], window)


def _is_written(call: Call, value: Node) -> bool:
    """Return whether a kernel, or an op that puts its operands there, writes `value` to a given place."""
    if call.kernel is not None:
        return not call.hands_over and all(value.spec.shape)
    return call.steps[0].graph.outputs[0].op.parts is not None and all(value.spec.shape)


def _back(call: Call) -> Move | None:
    """Return the op and parameters that turn a view back into its operand, or None."""
    (node, *_), (operand, *_) = call.steps[0].graph.outputs, (*call.reads, None)
    if call.kernel is not None or operand is None:
        return None
    if node.op is TRANSPOSE:
        return TRANSPOSE, {"axes": tuple(int(a) for a in np.argsort(node.params["axes"]))}
    return (RESHAPE, {"shape": operand.spec.shape}) if node.op is RESHAPE else None
