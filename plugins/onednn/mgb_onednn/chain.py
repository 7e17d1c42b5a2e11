"""The chain of a call: primitives that run one after the other, and buffers between them."""

from __future__ import annotations

import ctypes
import itertools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mgb.tensor.libraries import LibraryError, empty

from .native import Arg, Argument, Native, describe

_BYTE = np.dtype(np.uint8)
_CACHE_LINE = 64
_HEAD = object.__basicsize__
_pointer_at = ctypes.c_void_p.from_address

#: A function that frees a handle, and the handle.
Owned = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand that a primitive reads or writes.

    Attributes
    ----------
    arg : Arg
        Which operand it is.
    layout : int
        A memory descriptor.
    place : int
        The number of the array that it is, or ``~k`` for buffer k.
    offset : int
        Where in there it begins, in bytes.
    """

    arg: Arg
    layout: int
    place: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class _Stage:
    primitive: int
    operands: tuple[Operand, ...]


class Work:
    """``work(*arrays)`` runs primitives one after the other. Any thread may call it.

    Parameters
    ----------
    op : str
        The name of the op, for messages.
    native : Native
    threads : int
        How many it runs on; the library divides the work by it when a primitive is made.
    """

    def __init__(self, op: str, native: Native, threads: int) -> None:
        self.op, self.native, self.threads = op, native, threads
        self.implementations: list[str] = []
        self._stages: list[_Stage] = []
        self._sizes: list[int] = []
        self._owned: list[Owned] = []
        self._idle: list[_Arguments] = []
        self._scratch = self.buffer(0)  # for all primitives: one runs at a time
        weakref.finalize(self, _destroy, native, self._owned, self._idle)

    def buffer(self, nbytes: int) -> int:
        """Return the place of memory that each call has to itself."""
        self._sizes.append(nbytes)
        return ~(len(self._sizes) - 1)

    def keep_layout(self, layout: int) -> int:
        """Own `layout`, a memory descriptor, which lives as long as this object from now on."""
        self._owned.append(("dnnl_memory_desc_destroy", layout))
        return layout

    def keep_description(self, description: int) -> int:
        """Own `description`, a primitive descriptor, which lives as long as this object from now on."""
        self._owned.append(("dnnl_primitive_desc_destroy", description))
        return description

    def add(self, description: int, operands: Sequence[Operand]) -> None:
        """Run the primitive that `description` describes, after those that were added before.

        `keep_description` has the description. To be called inside ``native.threads(threads)``.
        """
        primitive = self.native.make("dnnl_primitive_create", description)
        self._owned.append(("dnnl_primitive_destroy", primitive))
        self.implementations.append(self.native.implementation(description))
        scratch = self.native.wanted(description, Arg.SCRATCHPAD)
        size = self.native.functions.dnnl_memory_desc_get_size(scratch)
        self._sizes[~self._scratch] = max(size, self._sizes[~self._scratch])
        self._stages.append(_Stage(primitive, (*operands, Operand(Arg.SCRATCHPAD, scratch, self._scratch))))

    def __call__(self, *arrays: Any) -> None:
        """Run on arrays of the layouts that were promised.

        Raises
        ------
        LibraryError
            The library failed.
        """
        try:
            arguments = self._idle.pop()
        except IndexError:
            arguments = _Arguments(self.native, self._stages, self._sizes)
        status = arguments.run(arrays, self.threads)
        self._idle.append(arguments)
        if status:
            used = ", ".join(dict.fromkeys(self.implementations))
            raise LibraryError(f"{self.op}: {used} of oneDNN failed: {describe(status)}")


class Chain(Work):
    """One primitive, between the reorders that bring its operands into the layouts it asked for.

    What a primitive is given lies as NumPy lays it out; what it wants is its own affair: blocks of 16
    channels, as a rule. The reorders cost far less than what the layout gains. The last array is written.

    Parameters
    ----------
    op : str
    native : Native
    description : int
        A primitive descriptor; the chain owns it from now on.
    operands : sequence of (Arg, int)
        For each array which operand it is, and its memory descriptor, which the chain owns as well.
    threads : int
        See `Work`.
    """

    def __init__(
        self,
        op: str,
        native: Native,
        description: int,
        operands: Sequence[tuple[Arg, int]],
        threads: int,
    ) -> None:
        super().__init__(op, native, threads)
        self.implementation = native.implementation(self.keep_description(description))
        given = [Operand(arg, self.keep_layout(layout), k) for k, (arg, layout) in enumerate(operands)]
        wanted = [self._wanted(description, o) for o in given]
        with native.threads(threads):
            for source, target in zip(given[:-1], wanted[:-1], strict=True):
                self._reorder(source, target)
            self.add(description, wanted)
            self._reorder(wanted[-1], given[-1])

    def _wanted(self, description: int, given: Operand) -> Operand:
        layout = self.native.wanted(description, given.arg)
        if self.native.functions.dnnl_memory_desc_equal(layout, given.layout):
            return given
        size = self.native.functions.dnnl_memory_desc_get_size(layout)
        return Operand(given.arg, layout, self.buffer(size))

    def _reorder(self, source: Operand, target: Operand) -> None:
        """Copy, where the two differ."""
        if source == target:
            return
        native = self.native
        sides = source.layout, native.engine, target.layout, native.engine
        made = native.make("dnnl_reorder_primitive_desc_create", *sides, native.attributes)
        ends = Operand(Arg.SRC, source.layout, source.place), Operand(Arg.DST, target.layout, target.place)
        self.add(self.keep_description(made), ends)


class _Arguments:
    """The memory objects and the stream of one call at a time."""

    def __init__(self, native: Native, stages: Sequence[_Stage], sizes: Sequence[int]) -> None:
        self.native = native
        self.stream = native.make("dnnl_stream_create", native.engine, 1)
        self.owned: list[Owned] = [("dnnl_stream_destroy", self.stream)]
        lines = (-(-size // _CACHE_LINE) * _CACHE_LINE for size in sizes)
        *self.offsets, self.nbytes = itertools.accumulate(lines, initial=0)
        self.of_arrays: list[tuple[int, int, int]] = []  # (memory object, number of the array, offset)
        self.of_buffers: list[tuple[int, int]] = []  # (memory object, offset)
        self.calls = [(stage.primitive, *self._arguments(stage)) for stage in stages]

    def _arguments(self, stage: _Stage) -> tuple[int, Any]:
        arguments = (Argument * len(stage.operands))()
        for slot, operand in zip(arguments, stage.operands, strict=True):
            memory = self.native.make("dnnl_memory_create", operand.layout, self.native.engine, None)
            self.owned.append(("dnnl_memory_destroy", memory))
            if operand.place >= 0:
                self.of_arrays.append((memory, operand.place, operand.offset))
            else:
                self.of_buffers.append((memory, self.offsets[~operand.place] + operand.offset))
            slot.arg, slot.memory = operand.arg, memory
        return len(arguments), arguments

    def run(self, arrays: Sequence[Any], threads: int) -> int:
        """Point the memory objects at `arrays` and at fresh buffers, and run; a status."""
        native, status = self.native, 0
        workspace = empty((self.nbytes,), _BYTE)
        start = address(workspace)
        starts = [address(array) for array in arrays]
        for memory, number, offset in self.of_arrays:
            native.set_data(memory, starts[number] + offset)
        for memory, offset in self.of_buffers:
            native.set_data(memory, start + offset)
        before = native.get_threads()
        native.set_threads(threads)
        for primitive, count, arguments in self.calls:
            status = status or native.execute(primitive, self.stream, count, arguments)
        native.set_threads(before)
        return status


def address(array: Any) -> int:
    """Return the address of a NumPy array's elements: the object's first field, as NumPy's C API fixes it.

    ``array.ctypes.data`` says the same and takes ten times as long, once for each operand of each call.
    """
    return _pointer_at(id(array) + _HEAD).value or 0


def _destroy(native: Native, owned: Sequence[Owned], idle: Sequence[_Arguments]) -> None:
    for destroy, handle in (*(pair for a in idle for pair in a.owned), *reversed(owned)):
        getattr(native.functions, destroy)(handle)
