"""Applications of ops that run no user code, so that they need no observer."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir import Op
from ...ir.scalars import FOLLOWED, SCALARS
from ...tensor import Parameter, Tensor
from . import pure

#: Types of operands that have no methods of a user's.
_PLAIN = frozenset({Tensor, Parameter, np.ndarray, bool, complex, *FOLLOWED, *SCALARS})


def is_unobserved(op: Op, operands: Sequence[Any]) -> bool:
    """Return whether `op` on `operands` runs the code of libraries alone."""
    return _is_librarys(op) and all(type(operand) in _PLAIN for operand in operands)


@functools.lru_cache(maxsize=1024)
def _is_librarys(op: Op) -> bool:
    parts = (op.infer, op.eager, op.grad, op.body, op.promote, op.taped)
    return all(part is None or _is_trusted(part) for part in parts)


def _is_trusted(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    if code is not None:
        return pure.is_librarys(code)
    return isinstance(function, np.ufunc) or pure.is_library(type(function).__module__)
