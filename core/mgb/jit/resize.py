"""Records with symbolic lengths: one recorded call gives the records for arguments of other lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..executor import Program
from ..executor.resized import spec_at
from ..ir import input_node
from ..ir.sizes import At, Lengths, Sizes, checker, fixed, is_sized, unmet
from ..runtime import forking
from ..runtime.forking import cached_property
from ..tensor import Tensor
from ..tensor.apply import caller
from .arguments import ARRAYS
from .entry import Entry, Literal
from .record import Ends, FixedValue, Record

#: The length of each axis of the arguments of a call, in order.
Values = tuple[int, ...]
#: A program, and the refs of the values that it reads.
Compiled = tuple[Program, tuple[int, ...]]

#: The most programs of a segment that are cached for resizing: each serves lengths that meet its guards.
_PROGRAMS = 8


class SymbolicLengths:
    """The symbolic lengths of the arguments of a call while it is recorded.

    Parameters
    ----------
    leaves : sequence
        The flattened arguments.

    Attributes
    ----------
    sizes : Sizes
    shapes : dict
        The shape of each argument that is a Tensor, by its index.
    """

    def __init__(self, leaves: Sequence[Any]) -> None:
        self._given, self._ranks = lengths_of(leaves), ranks_of(leaves)
        self.sizes = Sizes(self._given, line=caller)
        letters = iter(self.sizes.letters)
        self.shapes: dict[int, tuple[Any, ...]] = {}
        first: dict[int, tuple[Any, ...]] = {}
        for index, leaf in enumerate(leaves):
            if isinstance(leaf, ARRAYS):
                own = tuple([next(letters) for _ in shape_of(leaf)])
                is_tensor = isinstance(leaf, Tensor)  # a Tensor has one shape at all its positions
                self.shapes[index] = first.setdefault(id(leaf), own) if is_tensor else own

    def fix(self) -> None:
        """Guard every length."""
        fixed(self.sizes.letters)

    def end(self, record: Record) -> None:
        """Finish `record`: the records for these lengths and others are made on first use."""
        self.sizes.close()
        if self._given:
            record.sized = SizedRecord(record, self.sizes, self._ranks)
            record.lengths = self._given


def shape_of(leaf: Any) -> tuple[int, ...]:
    """Return the plain shape of a Tensor or an array."""
    shape: tuple[int, ...] = leaf._tuple_shape if isinstance(leaf, Tensor) else leaf.shape
    return shape


def lengths_of(leaves: Sequence[Any]) -> Values:
    """Return the lengths of all axes of the Tensors and arrays among `leaves`."""
    return tuple([d for leaf in leaves if isinstance(leaf, ARRAYS) for d in shape_of(leaf)])


def ranks_of(leaves: Sequence[Any]) -> tuple[int | None, ...]:
    """Return the number of axes of each Tensor or array among `leaves`; None for other leaves."""
    return tuple([leaf.ndim if isinstance(leaf, ARRAYS) else None for leaf in leaves])


class SizedRecord:
    """The record of a call for all lengths of arguments that meet the guards of the body.

    Parameters
    ----------
    record : Record
        Its specs and parameters have symbolic lengths.
    sizes : Sizes
        Where these are defined.
    ranks : tuple
        The ranks of the arguments; see `ranks_of`.
    """

    def __init__(self, record: Record, sizes: Sizes, ranks: tuple[int | None, ...]) -> None:
        self._record, self._sizes, self._ranks = replace(record), sizes, ranks
        self._fits = checker(sizes)
        self._compiled: dict[Any, tuple[Compiled, ...]] = {}  # by segment, the newest first
        self._lock = forking.lock()

    def values(self, leaves: Sequence[Any]) -> Values | None:
        """Return the lengths of the arguments of a call, if they meet the guards."""
        if ranks_of(leaves) != self._ranks:
            return None
        values = lengths_of(leaves)
        return values if self._fits(values) else None

    def decides(self, leaves: Sequence[Any]) -> str | None:
        """Return the line of the guard of lengths that the arguments of a call do not meet."""
        return unmet(self._sizes, lengths_of(leaves)) if ranks_of(leaves) == self._ranks else None

    def program(self, segment: Any, values: Values, compile: Callable[[Record], Compiled]) -> Compiled:
        """Return the program of a segment for arguments of these lengths, and the refs that it reads.

        Parameters
        ----------
        segment : Segment
        values : tuple of int
        compile : callable
            Compiles the segment of a record.
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
        """Return a function that evaluates symbolic lengths for arguments of these lengths."""
        return Lengths(self._sizes, values)

    def abstract_record(self, values: Sequence[Any]) -> Record:
        """Return `record` with lengths in its entries that must not be used."""
        at = self.at(values)
        externals = [
            replace(e, node=input_node(spec_at(e.node.spec, at), e.line)) if e.leaf is not None else e
            for e in self._record.externals
        ]
        return replace(self._record, externals=externals, ends=_ends_at(self._record.ends, at))

    def record(self, values: Sequence[Any]) -> Record:
        """Return the record for arguments of these lengths, which may be symbolic."""
        at, old = self.at(values), self.abstract_record(values)
        entries = list(old.entries)
        for step in self._sized:
            entries[step] = _entry_at(entries[step], at)
        statics = dict.fromkeys(old.statics)
        return replace(old, entries=entries, statics=statics, sized=self, lengths=tuple(values))

    @cached_property
    def _sized(self) -> list[int]:
        """Return the steps whose types, parameters or constants have symbolic lengths."""
        return [step for step, entry in enumerate(self._record.entries) if _holds_sizes(entry)]


def _holds_sizes(entry: Entry) -> bool:
    constants = (ref for ref in entry.args if isinstance(ref, Literal))
    is_one = is_sized(entry.spec.shape) or is_sized(entry.params)
    return is_one or any(constant.size is not None for constant in constants)


def _entry_at(entry: Entry, at: At) -> Entry:
    args = tuple([ref.at(at) if isinstance(ref, Literal) else ref for ref in entry.args])
    return Entry(entry.op, args, at(entry.params), spec_at(entry.spec, at), entry.source)


def _ends_at(ends: Ends | None, at: At) -> Ends | None:
    if ends is None:
        return None
    structure, results = ends
    return structure, tuple(
        [result.at(at) if isinstance(result, FixedValue) else result for result in results]
    )
