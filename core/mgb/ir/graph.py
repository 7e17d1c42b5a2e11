"""The data that every other module speaks: Spec, Kind, Op, Node, Graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from ..runtime.device import to_host
from ..runtime.forking import cached_property
from .dtypes import name_of
from .scalars import HOLDING, Scalar, Size, mapped, numbers_of
from .sizes import Sizes

Value = TypeVar("Value")


class Kind(Enum):
    """The effect of an op on the iteration domain; the fusion rules are written in these terms.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> graph = graph_of(lambda x: F.exp(x.sum()), Spec((2,), np.dtype("float32")))
    >>> [node.op.kind for node in graph.nodes]
    [<Kind.REDUCE: 'reduce'>, <Kind.LAYOUT: 'layout'>, <Kind.ELEMENTWISE: 'elementwise'>]
    """

    LEAF = "leaf"  # input, const, iota: reads no other value
    ELEMENTWISE = "elementwise"  # one output element for each (broadcast) input element
    REDUCE = "reduce"  # folds axes to length 1
    SCAN = "scan"  # folds along an axis up to each element
    LAYOUT = "layout"  # moves elements, computes nothing
    CONTRACT = "contract"  # matmul, convolution
    GATHER = "gather"  # one element of the first operand for each element, where the others say
    SCATTER = "scatter"  # folds the elements of the first operand into places that the others say
    OPAQUE = "opaque"  # everything else: sort, gather, pooling, ...

    __hash__ = object.__hash__  # members are equal to themselves only; Enum's own hash is a Python function


@dataclass(frozen=True, slots=True)
class Spec:
    """The static type of a value.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> str(Spec((2, 3), np.dtype("float32")))
    'float32[2,3]'
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    device: str = "xpux:0"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{name_of(self.dtype)}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, eq=False, slots=True)
class Reduction:
    """The way an op reduces axes.

    Attributes
    ----------
    combine : Op
        Of two elements. It has an order of its own choice.
    identity : callable
        ``(dtype) -> number``: what a reduction of nothing is.
    accumulator : callable
        ``(dtype) -> dtype``, in which the folds of many elements are folded, where that costs nothing.

    Examples
    --------
    >>> from mgb.backends.plugins import known_ops
    >>> row = known_ops()["reduce_max"].reduction
    >>> row.combine, row.identity(np.dtype("int8"))
    (<op maximum>, -128)
    """

    combine: Op
    identity: Callable[[np.dtype[Any]], Any]
    accumulator: Callable[[np.dtype[Any]], np.dtype[Any]]


@dataclass(frozen=True, eq=False, slots=True)
class State:
    """The numbers that a scan carries from element to element, where its result is not enough.

    Attributes
    ----------
    begin : tuple of float
        Before the first element; joined to any state it changes nothing.
    lift : callable
        ``(*xs) -> tensors``: the state that one element makes alone.
    join : callable
        ``(before, own) -> tensors``: of elements that follow each other. It is associative, so that parts of
        an axis can be scanned apart.
    result : callable
        ``(*state) -> Tensor``: the element of the scan.
    factor : int or None
        Which of the numbers is a product of what elements say, if one is: that of some elements may overflow,
        or underflow, where no element of the scan does.

    Examples
    --------
    >>> from mgb.backends.plugins import known_ops
    >>> known_ops()["logcumsumexp"].state.begin
    (-inf, 0.0)
    """

    begin: tuple[float, ...]
    lift: Callable[..., Sequence[Any]]
    join: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]
    result: Callable[..., Any]
    factor: int | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Op:
    """One operation, declared once; backends learn of it only through `name`, `kind` and `body`.

    Attributes
    ----------
    infer : callable
        ``(*specs, **params) -> Spec``; raises `ShapeError` or `ConversionError`.
    eager : callable or None
        ``(*arrays, **params) -> array`` over NumPy arrays; None: run `body`.
    grad : callable or None
        ``(g, y, *xs, **params) -> tuple`` of a gradient or None for each input. A parameter whose name
        starts with an underscore gets only the `Spec` of that value, which need not be kept until the
        backward pass. None: differentiate `body`.
    body : callable or None
        The same op in simpler ops, ``(*tensors, **params) -> Tensor``; None: a primitive.
    promote : callable or None
        ``(operands) -> dtypes``: the dtype each operand is cast to before the op sees it; none at all for
        integers that a comparison has to bring to one sign. None: taken as they are.
    differentiable : bool
        False: the result does not depend smoothly on any input, the gradient stops here.
    cheap : bool
        An element costs so little that it is computed again rather than stored or moved.
    cost : callable or None
        ``(node) -> int``: about how many operations on numbers a node of this op is. None: as its kind says,
        one for each element that is computed, or folded, or as its body says.
    moves : callable or None
        ``(shape, strides, **params) -> strides``, in elements, of what the op makes of an operand that lies
        so, or None where that is not a view of the operand. None in its place: it never is.
    parts : callable or None
        ``(*shapes, **params) -> windows``: the ranges of the result, along each axis, where each operand
        stands, for an op that gives nothing else. None in place of one: as large as the result, the operand
        stands wherever no other one does.
    picks : bool
        It reads of its first operand no more elements than it gives.
    keeps_bits : bool
        Its eager rule takes 16-bit floats as they are; those of others are given float32.
    crosses : bool
        Its operand and its result may lie on two devices.
    reduction : Reduction or None
        How it folds, for backends that print the fold.
    state : State or None
        How a scan folds that carries several numbers, likewise.
    precision : str
        Where `amp.autocast` is on, operands in floats of up to 32 bits are cast to its `precision.LOW` dtype,
        or 16-bit ones to its `precision.HIGH` one; empty: they stay.
    ordered : bool
        Each application is made, read or not, once, and in the order in which Python made them, as what talks
        to other processes must. Node for node they are a chain: `infer` and `eager` are given the result of
        the application before as one more operand, the last, and disregard it.
    begin : callable or None
        Begins what `eager` does and returns at once, with something that has `finish()`, which gives the
        result, and `test()`, which lets it go on; of the operands nothing is read any more. So what an
        ordered op waits for costs no time where there is something else to compute.
    over_mesh : bool
        It is an exchange between the devices of a mesh, all of which run one program. Backends that have the
        trait `meshes` print it.
    common : bool or None
        Is its result the same on all devices of a mesh, or each one's own? None: the same where all operands
        are.
    taped : callable or None
        ``(*tensors, **params) -> Tensor``: what is done in its place where a gradient tape sees an operand;
        it tells the tapes itself, as an op with several results must.
    guard : callable or None
        ``(*tensors) -> Tensor``: a primitive by itself, of operands for which any processor's instruction
        is defined and does not trap; see `codegen.guard`. None: it is so for all operands.
    exact : bool
        It rounds nothing: it gives an operand, its sign apart, or a whole number next to one.
    signed_zero : bool
        A zero that it gives has the sign that IEEE 754 or C prescribes; else either is right.
    meaning : str
        What it computes, for who prints it: a formula first, then the edges, such as NaN, ties and overflow.
        The specification (docs/ir.md) is made of these.

    Examples
    --------
    >>> from mgb.backends.plugins import known_ops
    >>> op = known_ops()["add"]
    >>> op.kind, op.is_primitive, op.reduction
    (<Kind.ELEMENTWISE: 'elementwise'>, True, None)
    """

    name: str
    kind: Kind
    infer: Callable[..., Spec]
    eager: Callable[..., Any] | None = None
    grad: Callable[..., Sequence[Any]] | None = None
    body: Callable[..., Any] | None = None
    promote: Callable[[Sequence[Any]], Sequence[np.dtype[Any]]] | None = None
    differentiable: bool = True
    cheap: bool = False
    cost: Callable[[Node], int] | None = None
    moves: Callable[..., tuple[int, ...] | None] | None = None
    parts: Callable[..., Sequence[tuple[tuple[int, int, int], ...] | None]] | None = None
    picks: bool = False
    keeps_bits: bool = False
    crosses: bool = False
    reduction: Reduction | None = None
    state: State | None = None
    ordered: bool = False
    begin: Callable[..., Any] | None = None
    over_mesh: bool = False
    common: bool | None = None
    taped: Callable[..., Any] | None = None
    precision: str = ""
    guard: Callable[..., Any] | None = None
    exact: bool = False
    signed_zero: bool = False
    meaning: str = ""

    @property
    def is_primitive(self) -> bool:
        return self.body is None

    @property
    def under_tape(self) -> Callable[..., Any] | None:
        """The callable that replaces the op under a gradient tape; None: the tape records the op itself."""
        return self.body if self.grad is None and self.taped is None else self.taped

    def __repr__(self) -> str:
        return f"<op {self.name}>"


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """One application of an op. Nodes are immutable; a rewrite makes new ones.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> graph = graph_of(lambda x: F.exp(x), Spec((2,), np.dtype("float32")))
    >>> node = graph.nodes[0]
    >>> node.op.name, node.inputs, str(node.spec)
    ('exp', (<input: float32[2]>,), 'float32[2]')
    """

    op: Op
    inputs: tuple[Node, ...]
    params: Mapping[str, Any]
    spec: Spec
    source: str = ""

    def __repr__(self) -> str:
        return f"<{self.op.name}: {self.spec}>"


def _no_infer(*_specs: Spec, **_params: Any) -> Spec:
    raise AssertionError("a leaf carries its own spec")


INPUT = Op("input", Kind.LEAF, _no_infer, differentiable=False)
CONST = Op("const", Kind.LEAF, _no_infer, differentiable=False)


def input_node(spec: Spec, source: str = "") -> Node:
    """Return a placeholder for a value that comes from outside.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> input_node(Spec((2, 3), np.dtype("float32")))
    <input: float32[2,3]>
    """
    return Node(INPUT, (), {}, spec, source)


def const_node(value: Any, dtype: np.dtype[Any], device: str = "xpux:0") -> Node:
    """Return a typed constant; its array is a read-only copy.

    Examples
    --------
    >>> const_node([1, 2], np.dtype("float32")).spec
    Spec(shape=(2,), dtype=dtype('float32'), device='xpux:0')
    """
    array = np.array(to_host(value) if hasattr(value, "__cuda_array_interface__") else value, dtype)
    array.flags.writeable = False
    return Node(CONST, (), {"value": array}, Spec(array.shape, dtype, device))


@dataclass(frozen=True, eq=False)
class Graph:
    """Inputs, outputs and everything between. A fusion group is a Graph too.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> print(graph_of(lambda x: F.exp(x) * x, Spec((2,), np.dtype("float32"))))
    graph(%0: float32[2])
      %1: float32[2] = exp(%0)
      %2: float32[2] = mul(%1, %0)
      return %2
    """

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every node but the inputs, each after the nodes it reads; dead code does not exist."""
        given = frozenset(self.inputs)
        order: dict[Node, None] = {}
        stack = [(output, False) for output in reversed(self.outputs)]
        while stack:
            node, ready = stack.pop()
            if node in order or node in given:
                continue
            if ready:
                order[node] = None
            else:
                stack.append((node, True))
                stack.extend((i, False) for i in reversed(node.inputs))
        return tuple(order)

    @cached_property
    def numbers(self) -> tuple[Scalar, ...]:
        """Those in its types and parameters that are followed, each once."""
        nodes = (*self.inputs, *self.nodes)
        held = (part for node in nodes for part in (node.spec.shape, dict(node.params)))
        return tuple({id(number): number for part in held for number in numbers_of(part)}.values())

    @property
    def sizes(self) -> Sizes | None:
        """Of the lengths that are followed in it; None where they are plain."""
        return next((n.follower for n in self.numbers if type(n) is Size), None)

    def mapped(self, rule: Callable[[Any], Any]) -> Graph:
        """Return the same graph with ``rule(number)`` for each symbolic number."""

        def copied(node: Node, *inputs: Node) -> Node:
            spec = Spec(mapped(rule, node.spec.shape), node.spec.dtype, node.spec.device)
            return Node(node.op, inputs, mapped(rule, dict(node.params)), spec, node.source)

        inputs = tuple(map(copied, self.inputs))
        return Graph(inputs, self.fold(copied, inputs))

    @cached_property
    def readers(self) -> Mapping[Node, tuple[Node, ...]]:
        """The nodes that read each node, in order; a node that reads twice stands twice."""
        readers: dict[Node, list[Node]] = {n: [] for n in (*self.inputs, *self.nodes)}
        for node in self.nodes:
            for i in node.inputs:
                readers[i].append(node)
        return {n: tuple(r) for n, r in readers.items()}

    def fold(self, rule: Callable[..., Value], args: Sequence[Value]) -> tuple[Value, ...]:
        """Give the graph a meaning: ``rule(node, *values)`` is the value of a node.

        Running, printing, rewriting, differentiating and emitting code are all folds.
        """
        values = dict(zip(self.inputs, args, strict=True))
        for node in self.nodes:
            values[node] = rule(node, *(values[i] for i in node.inputs))
        return tuple(values[o] for o in self.outputs)

    def ending_in(self, outputs: tuple[Node, ...]) -> Graph:
        """Return the graph from the same inputs to `outputs`.

        This one, with all it knows, if they are its own.
        """
        return self if outputs == self.outputs else Graph(self.inputs, outputs)

    @cached_property
    def own(self) -> frozenset[Node]:
        """The values that each device of a mesh has for itself: all others are the same everywhere."""
        found: set[Node] = set()
        for node in self.nodes:
            if is_own(node.op, (i in found for i in node.inputs)):
                found.add(node)
        return frozenset(found)

    def has(self, *ops: Op) -> bool:
        """Return whether one of these ops is in it."""
        return any(n.op in ops for n in self.nodes)

    @cached_property
    def key(self) -> str:
        """Equal keys mean equal graphs: names, params, constants by content, specs, wiring."""
        return digest(self._text(exact_text).encode())

    def __str__(self) -> str:
        return self._text(_readable)

    def _text(self, show: Callable[[Any], str]) -> str:
        names = {n: f"%{i}" for i, n in enumerate(dict.fromkeys((*self.inputs, *self.nodes)))}
        head = ", ".join(f"{names[n]}: {n.spec}" for n in self.inputs)
        lines = [f"graph({head})"]
        for node in self.nodes:
            args = [names[i] for i in node.inputs] + [
                f"{k}={show(v)}" for k, v in sorted(node.params.items())
            ]
            lines.append(f"  {names[node]}: {node.spec} = {node.op.name}({', '.join(args)})")
        return "\n".join([*lines, f"  return {', '.join(names[o] for o in self.outputs)}"])


def is_own(op: Op, operands: Iterable[bool]) -> bool:
    """Return whether a result of `op` is each device's own on a mesh, where these of its operands are.

    Examples
    --------
    >>> from mgb.ir import is_own
    >>> from mgb.ops.declare import OPS
    >>> is_own(OPS["add"], [True, False]), is_own(OPS["extent"], [True])  # lengths are the same everywhere
    (True, False)
    """
    return any(operands) if op.common is None else not op.common


@dataclass(frozen=True, eq=False, slots=True)
class Body:
    """A Graph as a parameter of an op, as what a loop repeats is; those of equal graphs are equal.

    Where numbers in it are followed, it is equal to itself alone: who asked them would fix them.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> graphs = [graph_of(F.exp, Spec((2,), np.dtype("float32"))) for _ in range(2)]
    >>> graphs[0] == graphs[1], Body(graphs[0]) == Body(graphs[1])
    (False, True)
    """

    graph: Graph

    @property
    def key(self) -> str:
        """As `Graph.key`, and where the values lie."""
        ends = (*self.graph.inputs, *self.graph.outputs)
        return f"{self.graph.key} {','.join(n.spec.device for n in ends)}"

    @property
    def numbers(self) -> tuple[Scalar, ...]:
        """As `Graph.numbers`."""
        return self.graph.numbers

    def mapped(self, rule: Callable[[Any], Any]) -> Body:
        """Return the same body with ``rule(number)`` for each symbolic number; see `Graph.mapped`."""
        return Body(self.graph.mapped(rule))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Body) or self.graph is other.graph:
            return isinstance(other, Body)
        return not self.numbers and not other.numbers and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.graph) if self.numbers else hash(self.graph.key)

    def __repr__(self) -> str:
        return f"<graph {self.key}>"

    def __str__(self) -> str:
        return str(self.graph).replace("\n", "\n    ")


HOLDING.add(Body)


def _readable(value: Any) -> str:
    if isinstance(value, Body):
        return str(value)
    if isinstance(value, np.ndarray):
        return str(value.item()) if value.size == 1 else f"<{value.dtype.name}{list(value.shape)}>"
    return value.name if isinstance(value, np.dtype) else repr(value)


def exact_text(value: Any) -> str:
    """Return a string that is equal for equal parameters: for keys.

    Examples
    --------
    >>> exact_text((0, 1)), exact_text(np.dtype("int8"))
    ('(0, 1)', 'int8')
    """
    if isinstance(value, np.ndarray):
        return f"{name_of(value.dtype)}{value.shape}{digest(value.tobytes())}"
    return name_of(value) if isinstance(value, np.dtype) else repr(value)


def digest(data: bytes) -> str:
    """Return the SHA-256 of `data` in hexadecimal.

    Examples
    --------
    >>> digest(b"abc")[:8]
    'ba7816bf'
    """
    import hashlib  # it loads OpenSSL, which a program that compiles nothing does without

    return hashlib.sha256(data).hexdigest()
