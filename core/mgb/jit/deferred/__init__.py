"""Defer ops and compute them when a value is needed: `auto`, and bodies of traces that run at each call."""

from .auto import AutoSession, auto, everywhere

__all__ = ["AutoSession", "auto", "everywhere"]
