"""The CPU backend of mgb. Numba is imported when the first kernel is compiled, not before."""

from __future__ import annotations

from mgb.backends import Backend
from mgb.backends.plugins import hookimpl

from .backend import CpuNumba

__all__ = ["CpuNumba", "mgb_backend"]


@hookimpl
def mgb_backend(name: str) -> Backend | None:
    """Return the backend, when it is the one that is asked for."""
    return CpuNumba() if name == CpuNumba.name else None
