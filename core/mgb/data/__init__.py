"""A small data set for examples and tests, and batches of it."""

from __future__ import annotations

from .digits import batches, load_digits

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}

__all__ = ["batches", "load_digits"]
