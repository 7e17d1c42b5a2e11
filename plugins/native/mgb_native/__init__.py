"""What CPU backends share that compile loops: plans, calls and threads, object code in memory."""

from __future__ import annotations

from .backend import LaunchedBackend, NativeBackend, loop_traits

__all__ = ["LaunchedBackend", "NativeBackend", "loop_traits"]
