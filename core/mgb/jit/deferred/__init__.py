"""A JIT for code that nobody decorated: ops are noted, and computed where a value is wanted."""

from .auto import AutoSession, auto, everywhere

__all__ = ["AutoSession", "auto", "everywhere"]
