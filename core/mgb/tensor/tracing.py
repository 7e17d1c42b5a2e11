"""The smallest session: call a function on symbolic tensors and keep what it did as a Graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import MgbError, SymbolicReadError, UnknownInputError
from ..ir import CONST, Graph, Node, Op, Spec, const_node, input_node
from ..runtime.precision import exactly
from . import ACTIVE, Session, Tensor, place, run_in


class Builder(Session[Tensor]):
    """A session that only makes nodes; passes rewrite graphs with it."""

    replays = True

    def __init__(self) -> None:
        self._nodes: list[Node] = []

    def tensor(self, node: Node) -> Tensor:
        """Return a Tensor that stands for `node`."""
        self._nodes.append(node)
        return place(self, len(self._nodes) - 1, node.spec)

    def node(self, tensor: Tensor) -> Node:
        """Return the node that `tensor` stands for; a concrete tensor becomes a constant."""
        if tensor._session is self:
            return self._nodes[tensor._index]
        if tensor._data is None:
            raise UnknownInputError("this tensor belongs to another trace, which has not finished")
        return const_node(tensor._data, tensor.dtype, tensor._device)

    def step(self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any]) -> Tensor:
        return self.tensor(make_node(op, tuple(self.node(t) for t in inputs), params))

    def read(self, tensor: Tensor) -> Any:
        raise SymbolicReadError(
            "the value of a symbolic tensor was read; it has no value until the graph runs"
        )


def make_node(op: Op, inputs: tuple[Node, ...], params: dict[str, Any], source: str = "") -> Node:
    """Return a node whose spec is inferred and whose device is that of its inputs.

    Constants lie everywhere.
    """
    device = next((i for i in inputs if i.op is not CONST), inputs[0]).spec.device if inputs else None
    return Node(op, inputs, params, inferred(op, [i.spec for i in inputs], params, device, source), source)


def inferred(
    op: Op, specs: Sequence[Spec], params: dict[str, Any], device: str | None, source: str = ""
) -> Spec:
    """Return the type of what `op` gives, which lies on `device` unless the parameters say where."""
    try:
        spec = op.infer(*specs, **params)
    except MgbError as error:
        error.args = (f"{error} (at {source})",) if source else error.args
        raise
    if device is None or spec.device == device or "device" in params:
        return spec
    return Spec(spec.shape, spec.dtype, device)


def live(source: Callable[[], float], dtype: Any = "float32", device: str | None = None) -> Tensor:
    """Return a 0-d Tensor of what `source` returns now; inside a trace it is asked again at every call.

    This is how a hyper-parameter that lives in Python, such as a learning rate, stays live in a compiled
    step.
    """
    tensor = Tensor(source(), dtype=dtype, device=device)
    session = ACTIVE.get()
    if session is not None:
        session.live(tensor, source)
    return tensor


def graph_of(function: Callable[..., Any], *specs: Spec) -> Graph:
    """Call `function` on symbolic tensors of `specs`; it returns a Tensor or a sequence of them."""
    return rebuild(function, tuple(input_node(s) for s in specs))


def rebuild(function: Callable[..., Any], inputs: Sequence[Node]) -> Graph:
    """Build a graph over input nodes that exist already: every Graph -> Graph pass ends here."""
    builder = Builder()
    out = exactly(run_in, builder, function, *(builder.tensor(n) for n in inputs))
    outputs = out if isinstance(out, tuple | list) else (out,)
    return Graph(tuple(inputs), tuple(builder.node(o) for o in outputs))


def copy_node(node: Node, *values: Tensor) -> Tensor:
    """Return the fold rule that changes nothing; only inside `rebuild`."""
    builder = ACTIVE.get()
    assert isinstance(builder, Builder)
    inputs = tuple(builder.node(v) for v in values)
    if inputs == node.inputs:
        return builder.tensor(node)
    return builder.tensor(Node(node.op, inputs, node.params, node.spec, node.source))
