"""The models that the tests of `dump` write."""

from __future__ import annotations

import json
from typing import Any

import mgb
import numpy as np
import onnx
from mgb.jit import trace
from mgb.tensor import Tensor


def numbers(*shape: int) -> Tensor:
    return mgb.tensor(np.random.default_rng(1).standard_normal(shape).astype(np.float32))


A, B = numbers(2, 3), numbers(2, 3) + 1


def traced(function: Any, *args: Tensor, **kwargs: Any) -> Any:
    """`function`, called once, ready to be dumped."""
    made = trace(function, capture_as_const=True)
    made(*args, **kwargs)
    return made


def add(a: Tensor, b: Tensor) -> Tensor:
    return a + b


def metadata(file: Any) -> dict[str, Any]:
    props = {p.key: p.value for p in onnx.load(file).metadata_props}
    return json.loads(props["mgb.dump"])
