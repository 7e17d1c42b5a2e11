"""The XLA backend of mgb. JAX is imported when the first kernel is compiled or loaded, not before."""

from __future__ import annotations

from mgb.backends import Backend
from mgb.backends.plugins import hookimpl

from .backend import Xla

__all__ = ["Xla", "mgb_backend"]


@hookimpl
def mgb_backend(name: str) -> Backend | None:
    """Return the backend, when it is the one that is asked for."""
    return Xla() if name == Xla.name else None
