"""Capture a call: run its body in a `Recording`, and turn what it did into a `Record`."""

from __future__ import annotations

import operator
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import TraceOutputError, UnrolledLoopWarning
from ..ir.scalars import SCALARS, Scalar, Size, holds_followed
from ..ir.sizes import settled
from ..tensor import Tensor, run_in
from ..tensor.apply import caller
from .guard import is_plain
from .record import End, Ends, FixedValue, LiveValue, Record
from .recording import Recording
from .source import Argument
from .tree import flatten_once, map_parts, parts_of

_IMMUTABLE = (bool, int, float, complex, str, bytes, type(None), type, np.generic, np.dtype)

#: One line may record the very same op so often before it is taken for a loop that should not be unrolled.
_MANY = 1000

#: A function and its positional arguments.
Body = Sequence[Any]


def run_body(session: Recording, body: Body, kwargs: Mapping[str, Any]) -> Any:
    """Return the result of `body` in `session`, under its observer."""
    observer = session.observer
    if observer is None:
        return run_in(session, *body, **kwargs)
    return replace_symbolic(run_in(session, observer.run, *body, **kwargs), decide=session.is_pure)


def close(session: Recording, result: Any) -> Record:
    """Return the record of a call whose body returned `result`; it has ends if later calls may skip it."""
    _warn_unrolled_loops(session.record)
    if session.is_pure or (session.policy.freezes and not session.reads):
        session.record.ends = _find_ends(_add_effects(result, session), session)
    return session.finish()


def note(
    session: Recording,
    body: Body,
    kwargs: Mapping[str, Any],
    inside: Callable[[Any], object] | None = None,
    check: Callable[[Recording], object] | None = None,
) -> Any:
    """Record a call without running its ops. Every Tensor outside is as before.

    Parameters
    ----------
    session : Recording
    body : sequence
    kwargs : mapping
    inside : callable, optional
        Called in the session with the result.
    check : callable, optional
        Raises an error for a record that is not valid.

    Returns
    -------
    object
        The result, whose Tensors have no values. None for an observed body, so that its Tensors are released.
    """
    box: list[Any] = []
    try:
        try:
            box.append(run_body(session, body, kwargs))
            if inside is not None:
                run_in(session, inside, box[0])
            close(session, box[0])
            if check is not None:
                check(session)
        except Exception:
            if session.observer is None or not session.observer.is_trial:
                session.compute_alive()
            raise
        session.undo()
    except BaseException:
        session.undo()
        raise
    session.forget()
    if session.observer is None:
        return box.pop()
    box.clear()
    if session.is_pure:
        session.check_escapes()
    return None


def replace_symbolic(result: Any, decide: bool) -> Any:
    """Replace symbolic numbers in the result of a body by plain ones; other containers stay themselves.

    If they may `decide` what it is, leaves stay symbolic: later calls have other numbers there.
    """
    rule: Callable[[Scalar], Any] = Scalar.fixed if decide else operator.attrgetter("value")
    flatten_once(result)  # raises an error for a recursive result
    tuples: dict[int, tuple[Any, Any]] = {}  # by id: an old tuple and the new one, so that one stays one

    def settle(value: Any) -> Any:
        if (inside := parts_of(value)) is None:
            return value if decide and type(value) in SCALARS else settled(value, rule)
        if isinstance(value, dict) and holds_followed(value):
            return settled(value, rule)
        if id(value) not in tuples:
            new = map_parts(settle, value, inside)
            if new is value:
                return value
            tuples[id(value)] = value, new  # the old one is kept: its id must not become that of another
        return tuples[id(value)][1]

    return settle(result)


def _warn_unrolled_loops(record: Record) -> None:
    """Warn if one line of the body recorded the same op, of one type, at least `_MANY` times."""
    if len(record.entries) < _MANY:
        return
    counts: Counter[Any] = Counter(
        (entry.source, entry.op, entry.spec.ndim, entry.spec.dtype) for entry in record.entries if entry.args
    )
    (source, op, *_), count = counts.most_common(1)[0]
    if count >= _MANY and source:
        warnings.warn(
            f"the loop at {source} was recorded step by step: {count} times {op.name} among "
            f"{len(record.entries)} ops, which take long to compile; mgb.jit.scan, fori_loop and while_loop "
            "record one step",
            UnrolledLoopWarning,
            stacklevel=2,
        )


def _add_effects(result: Any, session: Recording) -> Any:
    """Return `result`, or a tuple of it and of the values that the body wrote outside."""
    effects = session.observer.writing.effects if session.observer is not None else []
    session.record.writes = tuple([(effect.source, effect.appends) for effect in effects])
    return (result, *(effect.value for effect in effects)) if effects else result


def _find_ends(result: Any, session: Recording) -> Ends:
    """Return how the result is nested, and where each of its values comes from."""
    leaves, structure = flatten_once(result)
    found = {id(leaf): _find_end(leaf, session) for leaf in leaves}
    refs = [found[id(leaf)] for leaf in leaves]
    moved = [not isinstance(leaf, Tensor) or isinstance(found[id(leaf)], LiveValue) for leaf in leaves]
    session.note_returned([None if is_moved else leaf for leaf, is_moved in zip(leaves, moved, strict=True)])
    return structure, tuple(refs)


def _find_end(leaf: Any, session: Recording) -> End:
    if leaf is None:
        return None
    if type(leaf) in SCALARS and type(leaf) is not Size:
        return LiveValue(leaf.path, leaf.value)
    if isinstance(leaf, Tensor):
        if type(leaf) is not Tensor and session.provenance.is_own(leaf):
            session.must_run(f"returns a {type(leaf).__name__} that it makes")
        return session.find_moved(leaf) or session.ref(leaf)
    if session.observer is not None and session.policy.skips:
        return _keep_value(leaf, session)
    raise TraceOutputError(
        f"return value of traced function must be tensor, get {type(leaf).__name__} at {caller()}: "
        "a value that Python computes would be frozen at its first value; return Tensors"
    )


def _keep_value(value: Any, session: Recording) -> FixedValue | LiveValue | None:
    """Return the part of the result that replaces a value which is not a Tensor."""
    observer = session.observer
    assert observer is not None
    if not is_plain(value):
        for number, leaf in enumerate(session.leaves):
            if leaf is value:
                return LiveValue(Argument(number))
    if type(value) is Size:
        return FixedValue(value.value, size=value)
    if isinstance(value, _IMMUTABLE):
        return FixedValue(value)
    if isinstance(value, np.ndarray) and observer.known(value) is None:
        return FixedValue(FixedValue(value).copy(), copied=True)
    if not observer.is_made(value):
        return FixedValue(value)
    session.must_run(f"returns an object that it makes, a {type(value).__name__}")
    return None
