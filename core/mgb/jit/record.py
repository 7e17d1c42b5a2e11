"""What a trace remembers: the sequence of ops, how they are wired, and where the program splits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import dtypes
from ..apply import caller, evaluate
from ..fusion import number_node
from ..ir import CONST, Graph, Node, Op, Spec, const_node
from ..sizes import At, Size
from ..tensor import Tensor
from ..tracing import inferred
from .entry import CUTS, OUTPUT_GRADIENT, SHAPE, Entry, Literal, Ref
from .guard import Guards
from .source import Argument, Grad, Held, Object, Source, found_at, is_gone, roots
from .tree import Structure


@dataclass(slots=True)
class External:
    """A value that comes from outside the recorded ops.

    Attributes
    ----------
    source : Source or None
        Where the Tensor stands that holds it, or the array of NumPy's of which it is made.
    origin : callable or None
        Asked for the value at each call: a live hyper-parameter.
    converts : np.dtype, type or None
        Of an array of NumPy's at `source`, which is converted at each call; or that of a number there.
    made : array or None
        What the body made of data, which is the same again as long as it sees the same.
    """

    node: Node
    source: Source | None = None
    origin: Callable[[], float] | None = None
    converts: Any = None
    made: Any = None

    @property
    def line(self) -> str:
        """The user's line where it is used first."""
        return self.node.source

    @property
    def leaf(self) -> int | None:
        """The number of the argument, of those flattened, that it is, or the ``grad`` of."""
        source = self.source.of if isinstance(self.source, Grad) else self.source
        return source.index if isinstance(source, Argument) else None

    @property
    def is_elsewhere(self) -> bool:
        """Does a Tensor hold it that is no argument?"""
        return self.converts is None and self.source is not None and self.leaf is None

    @property
    def is_looked_for(self) -> bool:
        """Does it stand in another Tensor at each call, outside the arguments?"""
        return self.is_elsewhere and not isinstance(self.source, Grad | Object)

    def tensor(self, leaves: Sequence[Any] = ()) -> Tensor | None:
        """The Tensor that holds it now; None: there is none, or none any more."""
        found = None if self.source is None or self.converts is not None else found_at(self.source, leaves)
        return found if isinstance(found, Tensor) else None


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """What is no Tensor in a result: the same `value` at each call, or, if it is `copied`, a copy of that.

    Of a length, `size` is which one it is.
    """

    value: Any
    copied: bool = False
    size: Size | None = None

    def copy(self) -> Any:
        """A copy of the array that `value` is, as it lies in memory and may be written."""
        made = self.value.copy("K")
        made.flags.writeable = self.value.flags.writeable
        return made

    def at(self, at: At) -> Given:
        """The same for other lengths."""
        return self if self.size is None else Given(at(self.size), size=self.size)


@dataclass(frozen=True, slots=True, eq=False)
class Live:
    """A number in a result, which is read or computed anew at each call: see `numbers`."""

    path: Source
    value: Any = None  # when it was recorded


#: Where a leaf of a result comes from; None: it is None.
End = Ref | Given | Live | None
#: How the result of a call is nested, and where each of its leaves comes from.
Ends = tuple[Structure, tuple[End, ...]]


@dataclass(slots=True)
class Binding:
    """An effect: a Tensor outside that the call leaves with a new value or a new ``grad``.

    Attributes
    ----------
    source : Ref, Source or None
        Where the new value comes from, or the source of the Tensor that becomes the ``grad``; None leaves it
        None.
    target : Source
        Where the Tensor is found.
    external : int or None
        The external input that held its old value.
    is_grad : bool
        The Tensor gets a new ``grad``, and no new value.
    made : int or None
        Which of the Tensors that the body made becomes the ``grad``: see `Record.returned`.
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
        What has to be as it was for the body to do the same: all of it if the body `is_observed`, else only
        which ``grad`` is None, and what decides what the holders of Tensors in it do.
    is_observed : bool
        Was the body seen to read outside?
    follows : frozenset of Source
        Where numbers, also those among the arguments, need not be as they were unless the guards say so.
    ends : Ends or None
        How the result is nested, and where its values come from; None: the body makes it at each call.
    writes : tuple of (Source, bool)
        Where the call puts Tensors that the body makes, and are they appended there. They are the last parts
        of a tuple in `ends`, whose first part is the result.
    statics : dict
        The steps that depend on shapes and literals only, with their values once these were wanted.
    holders : list of (Held, list)
        Those that the body worked with, and the sources of Tensors and holders that decided what they do.
    changes : str or None
        What the body changes in its `holders`, in words: it would do something else after that.
    returned : tuple of int, Source or None
        For each Tensor in the result which one it is, by a number if the body made it.
    outside : frozenset of int
        The ids of Tensors outside that the body changes, or whose gradients it wants.
    captured : dict
        The constants that were values of Tensors outside, by the nodes that were made of them.
    arrangement : Structure or None
        How the arguments were nested and named, so which one stands where.
    numbers : dict
        The Python numbers among the arguments, by their indices.
    sized : SizedRecord or None
        This one and others of the same call, for arguments of other lengths.
    lengths : tuple of int
        Of the axes of the arguments, where `sized`.
    """

    entries: list[Entry] = field(default_factory=list)
    externals: list[External] = field(default_factory=list)
    bindings: list[Binding] = field(default_factory=list)
    guards: Guards = field(default_factory=Guards)
    is_observed: bool = False
    follows: frozenset[Source] = frozenset()
    ends: Ends | None = None
    writes: tuple[tuple[Source, bool], ...] = ()
    holders: list[tuple[Held, list[tuple[Source, Any]]]] = field(default_factory=list)
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
    _before: tuple[Node, ...] = field(default=(), init=False)  # of these, the last ordered one since a cut

    def is_cut_out(self, step: int) -> bool:
        """Does a cut give the value of `step`?"""
        return any(step in entry.required for entry in self.entries)

    def step(self, op: Op, args: tuple[Ref, ...], params: dict[str, Any]) -> Entry:
        """Add a step; `op` refuses operands of these shapes by an error that has the user's line."""
        specs, source, device = [], caller(), None
        is_static = True
        for ref in args:
            specs.append(spec := self.spec(ref))
            if ref.__class__ is not Literal:
                is_static = is_static and ref in self.statics
                device = device or spec.device  # constants lie everywhere
        if (is_static and not op.ordered) or op is SHAPE:
            self.statics[len(self.entries)] = None
        device = device or (specs[0].device if specs else None)
        entry = Entry(op, args, params, inferred(op, specs, params, device, source), source)
        self.entries.append(entry)
        return entry

    def spec(self, ref: Ref) -> Spec:
        """The type of a value."""
        if isinstance(ref, Literal):
            return Spec(ref.array.shape, ref.array.dtype, ref.device)
        return self.externals[-1 - ref].node.spec if ref < 0 else self.entries[ref].spec

    def node(self, ref: Ref) -> Node:
        """The node of a value, for a graph."""
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
            self._before = ()  # programs run one after the other
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
        """The constants among the operands, each as often as it is one."""
        return [ref for entry in self.entries for ref in entry.args if isinstance(ref, Literal)]

    def static_value(self, step: int) -> Any | None:
        """The array that `step` makes at every call, or None when it depends on data."""
        if step not in self.statics:
            return None
        if self.statics[step] is None:
            (value,) = Graph((), (self.node(step),)).fold(_value_of, ())
            if isinstance(value, np.ndarray):
                value.flags.writeable = False  # every call shares it
            self.statics[step] = value
        return self.statics[step]

    @property
    def signature(self) -> tuple[Spec, ...]:
        """The specs of everything that comes from outside."""
        return tuple(e.node.spec for e in self.externals)

    def owners(self) -> list[Any]:
        """The objects outside at which the sources of inputs, effects and results start: to be held."""
        handed_on = (*(binding.source for binding in self.bindings), *self.returned)
        sources = (*(external.source for external in self.externals), *handed_on)
        starts = (start for source in sources if isinstance(source, Source) for start in roots(source))
        return [start.thing.get() for start in starts if isinstance(start, Object)]

    def gone(self) -> str | None:
        """Where a Tensor was used that Python has let go of since: what stands there now only it knows."""
        for external in self.externals:
            if external.is_elsewhere and is_gone(external.source):  # type: ignore[arg-type]
                return external.line
        lost = any(is_gone(guard.source) for guard in self.guards if isinstance(guard.source, Grad))
        return self.entries[-1].source if lost else None

    def updates(self) -> Mapping[int, int]:
        """For each step that replaces the value of an external input: which one."""
        return {
            b.source: b.external
            for b in self.bindings
            if isinstance(b.source, int) and b.source >= 0 and b.external is not None
        }
