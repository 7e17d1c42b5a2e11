"""What the tests of profiling call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb.functional as F
import numpy as np
from mgb import Tensor, tensor
from mgb.ir import Spec
from mgb.jit import trace


def floats(*shape: int, seed: int = 0) -> Tensor:
    return tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def body(x: Tensor, w: Tensor) -> Tensor:
    return F.exp(F.matmul(x, w) * 0.01).sum(axis=1) + 1.0


def profiled(calls: int = 3, function: Callable[..., Any] = body, **options: Any) -> Any:
    """`function` after some calls; unless told otherwise, nothing is fused."""
    traced = trace(function, **{"profiling": True, "opt_level": 2, **options})
    for _ in range(calls):
        traced(floats(8, 4), floats(4, 6, seed=1))
    return traced


def specs(*shapes: tuple[int, ...]) -> list[Spec]:
    return [Spec(shape, np.dtype(np.float32)) for shape in shapes]
