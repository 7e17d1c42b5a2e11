"""The CPU backend of mgb that prints the language of LLVM, with explicit vectors."""

from __future__ import annotations

from mgb.backends import Backend
from mgb.backends.plugins import hookimpl

from .backend import CpuLlvm

__all__ = ["CpuLlvm", "mgb_backend"]


@hookimpl
def mgb_backend(name: str) -> Backend | None:
    """Return the backend, when it is the one that is asked for."""
    return CpuLlvm() if name == CpuLlvm.name else None
