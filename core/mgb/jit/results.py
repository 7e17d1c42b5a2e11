"""How the result of a call is nested, and where each of its values comes from."""

from __future__ import annotations

from typing import Any

from ..apply import caller
from ..errors import TraceOutputError
from ..tensor import Tensor
from .record import Literal
from .recording import Recording
from .tree import Structure, flatten


def results_of(result: Any, session: Recording) -> tuple[Structure, tuple[int | None, ...]]:
    """How the result of the first call is nested and where each of its values comes from.

    Raises
    ------
    TraceOutputError
        Something in it is neither a Tensor of this trace nor None.
    """
    leaves, structure = flatten(result)
    refs: list[int | None] = []
    for leaf in leaves:
        ref = session.ref(leaf) if isinstance(leaf, Tensor) else leaf
        if ref is not None and (ref is leaf or isinstance(ref, Literal)):
            raise TraceOutputError(
                f"return value of traced function must be tensor, get {type(leaf).__name__} at {caller()}: "
                "a value that Python computes would be frozen at its first value; return Tensors, or use "
                "trace(without_host=False)"
            )
        refs.append(ref)
    session.returned(leaves)
    return structure, tuple(refs)
