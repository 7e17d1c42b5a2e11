"""What the tests of `auto` share."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from mgb import jit
from mgb.ir import Kind, Op, Spec
from mgb.jit.deferred import AutoSession

BACKEND = "eager"


def auto(after: int = 10_000, backend: str = BACKEND) -> jit.auto:
    """A JIT that has seen nothing yet, and shares what it will see with no other test."""
    made = jit.auto(backend=backend, after=after)
    made._session = AutoSession(made._session._settings)
    return made


#: Plain eager code.
off = nullcontext()


def noted(calls: list[str], error: Exception | None = None) -> Op:
    def eager(x: Any) -> Any:
        calls.append("noted")
        if error is not None:
            raise error
        return x

    return Op("noted", Kind.OPAQUE, lambda x: Spec(x.shape, x.dtype), eager)
