"""How ops are written in ONNX's operators: functions ``(sheet, node, *names) -> name``, and when they do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from mgb import dtypes
from mgb.ir import CONST, Node
from mgb.ir.dtypes import float16, float32, int64, uint16, uint32

from .sheet import Sheet
from .values import NUMBER_OF

Dtype = np.dtype[Any]
Emit = Callable[..., str]


def plainly(operator: str, **attributes: Any) -> Emit:
    def emit(sheet: Sheet, node: Node, *names: str) -> str:
        return sheet.call(operator, *names, **attributes)

    return emit


def with_params(operator: str, **params: str) -> Emit:
    """Return an emitter of `operator` whose attributes are parameters of ours."""

    def emit(sheet: Sheet, node: Node, *names: str) -> str:
        return sheet.call(
            operator, *names, **{k: node.params[v] for k, v in params.items() if v in node.params}
        )

    return emit


# layout


def cast(sheet: Sheet, node: Node, x: str) -> str:
    return sheet.cast(x, node.spec.dtype)


def bitcast(sheet: Sheet, node: Node, x: str) -> str:
    return sheet.call("BitCast", x, to=NUMBER_OF[node.spec.dtype], opset=26)


def transpose(sheet: Sheet, node: Node, x: str) -> str:
    axes = node.params["axes"]
    return sheet.call("Transpose", x, **({"perm": axes} if axes else {}))  # an empty list has no type


def iota(sheet: Sheet, node: Node) -> str:
    count, zero, one = (sheet.constant(np.int64(n)) for n in (node.spec.size, 0, 1))
    places = sheet.cast(sheet.call("Range", zero, count, one), node.spec.dtype)
    return reshaped(sheet, places, node.spec.shape)


def reshaped(sheet: Sheet, x: str, shape: tuple[int, ...]) -> str:
    return sheet.call("Reshape", x, sheet.integers(shape), allowzero=int(0 in shape))


def reshape(sheet: Sheet, node: Node, x: str) -> str:
    return reshaped(sheet, x, node.spec.shape)


def expand(sheet: Sheet, node: Node, x: str) -> str:
    return expanded(sheet, x, node.spec.dtype, node.spec.shape)


def expanded(sheet: Sheet, x: str, dtype: Dtype, shape: tuple[int, ...]) -> str:
    if dtype in dtypes.HALVES and dtype != float16:
        return sheet.cast(expanded(sheet, sheet.cast(x, float32), float32, shape), dtype)
    return sheet.call("Expand", x, sheet.integers(shape))


def extent(sheet: Sheet, node: Node, _x: str) -> str:
    (x,) = node.inputs
    count = np.prod([x.spec.shape[a] for a in node.params["axis"]], dtype=np.float64)
    one = sheet.constant(count.astype(node.spec.dtype))
    return expanded(sheet, one, node.spec.dtype, node.spec.shape)


def slice_(sheet: Sheet, node: Node, x: str) -> str:
    (source,) = node.inputs
    window = node.params["window"]
    axes = [a for a, w in enumerate(window) if w != (0, source.spec.shape[a], 1)]
    if not axes:
        return sheet.call("Identity", x)
    least = int(np.iinfo(np.int64).min)
    starts = [window[a][0] for a in axes]
    stops = [least if window[a][2] < 0 and window[a][1] < 0 else window[a][1] for a in axes]
    steps = [window[a][2] for a in axes]
    return sheet.call("Slice", x, *map(sheet.integers, (starts, stops, axes, steps)))


def pad(sheet: Sheet, node: Node, x: str) -> str:
    """Pad a window without gaps with zeros."""
    window = node.params["window"]
    after = [size - stop for size, (_start, stop, _step) in zip(node.params["shape"], window)]
    return sheet.call("Pad", x, sheet.integers([w[0] for w in window] + after), mode="constant")


def dense(node: Node) -> bool:
    return all(0 <= start <= stop and step == 1 for start, stop, step in node.params["window"])


def transfer(sheet: Sheet, node: Node, x: str) -> str:
    return sheet.call("Identity", x)


def shift(direction: str) -> Emit:
    """Emit BitShift, which shifts unsigned numbers, by less than their width."""

    def emit(sheet: Sheet, node: Node, x: str, count: str) -> str:
        own = node.spec.dtype
        carried = uint32 if own == uint16 else own
        counted = sheet.call("BitwiseAnd", count, sheet.constant(carried.type(own.itemsize * 8 - 1)))
        return sheet.call("BitShift", x, counted, direction=direction)

    return emit


# reductions, sorting


def reduce(operator: str) -> Emit:
    def emit(sheet: Sheet, node: Node, x: str) -> str:
        axis = node.params["axis"]
        if not axis:
            return sheet.call("Identity", x)
        return sheet.call(operator, x, sheet.integers(axis), keepdims=1)

    return emit


def place(operator: str) -> Emit:
    def emit(sheet: Sheet, node: Node, x: str) -> str:
        found = sheet.call(operator, x, axis=node.params["axis"][0], keepdims=1)
        return sheet.cast(found, node.spec.dtype)

    return emit


def order(sheet: Sheet, node: Node, x: str) -> str:
    axis = node.params["axis"]
    count = sheet.integers([node.spec.shape[axis]])
    largest = int(node.params["descending"])
    places = sheet.calls("TopK", [x, count], 2, axis=axis, largest=largest, sorted=1)[1]
    return sheet.cast(places, node.spec.dtype)


def cumsum(sheet: Sheet, node: Node, x: str) -> str:
    return sheet.call("CumSum", x, sheet.constant(np.int64(node.params["axis"])))


# contractions and pooling


def matmul(sheet: Sheet, node: Node, a: str, b: str) -> str:
    sides = zip((a, b), node.inputs, (node.params.get("transpose_a"), node.params.get("transpose_b")))
    return sheet.call("MatMul", *(swapped(sheet, n, i) if swap else n for n, i, swap in sides))


def swapped(sheet: Sheet, name: str, node: Node) -> str:
    order = [*range(node.spec.ndim - 2), node.spec.ndim - 1, node.spec.ndim - 2]
    return sheet.call("Transpose", name, perm=order)


def windows(node: Node, kernel: Iterable[int]) -> dict[str, Any]:
    params = node.params
    window = {"kernel_shape": tuple(kernel), "strides": params["stride"], "pads": params["padding"] * 2}
    if "dilation" in params:
        window |= {"dilations": params["dilation"], "group": params["groups"]}
    return window


def conv(sheet: Sheet, node: Node, x: str, w: str, *bias: str) -> str:
    return sheet.call("Conv", x, w, *bias, **windows(node, node.inputs[1].spec.shape[2:]))


def conv_transpose(sheet: Sheet, node: Node, g: str, w: str) -> str:
    return sheet.call(
        "ConvTranspose", g, w, output_padding=left_over(node),
        **windows(node, node.inputs[1].spec.shape[2:]),
    )  # fmt: skip


def left_over(node: Node) -> tuple[int, ...]:
    """Return the rows and columns at the end that no window met."""
    g, w = (i.spec.shape[2:] for i in node.inputs)
    p = node.params
    axes = zip(p["size"], g, w, p["stride"], p["padding"], p["dilation"])
    return tuple(size - (s * (o - 1) + d * (k - 1) + 1 - 2 * pad) for size, o, k, s, pad, d in axes)


def max_pool(sheet: Sheet, node: Node, x: str) -> str:
    return sheet.call("MaxPool", x, **windows(node, node.params["kernel"]))


def avg_pool(sheet: Sheet, node: Node, x: str) -> str:
    counted = int(node.params["count_padding"])
    return sheet.call("AveragePool", x, count_include_pad=counted, **windows(node, node.params["kernel"]))


# indices


def wide_index(sheet: Sheet, name: str, node: Node) -> str:
    return name if node.spec.dtype == int64 else sheet.cast(name, int64)


def take(sheet: Sheet, node: Node, x: str, index: str) -> str:
    return sheet.call("Gather", x, wide_index(sheet, index, node.inputs[1]), axis=node.params["axes"][0])


def put(reduction: str) -> Emit:
    def emit(sheet: Sheet, node: Node, x: str, value: str, index: str) -> str:
        where = node.inputs[2].spec.shape
        wanted = (*where, *node.spec.shape[1:])
        if node.inputs[1].spec.shape != wanted:
            value = sheet.call("Expand", value, sheet.integers(wanted))
        places = reshaped(sheet, wide_index(sheet, index, node.inputs[2]), (*where, 1))
        return sheet.call("ScatterND", x, places, value, reduction=reduction)

    return emit


def gather(sheet: Sheet, node: Node, x: str, index: str) -> str:
    return sheet.call("GatherElements", x, wide_index(sheet, index, node.inputs[1]), axis=node.params["axis"])


def scatter(reduction: str) -> Emit:
    def emit(sheet: Sheet, node: Node, x: str, value: str, index: str) -> str:
        places = wide_index(sheet, index, node.inputs[2])
        axis = node.params["axis"]
        return sheet.call("ScatterElements", x, places, value, axis=axis, reduction=reduction)

    return emit


def scatter_fold(sheet: Sheet, node: Node, x: str, value: str, index: str) -> str:
    fold = node.params["fold"]
    return scatter("mul" if fold == "prod" else fold)(sheet, node, x, value, index)


def first_axis(node: Node) -> bool:
    return bool(node.params["axes"] == (0,) and node.params["place"] == 0)


def one_axis(node: Node) -> bool:
    return bool(node.params["axes"] == (node.params["place"],))


def one_folded(node: Node) -> bool:
    return len(node.params["axis"]) == 1


def one_sided(node: Node) -> bool:
    """Return whether the slope broadcasts to the other operand, not the other way."""
    return bool(node.spec.shape == node.inputs[0].spec.shape)


def has_windows(node: Node) -> bool:
    """Return whether there are images and channels to look at."""
    return all(i.spec.size for i in node.inputs)


def is_cover(node: Node) -> bool:
    return has_windows(node) and all(n >= 0 for n in left_over(node))


def numbers(node: Node) -> bool:
    """Return whether the bounds are numbers, as ONNX's Clip requires."""
    return all(i.op is CONST and not i.spec.shape for i in node.inputs[1:])
