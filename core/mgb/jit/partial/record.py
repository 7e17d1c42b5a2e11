"""The first call of a partially traced function: recorded, differentiated, and split into two programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...autodiff.cut import values_to_keep
from ...autodiff.tape import Tape
from ...errors import SymbolicReadError, TraceError, UnknownInputError
from ...ir import Graph
from ...tensor import Tensor
from ...tensor.apply import apply, caller
from ..capture import Body, note
from ..entry import CUTS, END, OUTPUT_GRADIENT, Literal, Ref, cut_at, external_ref
from ..record import Record
from ..recording import Recording
from ..source import Source, try_read
from ..tree import LEAF, Structure, flatten_once
from ..variant import extract_graph
from .stretch import Stretch, recording, the_only


def make_read_error(what: str) -> TraceError:
    """Return the error for a body that does `what`, which needs a value."""
    return SymbolicReadError(
        f"the body of a partially traced function {what} at {caller()}, but Python does not run again at "
        "later calls: do that outside of the function, where all is eager, or compute it with ops"
    )


@dataclass(frozen=True, slots=True)
class BackwardPass:
    """The backward pass of a call.

    Attributes
    ----------
    graph : Graph
        From saved values and gradients of `ends` to the gradients of externals.
    saved : tuple of Ref
        The values, in the order of the first inputs.
    arriving : tuple of (int, int)
        For each other input its index, and the index in `ends` of the output that it is the gradient of.
    sources : tuple of int
        The externals whose gradients are the outputs.
    """

    graph: Graph
    saved: tuple[int, ...]
    arriving: tuple[tuple[int, int], ...]
    sources: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PartialRecord:
    """A call that was recorded without running its ops.

    Attributes
    ----------
    record : Record
        The record of the forward pass. Its outputs are results, new values of Tensors outside, and the values
        that are saved for the backward pass.
    structure : Structure
        The nesting of the result.
    count : int
        The number of leaves of the result, which precede the saved values in the ends of the record.
    holders : tuple of Source or None
        The source of each external's Tensor, or None if it is not a Tensor.
    pattern : tuple
        Which externals the tape of the caller watched: see `pattern_of`.
    ends : tuple
        What the tape watches after the call: indices of results, and Tensors outside with a new value.
    backward : BackwardPass or None
        None: the tape watched nothing, or no result depends on what it watched.
    """

    record: Record
    structure: Structure
    count: int
    holders: tuple[Source | None, ...]
    pattern: tuple[int | None, ...]
    ends: tuple[int | Source, ...]
    backward: BackwardPass | None


def find_tape(tensors: Iterable[Tensor | None], tapes: Iterable[Tape]) -> Tape | None:
    """Return the one of `tapes` that watches some of `tensors`."""
    seen = {tape for t in tensors if isinstance(t, Tensor) and t._tape for tape in t._tape}
    return the_only([tape for tape in tapes if tape in seen])


def pattern_of(tensors: Iterable[Tensor | None], tape: Tape | None) -> tuple[int | None, ...]:
    """Return for each of `tensors` the first one with the same node on `tape`; None: it has no node."""
    first: dict[Any, int] = {}
    nodes = (t._tape.get(tape) if isinstance(t, Tensor) and t._tape else None for t in tensors)
    return tuple([None if n is None else first.setdefault(n, index) for index, n in enumerate(nodes)])


def record_partial(
    session: Recording, body: Body, kwargs: Mapping[str, Any], holders: Iterable[Any]
) -> PartialRecord:
    """Record one call of `body` and its gradient. No Tensor outside changes, and no tape records it.

    Parameters
    ----------
    session : Recording
    body : sequence
        A function and its positional arguments.
    kwargs : mapping
    holders : iterable
        Objects that decide what the body does.

    Raises
    ------
    TraceError
        Two programs cannot do what the body does.
    """
    stretch, leaves = Stretch(), session.leaves
    found: list[_Gradients] = []
    for holder in holders:
        session.entered(holder)
    try:
        note(session, body, kwargs, lambda result: found.append(_pull_gradients(session, result, stretch)))
    finally:
        stretch.forget()
    return _split(session.record, found.pop(), leaves)


@dataclass(frozen=True, slots=True)
class _Gradients:
    """The gradients of a recorded body, as steps and externals.

    Attributes
    ----------
    ends : tuple
    arriving : tuple of int
        The steps that are the gradients of `ends`.
    gradients : dict
        For each node of the tape the ref of its gradient.
    """

    ends: tuple[int | Source, ...] = ()
    arriving: tuple[int, ...] = ()
    gradients: dict[Any, Ref] = field(default_factory=dict)


def _pull_gradients(session: Recording, result: Any, stretch: Stretch) -> _Gradients:
    """Return the gradients of the body, and release its Tensors."""
    tape = stretch.tape()
    if tape is None:
        return _Gradients()
    ends = _list_ends(session, flatten_once(result)[0], tape)
    arriving = [apply(OUTPUT_GRADIENT, y.detach()) for y in ends.values()]
    gradients = stretch.pull(tape, list(ends.values()), arriving)
    found = {node: session.ref(gradient) for node, gradient in gradients.items()}
    stretch.forget()  # Tensors that the tape keeps alive must not count as escaped
    return _Gradients(tuple(ends), tuple([d._index for d in arriving]), found)


def _list_ends(session: Recording, leaves: Sequence[Any], tape: Tape) -> dict[int | Source, Tensor]:
    """Return the results and the rebound Tensors outside whose gradients may arrive.

    A result that is a Tensor from outside has its own place on the tape, as before or by its new value.
    """
    first = {id(y): n for n, y in reversed(list(enumerate(leaves)))}
    grads, provenance = session.provenance.grad_owners, session.provenance
    new = [n for n in first.values() if _is_watched_by(tape, leaves[n])]
    new = sorted(n for n in new if provenance.is_own(leaves[n]) or id(leaves[n]) in grads)
    found: dict[int | Source, Tensor] = {n: leaves[n] for n in new}
    for tensor in provenance.rebound_tensors():
        if id(tensor) not in grads and _is_watched_by(tape, tensor):
            found[provenance.source_of(tensor)] = tensor
    return found


def _is_watched_by(tape: Tape, value: Any) -> bool:
    return isinstance(value, Tensor) and bool(value._tape) and tape in (value._tape or ())


def _split(record: Record, gradients: _Gradients, leaves: Sequence[Any]) -> PartialRecord:
    """Return the record of the forward pass, whose results end with saved values, and the backward graph."""
    assert record.ends is not None
    structure, results = record.ends
    holders = tuple(None if e.converts is not None else e.source for e in record.externals)
    tensors: list[Any] = [None if source is None else try_read(source, leaves) for source in holders]
    tape = find_tape(tensors, recording())
    pattern = pattern_of(tensors, tape)  # even if no op is seen
    indices = {tensors[index]._tape[tape]: index for index in pattern if index is not None}
    backward = _backward(record, gradients, results, indices)
    steps = {ref for ref in (*results, *(b.source for b in record.bindings)) if isinstance(ref, int)}
    steps.update(backward.saved if backward is not None else ())
    required = tuple(sorted(step for step in steps if step >= 0))
    end = cut_at(END, record.entries[-1].source, required)
    saved = backward.saved if backward is not None else ()
    flat = Structure(list, (), (LEAF,) * (len(results) + len(saved)))
    forward = replace(record, entries=[*record.entries[:-1], end], ends=(flat, (*results, *saved)))
    ends = gradients.ends if backward is not None else ()
    return PartialRecord(forward, structure, len(results), holders, pattern, ends, backward)


def _backward(
    record: Record, found: _Gradients, results: Sequence[Any], external_of: dict[Any, int]
) -> BackwardPass | None:
    if not found.gradients:
        return None
    if not external_of.keys() >= found.gradients.keys():
        raise UnknownInputError(
            "have some unknown input tensors in trace result: the gradient of a tensor is requested that "
            "the body read and that was deleted since; pass it as an argument"
        )
    ref_of = {e.node: external_ref(n) for n, e in enumerate(record.externals)}
    steps = (step for step, entry in enumerate(record.entries) if entry.op not in CUTS)
    ref_of.update((record.node(step), step) for step in steps)
    gradients = tuple(record.node(ref) for ref in found.gradients.values())
    arriving = {record.node(step): step for step in found.arriving}
    held = {e.node for e in record.externals}
    held |= {record.node(ref) for ref in results if isinstance(ref, int | Literal)}
    keep = values_to_keep(gradients, list(arriving), held)
    saved = {node: ref_of[node] for node in sorted(keep, key=ref_of.__getitem__)}  # for equal graphs
    graph, refs = extract_graph(gradients, {**saved, **arriving})
    end_of = {step: end for end, step in enumerate(found.arriving)}
    return BackwardPass(
        graph,
        tuple(ref for ref in refs if ref not in end_of),
        tuple((index, end_of[ref]) for index, ref in enumerate(refs) if ref in end_of),
        tuple(external_of[node] for node in found.gradients),
    )
