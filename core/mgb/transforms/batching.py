"""`vmap`: a function is noted once as a Graph, and folded with a rule that gives each op one more axis.

A batched value has its batch along axis 0. An op of which a rule of `_RULES` knows what the axis does is
applied once; any other is applied to each element of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, NamedTuple

from ..apply import apply
from ..errors import TransformError
from ..ir import CONST, Graph, Kind, Node, Spec, input_node
from ..jit.tree import LEAF, Structure, flatten
from ..ops.layout import broadcast_to, concat, reshape, slice_, transpose
from ..tensor import Tensor, as_given, run_in, wrap
from ..tracing import Builder


class Value(NamedTuple):
    """What a node stands for: a Tensor, with a batch along its axis 0 or the same for each element."""

    tensor: Tensor
    batched: bool


class _Noting(Builder):
    """What the function finds outside is an input of the graph, so that tapes and traces outside see it."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: dict[int, tuple[Tensor, Node]] = {}
        self._made: list[Any] = []

    def node(self, tensor: Tensor) -> Node:
        if tensor._session is self:
            return self._nodes[tensor._index]
        if id(tensor) not in self.outside:
            self.outside[id(tensor)] = tensor, input_node(plain_spec(tensor))
        return self.outside[id(tensor)][1]

    def read(self, tensor: Tensor) -> Any:
        raise TransformError(
            "the function reads a value that differs along the axis of vmap, as `if x > 0` does: choose "
            "elements with functional.where, or call the function for each of them in a loop"
        )

    def created(self, tensor: Tensor, data: Any) -> None:
        self._made.append(tensor)

    def rebound(self, tensor: Tensor, value: Tensor) -> None:
        if tensor._session is not self and not any(tensor is made for made in self._made):
            raise TransformError(
                "the function changes a Tensor from outside under vmap, as drawing random numbers or "
                "the statistics of a layer do: draw before vmap and give the numbers as an argument, or "
                "return the new value"
            )


def plain_spec(tensor: Tensor) -> Spec:
    """The type of `tensor`, whose lengths count from here on as they are."""
    return Spec(tuple(map(int, tensor.shape)), tensor.dtype, tensor._device)


def as_tensor(value: Any) -> Tensor:
    """A leaf of the arguments as a Tensor."""
    if isinstance(value, Tensor):
        return value
    try:
        return Tensor(as_given(value))
    except (TypeError, ValueError):
        raise TransformError(f"a transformed argument is {value!r}, which is no array") from None


def vmap(function: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """Map `function` over an axis of its arguments.

    Parameters
    ----------
    function : callable
        Its arguments and its result are Tensors in any nesting of lists, tuples and dicts.
    in_axes : int, None or a nesting of them
        For each argument, or each part of it, the axis that is mapped; None where there is none.
        Keyword arguments are mapped along axis 0.
    out_axes : int, None or a nesting of them
        Where the axis stands in each result; None: the result does not differ along it.

    Raises
    ------
    TransformError
        The lengths of the axes differ, or the function reads or changes values outside of the graph.
    """

    @wraps(function)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = flatten((args, kwargs))
        axes = list(_spread(in_axes, flatten(args)[1])) + [0] * len(flatten(kwargs)[0])
        values = [Value(a, False) if axis is None else Value(_to_front(as_tensor(a), axis), True)
                  for a, axis in zip(leaves, axes, strict=True)]  # fmt: skip
        sizes = {int(v.tensor.shape[0]) for v in values if v.batched}
        if len(sizes) != 1:
            raise TransformError(f"vmap: the mapped axes have the lengths {sorted(sizes)}, not one length")
        (size,) = sizes
        outs, made = _mapped(function, structure, values, size)
        places = _spread(out_axes, made)
        return made.build(_placed(v, axis, size) for v, axis in zip(outs, places, strict=True))

    return mapped


def _mapped(
    function: Callable[..., Any], structure: Structure, values: Sequence[Value], size: int
) -> tuple[list[Value], Structure]:
    """The results of `function` on the batch, and how they are nested."""
    noting = _Noting()
    inputs = [input_node(_element(v)) if v.batched else None for v in values]
    leaves = [v.tensor if n is None else noting.tensor(n) for v, n in zip(values, inputs, strict=True)]
    given = structure.build(iter(leaves))
    outs, made = flatten(run_in(noting, lambda: function(*given[0], **given[1])))
    nodes = [noting.node(t) for t in map(as_tensor, outs)]
    outside = noting.outside.values()
    graph = Graph((*filter(None, inputs), *(n for _, n in outside)), tuple(nodes))
    args = [v for v in values if v.batched] + [Value(t, False) for t, _ in outside]
    return list(graph.fold(lambda node, *xs: _batch(node, size, xs), args)), made


def _element(value: Value) -> Spec:
    spec = plain_spec(value.tensor)
    return Spec(spec.shape[1:], spec.dtype, spec.device)


def _spread(axes: Any, structure: Structure) -> Iterator[Any]:
    """The axis of each leaf, where one stands for all below it."""
    if axes is None or isinstance(axes, int):
        yield from [axes] * len(list(_leaves(structure)))
        return
    parts = list(axes.values()) if isinstance(axes, dict) else list(axes)
    if len(parts) != len(structure.children):
        raise TransformError(f"vmap: axes {axes} for {len(structure.children)} parts")
    for part, child in zip(parts, structure.children, strict=True):
        yield from _spread(part, child)


def _leaves(structure: Structure) -> Iterator[Structure]:
    if structure == LEAF:
        yield structure
    for child in structure.children:
        yield from _leaves(child)


def _to_front(tensor: Tensor, axis: int) -> Tensor:
    return _moved(tensor, _axis(axis, tensor.ndim), 0)


def _axis(axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise TransformError(f"vmap: axis {axis} of a value with {ndim} axes")
    return axis % ndim


def _moved(tensor: Tensor, start: int, end: int) -> Tensor:
    order = [a for a in range(tensor.ndim) if a != start]
    order.insert(end, start)
    return transpose(tensor, axes=tuple(order))


def _placed(value: Value, axis: int | None, size: int) -> Tensor:
    if axis is None:
        if value.batched:
            raise TransformError("vmap: out_axes is None for a result that differs along the axis")
        return value.tensor
    tensor = _full(value, size)
    return _moved(tensor, 0, _axis(axis, tensor.ndim))


def _full(value: Value, size: int) -> Tensor:
    """The value with its batch written out."""
    shape = plain_spec(value.tensor).shape
    return value.tensor if value.batched else broadcast_to(value.tensor, shape=(size, *shape))


# rules

#: ``(node, size, values) -> Tensor``, of which one value at least is batched.
Rule = Callable[[Node, int, Sequence[Value]], Tensor]


def _batch(node: Node, size: int, values: Sequence[Value]) -> Value:
    """The fold's rule."""
    if node.op is CONST:
        return Value(wrap(node.params["value"], node.spec.device), False)
    if not any(v.batched for v in values):
        return Value(apply(node.op, *(v.tensor for v in values), **node.params), False)
    rule = _RULES.get(node.op.name) or _KINDS.get(node.op.kind, _one_by_one)
    return Value(rule(node, size, values), True)


def _aligned(value: Value, ndim: int) -> Tensor:
    """The value with axes of length 1 behind its batch: it broadcasts with elements of `ndim` axes."""
    tensor = value.tensor
    if not value.batched or tensor.ndim > ndim:
        return tensor
    size, *rest = plain_spec(tensor).shape
    return reshape(tensor, shape=(size, *(1,) * (ndim - len(rest)), *rest))


def _by_element(node: Node, _size: int, values: Sequence[Value]) -> Tensor:
    return apply(node.op, *(_aligned(v, node.spec.ndim) for v in values), **node.params)


def _shifted(node: Node, size: int, values: Sequence[Value]) -> Tensor:
    """Of an op that works along the axes in its parameter ``axis``: they stand one further."""
    axis = node.params["axis"]
    further = axis + 1 if isinstance(axis, int) else tuple(a + 1 for a in axis)
    return apply(node.op, *(_full(v, size) for v in values), **{**node.params, "axis": further})


def _to_shape(node: Node, size: int, values: Sequence[Value]) -> Tensor:
    return apply(node.op, _aligned(values[0], 0), shape=(size, *node.params["shape"]))


def _broadcast(node: Node, size: int, values: Sequence[Value]) -> Tensor:
    return broadcast_to(_aligned(values[0], node.spec.ndim), shape=(size, *node.params["shape"]))


def _transposed(node: Node, _size: int, values: Sequence[Value]) -> Tensor:
    return transpose(values[0].tensor, axes=(0, *(a + 1 for a in node.params["axes"])))


def _windowed(node: Node, size: int, values: Sequence[Value]) -> Tensor:
    params = {**node.params, "window": ((0, size, 1), *node.params["window"])}
    if "shape" in params:
        params["shape"] = (size, *params["shape"])
    return apply(node.op, values[0].tensor, **params)


def _product(node: Node, size: int, values: Sequence[Value]) -> Tensor:
    """Products of stacks broadcast their leading axes; one of a vector is left to the loop."""
    if any(i.spec.ndim < 2 for i in node.inputs):
        return _one_by_one(node, size, values)
    return _by_element(node, size, values)


def _one_by_one(node: Node, size: int, values: Sequence[Value]) -> Tensor:
    """Apply the op to each element of the batch: right for any op, and slow for long batches."""
    if not size:
        raise TransformError(f"vmap: {node.op.name} has no rule for a batch of length 0: map at least one")
    rows = [apply(node.op, *(_at(v, i) for v in values), **node.params) for i in range(size)]
    return concat(*(reshape(row, shape=(1, *node.spec.shape)) for row in rows), axis=0)


def _at(value: Value, i: int) -> Tensor:
    if not value.batched:
        return value.tensor
    shape = plain_spec(value.tensor).shape[1:]
    row = slice_(value.tensor, window=((i, i + 1, 1), *((0, d, 1) for d in shape)))
    return reshape(row, shape=shape)


_KINDS: dict[Kind, Rule] = {Kind.ELEMENTWISE: _by_element, Kind.REDUCE: _shifted}
_RULES: dict[str, Rule] = {
    "reshape": _to_shape,
    "broadcast_to": _broadcast,
    "transpose": _transposed,
    "slice": _windowed,
    "unslice": _windowed,
    "matmul": _product,
    **dict.fromkeys("concat gather scatter scatter_add cumsum sort argsort argtopk".split(), _shifted),
}
