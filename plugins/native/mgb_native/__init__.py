"""The shared part of CPU backends that compile loops: plans, calls and threads, object code in memory."""

from __future__ import annotations

from .backend import LaunchedBackend, NativeBackend, loop_traits
from .shaped import Printed, ShapedBackend

__all__ = ["LaunchedBackend", "NativeBackend", "Printed", "ShapedBackend", "loop_traits"]
