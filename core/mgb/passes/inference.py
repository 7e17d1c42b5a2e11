"""Passes of `dump` for a graph that only runs forwards: they fold, fuse and narrow.

Batch normalisation in eval mode, and every other scale and shift of channels, goes into the weights and the
bias of the convolution before it (Jacob et al., "Quantization and training of neural networks for efficient
integer-arithmetic-only inference", CVPR 2018, section 3.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir import CONST, Graph, Kind, Node, Op, Spec, dtypes
from ..ops.activations import hswish, relu, sigmoid
from ..ops.bodies.transcendental import tanh
from ..ops.declare import op_of
from ..ops.images.contract import conv2d
from ..ops.layout import BROADCAST_TO, reshape
from ..ops.primitives import BITCAST, add, cast, iota
from ..tensor import Tensor
from ..tensor.apply import apply, literal
from ..tensor.tracing import copy_node, rebuild
from .constants import fold_constants

Array = np.ndarray[Any, Any]

#: Constants of fewer elements than this are worked out when the file is written.
FOLDED = 1 << 22

_CONV = op_of(conv2d)


# ops of files


def _biased(x: Tensor, w: Tensor, bias: Tensor, **window: Any) -> Tensor:
    return conv2d(x, w, **window) + reshape(bias, shape=(1, bias.size, 1, 1))


def _like_conv(x: Spec, w: Spec, *_rest: Spec, **window: Any) -> Spec:
    return _CONV.infer(x, w, **window)


def _file_op(name: str, body: Callable[..., Tensor]) -> Op:
    """Return an op that only files have: a function in our domain."""
    return Op(name, Kind.CONTRACT, _like_conv, body=body)


#: ``conv2d(x, w) + bias``, with one number of `bias` for each channel.
CONV_BIAS = _file_op("conv_bias", _biased)

#: The functions that follow a convolution in the same operator.
_FOLLOWERS: dict[Op, Callable[[Tensor], Tensor]] = {op_of(f): f for f in (relu, sigmoid, tanh, hswish)}


def _fused(follower: Op | None, adds: bool) -> Op:
    def body(x: Tensor, w: Tensor, bias: Tensor, *z: Tensor, **window: Any) -> Tensor:
        out = apply(CONV_BIAS, x, w, bias, **window)
        out = out + z[0] if z else out
        return out if follower is None else _FOLLOWERS[follower](out)

    names = ["conv_bias", *(["add"] if adds else []), *([follower.name] if follower else [])]
    return _file_op("_".join(names), body)


_FUSED = {(f, adds): _fused(f, adds) for f in (None, *_FOLLOWERS) for adds in (False, True)}


# scales and shifts of channels


@dataclass(frozen=True, slots=True)
class _Affine:
    """``conv * scale + shift``, one number each for every channel of a convolution."""

    conv: Node
    scale: Array
    shift: Array


def fold_channels(graph: Graph) -> Graph:
    """Let convolutions with constant weights do what is multiplied with and added to their channels."""
    graph = fold_constants(graph, below=FOLDED)
    found: dict[Node, _Affine] = {}
    for node in graph.nodes:
        affine = _begin(node) if node.op is _CONV else _extend(graph, node, found)
        if affine is not None:
            found[node] = affine
    heads = {n: a for n, a in found.items() if n.op is not _CONV or a.shift.any()}
    return _replace(graph, {n: _written(a) for n, a in heads.items()}) if heads else graph


def _begin(node: Node) -> _Affine | None:
    weight = node.inputs[1]
    if weight.op is not CONST or weight.spec.dtype not in (dtypes.float32, dtypes.float64):
        return None
    channels = node.spec.shape[1]
    return _Affine(node, np.ones(channels), np.zeros(channels))


def _extend(graph: Graph, node: Node, found: Mapping[Node, _Affine]) -> _Affine | None:
    """Return the scale and shift at `node`, if it scales channels of a convolution that it alone reads."""
    rule = _STEPS.get(node.op.name)
    inner = [i for i in node.inputs if i in found and _read_once(graph, i)]
    if rule is None or len(inner) != 1 or node.spec.shape != inner[0].spec.shape:
        return None
    if node.spec.dtype != inner[0].spec.dtype:
        return None
    affine = found[inner[0]]
    numbers = [_channel_numbers(i, len(affine.scale)) for i in node.inputs if i is not inner[0]]
    if any(n is None for n in numbers):
        return None
    scale, shift = rule(affine.scale, affine.shift, node.inputs[0] is inner[0], *numbers)
    if not (np.isfinite(scale).all() and np.isfinite(shift).all()):
        return None
    return _Affine(affine.conv, scale, shift)


def _read_once(graph: Graph, node: Node) -> bool:
    return len(graph.readers[node]) == 1 and node not in graph.outputs


#: ``(scale, shift, convolution stands first, number) -> (scale, shift)``.
_STEPS: dict[str, Callable[..., tuple[Array, Array]]] = {
    "add": lambda a, b, _first, c: (a, b + c),
    "sub": lambda a, b, first, c: (a, b - c) if first else (-a, c - b),
    "mul": lambda a, b, _first, c: (a * c, b * c),
    "div": lambda a, b, first, c: (a / c, b / c) if first else (a * np.inf, b),
    "neg": lambda a, b, _first: (-a, -b),
}


def _channel_numbers(node: Node, channels: int) -> Array | None:
    """Return the constant `node` as one number for each channel of (N, C, H, W); None when it is none."""
    if node.op is BROADCAST_TO and node.inputs[0].spec.size == 1:
        node = node.inputs[0]
    if node.op is not CONST or node.spec.ndim > 4:
        return None
    shape = (1,) * (4 - node.spec.ndim) + node.spec.shape
    if shape not in ((1, 1, 1, 1), (1, channels, 1, 1)):
        return None
    return np.broadcast_to(node.params["value"].astype(np.float64).reshape(-1), channels)


def _written(affine: _Affine) -> Callable[..., Tensor]:
    """Return the convolution with other weights."""
    x, w = affine.conv.inputs
    weight = w.params["value"] * affine.scale.reshape(-1, 1, 1, 1)
    window = dict(affine.conv.params)

    def write(value_of: Callable[[Node], Tensor]) -> Tensor:
        weights = literal(weight.astype(w.spec.dtype), w.spec.dtype)
        if not affine.shift.any():
            return conv2d(value_of(x), weights, **window)
        return apply(CONV_BIAS, value_of(x), weights, literal(affine.shift, w.spec.dtype), **window)

    return write


def _replace(graph: Graph, written: Mapping[Node, Callable[..., Tensor]]) -> Graph:
    """Return `graph` with some nodes written otherwise, from the values of nodes before them."""

    def build(*inputs: Tensor) -> list[Tensor]:
        values = dict(zip(graph.inputs, inputs))
        for node in graph.nodes:
            write = written.get(node)
            if write is not None:
                values[node] = write(values.__getitem__)
            else:
                values[node] = copy_node(node, *(values[i] for i in node.inputs))
        return [values[o] for o in graph.outputs]

    return rebuild(build, graph.inputs)


# one operator for a convolution and what follows it


def fuse_convolutions(graph: Graph, nonlinearity: bool, with_z: bool) -> Graph:
    """Make one function of a convolution with bias, what is added to it, and the nonlinearity after that.

    Parameters
    ----------
    graph : Graph
        After `fold_channels`.
    nonlinearity : bool
        Fuse relu, sigmoid, tanh and hswish.
    with_z : bool
        Fuse the addition of another tensor, such as that of a residual connection, of the same shape.
    """
    written: dict[Node, Callable[..., Tensor]] = {}
    parts: dict[Node, tuple[Node, Node | None]] = {n: (n, None) for n in graph.nodes if n.op is CONV_BIAS}
    for node in graph.nodes:
        if with_z and node.op is op_of(add):
            conv = next((i for i in node.inputs if i.op is CONV_BIAS and _read_once(graph, i)), None)
            if conv is not None:
                z = node.inputs[1] if node.inputs[0] is conv else node.inputs[0]
                if z is not conv and z.spec == conv.spec:
                    parts[node] = conv, z
                    written[node] = _call_fused(None, conv, z)
        if nonlinearity and node.op in _FOLLOWERS:
            (inner,) = node.inputs
            if inner in parts and _read_once(graph, inner):
                written[node] = _call_fused(node.op, *parts[inner])
    return _replace(graph, written) if written else graph


def _call_fused(follower: Op | None, conv: Node, z: Node | None) -> Callable[..., Tensor]:
    op = _FUSED[follower, z is not None]

    def write(value_of: Callable[[Node], Tensor]) -> Tensor:
        operands: Sequence[Node] = conv.inputs if z is None else (*conv.inputs, z)
        return apply(op, *map(value_of, operands), **conv.params)

    return write


# 16 bits


def narrow(graph: Graph, compute: np.dtype[Any]) -> Graph:
    """Keep every float32 value in float16.

    Parameters
    ----------
    graph : Graph
    compute : dtype
        float32: each op casts what it reads and rounds what it gives. float16: ops work on 16 bits. Inputs
        and outputs of the graph stay as they are.
    """

    def rule(node: Node, *values: Tensor) -> Tensor:
        if node.op is CONST:
            value = node.params["value"]
            return literal(value.astype(np.float16)) if value.dtype == dtypes.float32 else copy_node(node)
        params = dict(node.params)
        if node.op.kind is Kind.LAYOUT or (compute == dtypes.float16 and node.op is not BITCAST):
            if params.get("dtype") == dtypes.float32:
                params["dtype"] = dtypes.float16
            return _again(node, values, params)
        wide = [
            cast(v, dtype=dtypes.float32) if i.spec.dtype == dtypes.float32 else v
            for v, i in zip(values, node.inputs)
        ]
        return _narrowed(_again(node, wide, params))

    def build(*inputs: Tensor) -> list[Tensor]:
        out = graph.fold(rule, [_narrowed(x) for x in inputs])
        return [
            cast(v, dtype=o.spec.dtype) if v.dtype != o.spec.dtype else v for v, o in zip(out, graph.outputs)
        ]

    return rebuild(build, graph.inputs)


def _narrowed(x: Tensor) -> Tensor:
    return cast(x, dtype=dtypes.float16) if x.dtype == dtypes.float32 else x


def _again(node: Node, values: Sequence[Tensor], params: dict[str, Any]) -> Tensor:
    return iota(**params) if node.op is op_of(iota) else apply(node.op, *values, **params)


# all of it


@dataclass(frozen=True, slots=True)
class Inference:
    """Options for a graph that only runs forwards.

    Attributes
    ----------
    enable_io16xc32, enable_ioc16 : bool
        Keep values in float16; the second computes in it too.
    enable_fuse_conv_bias_nonlinearity, enable_fuse_conv_bias_with_z : bool
        See `fuse_convolutions`.
    """

    enable_io16xc32: bool = False
    enable_ioc16: bool = False
    enable_fuse_conv_bias_nonlinearity: bool = False
    enable_fuse_conv_bias_with_z: bool = False

    def __call__(self, graph: Graph) -> Graph:
        """Return the graph to be written."""
        graph = fold_channels(graph)
        if self.enable_fuse_conv_bias_nonlinearity or self.enable_fuse_conv_bias_with_z:
            graph = fuse_convolutions(
                graph, self.enable_fuse_conv_bias_nonlinearity, self.enable_fuse_conv_bias_with_z
            )
        if self.enable_io16xc32 or self.enable_ioc16:
            graph = narrow(graph, dtypes.float16 if self.enable_ioc16 else dtypes.float32)
        return graph
