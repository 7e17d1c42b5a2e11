"""`mgb.numpy` with each function traced: the suite of the standard's authors then judges what runs compiled.

A function is recorded by one call and answers by the next, which replays the program.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import mgb.numpy as xp
from mgb.jit import trace
from mgb.numpy import data_types


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that records a program at each call, and returns the result of its second run."""

    @wraps(function)
    def replayed(*args: Any, **kwargs: Any) -> Any:
        recorded = trace(function)
        recorded(*args, **kwargs)
        return recorded(*args, **kwargs)

    return replayed


def _namespace(module: ModuleType) -> dict[str, Any]:
    names = {name: getattr(module, name) for name in module.__all__}
    return {
        name: traced(value)
        if isinstance(value, FunctionType) and name not in data_types.__all__
        else SimpleNamespace(**_namespace(value))
        if isinstance(value, ModuleType)
        else value
        for name, value in names.items()
    }


globals().update(_namespace(xp))
