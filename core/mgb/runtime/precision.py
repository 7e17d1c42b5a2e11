"""In which of two dtypes ops compute where `amp.autocast` says so, and the code that this does not reach."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

#: What an op's row, a `Typing` or a `Function` says of itself: it gains by few digits, or it needs many.
LOW, HIGH = "low", "high"

#: The names of the dtypes for `LOW` and `HIGH`; None: operands stay what they are.
AUTOCAST: ContextVar[tuple[str, str] | None] = ContextVar("mgb_autocast", default=None)


def current(_module: object = None) -> tuple[str, str] | None:
    """Return the current setting, which decides the ops that a body records, see `holding`."""
    return AUTOCAST.get()


def exactly(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run ``function(*args, **kwargs)``, whose ops compute in the dtypes of their operands.

    So are run the bodies of ops, gradients, and passes over graphs: what they do was decided where the user
    applied an op. Whatever ends the call, what was set before is set again, as in `tensor.run_in`.
    """
    before = AUTOCAST.get()
    if before is None:
        return function(*args, **kwargs)
    try:
        AUTOCAST.set(None)
        result = function(*args, **kwargs)
        AUTOCAST.set(before)
    except BaseException:
        AUTOCAST.set(before)
        raise
    return result
