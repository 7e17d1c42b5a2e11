"""A call of a partially traced function by its two programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ... import forking
from ...apply import recording_tapes
from ...autodiff.cut import without
from ...autodiff.function import attach_call
from ...autodiff.stretch import recording
from ...autodiff.tape import Tape
from ...errors import PartialTapeError, ShapeError
from ...executor import Program
from ...forking import cached_property
from ...ir import Spec
from ...ops.primitives import cast
from ...tensor import Tensor, wrap
from ..call import CompiledCall
from ..guard import MISS, reader_of
from ..variant import Compile, Variant, cut_out
from .record import Backward, Noted, pattern_of, seeing


class PartialCall(CompiledCall):
    """What one call did, compiled: results by the forward program, gradients by the backward one.

    Parameters
    ----------
    noted : Noted
    leaves : sequence
        The flattened arguments.
    compile : callable
        Makes the programs: the forward one at the first run, a backward one when gradients arrive first.
    watched : callable
        Makes a function of one that somebody may want to look on at.

    Attributes
    ----------
    way_back : WayBack or None
    """

    def __init__(
        self, noted: Noted, leaves: Sequence[Any], compile: Compile, watched: Callable[[Any], Any]
    ) -> None:
        super().__init__(Variant(noted.record, compile), leaves)
        self.way_back = WayBack(noted.backward, compile, watched) if noted.backward is not None else None
        self._noted = noted
        self._tensors = reader_of(noted.holders)
        self._outside = reader_of([None if isinstance(end, int) else end for end in noted.ends])

    @cached_property
    def run(self) -> Callable[[Sequence[Any]], Any]:
        """``run(leaves)``: the result, or `MISS` when they are not those of this call.

        Raises
        ------
        PartialTapeError
            Several tapes see the call.
        """
        return partial(self._run, self._written())

    def _run(self, forward: Callable[[Sequence[Any]], Any], leaves: Sequence[Any]) -> Any:
        noted = self._noted
        tensors = self._tensors(leaves)
        tape = seeing(tensors, recording())
        if pattern_of(tensors, tape) != noted.pattern:
            return MISS
        sources = self._sources(tensors, tape)
        values = forward(leaves)
        if values is MISS:
            return MISS
        if tape is not None and self.way_back is not None:
            outside = self._outside(leaves)
            ends = [values[end] if isinstance(end, int) else outside[n] for n, end in enumerate(noted.ends)]
            self.way_back.attach(tape, sources, ends, [t._data for t in values[noted.count :]])
        return noted.structure.build(iter(values[: noted.count]))

    def wants_as_noted(self, leaves: Sequence[Any]) -> bool:
        """Whether the same Tensors want gradients as in the call that was noted."""
        tensors = self._tensors(leaves)
        return pattern_of(tensors, seeing(tensors, recording())) == self._noted.pattern

    def _sources(self, tensors: Sequence[Tensor | None], tape: Tape | None) -> tuple[Any, ...]:
        """Where those of `tensors` that have a gradient come from on `tape`; the call may rebind them."""
        if tape is None or self.way_back is None:
            return ()
        found = [tensors[index] for index in self.way_back.backward.sources]
        return tuple([t._tape[tape] for t in found if t is not None and t._tape])


class WayBack:
    """The backward programs of a call: one for each set of outputs whose gradients arrive together."""

    def __init__(self, backward: Backward, compile: Compile, watched: Callable[[Any], Any]) -> None:
        self.backward = backward
        self.gradients: Callable[..., list[Tensor | None]] = watched(self._gradients)
        self._compile = compile
        self._ways: dict[frozenset[int], _Way | None] = {}
        self._lock = forking.lock()

    @property
    def programs(self) -> list[Program]:
        """What has been compiled so far."""
        return [way.program for way in list(self._ways.values()) if way is not None]

    def program(self) -> Program | None:
        """The one for gradients of all results; None when they lead nowhere."""
        way = self._way(frozenset(end for _, end in self.backward.arriving))
        return way.program if way is not None else None

    def attach(
        self, tape: Tape, sources: tuple[Any, ...], ends: Sequence[Tensor | None], saved: list[Any]
    ) -> None:
        """Let `tape` find the way from `ends` back to `sources`, its nodes."""
        attach_call(tape, sources, ends, partial(self._pulled, saved))

    def _pulled(self, saved: list[Any], grads: dict[int, Tensor]) -> Sequence[Tensor | None]:
        if recording_tapes(grads.values()):
            raise PartialTapeError(
                "derivatives of higher order not supported in partial trace: the gradient of a result is "
                "recorded by an outer GradManager; leave the decorator off this function"
            )
        return self.gradients(grads, saved)

    def _gradients(self, arrived: Mapping[int, Tensor], saved: list[Any]) -> list[Tensor | None]:
        """The gradient of each source, None where nothing arrives.

        Parameters
        ----------
        arrived : mapping
            The gradients of outputs, by their indices.
        saved : list of arrays
            What the forward pass kept.
        """
        found: list[Tensor | None] = [None] * len(self.backward.sources)
        way = self._way(frozenset(arrived))
        if way is not None:
            inputs = self.backward.graph.inputs
            values = dict(enumerate(saved))
            for index, end in self.backward.arriving:
                if end in arrived:
                    values[index] = _array(arrived[end], inputs[index].spec)
            arrays = way.program.call([values[index] for index in way.reads])
            for index, array, spec in zip(way.writes, arrays, way.program.outputs, strict=True):
                found[index] = wrap(array, spec.device)
        return found

    def _way(self, arrived: frozenset[int]) -> _Way | None:
        with self._lock:
            if arrived not in self._ways:
                self._ways[arrived] = self._build(arrived)
            return self._ways[arrived]

    def _build(self, arrived: frozenset[int]) -> _Way | None:
        graph, arriving = self.backward.graph, self.backward.arriving
        here = [index for index, end in arriving if end in arrived]
        missing = [index for index, end in arriving if end not in arrived]
        graph, writes = without(graph, here, missing)
        if not writes:
            return None
        graph, reads = cut_out(graph.outputs, {node: index for index, node in enumerate(graph.inputs)})
        return _Way(self._compile(graph, {}), reads, writes)


@dataclass(frozen=True, slots=True)
class _Way:
    """A backward program, and the indices of what it reads and of the gradients that it makes."""

    program: Program
    reads: tuple[int, ...]
    writes: tuple[int, ...]


def _array(gradient: Tensor, spec: Spec) -> Any:
    """The value of a gradient that arrived for a result of `spec`."""
    if gradient.shape != spec.shape:
        raise ShapeError(f"a gradient of {gradient.shape} arrived for a result of {spec.shape}")
    return (gradient if gradient.dtype == spec.dtype else cast(gradient, dtype=spec.dtype))._array()
