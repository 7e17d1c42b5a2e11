"""Turns of a scan without Python: a program whose values all lie at known addresses, for `Backend.repeat`.

What is carried alternates between two places, rows advance, temporaries stay. Views are made once for an even
and an odd turn. Ops that only move elements become copies, or nothing at all where a kernel can write what
they move into its place.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from types import NoneType
from typing import Any

import numpy as np

from ..backends import Backend, Kernel, Turn
from ..backends.answers import answer
from ..fusion import NUMBER, Step
from ..fusion.legality import accepts
from ..ir import CONST, Graph, Kind, Node, Spec
from ..ir.dtypes import float32, float64
from ..ops.declare import op_of
from ..ops.images.contract import MATMUL
from ..ops.index import slice_set
from ..ops.layout import concat, slices, unslice
from ..runtime import memory
from ..tensor import float_errors, ignore_float_errors, restore_float_errors
from .blocks import blocks, by_element
from .kernels import kernel_for
from .operands import constant, eager_rule
from .program import Program
from .schedule import is_loop

_UNSLICE, _SLICE_SET, _CONCAT = map(op_of, (unslice, slice_set, concat))
#: Up to so many multiplications a product is done by the backend, in one thread; larger ones by a library.
PRODUCT = 1 << 23
#: What fills a place and moves its operands there, without computing.
_MOVES = (_UNSLICE, _SLICE_SET, _CONCAT)


class Unfit(Exception):
    """The program needs Python in its turns."""


@dataclass(frozen=True, slots=True)
class Value:
    """Where a value lies.

    Attributes
    ----------
    arrays : tuple of arrays
        In the first turns; then they repeat.
    step : int
        How many bytes it moves from turn to turn.
    """

    arrays: tuple[Any, ...]
    step: int = 0

    def at(self, phase: int) -> Any:
        """Return the array of a phase."""
        return self.arrays[phase % len(self.arrays)]

    def map(self, function: Callable[[Any], Any]) -> Value:
        """Return a view of it.

        Raises
        ------
        Unfit
            `function` makes a copy.
        """
        made = tuple(map(function, self.arrays))
        if self.arrays[0].size and not all(map(np.may_share_memory, made, self.arrays)):
            raise Unfit
        return Value(made, self.step)

    def is_at(self, other: Value) -> bool:
        """Return whether it is the same memory."""
        return bool(self.arrays[0].ctypes.data == other.arrays[0].ctypes.data)


def lying(arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Return where arrays lie, and how."""
    return tuple((a.__array_interface__["data"][0], a.strides) for a in arrays)


def borrowed(array: Any) -> Any:
    """Return an array on the same memory that does not keep it: for who is used while somebody else does."""
    if not array.size:
        return array
    start, end = np.lib.array_utils.byte_bounds(array)
    memory: Any = (ctypes.c_char * (end - start)).from_address(start)
    return np.ndarray(array.shape, array.dtype, memory, array.ctypes.data - start, array.strides)


def rows(array: Any, reverse: bool, phases: int) -> Value:
    """Return the rows of an array, one for each turn."""
    array, step = (array[::-1], -array.strides[0]) if reverse else (array, array.strides[0])
    return Value(tuple(array[phase, ...] for phase in range(phases)), step)


class Turns:
    """A program that runs as the body of a native loop.

    Parameters
    ----------
    program : Program
    carried : mapping
        From the numbers of outputs to those of the inputs that have their values in the next turn.

    Raises
    ------
    Unfit
        It has steps with neither a kernel nor a copy.
    """

    def __init__(self, program: Program, carried: Mapping[int, int]) -> None:
        if program.backend is None:
            raise Unfit
        self.backend: Backend = program.backend
        self.graph: Graph = program.simplified
        self.carried = {self.graph.inputs[i]: self.graph.outputs[o] for o, i in carried.items()}
        self.steps = [
            (step, _kernel(step, kernel, self.backend))
            for step, kernel in zip(program.steps, program.kernels, strict=True)
        ]
        self.made = {n: (step, kernel) for step, kernel in self.steps for n in step.writes}
        self.moved = {  # what eager steps make, as they make it: a step may give a value in another shape
            step.writes[0]: step.outside for step, kernel in self.steps if kernel is None
        }

    def prepared(
        self, inputs: Sequence[Value], outputs: Sequence[Value], phases: int
    ) -> Callable[[int, int], None]:
        """Return a function that runs iterations, after at least `phases` that ran otherwise.

        Raises
        ------
        Unfit
            The backend does not take them.
        """
        writing = _Writing(self, dict(zip(self.graph.inputs, inputs, strict=True)), phases)
        found = writing.parts(outputs)
        run = self._of_parts(found)
        return partial(_begun, writing.first, run) if writing.first else run

    def _of_parts(
        self, found: Sequence[list[Turn] | Callable[[int, int], None]]
    ) -> Callable[[int, int], None]:
        if len(found) == 1 and not callable(found[0]) and by_element([step for step, _ in self.steps]):
            return partial(_one_by_one, [self._repeated(turns) for turns in blocks(found[0])])
        parts = [part if callable(part) else self._repeated(part) for part in found]
        return parts[0] if len(parts) == 1 else partial(_in_turn, parts)

    def _repeated(self, turns: Sequence[Turn]) -> Callable[[int, int], None]:
        run = answer(self.backend, "repeat", (Callable, NoneType), turns)
        if run is None:
            raise Unfit
        return run  # type: ignore[no-any-return]


def _begun(
    first: Sequence[Callable[[], None]], run: Callable[[int, int], None], turn: int, last: int
) -> None:
    """Write the turns, after what is done once."""
    for function in first:
        function()
    run(turn, last)


def _one_by_one(blocks: Sequence[Callable[[int, int], None]], first: int, last: int) -> None:
    """Write all turns of a block, then those of the next."""
    for run in blocks:
        run(first, last)


def _in_turn(parts: Sequence[Callable[[int, int], None]], first: int, last: int) -> None:
    """Write turns of which Python does a part."""
    before = float_errors()
    try:
        ignore_float_errors()
        for turn in range(first, last):
            for part in parts:
                part(turn, turn + 1)
    finally:
        restore_float_errors(before)


def _kernel(step: Step, kernel: Kernel | None, backend: Backend) -> Kernel | None:
    """Return the kernel of a step; also of an op alone, which else runs eagerly."""
    if kernel is not None:
        if not step.fused or kernel.results is not None:
            raise Unfit
        return kernel
    (node,) = (n for n in step.graph.nodes if n in step.graph.outputs)
    if node.op.kind in (Kind.ELEMENTWISE, Kind.REDUCE) and accepts(backend.traits, node) is None:
        return kernel_for(step.graph, backend)
    if node.op.ordered or is_loop(step):
        raise Unfit
    return None


@dataclass
class _Writing:
    """The parts of a turn, while they are written."""

    plan: Turns
    values: dict[Node, Value]
    phases: int
    places: dict[Node, Value] = field(default_factory=dict)
    found: list[list[Turn] | Callable[[int, int], None]] = field(default_factory=list)
    first: list[Callable[[], None]] = field(default_factory=list)  # what is done before the turns
    kept: set[Node] = field(default_factory=set)  # `slice_set` nodes whose place holds the rest already

    def parts(self, outputs: Sequence[Value]) -> list[list[Turn] | Callable[[int, int], None]]:
        """Return all of them, which leave the results at `outputs`: lists for the backend, and calls."""
        graph = self.plan.graph
        later = []
        for node, target in zip(graph.outputs, outputs, strict=True):
            is_new = node in self.plan.made and node not in self.places and not self.is_view(node)
            stays = node in self.plan.moved and self.plan.moved[node].op in _MOVES
            if is_new and not (target.step and stays):  # of what stays around there is one copy
                self.place(node, target, node)
            else:
                later.append((node, target))
        for step, _ in reversed(self.plan.steps):  # so that what is moved can be made where it goes
            for node in step.writes:
                moved = self.plan.moved.get(node)
                if moved is not None and moved.op in _MOVES and node not in self.places:
                    self.place(node, self.room(node.spec))
        for step, kernel in self.plan.steps:
            self.step(step, kernel)
        for node, target in later:
            self.copy(self.operand(node), target)
        return self.found

    def is_view(self, node: Node) -> bool:
        """Return whether it is, by its op, in the memory of another value, or nothing that is made."""
        op = self.plan.moved[node].op if node in self.plan.moved else None
        return op in (CONST, NUMBER) or (op is not None and op.kind is Kind.LAYOUT and op not in _MOVES)

    def place(self, node: Node, target: Value, root: Node | None = None) -> None:
        """Have `node` written at `target`, and what it is put together of in its windows there.

        The place is that of what is carried as `root`, which turns have left there before; else a new one.
        """
        self.places[node] = target
        value, node = node, self.plan.moved.get(node, node)
        if value not in self.plan.moved:
            return
        if node.op is _UNSLICE:
            if root is None:
                target.arrays[0][...] = 0
            self.part(node.inputs[0], target.map(_window(node)))
        elif node.op is _SLICE_SET:
            base = node.inputs[0]
            if root is not None and self.plan.carried.get(base) is root:
                self.kept.add(value)
                self.part(node.inputs[1], target.map(_window(node)))
            elif base in self.plan.made and base not in self.places and self.is_for_one(base):
                self.kept.add(value)
                self.place(base, target, root)
        elif node.op is _CONCAT:
            for operand, cut in zip(node.inputs, _cuts(node), strict=True):
                self.part(operand, target.map(cut))

    def is_for_one(self, node: Node) -> bool:
        """Return whether it is made for one reader."""
        return (
            len(self.plan.graph.readers[node]) == 1
            and node not in self.plan.graph.outputs
            and not self.is_view(node)
        )

    def part(self, node: Node, target: Value) -> None:
        """Have a kernel write `node` into a window, if it is one and can."""
        _, kernel = self.plan.made.get(node, (None, None))
        fits = target.arrays[0].shape == node.spec.shape and self.plan.backend.traits.strided_outputs
        if node not in self.places and kernel is not None and fits:
            self.places[node] = target

    def room(self, spec: Spec) -> Value:
        """Return a place for a temporary."""
        return Value((memory.empty(spec.shape, spec.dtype),))

    def step(self, step: Step, kernel: Kernel | None) -> None:
        """Write one step."""
        for node in step.writes:
            if not self.is_view(node) and node not in self.places:
                self.place(node, self.room(node.spec))
        if kernel is not None:
            self.add(kernel, [self.operand(n) for n in step.reads], [self.places[n] for n in step.writes])
            self.values |= {n: self.places[n] for n in step.writes}
            return
        (value,) = step.writes
        node = self.plan.moved[value]
        operands = [self.operand(n) for n in node.inputs]
        if node.op in (CONST, NUMBER):
            self.values[value] = self.operand(node)
        elif self.is_view(value):
            self.values[value] = operands[0].map(eager_rule(node))
        else:
            self.values[value] = self.places[value]
            self.move(node, operands, self.places[value], value in self.kept)

    def operand(self, node: Node) -> Value:
        """Return where the value of a node lies; a constant is made."""
        if node not in self.values:
            if node.op not in (CONST, NUMBER):
                raise Unfit
            self.values[node] = Value((constant(node),))
        return self.values[node]

    def move(self, node: Node, operands: Sequence[Value], target: Value, kept: bool) -> None:
        """Write the copies of an op that moves, or call it; with `kept`, the rest is of the turn before."""
        if node.op is _UNSLICE:
            self.copy(operands[0], target.map(_window(node)))
        elif node.op is _SLICE_SET:
            if not kept:
                self.copy(operands[0], target)
            self.copy(operands[1], target.map(_window(node)))
        elif node.op is _CONCAT:
            for operand, cut in zip(operands, _cuts(node), strict=True):
                self.copy(operand, target.map(cut))
        elif node.op is MATMUL and self.plan.backend.traits.repeats_products and _is_small(node):
            self.multiply(node, operands, target)
        else:
            self.call(node, operands, target)

    def multiply(self, node: Node, operands: Sequence[Value], target: Value) -> None:
        """Write a product; a strided second matrix is copied, once if it stays the same."""
        a, b = (
            value.map(lambda array: array.T) if node.params.get(f"transpose_{name}") else value
            for value, name in zip(operands, "ab", strict=True)
        )
        array = b.arrays[0]
        if array.strides[1] != array.itemsize:
            apart, b = b, self.room(Spec(array.shape, array.dtype))
            if self.lasts(node.inputs[1]):
                self.first.append(partial(np.copyto, b.arrays[0], array))
            else:
                self.copy(apart, b)
        result = self.still(target, node.spec) if target.arrays[0].strides[1] != array.itemsize else target
        self.add(None, [a, b], [result], is_product=True)
        if result is not target:
            self.copy(result, target)

    def stays(self, node: Node) -> bool:
        """Return whether it is an input that is the same in all turns."""
        value = self.values.get(node) if node in self.plan.graph.inputs else None
        return value is not None and len(value.arrays) == 1 and not value.step

    def lasts(self, node: Node) -> bool:
        """Return whether it is the same in all turns: from outside, a constant, or a view of such a value."""
        if self.is_view(node):
            return all(map(self.lasts, self.plan.moved[node].inputs)) if node in self.plan.moved else True
        return node.op is CONST or (self.stays(node))

    def call(self, node: Node, operands: Sequence[Value], target: Value) -> None:
        """Write a call of an eager rule, which gets rows by copies, which stay."""
        rule, phases = eager_rule(node), self.phases
        given = [self.still(value) for value in operands]
        result = self.still(target, node.spec)
        arrays = [(tuple(v.at(p) for v in given), result.at(p)) for p in range(phases)]

        def run(first: int, _last: int) -> None:
            values, to = arrays[first % phases]
            np.copyto(to, rule(*values))

        self.found.append(run)
        if result is not target:
            self.copy(result, target)

    def still(self, value: Value, spec: Spec | None = None) -> Value:
        """Return `value`, or if it moves a place with a copy, or with `spec` a place to write it to."""
        if not value.step:
            return value
        array = value.arrays[0]
        place = Value((memory.empty(array.shape, array.dtype),))
        if spec is None:
            self.copy(value, place)
        return place

    def copy(self, source: Value, target: Value) -> None:
        """Write a copy, unless it is there already."""
        if not source.is_at(target) and source.arrays[0].size:
            shape = target.arrays[0].shape
            if source.arrays[0].shape != shape:
                source = source.map(lambda a: np.broadcast_to(a, shape))
            self.add(None, [source], [target])

    def add(
        self, kernel: Kernel | None, reads: Sequence[Value], writes: Sequence[Value], is_product: bool = False
    ) -> None:
        """Add one more turn for the backend to a list with those before it."""
        every = (*reads, *writes)
        arrays = tuple(tuple(v.at(phase) for v in every) for phase in range(self.phases))
        if not self.found or callable(self.found[-1]):
            self.found.append([])
        turns = self.found[-1]
        assert isinstance(turns, list)
        turns.append(Turn(kernel, arrays, tuple(v.step for v in every), is_product))


def _is_small(node: Node) -> bool:
    """Return whether it is a product of two matrices of floats that no library does faster."""
    a, b = (i.spec for i in node.inputs)
    work = node.spec.size * a.shape[0 if node.params.get("transpose_a") else -1]
    return a.ndim == b.ndim == 2 and node.spec.dtype in (float32, float64) and 0 < work <= PRODUCT


def _window(node: Node) -> Callable[[Any], Any]:
    """Return a function that takes the result of an op and returns the window that the op writes."""
    return itemgetter(slices(node.params["window"]))


def _cuts(node: Node) -> list[Callable[[Any], Any]]:
    """List functions that take the result of a ``concat`` and return the slice of each operand."""
    axis, found, start = node.params["axis"], list[Callable[[Any], Any]](), 0
    for operand in node.inputs:
        stop = start + operand.spec.shape[axis]
        found.append(itemgetter((*(slice(None),) * axis, slice(start, stop))))
        start = stop
    return found
