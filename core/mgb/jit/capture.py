"""How a call is captured: its body runs in a `Recording`, and what it did and gave becomes a `Record`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..apply import caller
from ..errors import TraceOutputError
from ..scalars import SCALARS, Scalar, Size, holds_followed
from ..sizes import settled, tuple_like
from ..tensor import Tensor, run_in
from .record import End, Ends, Live, Record
from .recording import Recording
from .tree import flatten_once, parts_of, put
from .unrolled import tell_of_loops

#: A body, and what it is given by position.
Body = Sequence[Any]


def run_body(session: Recording, body: Body, kwargs: Mapping[str, Any]) -> Any:
    """What `body` gives in `session`, whose observer watches it."""
    observer = session.observer
    if observer is None:
        return run_in(session, *body, **kwargs)
    return with_numbers(run_in(session, observer.run, *body, **kwargs), decide=session.is_pure)


def close(session: Recording, result: Any) -> Record:
    """The record of a call whose body gave `result`: with its ends, if these need not be made anew."""
    tell_of_loops(session.record)
    if session.is_pure or (session.policy.freezes and not session.reads):
        session.record.ends = _ends_of(session.with_effects(result), session)
    return session.finish()


def note(
    session: Recording,
    body: Body,
    kwargs: Mapping[str, Any],
    inside: Callable[[Any], object] | None = None,
    check: Callable[[Recording], object] | None = None,
) -> Any:
    """Record a call of which nothing runs; every Tensor outside is as before.

    Parameters
    ----------
    session : Recording
    body : sequence
    kwargs : mapping
    inside : callable, optional
        Does more in the session, given the result.
    check : callable, optional
        Refuses what was recorded.

    Returns
    -------
    object
        The result, whose Tensors have no values; None for a body that was watched, as it must keep none.
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
                session.compute_living()
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
        session.check_kept()
    return None


def with_numbers(result: Any, decide: bool) -> Any:
    """The result of a body with plain numbers for those that are followed; other containers stay themselves.

    If they may `decide` what it is, those that are leaves stay what they are: later calls have others there.
    """
    rule: Callable[[Scalar], Any] = Scalar.fixed if decide else operator.attrgetter("value")
    flatten_once(result)  # which refuses what has no end
    tuples: dict[int, Any] = {}  # by ids: what became of them, which is one where they were one

    def settle(value: Any) -> Any:
        if (inside := parts_of(value)) is None:
            return value if decide and type(value) in SCALARS else settled(value, rule)
        if isinstance(value, dict) and holds_followed(value):
            return settled(value, rule)
        if id(value) in tuples:
            return tuples[id(value)]
        parts = list(map(settle, inside))
        if all(map(operator.is_, parts, inside)):
            return value
        if isinstance(value, tuple):
            return tuples.setdefault(id(value), tuple_like(value, parts))
        put(value, parts)
        return value

    return settle(result)


def _ends_of(result: Any, session: Recording) -> Ends:
    """How the result of the call is nested and where each of its values comes from."""
    leaves, structure = flatten_once(result)
    found = {id(leaf): _ref_of(leaf, session) for leaf in leaves}
    refs = [found[id(leaf)] for leaf in leaves]
    kept = [
        isinstance(leaf, Tensor) and not isinstance(ref, Live) for leaf, ref in zip(leaves, refs, strict=True)
    ]
    session.returned([leaf if is_kept else None for leaf, is_kept in zip(leaves, kept, strict=True)])
    return structure, tuple(refs)


def _ref_of(leaf: Any, session: Recording) -> End:
    if leaf is None:
        return None
    if type(leaf) in SCALARS and type(leaf) is not Size:
        return Live(leaf.path, leaf.value)
    if isinstance(leaf, Tensor):
        session.check_kind(leaf)
        return session.moved(leaf) or session.ref(leaf)
    if session.observer is not None and session.policy.skips:
        return session.given(leaf)
    raise TraceOutputError(
        f"return value of traced function must be tensor, get {type(leaf).__name__} at {caller()}: "
        "a value that Python computes would be frozen at its first value; return Tensors"
    )
