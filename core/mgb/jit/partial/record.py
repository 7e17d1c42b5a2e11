"""The first call of a partially traced function: noted, differentiated, and split in two."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...apply import apply, caller
from ...autodiff.stretch import Stretch, recording, the_only
from ...autodiff.tape import Tape
from ...errors import PartialReadError, TraceError, UnknownInputError
from ...ir import Graph
from ...tensor import Tensor
from ..environment import Observer
from ..record import END, End, Entry, External, Literal, Record, Ref, external_ref
from ..results import results_of
from ..tree import Structure, flatten
from ..unrun import UnrunRecording
from ..variant import cut_out
from .cut import OUTPUT_GRADIENT, values_to_keep


class PartialRecording(UnrunRecording):
    """A recording that runs nothing, for calls that skip the body.

    Parameters
    ----------
    leaves : sequence
        The flattened arguments.
    observer : Observer
    symbolic_shape : bool
        Shapes are Tensors in the body.
    """

    subject = "the body of a partially traced function"
    looks_for_tensors = False  # the tape of the caller knows those that the body found

    def __init__(self, leaves: Sequence[Any], observer: Observer, *, symbolic_shape: bool) -> None:
        super().__init__(
            leaves, symbolic=True, capture_as_const=False, symbolic_shape=symbolic_shape, observer=observer
        )

    def reading(self, what: str) -> TraceError:
        return PartialReadError(
            f"{self.subject} {what} at {caller()}, but Python does not run again at later calls: do that "
            "outside of the function, where all is eager, or compute it with ops"
        )

    def makes(self, value: Any) -> bool:
        """Is `value` a Tensor that the body made, or a ``grad`` that it found?"""
        return self.is_own(value) or id(value) in self._holders()

    def rebound_tensors(self) -> Iterator[tuple[int | None, Tensor]]:
        """The Tensors outside with a new value, each with its place among the arguments."""
        grads = self._holders()
        for key, tensor in {id(t): t for r in self._rebound if (t := r()) is not None}.items():
            if key not in grads:
                yield self._leaf_tensors.get(key), tensor


@dataclass(frozen=True, slots=True, eq=False)
class Holder:
    """Where a call finds a Tensor: among the flattened arguments, or `owner`, whose ``grad`` it may be."""

    leaf: int | None
    owner: Tensor | None
    of_grad: bool = False

    def tensor(self, leaves: Sequence[Any]) -> Tensor | None:
        """The Tensor; None when it is a number that is asked for, or a ``grad`` that is not there."""
        found = self.owner if self.leaf is None else leaves[self.leaf]
        return found._grad if self.of_grad and found is not None else found


@dataclass(frozen=True, slots=True)
class Backward:
    """The way back of a call.

    Attributes
    ----------
    graph : Graph
        From values that were kept and gradients of `ends` to the gradients of externals.
    kept : tuple of Ref
        The values, in the order of the first inputs.
    arriving : tuple of (int, int)
        For each other input its place, and the place in `ends` of the output that it is the gradient of.
    sources : tuple of int
        The externals whose gradients are the outputs.
    """

    graph: Graph
    kept: tuple[int, ...]
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
    results : tuple of Ref or None
    holders : tuple of Holder
        Of each external.
    pattern : tuple
        Which externals the tape of the caller saw: see `pattern_of`.
    ends : tuple
        The results, by their place, and the Tensors outside with a new value, that the tape sees after it.
    backward : Backward or None
        None: the tape saw nothing, or no result depends on what it saw.
    """

    record: Record
    structure: Structure
    results: tuple[End, ...]
    holders: tuple[Holder, ...]
    pattern: tuple[int | None, ...]
    ends: tuple[int | Holder, ...]
    backward: Backward | None

    @property
    def way(self) -> tuple[Any, ...]:
        """What is equal for calls that are alike, beside their records."""
        ends = [(e.leaf, e.owner and id(e.owner)) if isinstance(e, Holder) else e for e in self.ends]
        back = self.backward
        return (
            self.structure,
            self.results,
            self.pattern,
            ends,
            back and (back.kept, back.arriving, back.sources),
        )


def seeing(tensors: Iterable[Tensor | None], tapes: Iterable[Tape]) -> Tape | None:
    """The one of `tapes` that sees some of `tensors`."""
    seen = {tape for t in tensors if t is not None and t._tape for tape in t._tape}
    return the_only([tape for tape in tapes if tape in seen])


def pattern_of(tensors: Iterable[Tensor | None], tape: Tape | None) -> tuple[int | None, ...]:
    """For each of `tensors` the first one with the same node on `tape`; None: the tape does not see it."""
    first: dict[Any, int] = {}
    nodes = (t._tape.get(tape) if t is not None and t._tape else None for t in tensors)
    return tuple([None if n is None else first.setdefault(n, place) for place, n in enumerate(nodes)])


def note(session: PartialRecording, body: Callable[[], Any], modules: Iterable[Any]) -> Noted:
    """Note one call of `body` and its gradient; no Tensor outside changes, no tape remembers it.

    Parameters
    ----------
    session : PartialRecording
    body : callable
    modules : iterable
        Objects whose attributes decide what the body does.

    Raises
    ------
    TraceError
        What the body does cannot be replayed by two programs.
    """
    stretch, leaves = Stretch(), session.leaves
    record, structure, results = session.note(_noted, session, body, modules, stretch)
    return _split(record, structure, results, leaves)


def _noted(
    session: PartialRecording, body: Callable[[], Any], modules: Iterable[Any], stretch: Stretch
) -> Any:
    try:
        for module in modules:
            session.entered(module)
        structure, results = _run(session, body, stretch)
        record = session.finish()
        record.guards = session.observer.guards  # type: ignore[union-attr]
        session.check_skippable()
    except Exception:
        session.compute_living()
        raise
    finally:
        stretch.forget()
    return record, structure, results


@dataclass(frozen=True, slots=True)
class _Results:
    """What a noted body gave, by steps and externals alone.

    Attributes
    ----------
    refs : tuple of Ref or None
    tape : Tape or None
    ends : tuple
    arriving : tuple of int
        The steps that stand for the gradients of `ends`.
    gradients : dict
        For each node of the tape the ref of its gradient.
    """

    refs: tuple[End, ...]
    tape: Tape | None
    ends: tuple[int | Holder, ...]
    arriving: tuple[int, ...]
    gradients: dict[Any, Ref]


def _run(session: PartialRecording, body: Callable[[], Any], stretch: Stretch) -> tuple[Structure, _Results]:
    """The body and its gradient; all Tensors of them die here but those that the body keeps."""
    result = body()
    structure, refs = results_of(result, session)
    tape = stretch.tape()
    if tape is None:
        return structure, _Results(refs, None, (), (), {})
    ends = _ends(session, flatten(result)[0], tape)
    arriving = [apply(OUTPUT_GRADIENT, y.detach()) for y in ends.values()]
    gradients = stretch.pull(tape, list(ends.values()), arriving)
    found = {node: session.ref(gradient) for node, gradient in gradients.items()}
    stretch.forget()  # what the tape kept alive must not be taken for what the body kept
    return structure, _Results(refs, tape, tuple(ends), tuple([d._index for d in arriving]), found)


def _ends(session: PartialRecording, leaves: Sequence[Any], tape: Tape) -> dict[int | Holder, Tensor]:
    """The results, and the Tensors outside with a new value, whose gradients may arrive.

    A result that is a Tensor from outside has its own place on the tape, as before or by its new value.
    """
    first = {id(y): n for n, y in reversed(list(enumerate(leaves)))}
    new = sorted(n for n in first.values() if session.makes(leaves[n]) and _seen_by(tape, leaves[n]))
    found: dict[int | Holder, Tensor] = {n: leaves[n] for n in new}
    for leaf, tensor in session.rebound_tensors():
        if _seen_by(tape, tensor):
            found[Holder(leaf, tensor if leaf is None else None)] = tensor
    return found


def _seen_by(tape: Tape, value: Any) -> bool:
    return isinstance(value, Tensor) and bool(value._tape) and tape in (value._tape or ())


def _split(record: Record, structure: Structure, results: _Results, leaves: Sequence[Any]) -> Noted:
    """The record of the forward pass, and the graph of the backward pass."""
    holders = tuple(map(_holder, record.externals))
    tensors = [h.tensor(leaves) for h in holders]
    pattern = pattern_of(tensors, seeing(tensors, recording()))  # even if no op is seen
    backward = _backward(record, results, _first_of_each_node(holders, leaves, results.tape))
    steps = {ref for ref in (*results.refs, *(b.source for b in record.bindings)) if isinstance(ref, int)}
    steps.update(backward.kept if backward is not None else ())
    required = tuple(sorted(step for step in steps if step >= 0))
    end = Entry(END, (), {}, None, record.entries[-1].source, required)
    forward = replace(record, entries=[*record.entries[:-1], end])
    ends = results.ends if backward is not None else ()
    return Noted(forward, structure, results.refs, holders, pattern, ends, backward)


def _holder(external: External) -> Holder:
    if external.converts is not None:
        return Holder(None, None)
    owner = external.owner() if external.owner is not None and external.leaf is None else None
    return Holder(external.leaf, owner, external.of_grad)


def _first_of_each_node(
    holders: Iterable[Holder], leaves: Sequence[Any], tape: Tape | None
) -> dict[Any, int]:
    """The first external of each node of `tape`."""
    first: dict[Any, int] = {}
    for place, holder in enumerate(holders):
        tensor = holder.tensor(leaves)
        if tensor is not None and tensor._tape and tape in tensor._tape:
            first.setdefault(tensor._tape[tape], place)
    return first


def _backward(record: Record, results: _Results, external_of: dict[Any, int]) -> Backward | None:
    if not results.gradients:
        return None
    if not external_of.keys() >= results.gradients.keys():
        raise UnknownInputError(
            "have some unknown input tensors in trace result: the gradient of a tensor is wanted that the "
            "body found and that is gone since; pass it as an argument"
        )
    ref_of = {e.node: external_ref(n) for n, e in enumerate(record.externals)}
    ref_of.update((entry.node, step) for step, entry in enumerate(record.entries) if entry.node is not None)
    gradients = tuple(record.node(ref) for ref in results.gradients.values())
    arriving = {record.node(step): step for step in results.arriving}
    held = {e.node for e in record.externals}
    held |= {record.node(ref) for ref in results.refs if isinstance(ref, int | Literal)}
    found = values_to_keep(gradients, list(arriving), held)
    kept = {node: ref_of[node] for node in sorted(found, key=ref_of.__getitem__)}  # alike calls are equal
    graph, refs = cut_out(gradients, {**kept, **arriving})
    end_of = {step: end for end, step in enumerate(results.arriving)}
    return Backward(
        graph,
        tuple(ref for ref in refs if ref not in end_of),
        tuple((place, end_of[ref]) for place, ref in enumerate(refs) if ref in end_of),
        tuple(external_of[node] for node in results.gradients),
    )
