"""The MLIR backend of mgb. The toolchain is imported when the first kernel is compiled, not before."""

from __future__ import annotations

from mgb.backends import Backend
from mgb.backends.plugins import hookimpl

from .backend import Mlir

__all__ = ["Mlir", "mgb_backend"]


@hookimpl
def mgb_backend(name: str) -> Backend | None:
    """Return the backend, when it is the one that is asked for."""
    return Mlir() if name == Mlir.name else None
