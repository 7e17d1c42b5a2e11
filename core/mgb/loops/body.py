"""The body of a loop as a Graph: called once on Tensors without values, and noted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..autodiff.tape import open_tapes, while_paused
from ..errors import LoopError, MgbError
from ..ir import Body, Graph, Node, Op, Spec, const_node, input_node
from ..ir.scalars import Scalar, mapped
from ..ir.sizes import but_lengths
from ..tensor import ACTIVE, Tensor, run_in
from ..tensor.apply import caller
from ..tensor.tensor import CONSTANT
from ..tensor.tracing import Builder

Result = TypeVar("Result")


class Noting(Builder):
    """A session that notes a function; what that finds outside is an input, so that tapes and traces see it.

    What else it does concerns the session around it, which is told.

    Parameters
    ----------
    error : callable
        Makes the error for a body that ``"reads a value"`` or ``"changes a Tensor from outside"``.

    Attributes
    ----------
    outside : dict
        By ids: the Tensors from outside, each with the input that stands for it.
    """

    def __init__(self, error: Callable[[str], MgbError]) -> None:
        super().__init__()
        self.outside: dict[int, tuple[Tensor, Node]] = {}
        self._error = error
        self._around = ACTIVE.get()
        self._made: list[Tensor] = []
        self._followed: dict[int, Tensor] = {}
        if self._around is not None and self._around.spec_of is not None:
            self.spec_of = self._spec_of

    def run(self, function: Callable[..., Result], *args: Any) -> Result:
        """Note ``function(*args)``; tapes outside hear of what it does when the graph is used."""
        return while_paused(open_tapes(), lambda: run_in(self, function, *args))

    def node(self, tensor: Tensor) -> Node:
        if tensor._session is self:
            return self._nodes[tensor._index]
        if tensor._index == CONSTANT and tensor._data is not None and id(tensor) not in self._followed:
            return const_node(tensor._data, tensor.dtype, tensor._device)
        if id(tensor) not in self.outside:
            spec = tensor.spec if self.spec_of is None else self.spec_of(tensor)
            self.outside[id(tensor)] = tensor, input_node(spec)
        return self.outside[id(tensor)][1]

    def _spec_of(self, tensor: Tensor) -> Spec:
        """Return the type of `tensor`, with the lengths that the session around follows."""
        if tensor._session is self:
            return self._nodes[tensor._index].spec
        around = self._around
        assert around is not None
        return tensor.spec if around.spec_of is None else around.spec_of(tensor)

    def measured(self, value: Any) -> Any:
        return value if self._around is None else self._around.measured(value)

    def step(self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any]) -> Tensor:
        return super().step(op, inputs, mapped(but_lengths, params))

    def read(self, tensor: Tensor) -> Any:
        raise self._error(f"reads a value at {caller()}")

    def created(self, tensor: Tensor, data: Any) -> None:
        self._made.append(tensor)
        self._followed[id(tensor)] = tensor
        if self._around is not None:
            self._around.created(tensor, data)

    def adopt(self, alias: Tensor, original: Tensor) -> None:
        self._made.append(alias)
        if self._around is not None and original._session is not self:
            self._around.adopt(alias, original)

    def follows(self, tensor: Tensor, number: Scalar) -> bool:
        follows = self._around is not None and self._around.follows(tensor, number)
        if follows:
            self._followed[id(tensor)] = tensor
        return follows

    def seen(self, tensor: Tensor) -> None:
        if self._around is not None:
            self._around.seen(tensor)

    def live(self, tensor: Tensor, source: Callable[[], float]) -> None:
        if self._around is not None:
            self._around.live(tensor, source)

    def entered(self, holder: Any) -> None:
        if self._around is not None:
            self._around.entered(holder)

    def touched_grad(self, tensor: Tensor, reads: bool) -> None:
        if self._around is not None and tensor._session is not self:
            self._around.touched_grad(tensor, reads)

    def rebound(self, tensor: Tensor, value: Tensor) -> None:
        if tensor._session is not self and not any(tensor is made for made in self._made):
            raise self._error(f"changes a Tensor from outside at {caller()}")


def loop_error(name: str) -> Callable[[str], LoopError]:
    """Return the error of the loop `name` for a body that does what it says."""

    def error(what: str) -> LoopError:
        if "changes" in what:
            remedy = (
                "it is noted once and run many times: carry what changes from step to step, and draw random "
                "numbers before the loop, one row for each step"
            )
        else:
            remedy = (
                "it has none until the loop runs: choose elements with functional.where, branches with "
                "mgb.jit.cond, or compute it before the loop"
            )
        return LoopError(f"{name}: the body {what}; {remedy}")

    return error


def note(
    name: str, function: Callable[..., Sequence[Any]], specs: Sequence[Spec]
) -> tuple[Graph, list[Tensor]]:
    """Record `function` on Tensors of `specs`.

    Parameters
    ----------
    name : str
        Of the loop, in messages.
    function : callable
        Takes Tensors by position and returns a sequence of them.
    specs : sequence of Spec

    Returns
    -------
    graph : Graph
        Its first inputs are those of `specs`, the others stand for the Tensors that were found outside.
    outside : list of Tensor
        These.

    Raises
    ------
    LoopError
        The function reads a value, or changes a Tensor from outside.
    """
    noting = Noting(loop_error(name))
    inputs = [input_node(spec) for spec in specs]
    results = noting.run(function, *map(noting.tensor, inputs))
    nodes = tuple([noting.node(t) for t in results])
    found = noting.outside.values()
    return Graph((*inputs, *(node for _, node in found)), nodes), [tensor for tensor, _ in found]


def together(
    graphs: Sequence[Graph], outside: Sequence[Sequence[Tensor]], count: int
) -> tuple[list[Body], list[Tensor]]:
    """Combine noted graphs over one list of free Tensors, which come before their `count` first inputs."""
    found = {id(t): t for tensors in outside for t in tensors}
    bodies = []
    for graph, tensors in zip(graphs, outside, strict=True):
        inputs = {id(t): node for t, node in zip(tensors, graph.inputs[count:], strict=True)}
        filled = [inputs[key] if key in inputs else input_node(t.spec) for key, t in found.items()]
        bodies.append(Body(Graph((*filled, *graph.inputs[:count]), graph.outputs)))
    return bodies, list(found.values())
