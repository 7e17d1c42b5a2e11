"""oneDNN as a library of ops for mgb. The shared library is loaded when the first op wants it."""

from __future__ import annotations

from .ops import OneDnn

__all__ = ["OneDnn", "library"]

#: What the entry point names.
library = OneDnn()
