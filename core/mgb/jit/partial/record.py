"""The first call of a partially traced function: noted, differentiated, and split in two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...apply import apply, caller
from ...autodiff.cut import values_to_keep
from ...autodiff.stretch import Stretch, recording, the_only
from ...autodiff.tape import Tape
from ...errors import PartialReadError, TraceError, UnknownInputError
from ...ir import Graph
from ...tensor import Tensor
from ..capture import Body, note
from ..entry import CUTS, END, OUTPUT_GRADIENT, Literal, Ref, cut_at, external_ref
from ..record import Record
from ..recording import Recording
from ..source import Source, found_at
from ..tree import LEAF, Structure, flatten_once
from ..variant import cut_out


def refused(what: str) -> TraceError:
    """The error for a body that does `what`, which needs a value."""
    return PartialReadError(
        f"the body of a partially traced function {what} at {caller()}, but Python does not run again at "
        "later calls: do that outside of the function, where all is eager, or compute it with ops"
    )


@dataclass(frozen=True, slots=True)
class Backward:
    """The way back of a call.

    Attributes
    ----------
    graph : Graph
        From values that were kept and gradients of `ends` to the gradients of externals.
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
class Noted:
    """A call that was noted and not run.

    Attributes
    ----------
    record : Record
        Of the forward pass; its values that leave are results, new values of Tensors outside, and what the
        backward pass wants.
    structure : Structure
        Of the result.
    count : int
        How many leaves that has: they stand before the values that are kept in the ends of the record.
    holders : tuple of Source or None
        Where each external's Tensor stands; None: that is none.
    pattern : tuple
        Which externals the tape of the caller saw: see `pattern_of`.
    ends : tuple
        The results, by their index, and the Tensors outside with a new value, that the tape sees after it.
    backward : Backward or None
        None: the tape saw nothing, or no result depends on what it saw.
    """

    record: Record
    structure: Structure
    count: int
    holders: tuple[Source | None, ...]
    pattern: tuple[int | None, ...]
    ends: tuple[int | Source, ...]
    backward: Backward | None


def seeing(tensors: Iterable[Tensor | None], tapes: Iterable[Tape]) -> Tape | None:
    """The one of `tapes` that sees some of `tensors`."""
    seen = {tape for t in tensors if isinstance(t, Tensor) and t._tape for tape in t._tape}
    return the_only([tape for tape in tapes if tape in seen])


def pattern_of(tensors: Iterable[Tensor | None], tape: Tape | None) -> tuple[int | None, ...]:
    """For each of `tensors` the first one with the same node on `tape`; None: the tape does not see it."""
    first: dict[Any, int] = {}
    nodes = (t._tape.get(tape) if isinstance(t, Tensor) and t._tape else None for t in tensors)
    return tuple([None if n is None else first.setdefault(n, index) for index, n in enumerate(nodes)])


def noted(session: Recording, body: Body, kwargs: Mapping[str, Any], holders: Iterable[Any]) -> Noted:
    """Note one call of `body` and its gradient; no Tensor outside changes, no tape remembers it.

    Parameters
    ----------
    session : Recording
    body : sequence
        With what it is given by position.
    kwargs : mapping
    holders : iterable
        Objects that decide what the body does.

    Raises
    ------
    TraceError
        What the body does cannot be replayed by two programs.
    """
    stretch, leaves = Stretch(), session.leaves
    found: list[_Gradients] = []
    for holder in holders:
        session.entered(holder)
    try:
        note(session, body, kwargs, lambda result: found.append(_pulled(session, result, stretch)))
    finally:
        stretch.forget()
    return _split(session.record, found.pop(), leaves)


@dataclass(frozen=True, slots=True)
class _Gradients:
    """The gradient of a noted body, by steps and externals alone.

    Attributes
    ----------
    ends : tuple
    arriving : tuple of int
        The steps that stand for the gradients of `ends`.
    gradients : dict
        For each node of the tape the ref of its gradient.
    """

    ends: tuple[int | Source, ...] = ()
    arriving: tuple[int, ...] = ()
    gradients: dict[Any, Ref] = field(default_factory=dict)


def _pulled(session: Recording, result: Any, stretch: Stretch) -> _Gradients:
    """The gradient of the body; all Tensors of it die here but those that the body keeps."""
    tape = stretch.tape()
    if tape is None:
        return _Gradients()
    ends = _ends(session, flatten_once(result)[0], tape)
    arriving = [apply(OUTPUT_GRADIENT, y.detach()) for y in ends.values()]
    gradients = stretch.pull(tape, list(ends.values()), arriving)
    found = {node: session.ref(gradient) for node, gradient in gradients.items()}
    stretch.forget()  # what the tape kept alive must not be taken for what the body kept
    return _Gradients(tuple(ends), tuple([d._index for d in arriving]), found)


def _ends(session: Recording, leaves: Sequence[Any], tape: Tape) -> dict[int | Source, Tensor]:
    """The results, and the Tensors outside with a new value, whose gradients may arrive.

    A result that is a Tensor from outside has its own place on the tape, as before or by its new value.
    """
    first = {id(y): n for n, y in reversed(list(enumerate(leaves)))}
    grads, provenance = session.provenance.holders, session.provenance
    new = [n for n in first.values() if _seen_by(tape, leaves[n])]
    new = sorted(n for n in new if provenance.is_own(leaves[n]) or id(leaves[n]) in grads)
    found: dict[int | Source, Tensor] = {n: leaves[n] for n in new}
    for tensor in provenance.rebound_tensors():
        if id(tensor) not in grads and _seen_by(tape, tensor):
            found[provenance.source_of(tensor)] = tensor
    return found


def _seen_by(tape: Tape, value: Any) -> bool:
    return isinstance(value, Tensor) and bool(value._tape) and tape in (value._tape or ())


def _split(record: Record, gradients: _Gradients, leaves: Sequence[Any]) -> Noted:
    """The record of the forward pass, whose results end with what is kept, and the graph of the way back."""
    assert record.ends is not None
    structure, results = record.ends
    holders = tuple(None if e.converts is not None else e.source for e in record.externals)
    tensors: list[Any] = [None if source is None else found_at(source, leaves) for source in holders]
    tape = seeing(tensors, recording())
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
    return Noted(forward, structure, len(results), holders, pattern, ends, backward)


def _backward(
    record: Record, found: _Gradients, results: Sequence[Any], external_of: dict[Any, int]
) -> Backward | None:
    if not found.gradients:
        return None
    if not external_of.keys() >= found.gradients.keys():
        raise UnknownInputError(
            "have some unknown input tensors in trace result: the gradient of a tensor is wanted that the "
            "body found and that is gone since; pass it as an argument"
        )
    ref_of = {e.node: external_ref(n) for n, e in enumerate(record.externals)}
    steps = (step for step, entry in enumerate(record.entries) if entry.op not in CUTS)
    ref_of.update((record.node(step), step) for step in steps)
    gradients = tuple(record.node(ref) for ref in found.gradients.values())
    arriving = {record.node(step): step for step in found.arriving}
    held = {e.node for e in record.externals}
    held |= {record.node(ref) for ref in results if isinstance(ref, int | Literal)}
    keep = values_to_keep(gradients, list(arriving), held)
    saved = {node: ref_of[node] for node in sorted(keep, key=ref_of.__getitem__)}  # alike calls are equal
    graph, refs = cut_out(gradients, {**saved, **arriving})
    end_of = {step: end for end, step in enumerate(found.arriving)}
    return Backward(
        graph,
        tuple(ref for ref in refs if ref not in end_of),
        tuple((index, end_of[ref]) for index, ref in enumerate(refs) if ref in end_of),
        tuple(external_of[node] for node in found.gradients),
    )
