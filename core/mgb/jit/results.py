"""How the result of a call is nested, and where each of its values comes from."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any

from ..apply import caller
from ..errors import TraceOutputError
from ..sizes import Size, is_sized, plain, settled
from ..tensor import Tensor
from .record import Given, Literal, Ref
from .recording import Recording
from .tree import Structure, flatten

#: How the result of a call is nested, and where each of its leaves comes from.
Ends = tuple[Structure, tuple[Ref | Given | None, ...]]


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
    """The result of a body with plain numbers for lengths that are followed.

    If they may `decide` what it is, those that are leaves stay what they are: later calls have others there.
    """
    rule: Callable[[Size], Any] = Size.fixed if decide else attrgetter("value")
    leaves, structure = flatten(result)
    kept = [leaf if decide and type(leaf) is Size else settled(leaf, rule) for leaf in leaves]
    same = all(map(operator.is_, kept, leaves)) and not _has_sized_keys(structure)
    return result if same else _with_plain_keys(structure).build(iter(kept))


def _has_sized_keys(structure: Structure) -> bool:
    return is_sized(structure.keys) or any(map(_has_sized_keys, structure.children))


def _with_plain_keys(structure: Structure) -> Structure:
    children = tuple(map(_with_plain_keys, structure.children))
    return replace(structure, keys=plain(structure.keys), children=children)


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
