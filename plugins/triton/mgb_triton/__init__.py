"""The TRITON backend of mgb. Nothing of Triton is imported before the first kernel is compiled."""

from __future__ import annotations

from mgb.backends import Backend
from mgb.backends.plugins import hookimpl

from .backend import Triton

__all__ = ["Triton", "mgb_backend"]


@hookimpl
def mgb_backend(name: str) -> Backend | None:
    """Return the backend, when it is the one that is asked for."""
    return Triton() if name == Triton.name else None
