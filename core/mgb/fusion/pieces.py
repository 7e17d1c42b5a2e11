"""Piecewise computation: ops on a concatenation are computed for each piece, without joining them first.

``roll(x, 1) - x`` reads a concatenation of two slices. Cut where that is cut, the difference is two, each of
slices of `x` alone, which are views; what is stored is the difference, in two parts (`Op.parts`). A border of
zeros around an array is pieces too, nine of them for two axes, of which eight are small. So the op that puts
pieces together moves towards the results, as passes move transposes towards the inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ..backends import Scope, Traits
from ..ir import Graph, Kind, Node, Spec
from ..ir.dtypes import INTEGERS
from ..ir.sizes import about, is_sized, key, same_shape
from ..ops.declare import op_of
from ..ops.layout import (
    BROADCAST_TO,
    RESHAPE,
    SLICE,
    TRANSPOSE,
    Window,
    broadcast_to,
    concat,
    reshape,
    slice_,
    transpose,
    unslice,
)
from ..ops.primitives import IOTA, add, iota
from ..passes.merge import merge
from ..passes.reshapes import delay_reshapes, moves_ones, places
from ..passes.rewrite import full, node_of, read_once, rewrite, shaped, value_of
from ..passes.transposes import hoist_transposes
from ..tensor import Tensor
from ..tensor.apply import apply
from ..tensor.tracing import copy_node
from .axes import plain_split
from .copies import copies, delay_copies
from .grid import Range, covered, grid, merged, within
from .legality import DEFAULT, FusionConfig, Shape, accepts
from .slices import hoist_slices

CONCAT, UNSLICE = op_of(concat), op_of(unslice)

#: The most pieces that a value is computed in, and the elements for each of them from which that pays.
MOST, LEAST = 16, 1 << 15

#: Ops that put together, and those that look at what is put together, through which pieces are seen.
_TOGETHER = frozenset({CONCAT, UNSLICE})
_THROUGH = _TOGETHER | {SLICE, TRANSPOSE, RESHAPE}

#: Those that need of their operands what is read of their results.
_MOVES = _THROUGH | {BROADCAST_TO}

#: So many element-wise ops are computed again for a piece: of what one op reads alone, and of what several
#: read and is cheap. What several read and takes more is stored: computed again for each reader, it would be
#: computed once more for each of theirs, and steps of a stencil would multiply.
_ALONE, _SHARED = 32, 4


@dataclass(frozen=True, slots=True)
class Pieces:
    """A value in pieces, on a grid.

    Attributes
    ----------
    cuts : tuple of tuple of int
        Along each axis the places where it is cut, from 0 to its length.
    boxes : mapping
        The piece at each place of the grid; it may have to be broadcast.
    """

    cuts: tuple[tuple[Any, ...], ...]
    boxes: Mapping[tuple[int, ...], Tensor]


def split(graph: Graph, traits: Traits, config: FusionConfig = DEFAULT) -> Graph:
    """Compute with pieces what reads something that is put together of pieces.

    Parameters
    ----------
    graph : Graph
        Simplified.
    traits : Traits
        Of the backend that is to compile the groups, which has nothing of it if its results are row-major.
    config : FusionConfig
        What the user allows.

    Returns
    -------
    Graph
    """
    if not traits.strided_outputs or traits.scope is Scope.GRAPH:
        return graph
    graph = delay_copies(hoist_slices(graph))
    if not graph.has(*_TOGETHER):
        return graph
    graph = delay_reshapes(rewrite(graph, _Splitter(graph, traits, config)))
    return merge(hoist_transposes(graph))


class _Splitter:
    """The rule, and what it knows of the nodes it has made."""

    def __init__(self, graph: Graph, traits: Traits, config: FusionConfig) -> None:
        self.traits, self.config = traits, config
        self.whole = _wanted_whole(graph)
        self.single = read_once(graph)
        #: What may be computed for each piece, and with how many ops.
        self.again: dict[Node, int] = {}
        self.weights: dict[Node, int] = {}
        self.pieces: dict[Node, Pieces] = {}
        self.made: dict[Any, Tensor] = {}

    def __call__(self, node: Node, *values: Tensor) -> Tensor:
        out = None
        if node.op.kind is Kind.ELEMENTWISE or (node.op.kind is Kind.REDUCE and node.op.is_primitive):
            out = self._computed(node, values)
        elif node.op is RESHAPE and copies(node):
            out = self._copied(values[0], node.spec.shape)
        found = copy_node(node, *values) if out is None else out
        if node.op in _THROUGH and node not in self.whole:
            pieces = self._seen(node, values)
            if pieces is not None and len(pieces.boxes) <= MOST:
                self.pieces[node_of(found)] = pieces
        if node in self.single or node.op.cheap:
            self.again[node_of(found)] = _ALONE if node in self.single else _SHARED
        self._weight(node_of(found))  # of each when those before it are known: chains may be long
        return found

    def of(self, value: Tensor) -> Pieces | None:
        """Return the pieces of `value`, if it has some."""
        return self.pieces.get(node_of(value))

    # what moves elements

    def _seen(self, node: Node, values: Sequence[Tensor]) -> Pieces | None:
        if node.op is CONCAT:
            return self._side_by_side(values, node.params["axis"])
        if node.op is UNSLICE:
            return self._bordered(values[0], node)
        pieces = self.of(values[0])
        if pieces is None:
            return None
        if node.op is RESHAPE:
            return self._divided(values[0], node.spec.shape)
        if node.op is TRANSPOSE:
            axes = node.params["axes"]
            boxes = {
                tuple(place[a] for a in axes): transpose(shaped(box, _lengths(pieces, place)), axes=axes)
                for place, box in pieces.boxes.items()
            }
            return Pieces(tuple(pieces.cuts[a] for a in axes), boxes)
        return self._window(values[0], pieces, node.params["window"])

    def _side_by_side(self, values: Sequence[Tensor], axis: int) -> Pieces | None:
        values = [v for v in values if v.shape[axis] != 0]
        if not values or not about(prod(values[0].shape)):
            return None
        cuts = [merged(found) for found in zip(*(self._cuts(v, v.shape) for v in values), strict=True)]
        along, start, boxes = [0], 0, {}
        for value in values:
            own = self._cuts(value, value.shape)[axis]
            for ranges, place in grid([own if a == axis else c for a, c in enumerate(cuts)]):
                at = tuple(p + (len(along) - 1 if a == axis else 0) for a, p in enumerate(place))
                boxes[at] = self.piece(value, ranges)
            along += [start + cut for cut in own[1:]]
            start = start + value.shape[axis]
        return Pieces(tuple(tuple(along) if a == axis else c for a, c in enumerate(cuts)), boxes)

    def _bordered(self, value: Tensor, node: Node) -> Pieces | None:
        window: Window = node.params["window"]
        if any(step != 1 for *_, step in window) or not about(value.size):
            return None
        cuts, inner = [], []
        for (start, stop, _), length, own in zip(
            window, node.spec.shape, self._cuts(value, value.shape), strict=True
        ):
            inside = [start + cut for cut in own]
            found = [*([0] if start != 0 else []), *inside, *([length] if stop != length else [])]
            cuts.append(tuple(found))
            inner.append(range(int(start != 0), int(start != 0) + len(own) - 1))
        boxes = {}
        for ranges, place in grid(cuts):
            if all(p in inside for p, inside in zip(place, inner, strict=True)):
                moved = [(a - w[0], b - w[0]) for (a, b), w in zip(ranges, window, strict=True)]
                boxes[place] = self.piece(value, moved)
            else:
                shape = tuple(b - a for a, b in ranges)
                boxes[place] = full(0, Spec(shape, value.dtype, node.spec.device))
        return Pieces(tuple(cuts), boxes)

    def _window(self, value: Tensor, pieces: Pieces, window: Window) -> Pieces | None:
        if any(step != 1 for *_, step in window) or any(not start < stop for start, stop, _ in window):
            return None
        cuts = tuple(
            (0, *(c - start for c in own if start < c and c < stop), stop - start)
            for (start, stop, _), own in zip(window, pieces.cuts, strict=True)
        )
        boxes = {}
        for ranges, place in grid(cuts):
            moved = [(a + w[0], b + w[0]) for (a, b), w in zip(ranges, window, strict=True)]
            boxes[place] = self.piece(value, moved)
        return Pieces(cuts, boxes)

    def _divided(self, value: Tensor, shape: Shape) -> Pieces | None:
        """Return the pieces of `value` with its axes split as in `shape`; None if those are not split."""
        groups = plain_split(value.shape, shape)
        for axis, lengths in reversed(list(enumerate(groups or ()))):
            for inner in reversed(lengths[1:]):
                before = value.shape[:axis], value.shape[axis] // inner, inner, value.shape[axis + 1 :]
                pieces = self._split_axis(value, axis, inner)
                value = reshape(value, shape=(*before[0], *before[1:3], *before[3]))
                self.pieces[node_of(value)] = pieces
        return self.of(value) if groups else None

    def _split_axis(self, value: Tensor, axis: int, inner: int) -> Pieces:
        own = self.pieces[node_of(value)].cuts
        rows = sorted({row for cut in own[axis] for row in (cut // inner, -(-cut // inner))})
        columns = sorted({0, inner, *(cut % inner for cut in own[axis])})
        cuts = (*own[:axis], tuple(rows), tuple(columns), *own[axis + 1 :])
        boxes = {}
        for ranges, place in grid(cuts):
            (a, b), (c, d) = ranges[axis : axis + 2]
            whole = (0, inner) if b - a > 1 else (c, d)  # of a few rows, they are cut from the whole ones
            along = (a * inner + whole[0], (b - 1) * inner + whole[1])
            part = [*ranges[:axis], along, *ranges[axis + 2 :]]
            lengths = [stop - start for start, stop in part]
            box = shaped(self.piece(value, part), tuple(lengths))
            box = reshape(box, shape=(*lengths[:axis], b - a, whole[1] - whole[0], *lengths[axis + 1 :]))
            window = [(0, length, 1) for length in box.shape]
            window[axis + 1] = (c - whole[0], d - whole[0], 1)
            boxes[place] = box if d - c == box.shape[axis + 1] else slice_(box, window=tuple(window))
        return Pieces(cuts, boxes)

    def _copied(self, value: Tensor, shape: Shape) -> Tensor | None:
        """Return what a reshape copies, put together of its pieces in the order of its result, or None."""
        pieces = self.of(value)
        return reshape(_together(pieces), shape=shape) if pieces and len(pieces.boxes) > 1 else None

    # what computes

    def _computed(self, node: Node, values: Sequence[Tensor]) -> Tensor | None:
        source = node.inputs[0].spec.shape if node.op.kind is Kind.REDUCE else node.spec.shape
        if all(self.of(v) is None for v in values) or accepts(self.traits, node, self.config) is not None:
            return None
        cuts = [merged(found) for found in zip(*(self._cuts(v, source) for v in values), strict=True)]
        count = prod(len(c) - 1 for c in cuts)
        if count > MOST or about(prod(source)) < count * LEAST:
            return None
        if any(len(cuts[a]) > 2 for a in node.params.get("axis", ()) if node.op.kind is Kind.REDUCE):
            return None
        boxes = {}
        for ranges, place in grid(cuts):
            operands = [self.piece(v, ranges[len(source) - v.ndim :]) for v in values]
            boxes[place] = apply(node.op, *operands, **node.params)
        if node in self.single:
            self.again.update((node_of(box), _ALONE) for box in boxes.values())
        if node.op.kind is Kind.REDUCE:
            cuts = [(0, 1) if a in node.params["axis"] else c for a, c in enumerate(cuts)]
        if count == 1:
            return shaped(boxes[(0,) * len(cuts)], node.spec.shape)
        pieces = Pieces(tuple(cuts), boxes)
        found = _together(pieces)
        self.pieces[node_of(found)] = pieces
        return found

    def _cuts(self, value: Tensor, shape: Shape) -> list[tuple[Any, ...]]:
        """Return where `value`, which broadcasts to `shape`, is cut along each axis of it."""
        pieces, lead = self.of(value), len(shape) - value.ndim
        found: list[tuple[Any, ...]] = [(0, length) for length in shape]
        for a, own in enumerate(pieces.cuts if pieces else ()):
            if len(own) > 2:
                found[lead + a] = own
        return found

    def _weight(self, node: Node) -> int:
        """Count the ops that are recomputed for a piece of the value of `node`."""
        if node not in self.weights:
            computes = node.op.kind is Kind.ELEMENTWISE and node in self.again
            passes_on = node.op in _MOVES
            before = sum(map(self._weight, node.inputs)) if computes or passes_on else 0
            self.weights[node] = min(before + computes, _ALONE + 1)
        return self.weights[node]

    def piece(self, value: Tensor, ranges: Sequence[Range]) -> Tensor:
        """Return `value` in these ranges; along axes of length 1 it is broadcast."""
        ranges = [(0, 1) if d == 1 else r for r, d in zip(ranges, value.shape, strict=True)]
        if all(a == 0 and b == d for (a, b), d in zip(ranges, value.shape, strict=True)):
            pieces = self.of(value)
            return value if pieces is None or len(pieces.boxes) > 1 else next(iter(pieces.boxes.values()))
        name = node_of(value), key([e for r in ranges for e in r])
        if name not in self.made or not same_shape(self.made[name].shape, tuple(b - a for a, b in ranges)):
            self.made[name] = self._piece(value, ranges)
        return self.made[name]

    def _inside(self, value: Tensor, ranges: Sequence[Range]) -> tuple[Tensor, list[Range]] | None:
        """Return the piece of `value` that has these ranges, and where they are in it.

        None where several have.
        """
        pieces = self.of(value)
        if pieces is None:
            return None
        places = [
            sum(1 for c in own[1:-1] if c <= a) for own, (a, _) in zip(pieces.cuts, ranges, strict=True)
        ]
        if any(own[p + 1] < b for own, p, (_, b) in zip(pieces.cuts, places, ranges, strict=True)):
            return None
        starts = [own[p] for own, p in zip(pieces.cuts, places, strict=True)]
        box = shaped(pieces.boxes[tuple(places)], _lengths(pieces, tuple(places)))
        return box, [(a - s, b - s) for (a, b), s in zip(ranges, starts, strict=True)]

    def _piece(self, value: Tensor, ranges: Sequence[Range]) -> Tensor:
        node, shape = node_of(value), tuple(b - a for a, b in ranges)
        inside = self._inside(value, ranges)
        if inside is not None:
            return self.piece(*inside)
        operands = [value_of(i) for i in node.inputs]
        if node.op is IOTA and (counted := _counted(node, ranges)) is not None:
            return counted
        if node.op is BROADCAST_TO:
            (small,) = operands
            return broadcast_to(self.piece(small, ranges[value.ndim - small.ndim :]), shape=shape)
        if node.op is SLICE:
            window = within(node.params["window"], ranges)
            if any(abs(step) != 1 for *_, step in window):
                return slice_(operands[0], window=window)
            lengths = [b - a for a, b in ranges]
            part = self.piece(operands[0], [covered(w, n) for w, n in zip(window, lengths, strict=True)])
            return _turned(part, [step < 0 for *_, step in window])
        if node.op is TRANSPOSE:
            axes = node.params["axes"]
            moved = [ranges[axes.index(a)] for a in range(len(axes))]
            return transpose(self.piece(operands[0], moved), axes=axes)
        if moves_ones(node):
            (inner,) = operands
            place = places(inner.shape, node.spec.shape)
            own = [ranges[place[a]] if a in place else (0, 1) for a in range(inner.ndim)]
            return reshape(self.piece(inner, own), shape=shape)
        if node in self.again and node.op.kind is Kind.ELEMENTWISE and self._weight(node) <= self.again[node]:
            parts = [self.piece(o, ranges[value.ndim - o.ndim :]) for o in operands]
            found = apply(node.op, *parts, **node.params)
            self.again[node_of(found)] = self.again[node]
            return found
        return slice_(value, window=tuple((a, b, 1) for a, b in ranges))


def _counted(node: Node, ranges: Sequence[Range]) -> Tensor | None:
    """Return a part of the places along one axis, which are counted from another start."""
    long = [a for a, d in enumerate(node.spec.shape) if d != 1]
    if len(long) != 1 or node.spec.dtype not in INTEGERS:
        return None
    start = ranges[long[0]][0]
    if is_sized(start):
        return None
    places = iota(**{**node.params, "shape": tuple(b - a for a, b in ranges)})
    return add(places, full(start, Spec((), node.spec.dtype, node.spec.device)))


def _wanted_whole(graph: Graph) -> frozenset[Node]:
    """Return the values whose readers need them whole, not element by element."""
    wanted = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.op in _MOVES and node not in wanted:
            passes_on = (
                r.op.kind in (Kind.ELEMENTWISE, Kind.REDUCE) or r.op in _MOVES for r in graph.readers[node]
            )
            moved = any(r in wanted and r.op in _MOVES and not copies(r) for r in graph.readers[node])
            merges = node.op is RESHAPE and not plain_split(node.inputs[0].spec.shape, node.spec.shape)
            if not all(passes_on) or moved or merges:
                wanted.add(node)
    return frozenset(wanted)


def _lengths(pieces: Pieces, place: tuple[int, ...]) -> Shape:
    return tuple(own[p + 1] - own[p] for own, p in zip(pieces.cuts, place, strict=True))


def _turned(value: Tensor, axes: Sequence[bool]) -> Tensor:
    """Return `value` backwards along some axes; one element is the same in both directions."""
    turns = [turn and length != 1 for turn, length in zip(axes, value.shape, strict=True)]
    if not any(turns):
        return value
    window = [(d - 1, -1, -1) if turn else (0, d, 1) for turn, d in zip(turns, value.shape, strict=True)]
    return slice_(value, window=tuple(window))


def _together(pieces: Pieces, place: tuple[int, ...] = ()) -> Tensor:
    """Return the value that is made of the pieces."""
    axis = len(place)
    if axis == len(pieces.cuts):
        return shaped(pieces.boxes[place], _lengths(pieces, place))
    parts = [_together(pieces, (*place, p)) for p in range(len(pieces.cuts[axis]) - 1)]
    return parts[0] if len(parts) == 1 else concat(*parts, axis=axis)
