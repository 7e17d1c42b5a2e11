"""Records whose sizes are followed: one recorded call gives the record for arguments of other lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from .. import forking
from ..executor import Program
from ..executor.collector import resting
from ..executor.resized import spec_at
from ..forking import cached_property
from ..ir import Node, Spec, input_node
from ..sizes import At, Lengths, Sizes, checker, fixed, is_sized, key
from ..tensor import Tensor
from .arguments import ARRAYS
from .record import Ends, Entry, Given, Literal, Record, Ref

#: One for each axis of the arguments of a call, in order.
Values = tuple[int, ...]
#: A program, and the refs of the values it reads.
Compiled = tuple[Program, tuple[int, ...]]

#: Programs of a segment that are kept to be resized, the newest: each serves lengths that meet its guards.
_PROGRAMS = 8


class Followed:
    """The lengths of the arguments of a call while it is recorded.

    Parameters
    ----------
    leaves : sequence
        The flattened arguments.

    Attributes
    ----------
    sizes : Sizes
    shapes : dict
        The shape of each argument that is a Tensor, by its place.
    """

    def __init__(self, leaves: Sequence[Any]) -> None:
        self._given, self._ranks = lengths_of(leaves), ranks_of(leaves)
        self.sizes = Sizes(self._given)
        letters = iter(self.sizes.letters)
        self.shapes = {
            place: tuple([next(letters) for _ in shape_of(leaf)])
            for place, leaf in enumerate(leaves)
            if isinstance(leaf, ARRAYS)
        }
        last = {id(leaf): place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
        for place, leaf in enumerate(leaves):  # one Tensor in several places has one shape
            if isinstance(leaf, Tensor):
                self.shapes[place] = self.shapes[last[id(leaf)]]

    def fix(self) -> None:
        """Every length decides what comes now."""
        fixed(self.sizes.letters)

    def end(self, record: Record) -> None:
        """`record` is whole: make it plain, and keep with it how it is for other lengths."""
        self.sizes.close()
        if not self._given:
            return
        sized = SizedRecord(record, self.sizes, self._ranks)
        plain_record = sized.record(self._given)
        record.entries, record.externals = plain_record.entries, plain_record.externals
        record.sized, record.lengths = sized, self._given


def shape_of(leaf: Any) -> tuple[int, ...]:
    """The plain shape of a Tensor or an array."""
    shape: tuple[int, ...] = leaf._tuple_shape if isinstance(leaf, Tensor) else leaf.shape
    return shape


def lengths_of(leaves: Sequence[Any]) -> Values:
    """The lengths of the axes of the Tensors among `leaves`."""
    return tuple([d for leaf in leaves if isinstance(leaf, ARRAYS) for d in shape_of(leaf)])


def ranks_of(leaves: Sequence[Any]) -> tuple[int | None, ...]:
    """The number of axes of each Tensor among `leaves`; None for what is none."""
    return tuple([leaf.ndim if isinstance(leaf, ARRAYS) else None for leaf in leaves])


class SizedRecord:
    """What was recorded, for all lengths of arguments that meet the guards of the body.

    Parameters
    ----------
    record : Record
        Its specs and parameters hold sizes.
    sizes : Sizes
        Of them.
    ranks : tuple
        Of the arguments; see `ranks_of`.
    """

    def __init__(self, record: Record, sizes: Sizes, ranks: tuple[int | None, ...]) -> None:
        self._record, self._sizes, self._ranks = replace(record), sizes, ranks
        self._fits = checker(sizes)
        self._compiled: dict[Any, tuple[Compiled, ...]] = {}  # by segment, the newest first
        self._lock = forking.lock()

    def with_input(self, step: int, position: int) -> SizedRecord:
        """The same with an input in place of the Python number that is an operand of `step`."""
        return SizedRecord(self._record.with_input(step, position), self._sizes, self._ranks)

    def values(self, leaves: Sequence[Any]) -> Values | None:
        """The lengths of the arguments of a call, if its body would do with these what was recorded."""
        if ranks_of(leaves) != self._ranks:
            return None
        values = lengths_of(leaves)
        return values if self._fits(values) else None

    def program(self, segment: Any, values: Values, compile: Callable[[Record], Compiled]) -> Compiled:
        """The program of a segment for arguments of these lengths, and the refs of what it reads.

        Parameters
        ----------
        segment : Segment
        values : tuple of int
        compile : callable
            What compiles it, from a record.
        """
        for program, reads in self._compiled.get(segment, ()):
            found = program.resized(values)
            if found is not None:
                return found, reads
        sizes = Sizes(values, prints=True)
        program, reads = compile(self.record(sizes.letters))
        sizes.close()
        if not program.is_resizable:
            return program, reads
        with self._lock:
            known = self._compiled.get(segment, ())
            self._compiled[segment] = ((program, reads), *known)[:_PROGRAMS]
        return program, reads

    def at(self, values: Sequence[Any]) -> Lengths:
        """What lengths are for arguments of these."""
        return Lengths(self._sizes, values)

    def outline(self, values: Values) -> Record:
        """As `record`, but for the entries, whose lengths are not for use."""
        at = self.at(values)
        externals = [
            replace(e, node=input_node(spec_at(e.node.spec, at), e.source)) if e.leaf is not None else e
            for e in self._record.externals
        ]
        return replace(self._record, externals=externals, ends=_ends_at(self._record.ends, at))

    def record(self, values: Sequence[Any]) -> Record:
        """The record for arguments of these lengths, which may be sizes as well."""
        at = self.at(values)
        specs = [spec_at(spec, at) for spec in self._dependent.specs]
        nodes: dict[Node, Node] = {}
        externals, entries = list(self._record.externals), list(self._record.entries)
        with resting():
            for place, node, number in self._dependent.externals:
                nodes[node] = new = Node(node.op, (), node.params, specs[number], node.source)
                externals[place] = replace(externals[place], node=new)
            for place, node, which, is_parametric in self._dependent.entries:
                old = entries[place]
                params = at(old.params) if is_parametric else old.params
                spec = node.spec if which is None else specs[which]
                inputs, args = tuple([nodes.get(i, i) for i in node.inputs]), old.args
                if place in self._dependent.numbers:
                    args = tuple([_literal_at(ref, at) for ref in args])
                    pairs = zip(args, inputs, strict=True)
                    inputs = tuple([self._record.node(r) if isinstance(r, Literal) else i for r, i in pairs])
                nodes[node] = new = Node(node.op, inputs, params, spec, node.source)
                entries[place] = Entry(old.op, args, params, new, old.source)
        statics = dict.fromkeys(self._record.statics)
        return replace(
            self._record,
            entries=entries, externals=externals, statics=statics, sized=self, lengths=tuple(values),
            ends=_ends_at(self._record.ends, at),
        )  # fmt: skip

    @cached_property
    def _dependent(self) -> _Dependent:
        return _Dependent(self._record)


def _ends_at(ends: Ends | None, at: At) -> Ends | None:
    if ends is None:
        return None
    structure, results = ends
    return structure, tuple([result.at(at) if isinstance(result, Given) else result for result in results])


def _literal_at(ref: Ref, at: At) -> Ref:
    return ref.at(at) if isinstance(ref, Literal) and ref.size is not None else ref


class _Dependent:
    """What differs with the lengths in a record.

    Attributes
    ----------
    specs : list of Spec
        With sizes; each once.
    externals : list of (int, Node, int)
        Of the externals that have such a type: the place, the node, and which type.
    entries : list of (int, Node, int or None, bool)
        Likewise those of entries and of what is made of them; and do parameters hold sizes?
    numbers : set of int
        The places of entries that have a length among their operands.
    """

    def __init__(self, record: Record) -> None:
        self.specs: list[Spec] = []
        self._numbers: dict[tuple[Any, ...], int] = {}
        self.externals: list[tuple[int, Node, int]] = []
        self.entries: list[tuple[int, Node, int | None, bool]] = []
        self.numbers: set[int] = set()
        found: set[Node] = set()
        for place, external in enumerate(record.externals):
            if (which := self._which(external.node.spec)) is not None:
                self.externals.append((place, external.node, which))
                found.add(external.node)
        for place, entry in enumerate(record.entries):
            node = entry.node
            if node is None:
                continue
            which, is_parametric = self._which(node.spec), is_sized(entry.params)
            if any(isinstance(ref, Literal) and ref.size is not None for ref in entry.args):
                self.numbers.add(place)
            is_parametric = is_parametric or place in self.numbers
            if which is not None or is_parametric or not found.isdisjoint(node.inputs):
                self.entries.append((place, node, which, is_parametric))
                found.add(node)

    def _which(self, spec: Spec) -> int | None:
        if not is_sized(spec.shape):
            return None
        known = (key(spec.shape), spec.dtype, spec.device)
        if known not in self._numbers:
            self._numbers[known] = len(self.specs)
            self.specs.append(spec)
        return self._numbers[known]
