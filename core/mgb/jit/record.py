"""A record of a call: the sequence of ops, how they are wired, and where programs are cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..fusion import number_node
from ..ir import CONST, Graph, Node, Op, Spec, const_node, dtypes
from ..ir.sizes import At, Size
from ..tensor import Tensor
from ..tensor.apply import caller, evaluate
from ..tensor.tracing import inferred
from .entry import CUTS, OUTPUT_GRADIENT, SHAPE, Entry, Literal, Ref
from .guard import Guards
from .source import Argument, Grad, Object, ObjectRef, Source, is_gone, roots, try_read
from .tree import Structure


@dataclass(slots=True)
class External:
    """A value that ops take and that no recorded op makes.

    Attributes
    ----------
    source : Source or None
        The source of the Tensor that holds it, or of the NumPy array that it is made of.
    origin : callable or None
        Returns the value at each call: a live hyper-parameter.
    converts : np.dtype, type or None
        The dtype of a NumPy array at `source`, which is converted at each call, or the type of a number
        there.
    made : array or None
        An array that the body made of data. It is equal at each call while the guards hold.
    """

    node: Node
    source: Source | None = None
    origin: Callable[[], float] | None = None
    converts: Any = None
    made: Any = None

    @property
    def line(self) -> str:
        """Return the user's line that uses it first."""
        return self.node.source

    @property
    def leaf(self) -> int | None:
        """Return the index of the flattened argument that it is, or the ``grad`` of; else None."""
        source = self.source.of if isinstance(self.source, Grad) else self.source
        return source.index if isinstance(source, Argument) else None

    @property
    def is_free_tensor(self) -> bool:
        """Check whether it is the value of a Tensor that is not an argument."""
        return self.converts is None and self.source is not None and self.leaf is None

    @property
    def may_vary(self) -> bool:
        """Check whether its Tensor, outside the arguments, may be another one at each call."""
        return self.is_free_tensor and not isinstance(self.source, Grad | Object)

    def tensor(self, leaves: Sequence[Any] = ()) -> Tensor | None:
        """Return the Tensor that holds it now, or None."""
        found = None if self.source is None or self.converts is not None else try_read(self.source, leaves)
        return found if isinstance(found, Tensor) else None


@dataclass(frozen=True, slots=True, eq=False)
class FixedValue:
    """A part of a result that is not a Tensor: the same `value` at each call, or a copy of it if `copied`.

    `size` is the symbolic length, if it is one.
    """

    value: Any
    copied: bool = False
    size: Size | None = None

    def copy(self) -> Any:
        """Return a copy of the array `value`, with its memory layout and its writeable flag."""
        made = self.value.copy("K")
        made.flags.writeable = self.value.flags.writeable
        return made

    def at(self, at: At) -> FixedValue:
        """Return the same for other lengths."""
        return self if self.size is None else FixedValue(at(self.size), size=self.size)


@dataclass(frozen=True, slots=True, eq=False)
class LiveValue:
    """A number in a result that is read or computed at each call: see `numbers`."""

    path: Source
    value: Any = None  # of the recorded call


#: Where a leaf of a result comes from; None: it is None.
End = Ref | FixedValue | LiveValue | None
#: How the result of a call is nested, and where each of its leaves comes from.
Ends = tuple[Structure, tuple[End, ...]]


@dataclass(slots=True)
class Binding:
    """An effect: a Tensor outside that the call leaves with a new value or a new ``grad``.

    Attributes
    ----------
    source : Ref, Source or None
        Where the new value comes from, or the source of the Tensor that becomes the ``grad``; None clears it.
    target : Source
        The source of the Tensor.
    external : int or None
        The external input that held its old value.
    is_grad : bool
        The Tensor gets a new ``grad``, and no new value.
    made : int or None
        The number of the Tensor that becomes the ``grad``, if the body made it: see `Record.returned`.
    """

    source: Ref | Source | None
    target: Source
    external: int | None = None
    is_grad: bool = False
    made: int | None = None


def _value_of(node: Node, *arrays: Any) -> Any:
    return node.params["value"] if node.op is CONST else evaluate(node.op, arrays, dict(node.params))


@dataclass(slots=True)
class Record:
    """A captured call: the sequence of its ops for one set of input shapes, inputs, guards, effects, results.

    Attributes
    ----------
    entries : list of Entry
    externals : list of External
        The inputs.
    bindings : list of Binding
        The effects.
    guards : Guards
        What must be unchanged for the body to do the same. If it was not observed, they cover only which
        ``grad`` is None, and the state of the holders of Tensors.
    is_observed : bool
        What the body reads outside was observed.
    follows : frozenset of Source
        The sources of numbers, also among the arguments, that are symbolic.
    ends : Ends or None
        How the result is nested, and where its values come from; None: the body makes it at each call.
    writes : tuple of (Source, bool)
        Where the call writes values that the body makes, and whether it appends them there. The values are
        the last parts of a tuple in `ends`, whose first part is the result.
    statics : dict
        The steps that depend on shapes and literals only, with their values after the first use.
    holders : list of (ObjectRef, list)
        Those that the body used, and the sources of Tensors and holders that decided what they do.
    changes : str or None
        What the body changes in its `holders`, as text, if it would do something else after that.
    returned : tuple of int, Source or None
        For each Tensor in the result its source, or a number if the body made it.
    outside : frozenset of int
        The ids of Tensors outside that the body changes or differentiates.
    captured : dict
        The constants that were values of Tensors outside, by their nodes.
    arrangement : Structure or None
        The nesting and the names of the arguments.
    numbers : dict
        The Python numbers among the arguments, by their indices.
    sized : SizedRecord or None
        The records of the same call for other lengths.
    lengths : tuple of int
        The lengths of the axes of the arguments, if `sized`.
    """

    entries: list[Entry] = field(default_factory=list)
    externals: list[External] = field(default_factory=list)
    bindings: list[Binding] = field(default_factory=list)
    guards: Guards = field(default_factory=Guards)
    is_observed: bool = False
    follows: frozenset[Source] = frozenset()
    ends: Ends | None = None
    writes: tuple[tuple[Source, bool], ...] = ()
    holders: list[tuple[ObjectRef, list[tuple[Source, Any]]]] = field(default_factory=list)
    changes: str | None = None
    statics: dict[int, Any] = field(default_factory=dict)
    returned: tuple[int | Source | None, ...] = ()
    outside: frozenset[int] = frozenset()
    captured: dict[Node, Literal] = field(default_factory=dict, init=False)
    arrangement: Structure | None = None
    numbers: dict[int, Any] = field(default_factory=dict)
    sized: Any = None
    lengths: tuple[int, ...] = ()
    _nodes: list[Node | None] = field(default_factory=list, init=False)  # of the first steps
    _before: tuple[Node, ...] = field(default=(), init=False)  # the last ordered one of these since a cut

    def is_cut_out(self, step: int) -> bool:
        """Check whether a cut returns the value of `step`."""
        return any(step in entry.required for entry in self.entries)

    def step(self, op: Op, args: tuple[Ref, ...], params: dict[str, Any]) -> Entry:
        """Add a step. If `op` rejects operands of these shapes, the error has the user's line."""
        specs, source, device = [], caller(), None
        is_static = True
        for ref in args:
            specs.append(spec := self.spec(ref))
            if ref.__class__ is not Literal:
                is_static = is_static and ref in self.statics
                device = device or spec.device  # constants have no device
        if (is_static and not op.ordered) or op is SHAPE:
            self.statics[len(self.entries)] = None
        device = device or (specs[0].device if specs else None)
        entry = Entry(op, args, params, inferred(op, specs, params, device, source), source)
        self.entries.append(entry)
        return entry

    def spec(self, ref: Ref) -> Spec:
        """Return the type of a value."""
        if isinstance(ref, Literal):
            return Spec(ref.array.shape, ref.array.dtype, ref.device)
        return self.externals[-1 - ref].node.spec if ref < 0 else self.entries[ref].spec

    def node(self, ref: Ref) -> Node:
        """Return the node of a value, for a graph."""
        if isinstance(ref, Literal):
            if ref.size is not None:
                return number_node(ref.size, ref.array.dtype, ref.device)
            constant = const_node(ref.array, ref.array.dtype, ref.device)
            if ref.owner is not None:
                self.captured[constant] = ref
            return constant
        if ref < 0:
            return self.externals[-1 - ref].node
        while len(self._nodes) <= ref:
            self._nodes.append(self._made(self.entries[len(self._nodes)]))
        node = self._nodes[ref]
        assert node is not None
        return node

    def _made(self, entry: Entry) -> Node | None:
        if entry.op in CUTS or entry.op is OUTPUT_GRADIENT:
            self._before = ()  # programs run in order anyway
        if entry.op in CUTS:
            return None
        if entry.op is SHAPE:
            return const_node(self.spec(entry.args[0]).shape, dtypes.int32, entry.spec.device)
        inputs = tuple([self.node(ref) for ref in entry.args])
        if not entry.op.ordered:
            return Node(entry.op, inputs, entry.params, entry.spec, entry.source)
        node = Node(entry.op, inputs + self._before, entry.params, entry.spec, entry.source)
        self._before = (node,)
        return node

    def constants(self) -> list[Literal]:
        """Return the constants among the operands, with repetitions."""
        return [ref for entry in self.entries for ref in entry.args if isinstance(ref, Literal)]

    def static_value(self, step: int) -> Any | None:
        """Return the array that `step` makes at every call, or None if it depends on data."""
        if step not in self.statics:
            return None
        if self.statics[step] is None:
            (value,) = Graph((), (self.node(step),)).fold(_value_of, ())
            if isinstance(value, np.ndarray):
                value.flags.writeable = False  # every call shares it
            self.statics[step] = value
        return self.statics[step]

    def owners(self) -> list[Any]:
        """Return the objects outside where the sources of inputs, effects and results start."""
        handed_on = (*(binding.source for binding in self.bindings), *self.returned)
        sources = (*(external.source for external in self.externals), *handed_on)
        starts = (start for source in sources if isinstance(source, Source) for start in roots(source))
        return [start.thing.get() for start in starts if isinstance(start, Object)]

    def gone(self) -> str | None:
        """Return the line that used a Tensor which is gone: no source says which Tensor replaced it."""
        for external in self.externals:
            if external.is_free_tensor and is_gone(external.source):  # type: ignore[arg-type]
                return external.line
        lost = any(is_gone(guard.source) for guard in self.guards if isinstance(guard.source, Grad))
        return self.entries[-1].source if lost else None

    def updates(self) -> Mapping[int, int]:
        """Map each step that replaces the value of an external input to the number of that input."""
        return {
            b.source: b.external
            for b in self.bindings
            if isinstance(b.source, int) and b.source >= 0 and b.external is not None
        }
