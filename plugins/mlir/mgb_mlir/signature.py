"""What a kernel of a grid and its caller agree on: the operands, the parameters, and what a call passes.

A kernel knows which axes have a length of 1, never another length: addresses, lengths and strides are its
parameters, so one kernel serves every size and memory layout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from mgb.codegen import Schedule, aligned, hazards, is_operand, row_major, schedule, spans
from mgb.ir import CONST, Graph, Node

#: More ops than any value takes: nothing is kept from pass to pass, all is computed again.
NEVER = 1 << 30

#: A launch has no more blocks than this.
MOST_BLOCKS = (1 << 31) - 1


class Array(NamedTuple):
    """An array that a call passes: the address of its first element, its shape, its strides in bytes."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """An array that a kernel reads or writes, or an ``iota``, whose elements are their own places.

    Attributes
    ----------
    name : str
        ``x0``, ``x1``, ... for the inputs, ``c0``, ... for constants, ``y0``, ... for the outputs, ``i0``,
        ... for iotas.
    node : Node
    axes : tuple of int
        The axes of the domain along which it varies.
    """

    name: str
    node: Node
    axes: tuple[int, ...]

    @property
    def is_iota(self) -> bool:
        return self.name.startswith("i")

    @property
    def is_output(self) -> bool:
        return self.name.startswith("y")

    @property
    def dtype(self) -> str:
        return self.node.spec.dtype.name

    def stride(self, axis: int) -> str:
        """The name of the parameter that has its stride along an axis."""
        return f"{self.name}_stride{axis}"


class Signature:
    """The operands and parameters of one graph, as `mgb.backend.Backend.compile` receives it.

    Attributes
    ----------
    graph : Graph
    schedule : Schedule
        Its passes.
    span : mapping
        See `mgb.codegen.spans`.
    flat : bool
        There are no reductions.
    axes : tuple of int
        The axes of the domain whose length is not 1.
    kept, folded : tuple of int
        Those whose places make a row, and those along a row. Without reductions the whole domain is one row.
    operands : tuple of Operand
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.schedule: Schedule = schedule(graph, NEVER)
        self.span = spans(graph)
        self.axes = tuple(a for a, d in enumerate(self.schedule.shape) if d != 1)
        self.flat = not self.schedule.reduced
        self.folded = self.axes if self.flat else self.schedule.reduced
        self.kept = tuple(a for a in self.axes if a not in self.folded)
        self.operands = self._operands()

    def _operands(self) -> tuple[Operand, ...]:
        leaves = [v for v in self.graph.nodes if is_operand(v)]
        parts = {
            "x": self.graph.inputs,
            "c": [v for v in leaves if v.op is CONST],
            "y": self.graph.outputs,
            "i": [v for v in leaves if v.op.name == "iota"],
        }
        return tuple(
            Operand(f"{part}{i}", v, tuple(a for a in self.axes if self.span[v][a]))
            for part, nodes in parts.items()
            for i, v in enumerate(nodes)
        )

    @cached_property
    def arrays(self) -> tuple[Operand, ...]:
        """The operands that a call passes: inputs, constants, outputs."""
        return tuple(o for o in self.operands if not o.is_iota)

    @cached_property
    def constants(self) -> tuple[np.ndarray, ...]:
        """The constants of more than one element, which a call passes after the inputs."""
        return tuple(o.node.params["value"] for o in self.operands if o.name.startswith("c"))

    @cached_property
    def hazards(self) -> tuple[tuple[int, int], ...]:
        """(input, output) pairs that must not be the same memory: of these a caller copies the input."""
        return hazards(self.graph, self.schedule)

    @cached_property
    def source_of(self) -> dict[Node, Operand]:
        """The operand that a leaf is read from."""
        return {o.node: o for o in reversed(self.operands) if not o.is_output}

    def outputs_of(self, node: Node) -> tuple[Operand, ...]:
        """The outputs that `node` is written to."""
        return tuple(o for o in self.operands if o.is_output and o.node is node)

    @cached_property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """(name, MLIR's type) of what the kernel is passed: addresses, lengths, strides in bytes."""
        strides = [o.stride(a) for o in self.operands for a in o.axes]
        words = (*(length(a) for a in self.axes), *strides)
        return (*((o.name, "!llvm.ptr<1>") for o in self.arrays), *((w, "index") for w in words))

    # a call

    def lengths(self, arrays: Sequence[Array]) -> dict[int, int]:
        """The length of each axis in a call; one that no array has is that of the graph.

        Raises
        ------
        ValueError
            An array has a length of 1 where the kernel was compiled for another, or the other way round;
            or the shapes do not broadcast.
        """
        shape = self.schedule.shape
        for o, a in zip(self.arrays, arrays, strict=True):
            if tuple(d != 1 for d in aligned(a.shape, len(shape))) != self.span[o.node]:
                raise ValueError(
                    f"{o.name} has shape {a.shape}; the kernel was compiled for {o.node.spec.shape} and "
                    "serves shapes with lengths of 1 at the same places; compile the graph of these shapes"
                )
        shown = np.broadcast_shapes(*(aligned(a.shape, len(shape)) for a in arrays))
        return {a: shown[a] if shown[a] != 1 else shape[a] for a in self.axes}

    def values(self, arrays: Sequence[Array]) -> tuple[int, ...]:
        """What a call passes, one number for each of `parameters`.

        Parameters
        ----------
        arrays : sequence of Array
            The inputs, `constants` and outputs. Every element is at a multiple of its size.
        """
        lengths = self.lengths(arrays)
        given = dict(zip(self.arrays, arrays, strict=True))
        strides = [step for o in self.operands for step in self._strides(o, given.get(o), lengths)]
        return (*(a.address for a in arrays), *lengths.values(), *strides)

    def _strides(self, o: Operand, array: Array | None, lengths: dict[int, int]) -> list[int]:
        ndim = len(self.schedule.shape)
        if array is None:  # an iota
            steps = row_major(tuple(lengths[a] if a in o.axes else 1 for a in range(ndim)))
        else:
            steps = (0,) * (ndim - len(array.strides)) + tuple(array.strides)
        return [steps[a] for a in o.axes]

    def blocks(self, arrays: Sequence[Array], threads: int) -> int:
        """The blocks of `threads` such that each thread has one element, or each block one row."""
        lengths = self.lengths(arrays)
        count = math.prod(lengths[a] for a in (self.folded if self.flat else self.kept))
        return min(max(1, -(-count // threads) if self.flat else count), MOST_BLOCKS)


def length(axis: int) -> str:
    """The name of the parameter that has the length of an axis."""
    return f"length{axis}"
