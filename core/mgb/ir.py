"""The data that every other module speaks: Spec, Kind, Op, Node, Graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from .device import to_host
from .forking import cached_property

Value = TypeVar("Value")


class Kind(Enum):
    """What an op does to the iteration domain; the fusion rules are written in these words."""

    LEAF = "leaf"  # input, const, iota: reads no other value
    ELEMENTWISE = "elementwise"  # one output element for each (broadcast) input element
    REDUCE = "reduce"  # folds axes to length 1
    LAYOUT = "layout"  # moves elements, computes nothing
    CONTRACT = "contract"  # matmul, convolution
    OPAQUE = "opaque"  # everything else: sort, gather, pooling, ...

    __hash__ = object.__hash__  # members are equal to themselves only; Enum's own hash is a Python function


@dataclass(frozen=True, slots=True)
class Spec:
    """The static type of a value."""

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
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, eq=False, slots=True)
class Reduction:
    """How an op folds axes.

    Attributes
    ----------
    combine : Op
        Of two elements. It has an order of its own choice.
    identity : callable
        ``(dtype) -> number``: what a reduction of nothing is.
    accumulator : callable
        ``(dtype) -> dtype``, in which the folds of many elements are folded, where that costs nothing.
    """

    combine: Op
    identity: Callable[[np.dtype[Any]], Any]
    accumulator: Callable[[np.dtype[Any]], np.dtype[Any]]


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
        so, or None where that is no view of the operand. None in its place: it never is.
    picks : bool
        It reads of its first operand no more elements than it gives.
    keeps_bits : bool
        Its eager rule takes 16-bit floats as they are; those of others are given float32.
    crosses : bool
        Its operand and its result may lie on two devices.
    reduction : Reduction or None
        How it folds, for backends that print the fold.
    ordered : bool
        Each application is made, read or not, once, and in the order in which Python made them, as what talks
        to other processes must. Node for node they are a chain: `infer` and `eager` are given the result of
        the application before as one more operand, the last, and disregard it.
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
    picks: bool = False
    keeps_bits: bool = False
    crosses: bool = False
    reduction: Reduction | None = None
    ordered: bool = False

    @property
    def is_primitive(self) -> bool:
        return self.body is None

    def __repr__(self) -> str:
        return f"<op {self.name}>"


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """One application of an op. Nodes are immutable; a rewrite makes new ones."""

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
    """A placeholder for a value that comes from outside."""
    return Node(INPUT, (), {}, spec, source)


def const_node(value: Any, dtype: np.dtype[Any], device: str = "xpux:0") -> Node:
    """A typed constant; its array is a read-only copy."""
    array = np.array(to_host(value) if hasattr(value, "__cuda_array_interface__") else value, dtype)
    array.flags.writeable = False
    return Node(CONST, (), {"value": array}, Spec(array.shape, dtype, device))


@dataclass(frozen=True, eq=False)
class Graph:
    """Inputs, outputs and everything between. A fusion group is a Graph too."""

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
        """The graph from the same inputs to `outputs`: this one, with all it knows, if they are its own."""
        return self if outputs == self.outputs else Graph(self.inputs, outputs)

    def has(self, *ops: Op) -> bool:
        """Is one of these ops in it?"""
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


def _readable(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return str(value.item()) if value.size == 1 else f"<{value.dtype.name}{list(value.shape)}>"
    return value.name if isinstance(value, np.dtype) else repr(value)


def exact_text(value: Any) -> str:
    """Equal texts mean equal parameters: for keys."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name}{value.shape}{digest(value.tobytes())}"
    return value.name if isinstance(value, np.dtype) else repr(value)


def digest(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    import hashlib  # it loads OpenSSL, which a program that compiles nothing does without

    return hashlib.sha256(data).hexdigest()
