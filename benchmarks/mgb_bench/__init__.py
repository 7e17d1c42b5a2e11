"""Benchmarks of mgb beside its peers, in interleaved rounds of one run, with the machine's limit."""

from __future__ import annotations

__version__ = "0.1.0"
