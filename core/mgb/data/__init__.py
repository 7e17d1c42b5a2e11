"""A small data set for examples and tests, and batches of any."""

from __future__ import annotations

from ..tensor.arguments import explain as _explain
from .digits import batches, load_digits
from .loader import DataLoader, collate

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}

__all__ = ["DataLoader", "batches", "collate", "load_digits"]


def __dir__() -> list[str]:
    return __all__


_explain(globals(), __all__)
