"""A call of a partially traced function, as a forward and a backward program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...autodiff.cut import without
from ...autodiff.function import attach_call
from ...autodiff.tape import Tape
from ...errors import ShapeError, UnsupportedError
from ...executor import Program
from ...ir import Spec
from ...ops.primitives import cast
from ...runtime import forking
from ...runtime.forking import cached_property
from ...tensor import Tensor, wrap
from ...tensor.apply import recording_tapes
from ..call import CompiledCall
from ..generated import MISS, make_reader
from ..variant import Compile, Variant, extract_graph
from .record import BackwardPass, PartialRecord, find_tape, pattern_of
from .stretch import recording


class PartialCall(CompiledCall):
    """A compiled call: the forward program computes results, the backward one gradients.

    Parameters
    ----------
    record : PartialRecord
    leaves : sequence
        The flattened arguments.
    compile : callable
        Makes the programs: the forward one at the first run, a backward one when gradients arrive first.
    watched : callable
        Wraps a function so that its calls can be profiled.

    Attributes
    ----------
    backward : BackwardPrograms or None
    """

    def __init__(
        self, record: PartialRecord, leaves: Sequence[Any], compile: Compile, watched: Callable[[Any], Any]
    ) -> None:
        super().__init__(Variant(record.record, compile), leaves)
        backward = record.backward
        self.backward = None if backward is None else BackwardPrograms(backward, compile, watched)
        self._record = record
        self._tensors = make_reader(record.holders)
        self._outside = make_reader([None if isinstance(end, int) else end for end in record.ends])

    @cached_property
    def run(self) -> Callable[[Sequence[Any]], Any]:
        """Serve a call: ``run(leaves)`` returns the result, or `MISS` if a guard fails.

        Raises
        ------
        UnsupportedError
            Several tapes see the call.
        """
        return partial(self._run, self._generate())

    def _run(self, forward: Callable[[Sequence[Any]], Any], leaves: Sequence[Any]) -> Any:
        record = self._record
        tensors = self._tensors(leaves)
        tape = find_tape(tensors, recording())
        if pattern_of(tensors, tape) != record.pattern:
            return MISS
        sources = self._sources(tensors, tape)
        values = forward(leaves)
        if values is MISS:
            return MISS
        if tape is not None and self.backward is not None:
            outside = self._outside(leaves)
            ends = [values[end] if isinstance(end, int) else outside[n] for n, end in enumerate(record.ends)]
            self.backward.attach(tape, sources, ends, [t._data for t in values[record.count :]])
        return record.structure.build(iter(values[: record.count]))

    def has_recorded_pattern(self, leaves: Sequence[Any]) -> bool:
        """Check whether the same Tensors need gradients as in the recorded call."""
        tensors = self._tensors(leaves)
        return pattern_of(tensors, find_tape(tensors, recording())) == self._record.pattern

    def _sources(self, tensors: Sequence[Tensor | None], tape: Tape | None) -> tuple[Any, ...]:
        """Return the nodes on `tape` of those `tensors` that have a gradient; the call may rebind them."""
        if tape is None or self.backward is None:
            return ()
        found = [tensors[index] for index in self.backward.backward_pass.sources]
        return tuple([t._tape[tape] for t in found if t is not None and t._tape])


class BackwardPrograms:
    """The backward programs of a call: one for each set of outputs whose gradients arrive together."""

    def __init__(self, backward: BackwardPass, compile: Compile, watched: Callable[[Any], Any]) -> None:
        self.backward_pass = backward
        self.gradients: Callable[..., list[Tensor | None]] = watched(self._compute_gradients)
        self._compile = compile
        self._ways: dict[frozenset[int], _BackwardProgram | None] = {}
        self._lock = forking.lock()

    @property
    def programs(self) -> list[Program]:
        """Return what has been compiled so far."""
        return [program.program for program in list(self._ways.values()) if program is not None]

    def program(self) -> Program | None:
        """Return the program for gradients of all results; None if they lead nowhere."""
        program = self._find_program(frozenset(end for _, end in self.backward_pass.arriving))
        return program.program if program is not None else None

    def attach(
        self, tape: Tape, sources: tuple[Any, ...], ends: Sequence[Tensor | None], saved: list[Any]
    ) -> None:
        """Record on `tape` how gradients get from `ends` back to `sources`, its nodes."""
        attach_call(tape, sources, ends, partial(self._pull, saved))

    def _pull(self, saved: list[Any], grads: dict[int, Tensor]) -> Sequence[Tensor | None]:
        if recording_tapes(grads.values()):
            raise UnsupportedError(
                "derivatives of higher order not supported in partial trace: the gradient of a result is "
                "recorded by an outer GradManager; leave the decorator off this function"
            )
        return self.gradients(grads, saved)

    def _compute_gradients(self, arrived: Mapping[int, Tensor], saved: list[Any]) -> list[Tensor | None]:
        """Return the gradient of each source, None where none arrives.

        Parameters
        ----------
        arrived : mapping
            The gradients of outputs, by their indices.
        saved : list of arrays
            The values that the forward pass saved.
        """
        found: list[Tensor | None] = [None] * len(self.backward_pass.sources)
        program = self._find_program(frozenset(arrived))
        if program is not None:
            inputs = self.backward_pass.graph.inputs
            values = dict(enumerate(saved))
            for index, end in self.backward_pass.arriving:
                if end in arrived:
                    values[index] = _array(arrived[end], inputs[index].spec)
            arrays = program.program.call([values[index] for index in program.reads])
            for index, array, spec in zip(program.writes, arrays, program.program.outputs, strict=True):
                found[index] = wrap(array, spec.device)
        return found

    def _find_program(self, arrived: frozenset[int]) -> _BackwardProgram | None:
        with self._lock:
            if arrived not in self._ways:
                self._ways[arrived] = self._build(arrived)
            return self._ways[arrived]

    def _build(self, arrived: frozenset[int]) -> _BackwardProgram | None:
        graph, arriving = self.backward_pass.graph, self.backward_pass.arriving
        here = [index for index, end in arriving if end in arrived]
        missing = [index for index, end in arriving if end not in arrived]
        graph, writes = without(graph, here, missing)
        if not writes:
            return None
        graph, reads = extract_graph(graph.outputs, {node: index for index, node in enumerate(graph.inputs)})
        return _BackwardProgram(self._compile(graph, {}), reads, writes)


@dataclass(frozen=True, slots=True)
class _BackwardProgram:
    """A backward program, with the indices of what it reads and of the gradients that it computes."""

    program: Program
    reads: tuple[int, ...]
    writes: tuple[int, ...]


def _array(gradient: Tensor, spec: Spec) -> Any:
    """Return the value of a gradient that arrived for a result of `spec`."""
    if gradient.shape != spec.shape:
        raise ShapeError(f"a gradient of {gradient.shape} arrived for a result of {spec.shape}")
    return (gradient if gradient.dtype == spec.dtype else cast(gradient, dtype=spec.dtype))._array()
