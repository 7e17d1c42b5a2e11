"""Attention and its gradient, some rows of queries and some images at a time: the weights stay in the caches.

Nothing of the forward pass is kept for the gradient but its operands: to compute the weights again takes
less time than to write them to memory and read them back (Dao et al. 2022). A causal block of queries
multiplies the keys up to its last row only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from mgb.ir import Spec
from mgb.runtime import forking
from mgb.tensor.libraries import Layout, empty

from .chain import Operand, Work
from .layouts import Axes, Shape, inverse, memory_order, row_major, strides_in
from .native import MINIMUM, SOFTMAX, TRAINING, Arg, Native

OPS = frozenset({"attention", "attention_grad"})

#: Weights that are computed at a time, in bytes: about what the cores' own caches hold.
BLOCK_BYTES = 4 << 20

#: Queries in a block: at least so many, and no more blocks than that.
FEWEST_ROWS, MOST_BLOCKS = 64, 16

_FLOAT = np.dtype(np.float32)


@dataclass(frozen=True)
class Tile:
    """A part of an array or a buffer: matrices in the last two axes.

    Attributes
    ----------
    place : int
        As in `Operand`.
    shape, strides : tuple of int
        Strides count elements.
    start : int
        The element it begins at.
    """

    place: int
    shape: Shape
    strides: tuple[int, ...]
    start: int = 0

    def part(self, axis: int, first: int, count: int) -> Tile:
        """Return `count` elements along `axis`, from `first` on."""
        shape = list(self.shape)
        shape[axis] = count
        return replace(self, shape=tuple(shape), start=self.start + first * self.strides[axis])

    @property
    def transposed(self) -> Tile:
        """The last two axes exchanged."""
        shape, strides = self.shape, self.strides
        return replace(self, shape=(*shape[:-2], *shape[:-3:-1]), strides=(*strides[:-2], *strides[:-3:-1]))


class Blocks(Work):
    """Work on tiles.

    Parameters
    ----------
    op : str
    native : Native
    threads : int
        See `Work`.
    """

    def describe(self, tile: Tile) -> int:
        """Return a memory descriptor that lives as long as this object."""
        return self.keep_layout(self.native.layout(tile.shape, tile.strides, _FLOAT.name))

    def multiply(self, a: Tile, b: Tile, out: Tile, adds: bool = False) -> None:
        """Compute ``out = a @ b``, or ``out += a @ b``."""
        native = self.native
        attributes = native.adding if adds else native.attributes
        x, w, y = map(self.describe, (a, b, out))
        create = "dnnl_matmul_primitive_desc_create"
        made = native.make(create, native.engine, x, w, None, y, attributes)
        self._run(made, (Arg.SRC, x, a), (Arg.WEIGHTS, w, b), (Arg.DST, y, out))

    def hide(self, scores: Tile, bounds: Tile) -> None:
        """Compute ``scores = minimum(scores, bounds)``; where a bound is -inf, NaN too becomes -inf."""
        native, (x, b) = self.native, map(self.describe, (scores, bounds))
        create = "dnnl_binary_primitive_desc_create"
        made = native.make(create, native.engine, MINIMUM, x, b, x, native.attributes)
        self._run(made, (Arg.SRC, x, scores), (Arg.SRC_1, b, bounds), (Arg.DST, x, scores))

    def softmax(self, x: Tile) -> None:
        """Compute softmax in place, over rows."""
        layout = self.describe(x)
        self._run(self._softmax(layout, x), (Arg.SRC, layout, x), (Arg.DST, layout, x))

    def _softmax(self, layout: int, x: Tile) -> int:
        native, create = self.native, "dnnl_softmax_forward_primitive_desc_create"
        sides = layout, layout, len(x.shape) - 1
        return native.make(create, native.engine, TRAINING, SOFTMAX, *sides, native.attributes)

    def softmax_gradient(self, g: Tile, y: Tile) -> None:
        """Compute ``g = y * (g - sum(g * y))``, over rows."""
        native, layout = self.native, self.describe(g)
        hint = self.keep_description(self._softmax(layout, g))
        create = "dnnl_softmax_backward_primitive_desc_create"
        sides = layout, layout, layout, len(g.shape) - 1
        made = native.make(create, native.engine, SOFTMAX, *sides, hint, native.attributes)
        self._run(made, (Arg.DST, layout, y), (Arg.DIFF_DST, layout, g), (Arg.DIFF_SRC, layout, g))

    def _run(self, description: int, *operands: tuple[Arg, int, Tile]) -> None:
        used = [Operand(arg, at, tile.place, tile.start * _FLOAT.itemsize) for arg, at, tile in operands]
        self.add(self.keep_description(description), used)


@dataclass(frozen=True)
class _Plan:
    """How attention of queries (images, ..., places, width) and `sources` keys is cut into blocks."""

    queries: Shape
    sources: int
    causal: bool

    @property
    def rows(self) -> int:
        """Queries in a block."""
        return max(FEWEST_ROWS, -(-self.queries[-2] // MOST_BLOCKS))

    @property
    def images(self) -> int:
        """Images in a block."""
        each = math.prod(self.queries[1:-2]) * min(self.rows, self.queries[-2]) * self.sources
        return max(1, min(self.queries[0], BLOCK_BYTES // (each * _FLOAT.itemsize)))

    @property
    def block_bytes(self) -> int:
        """Of the weights in the largest block."""
        heads = self.images * math.prod(self.queries[1:-2])
        return heads * min(self.rows, self.queries[-2]) * self.sources * _FLOAT.itemsize

    def of_images(self) -> Iterator[tuple[int, int]]:
        """Yield (first, count) of each block's images."""
        return _ranges(self.queries[0], self.images)

    def of_rows(self) -> list[tuple[int, int, int]]:
        """Return (first, count, keys) of each block's queries: how many keys they see, the most first."""
        found = _ranges(self.queries[-2], self.rows)
        seen = ((i, n, min(i + n, self.sources) if self.causal else self.sources) for i, n in found)
        return sorted(seen, key=lambda block: (-block[2], block[0]))

    def bounds(self) -> list[Any]:
        """Return for each of `of_rows` inf where a query sees a key, -inf where it does not."""
        return [
            np.where(np.tri(n, keys, first, np.bool_), np.inf, -np.inf).astype(_FLOAT)
            for first, n, keys in self.of_rows()
        ]


def _ranges(length: int, step: int) -> Iterator[tuple[int, int]]:
    return ((i, min(step, length - i)) for i in range(0, length, step))


class Attention:
    """``attention`` for operands of certain layouts, or its gradient; primitives are made at the first call.

    Parameters
    ----------
    native : callable
        Gives the `Native`.
    op : str
        One of `OPS`.
    operands : sequence of Layout
        Of the op.
    output : Spec
    params : mapping
        The op's.
    threads : int
    """

    def __init__(
        self,
        native: Callable[[], Native],
        op: str,
        operands: Sequence[Layout],
        output: Spec,
        params: Mapping[str, Any],
        threads: int,
    ) -> None:
        self.native, self.op, self.threads = native, op, threads
        self.taken = [is_dense(o) for o in operands]
        laid = [
            o if dense else Layout.row_major(o.shape, o.dtype)
            for o, dense in zip(operands, self.taken, strict=True)
        ]
        self.tiles = [_tile(place, o) for place, o in enumerate(laid)]
        self.plan = _Plan(self.tiles[-3].shape, self.tiles[-2].shape[-2], bool(params["causal"]))
        self.bounds = self.plan.bounds() if self.plan.causal else []
        is_gradient = op == "attention_grad"
        self.order: Axes = (0,) if is_gradient else memory_order(laid[0])
        self.stored = tuple(output.shape[axis] for axis in self.order)
        self.outputs = self._gradients() if is_gradient else [self._output(output.shape)]
        unseen = self.plan.causal and self.plan.sources > self.plan.queries[-2]
        self.fills = is_gradient and unseen  # a key that no query sees has the gradient 0
        self.lock = forking.lock()
        self.work: Blocks | None = None

    def __call__(self, *arrays: Any) -> Any:
        """Return the op."""
        given = (a if taken else np.ascontiguousarray(a) for a, taken in zip(arrays, self.taken, strict=True))
        out = empty(self.stored, _FLOAT)
        if self.fills:
            out.fill(0)
        work = self.work or self._built()
        work(*given, out, *self.bounds)
        return out.transpose(inverse(self.order))

    def _output(self, shape: Shape) -> Tile:
        return _with_images(Tile(len(self.tiles), shape, tuple(strides_in(self.order, shape))))

    def _gradients(self) -> list[Tile]:
        """Return the parts of the vector that is the output."""
        tiles, start = [], 0
        for x in self.tiles[-3:]:
            axes = tuple(range(len(x.shape)))
            order = (*axes[:-3], axes[-2], axes[-3], axes[-1])
            tiles.append(Tile(len(self.tiles), x.shape, tuple(strides_in(order, x.shape)), start))
            start += math.prod(x.shape)
        return tiles

    def _built(self) -> Blocks:
        with forking.undivided("oneDNN"), self.lock:
            self.work = self.work or self._build()
            return self.work

    def _build(self) -> Blocks:
        native, plan = self.native(), self.plan
        work = Blocks(self.op, native, self.threads)
        buffers = [work.buffer(plan.block_bytes) for _ in range(2)]
        add = _add_gradient if self.op == "attention_grad" else _add_forward
        with native.threads(self.threads):
            for image, images in plan.of_images():
                inputs = [t.part(0, image, images) for t in self.tiles]
                outputs = [t.part(0, image, images) for t in self.outputs]
                for number, (row, rows, keys) in enumerate(plan.of_rows()):
                    shape = (*inputs[-3].shape[:-2], rows, keys)
                    scores, change = (Tile(b, shape, tuple(row_major(shape))) for b in buffers)
                    q, k = inputs[-3].part(-2, row, rows), inputs[-2].part(-2, 0, keys)
                    work.multiply(q, k.transposed, scores)
                    if plan.causal:
                        work.hide(scores, self._bound(number, len(shape)))
                    work.softmax(scores)
                    add(work, _Block(scores, change, row, rows, keys, number > 0), inputs, outputs)
        return work

    def _bound(self, number: int, ndim: int) -> Tile:
        shape = (*(1,) * (ndim - 2), *self.bounds[number].shape)
        return Tile(len(self.tiles) + 1 + number, shape, tuple(row_major(shape)))


@dataclass(frozen=True)
class _Block:
    """The weights of `rows` queries from `row` on and the first `keys` keys, and room for as many numbers."""

    weights: Tile
    change: Tile
    row: int
    rows: int
    keys: int
    adds: bool  # to what blocks before have given to the gradients of the keys

    def of_queries(self, tile: Tile) -> Tile:
        return tile.part(-2, self.row, self.rows)

    def of_keys(self, tile: Tile) -> Tile:
        return tile.part(-2, 0, self.keys)


def _add_forward(work: Blocks, block: _Block, inputs: Sequence[Tile], outputs: Sequence[Tile]) -> None:
    work.multiply(block.weights, block.of_keys(inputs[2]), block.of_queries(outputs[0]))


def _add_gradient(work: Blocks, block: _Block, inputs: Sequence[Tile], outputs: Sequence[Tile]) -> None:
    g, q = map(block.of_queries, inputs[:2])
    k, v = map(block.of_keys, inputs[2:])
    dq, dk, dv = block.of_queries(outputs[0]), *map(block.of_keys, outputs[1:])
    work.multiply(block.weights.transposed, g, dv, block.adds)
    work.multiply(g, v.transposed, block.change)
    work.softmax_gradient(block.change, block.weights)
    work.multiply(block.change, k, dq)
    work.multiply(block.change.transposed, q, dk, block.adds)


def is_dense(layout: Layout) -> bool:
    """Return whether the operand lies without gaps, the last axis innermost."""
    order = memory_order(layout)
    dense = tuple(s * layout.dtype.itemsize for s in strides_in(order, layout.shape))
    return order[-1] == len(order) - 1 and layout.strides == dense


def _tile(place: int, layout: Layout) -> Tile:
    return _with_images(Tile(place, layout.shape, tuple(s // layout.dtype.itemsize for s in layout.strides)))


def _with_images(tile: Tile) -> Tile:
    """Add an axis before those of the matrices where there is none."""
    if len(tile.shape) > 2:
        return tile
    return replace(tile, shape=(1, *tile.shape), strides=(math.prod(tile.shape), *tile.strides))
