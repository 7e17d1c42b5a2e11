"""`vmap`: a function is noted once as a Graph, and folded with a rule that gives each op one more axis.

A batched value has its batch along axis 0. An op of which a rule of `RULES` knows what the axis does is
applied once; of others the body is batched, and what has none is applied to each element of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, NamedTuple

from ..errors import TransformError
from ..ir import CONST, Graph, Kind, Node, Spec, input_node
from ..jit.tree import LEAF, Structure, flatten
from ..loops import Noting
from ..ops.layout import broadcast_to, concat, reshape, slice_, transpose
from ..runtime.precision import exactly
from ..tensor import Tensor, as_given
from ..tensor.apply import apply, constant
from ..tensor.tracing import rebuild
from .arrays import on_arrays


class Value(NamedTuple):
    """The value of a node: a Tensor, with a batch along its axis 0 or the same for each element."""

    tensor: Tensor
    batched: bool


def _refused(what: str) -> TransformError:
    """Return the error for a function that does `what`."""
    if "changes" in what:
        return TransformError(
            f"the function {what} under vmap, as drawing random numbers or the statistics of a layer do: "
            "draw before vmap and give the numbers as an argument, or return the new value"
        )
    return TransformError(
        f"the function {what} that differs along the axis of vmap, as `if x > 0` does: choose elements with "
        "functional.where, or call the function for each of them in a loop"
    )


def as_tensor(value: Any) -> Tensor:
    """Return a leaf of the arguments as a Tensor."""
    if isinstance(value, Tensor):
        return value
    try:
        return Tensor(as_given(value))
    except (TypeError, ValueError):
        raise TransformError(f"a transformed argument is {value!r}, which is not an array") from None


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

    Examples
    --------
    >>> mgb.vmap(lambda row: F.sum(row))(mgb.tensor([[1.0, 2.0], [3.0, 4.0]]))
    Tensor([3., 7.], device=xpux:0)
    """

    @on_arrays
    @wraps(function)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = flatten((args, kwargs))
        axes = list(_spread(in_axes, flatten(args)[1])) + [0] * len(flatten(kwargs)[0])
        values = [Value(a, False) if axis is None else Value(_to_front(as_tensor(a), axis), True)
                  for a, axis in zip(leaves, axes, strict=True)]  # fmt: skip
        lengths = [v.tensor.spec.shape[0] for v in values if v.batched]
        if not lengths or any(length != lengths[0] for length in lengths):
            known = sorted(set(map(int, lengths)))
            raise TransformError(f"vmap: the mapped axes have the lengths {known}, not one length")
        size = lengths[0]
        outs, made = _mapped(function, structure, values, size)
        places = _spread(out_axes, made)
        return made.build(_placed(v, axis, size) for v, axis in zip(outs, places, strict=True))

    return mapped


def _mapped(
    function: Callable[..., Any], structure: Structure, values: Sequence[Value], size: int
) -> tuple[list[Value], Structure]:
    """Return the results of `function` on the batch, and how they are nested."""
    noting = Noting(_refused)
    inputs = [input_node(_element(v)) if v.batched else None for v in values]
    leaves = [v.tensor if n is None else noting.tensor(n) for v, n in zip(values, inputs, strict=True)]
    given = structure.build(iter(leaves))
    outs, made = flatten(noting.run(lambda: function(*given[0], **given[1])))
    nodes = [noting.node(t) for t in map(as_tensor, outs)]
    outside = noting.outside.values()
    graph = Graph((*filter(None, inputs), *(n for _, n in outside)), tuple(nodes))
    args = [v for v in values if v.batched] + [Value(t, False) for t, _ in outside]
    return list(exactly(graph.fold, lambda node, *xs: batch(node, size, xs), args)), made


def _element(value: Value) -> Spec:
    """Return the type of one."""
    spec = value.tensor.spec
    return Spec(spec.shape[1:], spec.dtype, spec.device)


def _spread(axes: Any, structure: Structure) -> Iterator[Any]:
    """Yield the axis of each leaf, where one stands for all below it."""
    if axes is None or isinstance(axes, int):
        yield from [axes] * len(list(_leaves(structure)))
        return
    parts = list(axes.values()) if isinstance(axes, dict) else list(axes)
    if len(parts) != len(structure.children):
        raise TransformError(
            f"vmap: axes {axes} must have one axis for each of {len(structure.children)} parts"
        )
    for part, child in zip(parts, structure.children, strict=True):
        yield from _spread(part, child)


def _leaves(structure: Structure) -> Iterator[Structure]:
    if structure == LEAF:
        yield structure
    for child in structure.children:
        yield from _leaves(child)


def _to_front(tensor: Tensor, axis: int) -> Tensor:
    return moved(tensor, _axis(axis, tensor.ndim), 0)


def _axis(axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise TransformError(f"vmap: axis {axis} is out of range for a value with {ndim} axes")
    return axis % ndim


def moved(tensor: Tensor, start: int, end: int) -> Tensor:
    order = [a for a in range(tensor.ndim) if a != start]
    order.insert(end, start)
    return transpose(tensor, axes=tuple(order))


def _placed(value: Value, axis: int | None, size: int) -> Tensor:
    if axis is None:
        if value.batched:
            raise TransformError(
                "vmap: out_axes is None for a result that varies along the mapped axis: give the axis of "
                "its result"
            )
        return value.tensor
    tensor = full(value, size)
    return moved(tensor, 0, _axis(axis, tensor.ndim))


def full(value: Value, size: int) -> Tensor:
    """Return the value with its batch written out."""
    shape = value.tensor.spec.shape
    return value.tensor if value.batched else broadcast_to(value.tensor, shape=(size, *shape))


# rules

#: ``(node, size, values) -> Tensor``, of which one value at least is batched.
Rule = Callable[[Node, int, Sequence[Value]], Tensor]


def batch(node: Node, size: int, values: Sequence[Value]) -> Value:
    """Return the fold's rule."""
    if node.op is CONST:
        return Value(constant(node.params["value"], node.spec.device), False)
    if not any(v.batched for v in values):
        return Value(apply(node.op, *(v.tensor for v in values), **node.params), False)
    rule = RULES.get(node.op.name) or _KINDS.get(node.op.kind, _otherwise)
    return Value(rule(node, size, values), True)


def aligned(value: Value, ndim: int) -> Tensor:
    """Return the value with axes of length 1 behind its batch: it broadcasts with elements of `ndim` axes."""
    tensor = value.tensor
    if not value.batched or tensor.ndim > ndim:
        return tensor
    size, *rest = tensor.spec.shape
    return reshape(tensor, shape=(size, *(1,) * (ndim - len(rest)), *rest))


def _by_element(node: Node, _size: int, values: Sequence[Value]) -> Tensor:
    return apply(node.op, *(aligned(v, node.spec.ndim) for v in values), **node.params)


def _shifted(node: Node, size: int, values: Sequence[Value]) -> Tensor:
    """Batch an op that works along the axes in its parameter ``axis``: they move up by one."""
    axis = node.params["axis"]
    further = axis + 1 if isinstance(axis, int) else tuple(a + 1 for a in axis)
    return apply(node.op, *(full(v, size) for v in values), **{**node.params, "axis": further})


def _to_shape(node: Node, size: int, values: Sequence[Value]) -> Tensor:
    return apply(node.op, aligned(values[0], 0), shape=(size, *node.params["shape"]))


def _broadcast(node: Node, size: int, values: Sequence[Value]) -> Tensor:
    return broadcast_to(aligned(values[0], node.spec.ndim), shape=(size, *node.params["shape"]))


def _transposed(node: Node, _size: int, values: Sequence[Value]) -> Tensor:
    return transpose(values[0].tensor, axes=(0, *(a + 1 for a in node.params["axes"])))


def _windowed(node: Node, size: int, values: Sequence[Value]) -> Tensor:
    params = {**node.params, "window": ((0, size, 1), *node.params["window"])}
    if "shape" in params:
        params["shape"] = (size, *params["shape"])
    return apply(node.op, values[0].tensor, **params)


def _otherwise(node: Node, size: int, values: Sequence[Value]) -> Tensor:
    """Batch an op without a rule: by its body, or one element after the other."""
    body = node.op.body
    if body is None:
        return _one_by_one(node, size, values)
    inputs = [input_node(i.spec) for i in node.inputs]
    graph = rebuild(lambda *xs: [body(*xs, **node.params)], inputs)
    (out,) = graph.fold(lambda inner, *xs: batch(inner, size, xs), values)
    return full(out, size)


def _one_by_one(node: Node, size: int, values: Sequence[Value]) -> Tensor:
    """Apply the op to each element of the batch: right for any op, and slow for long batches."""
    if not size:
        raise TransformError(f"vmap: {node.op.name} has no rule for a batch of length 0: map at least one")
    rows = [apply(node.op, *(_at(v, i) for v in values), **node.params) for i in range(size)]
    return concat(*(reshape(row, shape=(1, *node.spec.shape)) for row in rows), axis=0)


def _at(value: Value, i: int) -> Tensor:
    if not value.batched:
        return value.tensor
    shape = value.tensor.spec.shape[1:]
    row = slice_(value.tensor, window=((i, i + 1, 1), *((0, d, 1) for d in shape)))
    return reshape(row, shape=shape)


_KINDS: dict[Kind, Rule] = {Kind.ELEMENTWISE: _by_element, Kind.REDUCE: _shifted}
RULES: dict[str, Rule] = {
    "reshape": _to_shape,
    "broadcast_to": _broadcast,
    "transpose": _transposed,
    "slice": _windowed,
    "unslice": _windowed,
    **dict.fromkeys("concat gather scatter scatter_add scatter_fold".split(), _shifted),
    **dict.fromkeys("cumsum cumprod cummax cummin logcumsumexp decayed_sum".split(), _shifted),
    **dict.fromkeys("sort argsort argtopk fft rfft irfft".split(), _shifted),
}
