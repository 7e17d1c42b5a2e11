"""What a trace remembers: the sequence of ops, how they are wired, and where the program splits."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import dtypes
from ..apply import caller, evaluate
from ..fusion import number_node
from ..ir import CONST, Graph, Kind, Node, Op, Spec, const_node
from ..sizes import At, Size, plain
from ..tensor import Tensor
from ..tracing import make_node
from .surroundings import Contents, State, contents_of, decisive


def _no_spec(*_specs: Spec, **_params: Any) -> Spec:
    raise AssertionError("a cut makes no value")


#: Pseudo-ops in the sequence: the program splits here. ``required`` are the steps whose values leave the
#: program.
READ = Op("read of a value", Kind.OPAQUE, _no_spec)
EXCLUDE = Op("exclude_from_trace", Kind.OPAQUE, _no_spec)
END = Op("end", Kind.OPAQUE, _no_spec)
CUTS = frozenset({READ, EXCLUDE, END})

#: The shape of a value as an int32 Tensor. In a record shapes are known, so that its node is a constant.
SHAPE = Op(
    "shape_of",
    Kind.OPAQUE,
    lambda x: Spec((x.ndim,), dtypes.int32),
    lambda x: np.array(x.shape, dtypes.int32),
    differentiable=False,
)


@dataclass(slots=True, eq=False)
class Literal:
    """A constant operand.

    Attributes
    ----------
    array : array
        As the op saw it.
    raw : bool, int, float or None
        The Python scalar that it was made of, if known.
    owner : weak reference or None
        The Tensor outside whose value it was.
    device : str
        Of that Tensor; the array may be NumPy's nevertheless.
    size : Size or None
        Which one it is, where it is a length that is followed.
    """

    array: Any
    raw: Any = None
    owner: weakref.ref[Tensor] | None = None
    device: str = "xpux:0"
    size: Size | None = None

    def at(self, at: At) -> Literal:
        """The constant for other lengths."""
        value = at(self.size)
        array = np.array(plain(value), self.array.dtype)
        return Literal(array, plain(value), None, self.device, value if type(value) is Size else None)

    def same_scalar(self, value: Any) -> bool:
        """Is `value` the Python scalar that this was made of?"""
        same = self.raw.__class__ is value.__class__ and self.raw == value
        return same and (value != 0 or str(self.raw) == str(value))  # 0.0 equals -0.0

    def matches(self, other: Any) -> bool:
        """Is `other` the same constant? NaN equals NaN; 0.0 and -0.0 differ."""
        mine = self.array
        if mine is other:
            return True
        if mine.dtype != other.dtype or mine.shape != other.shape:
            return False
        if mine.dtype.kind != "f":
            return bool(np.array_equal(mine, other))
        signs = np.array_equal(np.signbit(mine[mine == 0]), np.signbit(other[mine == 0]))
        return bool(np.array_equal(mine, other, equal_nan=True)) and signs

    def __str__(self) -> str:
        return str(self.array.item()) if self.array.size == 1 else f"a constant of shape {self.array.shape}"


#: An operand: the step that made it (0, 1, ...), an external input (-1 is the first, -2 the second, ...),
#: or a constant.
Ref = int | Literal


def external_ref(number: int) -> int:
    """The `Ref` of external input `number`."""
    return -1 - number


@dataclass(slots=True)
class Entry:
    """One recorded step: an op with its operands, or a cut."""

    op: Op
    args: tuple[Ref, ...]
    params: dict[str, Any]
    node: Node | None
    source: str
    required: tuple[int, ...] = ()

    @property
    def spec(self) -> Spec:
        assert self.node is not None
        return self.node.spec

    def __str__(self) -> str:
        params = "".join(f", {k}={v}" for k, v in self.params.items())
        names = ", ".join(_show(a) for a in self.args)
        return f"{self.op.name}({names}{params})"


def _show(ref: Ref) -> str:
    if isinstance(ref, Literal):
        return str(ref)
    return f"step {ref}" if ref >= 0 else f"input {-1 - ref}"


@dataclass(slots=True)
class External:
    """A value that comes from outside the recorded ops.

    Attributes
    ----------
    leaf : int or None
        The place among the flattened arguments, when it is one.
    owner : weak reference or None
        The Tensor that held it, when that Tensor lives outside the body.
    of_grad : bool
        It is the value of the ``grad`` of `leaf` or `owner`.
    origin : callable or None
        Asked for the value at each call: a live hyper-parameter.
    converts : np.dtype or None
        Of an array of NumPy's, which is converted at each call: an argument, or what is found at `path`.
    path : Source or None
    made : array or None
        What the body made of data, which is the same again as long as it sees the same.
    """

    node: Node
    leaf: int | None = None
    owner: weakref.ref[Tensor] | None = None
    origin: Callable[[], float] | None = None
    source: str = ""
    of_grad: bool = False
    converts: Any = None
    path: Any = None
    made: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """What is no Tensor in a result: the same `value` at each call, or, if it is `copied`, a copy of that.

    Of a length, `size` is which one it is.
    """

    value: Any
    copied: bool = False
    size: Size | None = None

    def at(self, at: At) -> Given:
        """The same for other lengths."""
        return self if self.size is None else Given(at(self.size), size=self.size)


@dataclass(slots=True, eq=False)
class Outside:
    """A Tensor outside the body, or `leaf`, which is another one at the next call; or the ``grad`` of it."""

    owner: weakref.ref[Tensor]
    leaf: int | None
    of_grad: bool = False


@dataclass(slots=True, eq=False)
class Pin:
    """Where the call found `tensor`, which the body may have come by in another way too.

    So it is not known what the body would do with another Tensor there: a call that has one is another call.
    """

    tensor: weakref.ref[Tensor]
    place: Outside


@dataclass(slots=True)
class Binding:
    """A Tensor outside that the call leaves with a new value or a new ``grad``.

    Attributes
    ----------
    source : Ref, Outside or None
        Where the new value comes from, or the very Tensor that becomes the ``grad``; None leaves it None.
    owner : weak reference
        The Tensor.
    leaf : int or None
        Its place among the flattened arguments: at the next call another Tensor may stand there.
    external : int or None
        The external input that held its old value.
    is_grad : bool
        The Tensor gets a new ``grad``.
    of_grad : bool
        The ``grad`` that the Tensor has gets the new value.
    made : int or None
        Which of the Tensors that the body made becomes the ``grad``: see `Record.returned`.
    """

    source: Ref | Outside | None
    owner: weakref.ref[Tensor]
    leaf: int | None = None
    external: int | None = None
    is_grad: bool = False
    of_grad: bool = False
    made: int | None = None


@dataclass(slots=True)
class Expected:
    """What the body found in the ``grad`` of a Tensor outside, and may have acted upon: None or a Tensor.

    Attributes
    ----------
    is_used : bool
        The body took or changed the value of that Tensor.
    """

    owner: weakref.ref[Tensor]
    leaf: int | None
    is_none: bool
    is_used: bool = False


def _value_of(node: Node, *arrays: Any) -> Any:
    return node.params["value"] if node.op is CONST else evaluate(node.op, arrays, dict(node.params))


@dataclass(slots=True)
class Record:
    """The recorded sequence for one set of input shapes.

    Attributes
    ----------
    statics : dict
        The steps that depend on shapes and literals only, with their values once these were wanted.
    modules : list of (Module, dict)
        Those that the body called or changed, with the attributes that say what they do.
    contents : list of Contents
        Of the containers in `modules`.
    changes : str or None
        What the body changes in its `modules`, in words: it would do something else after that.
    pins : list of Pin
    watched : list of Outside
        The Tensors outside whose gradients a tape of the body wanted; it need not have met them.
    trainers : list of (weak reference, int)
        The GradManagers and Optimizers that worked in the body, with their revisions.
    optimizers : list of OptimizerGuard
        Of the Optimizers among those.
    same : tuple of int
        For each different Tensor among the arguments, then for each ``grad`` that is used, the first place in
        this order where the same Tensor stands.
    returned : tuple of int, Outside or None
        For each Tensor in the result which one it is, by a number if the body made it.
    captured : dict
        The constants that were values of Tensors outside, by their nodes.
    arrangement : Structure or None
        How the arguments were nested and named, so which one stands at which place.
    numbers : tuple
        The Python numbers among the arguments.
    guards : Guards or None
        What the body was seen to read outside, as it was.
    is_unknown : bool
        Did it also read what no guard tells, such as the value of a Tensor?
    sized : SizedRecord or None
        This one and others of the same call, for arguments of other lengths.
    """

    entries: list[Entry] = field(default_factory=list)
    externals: list[External] = field(default_factory=list)
    bindings: list[Binding] = field(default_factory=list)
    expected: list[Expected] = field(default_factory=list)
    modules: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)
    contents: list[Contents] = field(default_factory=list)
    changes: str | None = None
    statics: dict[int, Any] = field(default_factory=dict)
    pins: list[Pin] = field(default_factory=list)
    watched: list[Outside] = field(default_factory=list)
    trainers: list[tuple[weakref.ref[Any], int]] = field(default_factory=list)
    optimizers: list[Any] = field(default_factory=list)
    same: tuple[int, ...] = ()
    returned: tuple[int | Outside | None, ...] = ()
    captured: dict[Node, Literal] = field(default_factory=dict)
    arrangement: Any = None
    numbers: tuple[Any, ...] = ()
    guards: Any = None
    is_unknown: bool = False
    sized: Any = None
    lengths: tuple[int, ...] = ()

    def begun(self, steps: int) -> Record:
        """A record that begins with the first `steps` of this one, from the same inputs to the same ends."""
        statics = {step: value for step, value in self.statics.items() if step < steps}
        return Record(
            self.entries[:steps],
            list(self.externals),
            self.bindings,
            self.expected,
            trainers=self.trainers,
            statics=statics,
            arrangement=self.arrangement,
            numbers=self.numbers,
            guards=self.guards,
            is_unknown=self.is_unknown,
        )

    def note(self, modules: Sequence[Any], before: Iterable[State]) -> None:
        """Note `modules` as they are now, after the body, which found them as `before` says."""
        self.modules = [(module, decisive(module)) for module in modules]
        self.contents = [contents for module in modules for contents in contents_of(module)]
        self.changes = next((words for state in before if (words := state.change()) is not None), None)

    def cut(self, entry: Entry) -> None:
        """Add a cut."""
        self.entries.append(entry)

    def step(self, op: Op, args: tuple[Ref, ...], params: dict[str, Any]) -> Entry:
        """Add a step; `op` refuses operands of these shapes by an error that has the user's line."""
        inputs = tuple([self.node(ref) for ref in args])
        source = caller()
        if op is SHAPE:
            (of,) = inputs
            node = const_node(of.spec.shape, dtypes.int32, of.spec.device)
        else:
            node = make_node(op, inputs, params, source)
        index = len(self.entries)
        if op is SHAPE or all(ref.__class__ is Literal or ref in self.statics for ref in args):
            self.statics[index] = None
        entry = Entry(op, args, params, node, source)
        self.entries.append(entry)
        return entry

    def node(self, ref: Ref) -> Node:
        """The node of a value."""
        if isinstance(ref, Literal):
            if ref.size is not None:
                return number_node(ref.size, ref.array.dtype, ref.device)
            constant = const_node(ref.array, ref.array.dtype, ref.device)
            if ref.owner is not None:
                self.captured[constant] = ref
            return constant
        node = self.externals[-1 - ref].node if ref < 0 else self.entries[ref].node
        assert node is not None
        return node

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

    def gone(self) -> str | None:
        """Where a Tensor was used that Python has let go of since: what stands there now only it knows."""
        for external in self.externals:
            if external.leaf is None and external.owner is not None and external.owner() is None:
                return external.source
        lost = any(e.leaf is None and e.owner() is None for e in self.expected)
        return self.entries[-1].source if lost else None

    def updates(self) -> Mapping[int, int]:
        """For each step that replaces the value of an external input: which one."""
        return {
            b.source: b.external
            for b in self.bindings
            if isinstance(b.source, int) and b.source >= 0 and b.external is not None
        }
