"""Automatic differentiation: `GradManager` and, for gradients of one's own, `Function`."""

from __future__ import annotations

from .function import Function
from .grad_manager import GradManager, GradManagerGroup

__all__ = ["Function", "GradManager", "GradManagerGroup"]


def __dir__() -> list[str]:
    return __all__
