"""The NVRTC backend of mgb. Nothing of CUDA is imported before the first kernel is compiled."""

from __future__ import annotations

from mgb.backends import Backend
from mgb.backends.plugins import hookimpl

from .backend import Nvrtc

__all__ = ["Nvrtc", "mgb_backend"]


@hookimpl
def mgb_backend(name: str) -> Backend | None:
    """Return the backend, when it is the one that is asked for."""
    return Nvrtc() if name == Nvrtc.name else None
