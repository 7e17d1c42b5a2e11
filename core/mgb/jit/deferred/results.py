"""Give the Tensors of a computed sequence their values, or their old ones where an op failed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from ...tensor import Session, Tensor

#: A Tensor that took a new value, its old value (the number of an op, an external input as -1, -2, ..., or
#: another array), and the index of the op after which it did.
Rebound = tuple[weakref.ref[Tensor], Any, int]


class Failed(Session[Tensor]):
    """The session of a Tensor whose op raised when it was computed."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def read(self, tensor: Tensor) -> NoReturn:
        """Raise the error again."""
        raise self._error


class Lazy(Session[Tensor]):
    """The session of Tensors of an interrupted call. Each is computed on first use.

    Parameters
    ----------
    compute : callable
        Returns the value of a Tensor, or raises the error of its op.
    """

    def __init__(self, compute: Callable[[Tensor], Any]) -> None:
        self._compute = compute

    def read(self, tensor: Tensor) -> Any:
        """Return the value, and store it in the Tensor."""
        tensor._data = self._compute(tensor)
        tensor._session, tensor._index = None, -1
        return tensor._data


def number_inputs(rebound: Sequence[Rebound], fed: Sequence[Any]) -> list[Rebound]:
    """Replace the inputs in `rebound` by their numbers: another reference prevents in-place updates."""
    numbers = {id(array): -1 - n for n, array in enumerate(fed)}
    return [(r, numbers.get(id(b), b) if not isinstance(b, int) else b, at) for r, b, at in rebound]


def find_updates(session: Session[Tensor], rebound: Iterable[Rebound]) -> dict[int, int]:
    """Map ops whose results are new values of Tensors to the inputs that held the old values."""
    found = {}
    for reference, before, _ in rebound:
        tensor = reference()
        if tensor is not None and tensor._session is session and isinstance(before, int) and before < 0:
            found[tensor._index] = -1 - before
    return found


def undo(session: Session[Tensor], rebound: Sequence[Rebound], failed: int, values: dict[int, Any]) -> None:
    """Give Tensors that were rebound after the op `failed` their old values: eager code stops there."""
    for reference, before, at in reversed(rebound):
        tensor = reference()
        if at < failed or tensor is None or tensor._session is not session:
            continue
        array = values.get(before) if isinstance(before, int) else before
        if array is not None:
            tensor._data, tensor._session, tensor._index = array, None, -1
            tensor._spec = tensor._tape = None
        elif isinstance(before, int) and before >= 0:
            tensor._index = before


def set_values(
    session: Session[Tensor],
    tensors: Sequence[Tensor],
    values: dict[int, Any],
    errors: dict[int, BaseException],
) -> None:
    """Give the Tensors that stand for ops of `session` their values, or a session that raises the error."""
    for tensor in tensors:
        if tensor._session is session:
            array = values.get(tensor._index)
            if array is not None:
                tensor._data = array
                tensor._session = None
                tensor._index = -1
            else:
                error = errors.get(tensor._index) or errors[min(errors)]
                tensor._session = Failed(error)
