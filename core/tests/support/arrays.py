"""Arrays and Tensors that many tests are given."""

from __future__ import annotations

import numpy as np
from mgb import Tensor, tensor


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ones(*shape: int) -> Tensor:
    return tensor(np.ones(shape, np.float32))
