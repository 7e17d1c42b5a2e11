"""A small data set for examples and tests, and batches of it."""

from __future__ import annotations

from .digits import batches, load_digits

__all__ = ["batches", "load_digits"]
