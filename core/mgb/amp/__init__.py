"""Mixed precision: products in 16 bits, the rest in 32, and a scale that keeps small gradients."""

from __future__ import annotations

from ..tensor.arguments import explain as _explain
from .autocast import autocast
from .grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast"]


def __dir__() -> list[str]:
    return __all__


_explain(globals(), __all__)
