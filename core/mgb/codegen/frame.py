"""The interface of a kernel and its launcher: the operands, and the loops over the axes of the domain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..ir import CONST, Graph, Node
from ..ops.primitives import IOTA
from ..runtime.forking import cached_property
from .domain import spans
from .schedule import Schedule, is_operand


@dataclass(frozen=True, slots=True)
class Operand:
    """An array that a kernel reads or writes, or an ``iota``, whose elements are their own places.

    Attributes
    ----------
    name : str
        ``x0 x1 ...`` inputs, ``c0 ...`` constants, ``i0 ...`` iotas, ``y0 ...`` outputs.
    node : Node

    Examples
    --------
    >>> from mgb.ir import Spec, input_node
    >>> x = Operand("x0", input_node(Spec((4,), np.dtype("float32"))))
    >>> x.dtype, x.itemsize, x.is_output
    ('float32', 4, False)
    """

    name: str
    node: Node

    @property
    def is_iota(self) -> bool:
        return self.node.op is IOTA and not self.is_output

    @property
    def is_output(self) -> bool:
        return self.name.startswith("y")

    @property
    def itemsize(self) -> int:
        return 1 if self.is_iota else self.node.spec.dtype.itemsize

    @property
    def dtype(self) -> str:
        return self.node.spec.dtype.name


Described = TypeVar("Described", bound=Operand)


class Frame(Generic[Described]):
    """The operands and passes of one graph's kernel, for a backend's own to begin with.

    Attributes
    ----------
    graph : Graph
    schedule : Schedule
    span : mapping
        See `mgb.codegen.spans`.
    flat : bool
        It has no reductions: the whole domain is one row that folds nothing.
    inner : int or None
        The innermost axis whose length is not 1.
    columns : bool
        It is kept: then the lanes of a loop are neighbouring rows. Otherwise they run along the row.
    folded_axes : tuple of int

    Examples
    --------
    >>> from mgb.codegen import schedule
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> graph = graph_of(lambda x: F.softmax(x, axis=1), Spec((4, 8), np.dtype("float32")))
    >>> frame = Frame(graph, schedule(graph))
    >>> frame.flat, frame.columns, [name for name, _ in frame.named()]
    (False, False, ['x0', 'y0'])
    """

    #: Inputs, constants of more than one element, outputs, iotas: in the order in which a backend has them.
    operands: tuple[Described, ...]

    def __init__(self, graph: Graph, schedule: Schedule) -> None:
        self.graph, self.schedule, self.span = graph, schedule, spans(graph)
        self.ndim = len(schedule.shape)
        self.flat = not schedule.reduced
        self.folded_axes = tuple(range(self.ndim)) if self.flat else schedule.reduced
        self.inner = next((a for a in reversed(range(self.ndim)) if schedule.shape[a] != 1), None)
        self.columns = not self.flat and self.inner is not None and self.inner not in schedule.reduced

    def named(self) -> Iterator[tuple[str, Node]]:
        """Return the names of the operands."""
        leaves = [v for v in self.graph.nodes if is_operand(v)]
        parts = {
            "x": self.graph.inputs,
            "c": [v for v in leaves if v.op is CONST],
            "y": self.graph.outputs,
            "i": [v for v in leaves if v.op is not CONST],
        }
        return ((f"{p}{i}", v) for p, nodes in parts.items() for i, v in enumerate(nodes))

    @cached_property
    def arrays(self) -> tuple[Described, ...]:
        """The operands that a call passes: inputs, constants, outputs."""
        return tuple(o for o in self.operands if not o.is_iota)

    @cached_property
    def constants(self) -> tuple[Node, ...]:
        """The constants among them."""
        return tuple(o.node for o in self.arrays[len(self.graph.inputs) :] if not o.is_output)

    @cached_property
    def outputs(self) -> tuple[Described, ...]:
        return tuple(o for o in self.operands if o.is_output)

    @cached_property
    def source_of(self) -> dict[Node, Described]:
        """The operand that each leaf is loaded from."""
        return {o.node: o for o in reversed(self.operands) if not o.is_output}

    @cached_property
    def stages(self) -> int:
        """The passes, and when the last one folds a stage after it, in which its totals are used."""
        *before, last = self.schedule.passes
        return len(before) + 1 + bool(last.folds or last.scatters)
