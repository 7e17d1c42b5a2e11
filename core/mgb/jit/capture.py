"""How a call is captured: its body runs in a `Recording`, and what it did and gave becomes a `Record`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..apply import caller
from ..errors import TraceOutputError
from ..sizes import Size, fixed, plain
from ..tensor import Tensor, run_in
from .record import Ends, Given, Literal, Record, Ref
from .recording import Recording
from .tree import flatten

#: A body, and what it is given by position.
Body = Sequence[Any]


def run_body(session: Recording, body: Body, kwargs: Mapping[str, Any]) -> Any:
    """What `body` gives in `session`, whose observer watches it."""
    observer = session.observer
    if observer is None:
        return run_in(session, *body, **kwargs)
    return run_in(session, observer.run, *body, **kwargs)


def close(session: Recording, result: Any) -> Record:
    """The record of a call whose body gave `result`: with its ends, if these need not be made anew."""
    if session.is_pure or (session.policy.freezes and not session.reads):
        session.record.ends = _ends_of(result, session)
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
        _note(session, box, body, kwargs, inside, check)
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


def _note(
    session: Recording, box: list[Any], body: Body, kwargs: Mapping[str, Any], inside: Any, check: Any
) -> None:
    try:
        box.append(run_body(session, body, kwargs))
        if inside is not None:
            run_in(session, inside, box[0])
        close(session, box[0])
        if check is not None:
            check(session)
    except Exception:
        session.compute_living()
        raise


def with_numbers(result: Any, decide: bool) -> Any:
    """The result of a body with plain numbers for lengths that are followed; may they `decide` what it is?"""
    leaves, structure = flatten(result)
    if not any(type(leaf) is Size for leaf in leaves):
        return result
    return structure.build(map(fixed if decide else plain, leaves))


def _ends_of(result: Any, session: Recording) -> Ends:
    """How the result of the call is nested and where each of its values comes from."""
    leaves, structure = flatten(result)
    refs = [_ref_of(leaf, session) for leaf in leaves]
    session.returned([leaf if isinstance(leaf, Tensor) else None for leaf in leaves])
    return structure, tuple(refs)


def _ref_of(leaf: Any, session: Recording) -> Ref | Given | None:
    if leaf is None:
        return None
    if isinstance(leaf, Tensor):
        ref = session.ref(leaf)
        if not isinstance(ref, Literal):
            return ref
    elif session.observer is not None:
        return session.given(leaf)
    raise TraceOutputError(
        f"return value of traced function must be tensor, get {type(leaf).__name__} at {caller()}: "
        "a value that Python computes would be frozen at its first value; return Tensors"
    )
