"""How functions of numbers that change are wrapped, and when two results are the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mgb.jit import partial_trace, trace, xla_trace

SKIPPING: dict[str, Callable[[Any], Any]] = {
    "default": trace,
    "skips": lambda function: trace(function, run_body=False),
    "symbolic": lambda function: trace(function, symbolic=True),
    "partial": partial_trace,
    "whole": lambda function: xla_trace(function, backend="eager", capture_as_const=True),
}
skipping = pytest.mark.parametrize("wrap", SKIPPING.values(), ids=SKIPPING)

X = np.array([[1.0, -2.0, 3.0], [0.5, 0.25, -4.0]], np.float32)


def same(one: Any, other: Any) -> bool:
    """Are two results the same, in type and value? Tensors up to rounding, numbers exactly."""
    if isinstance(one, tuple | list):
        return type(one) is type(other) and all(itertools.starmap(same, zip(one, other, strict=True)))
    if hasattr(one, "numpy"):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=2e-6, atol=1e-6)
        return True
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, np.generic):
        return type(one) is type(other) and one.tobytes() == other.tobytes()
    return type(one) is type(other) and (one == other or one != one) and str(one) == str(other)
