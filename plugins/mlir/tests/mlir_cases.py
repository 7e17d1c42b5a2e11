"""Functions of Tensors with inputs and the truth, for every test that runs kernels."""

from __future__ import annotations

from typing import Any

import mgb.functional as F
import ml_dtypes
import numpy as np
from mgb.ir import Graph
from mlir_helpers import traced

RNG = np.random.default_rng(7)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def integers(dtype: str, *shape: int) -> Any:
    return RNG.integers(0, 120, shape).astype(dtype)


def softmax(x: Any, axis: Any) -> Any:
    e = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def norm(x: Any) -> Any:
    return (x - F.mean(x, 1, keepdims=True)) / F.sqrt(F.mean(x * x, 1, keepdims=True) + 1e-3)


def norm_of(x: Any) -> Any:
    x = x.astype(np.float64)
    return (x - x.mean(1, keepdims=True)) / np.sqrt((x * x).mean(1, keepdims=True) + 1e-3)


def two(x: Any) -> Any:
    return x * 2.0, F.sum(x, 0, keepdims=True)


HALF = RNG.standard_normal((5, 33)).astype(np.float16)
BRAIN = RNG.standard_normal((5, 33)).astype(ml_dtypes.bfloat16)
WIDE, ROW, COLUMN = normal(37, 45), normal(1, 45), normal(37, 1)
CUBE = normal(4, 19, 21)
BYTES = integers("uint8", 6, 70)

# fmt: off
#: function of Tensors, inputs, the truth.
CASES: dict[str, tuple[Any, list[Any], Any]] = {
    "broadcast": (lambda a, b, c: F.maximum(a * b + c, 0.0), [WIDE, ROW, COLUMN],
                  lambda a, b, c: np.maximum(a * b + c, 0)),
    "exp": (F.exp, [WIDE], lambda x: np.exp(x.astype(np.float64))),
    "row softmax": (lambda x: F.softmax(x, 1), [WIDE], lambda x: softmax(x, 1)),
    "column softmax": (lambda x: F.softmax(x, 0), [WIDE], lambda x: softmax(x, 0)),
    "inner softmax": (lambda x: F.softmax(x, 1), [CUBE], lambda x: softmax(x, 1)),
    "norm": (norm, [WIDE], norm_of),
    "full sum": (lambda x: F.sum(x, (0, 1), keepdims=True), [WIDE],
                 lambda x: x.astype(np.float64).sum(keepdims=True)),
    "outer and inner": (lambda x: F.max(x, (0, 2), keepdims=True), [CUBE],
                        lambda x: x.max((0, 2), keepdims=True)),
    "two outputs": (two, [WIDE], lambda x: (x * 2, x.astype(np.float64).sum(0, keepdims=True))),
    "float16": (lambda x: x * x + x, [HALF], lambda x: x.astype(np.float32) ** 2 + x),
    "bfloat16": (lambda x: x * 0.5, [BRAIN], lambda x: x.astype(np.float32) * 0.5),
    "uint8": (lambda x: F.sum(x // 3, 1, keepdims=True), [BYTES],
              lambda x: (x // 3).sum(1, keepdims=True)),
    "compare": (lambda a: F.where(a > 0.25, a, 0.0 - a), [WIDE], lambda a: np.where(a > 0.25, a, -a)),
    "double": (lambda x: F.exp(x) + 1.0, [WIDE.astype(np.float64)], lambda x: np.exp(x) + 1),
}
# fmt: on


def case(name: str) -> tuple[Graph, list[Any], tuple[Any, ...]]:
    function, arrays, truth = CASES[name]
    wanted = truth(*arrays)
    return traced(function, arrays), arrays, wanted if isinstance(wanted, tuple) else (wanted,)


def check(found: tuple[Any, ...], wanted: tuple[Any, ...]) -> None:
    for one, other in zip(found, wanted, strict=True):
        digits = {"float16": 2e-3, "bfloat16": 1e-2, "float64": 1e-13}.get(one.dtype.name, 2e-5)
        np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), rtol=digits, atol=digits)
