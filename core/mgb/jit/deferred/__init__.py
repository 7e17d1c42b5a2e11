"""Deferred ops are noted, and computed where a value is wanted: by `auto`, and in traced bodies that run."""

from .auto import AutoSession, auto, everywhere

__all__ = ["AutoSession", "auto", "everywhere"]
