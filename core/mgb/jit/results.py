"""How the result of a call is nested, and where each of its values comes from."""

from __future__ import annotations

from typing import Any

from ..apply import caller
from ..errors import TraceOutputError
from ..scalars import SCALARS
from ..scalars import plain as plain_number
from ..sizes import Size, fixed, plain
from ..tensor import Tensor
from .record import End, Literal, Live
from .recording import Recording
from .tree import Structure, flatten

#: How the result of a call is nested, and where each of its leaves comes from.
Ends = tuple[Structure, tuple[End, ...]]


def results_of(result: Any, session: Recording) -> Ends:
    """How the result of the first call is nested and where each of its values comes from.

    Raises
    ------
    TraceOutputError
        Nobody has watched the body, and something in it is neither a Tensor of this trace nor None.
    """
    leaves, structure = flatten(result)
    refs = [_ref_of(leaf, session) for leaf in leaves]
    session.returned([leaf if isinstance(leaf, Tensor) else None for leaf in leaves])
    return structure, tuple(refs)


def with_numbers(result: Any, decide: bool) -> Any:
    """The result of a body with plain numbers for lengths that are followed; may they `decide` what it is?

    Other numbers that are followed stand for themselves then, and are plain ones otherwise.
    """
    leaves, structure = flatten(result)
    kinds = set(map(type, leaves))
    if not decide and not kinds.isdisjoint(SCALARS):
        return structure.build(plain_number(plain(leaf)) for leaf in leaves)
    if Size not in kinds:
        return result
    return structure.build(map(fixed if decide else plain, leaves))


def _ref_of(leaf: Any, session: Recording) -> End:
    if leaf is None:
        return None
    if type(leaf) in SCALARS:
        return Live(leaf.path)
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
