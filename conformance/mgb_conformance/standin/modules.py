"""The modules that stand for CuPy's; `functions` fills them, and what arrays do is looked up there."""

from __future__ import annotations

from types import ModuleType

MODULE = ModuleType("cupy")
SPECIAL = ModuleType("cupyx.scipy.special")
