"""Kernels that know the sizes of their arrays: machine code of a C function that does the rows it is told."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from mgb.backends import Kernel
from mgb.codegen import hazards, schedule
from mgb.ir import Graph, Kind

from .backend import PlacedBackend, launched
from .code import Code, load
from .launch import Unit
from .plan import BYTE, OP, Array, Plan


@dataclass(frozen=True, slots=True)
class Printed:
    """A kernel as text.

    Attributes
    ----------
    text : str
        Of the C function ``int64_t kernel(void **arrays, int64_t *plan, int64_t *span)`` in any language. It
        does the rows from ``span[2]`` on, before ``span[3]``; the arrays are the inputs, then the outputs.
    rows : int
        How many there are. Several threads do some each, so no row may read what another one writes.
    scratch : int
        Bytes of memory, at the address ``span[6]``, that each thread has for itself.

    Examples
    --------
    >>> Printed("int64_t kernel(void **arrays, int64_t *plan, int64_t *span) { return 0; }", rows=1).scratch
    0
    """

    text: str
    rows: int
    scratch: int = 0


class ShapedBackend(PlacedBackend):
    """A backend under `Specialize.SHAPE` that makes object code of what it prints.

    Calls, threads, `join`, loops, hazards, and files with machine code are done by what it derives from.
    """

    @abstractmethod
    def print(self, graph: Graph) -> Printed:
        """Return the kernel of `graph`, as text."""

    @abstractmethod
    def build(self, text: str) -> Code:
        """Return the text, compiled: `mgb_native.code.place` makes a `Code` of an object file."""

    def compile(self, graph: Graph) -> Kernel:
        printed = self.print(graph)
        return self._kernel(graph, printed, self.build(printed.text))

    def load(self, graph: Graph, blob: bytes) -> Kernel:
        return self._kernel(graph, self.print(graph), load(blob))

    def _kernel(self, graph: Graph, printed: Printed, code: Code) -> Kernel:
        unit = _Rows(graph, printed, code)
        return launched([unit], printed.text, unit)


class _Rows(Unit):
    """Its arrays always lie alike, so there is one plan."""

    stages, constants, refuses = 1, (), False

    def __init__(self, graph: Graph, printed: Printed, code: Code) -> None:
        self.code = code
        self.inputs, self.outputs = len(graph.inputs), len(graph.outputs)
        self.hazards = hazards(graph, schedule(graph))
        words = np.zeros(1, np.int64)
        moved = sum(v.spec.nbytes for v in (*graph.inputs, *graph.outputs))
        done = sum(v.spec.nbytes for v in graph.nodes if v.op.kind is not Kind.LEAF)
        self._plan = Plan(
            words, words.ctypes.data, printed.rows, 1, printed.scratch, 0, moved * BYTE + done * OP
        )

    def plan(self, xs: Sequence[Array], ys: Sequence[Array]) -> Plan:
        return self._plan
