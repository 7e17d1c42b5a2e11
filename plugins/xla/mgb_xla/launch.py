"""Calls of a compiled program: arrays in, arrays out, no copies where memory allows it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import starmap
from typing import Any

import numpy as np
from mgb.backend import Adopted, adopter
from mgb.ir import Node

from .client import one, wide
from .program import Program, eager


class Launcher:
    """The function of a kernel.

    Results stay in the memory that XLA gave them, as arrays that keep it alive. Such an array is handed to
    the next program as what JAX knows it by, which costs less than an array from elsewhere, and its memory
    may be taken over by a result.

    Parameters
    ----------
    program : Program
    compiled : jax.stages.Compiled
        Of `program`.
    """

    def __init__(self, program: Program, compiled: Any) -> None:
        self._program, self._compiled = program, compiled
        self._call: Callable[..., Any] = compiled  # until it was called once
        places = {node: k for k, node in enumerate(program.results)}
        self._takes = {node: k for k, node in enumerate(program.graph.inputs)}
        self._wrap = [adopter(n.spec.shape, n.spec.dtype) for n in program.results]
        self._order = [places.get(n, -1) for n in program.graph.outputs]
        self._is_plain = self._order == list(range(len(places)))
        self._is_wide = any(n.spec.dtype.itemsize == 8 for n in program.graph.inputs)
        self._checks, self._replaces = program.checks, program.replaces
        self._one = one()

    def run(self, *arrays: Any, out: tuple[Any, ...]) -> None:
        """Fill `out`."""
        for target, value in zip(out, self.results(*arrays), strict=True):
            target[...] = value

    def results(self, *arrays: Any, spare: tuple[bool, ...] = ()) -> tuple[Any, ...]:
        """As `mgb.backend.Kernel.results`."""
        given = [a.base.owner if isinstance(a.base, Adopted) else a for a in arrays]
        taken = self._taken(arrays, given, spare) if self._replaces else []
        given.append(self._one)
        box: list[tuple[Any, ...]] = []
        try:
            # In one call of C: when a signal arrives, either nothing has run or `box` holds the results.
            if self._is_wide:
                with wide():
                    box.extend(starmap(self._call, (given,)))
            else:
                box.extend(starmap(self._call, (given,)))
        finally:
            for k, base in taken:
                if box:
                    base.owner = box[0][k]
        return self._wrapped(arrays, box[0], taken)

    def _taken(self, arrays: Any, given: list[Any], spare: tuple[bool, ...]) -> list[tuple[int, Any]]:
        """The results that take over memory, and whose; other inputs go in as what XLA must copy."""
        taken = []
        is_warm = self._call is not self._compiled
        for k, (_, place) in enumerate(self._replaces):
            if spare and spare[k] and is_warm and given[place] is not arrays[place]:
                taken.append((k, arrays[place].base))
            else:
                given[place] = arrays[place]
        return taken

    def _wrapped(self, arrays: Any, found: tuple[Any, ...], taken: list[tuple[int, Any]]) -> tuple[Any, ...]:
        found[-1].block_until_ready()
        if self._call is self._compiled:
            self._call = getattr(self._compiled, "_call", None) or self._compiled
        if self._checks and _flag(found[-1].unsafe_buffer_pointer(), found[-1]):
            eager(self._program.graph, arrays)
            raise IndexError("an index is out of range")
        wrapped = [wrap(array.unsafe_buffer_pointer(), array) for wrap, array in zip(self._wrap, found)]
        for k, base in taken:
            place = self._replaces[k][1]
            if base.address == found[k].unsafe_buffer_pointer():
                wrapped[k] = arrays[place]
        return tuple(wrapped) if self._is_plain else self._arranged(arrays, wrapped)

    def _arranged(self, arrays: Any, wrapped: list[Any]) -> tuple[Any, ...]:
        """In the order of the outputs; of what stands twice, or is an input, a copy."""
        seen: set[int] = set()
        out = []
        outputs: tuple[Node, ...] = self._program.graph.outputs
        for place, node in zip(self._order, outputs, strict=True):
            value = arrays[self._takes[node]] if place < 0 else wrapped[place]
            out.append(np.array(value) if place < 0 or place in seen else value)
            seen.add(place)
        return tuple(out)


_flag = adopter((), np.dtype(np.bool_))
