"""Kernels that say how good a schedule is, and what they may cost for each element.

A GPU moves so many bytes, and executes so many instructions, in a cycle of each of its multiprocessors: with
more instructions for a byte than `ISSUE` it cannot move as many as a copy does (NVIDIA H200). Loads take a
while: with less than `UNDER_WAY` asked for at once a multiprocessor waits for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from mgb.ops.bodies.transcendental import exp, tanh
from mgb.ops.elementwise import square
from mgb.ops.primitives import cast, mul, sqrt
from mgb.ops.reduce import reduce_max, reduce_sum

from .programs import log_sum, normalise

#: Instructions for each byte that are as slow as a copy: 128 in a cycle, in which 18.6 bytes are moved.
ISSUE = 128 / 18.6

#: Bytes that a multiprocessor should have asked for at once.
UNDER_WAY = 32 << 10

N = 1 << 26


@dataclass(frozen=True)
class Case:
    """One of them.

    Attributes
    ----------
    function : callable
    shapes : tuple of tuple of int
        Of its arguments.
    dtype : str
        Of all arguments.
    most : float or None
        Instructions for each element; None: what is as slow as a copy.
    reads : float
        How often each byte may be read.
    alone : float
        The same on a GPU whose blocks cannot share a row; 0: as often.
    launches : int
    blocks : int
        That a multiprocessor has at once, at least.
    """

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "float32"
    most: float | None = None
    reads: float = 1
    alone: float = 0
    launches: int = 1
    blocks: int = 2


def wide(x: Any) -> Any:
    """Widen narrow numbers as layers do."""
    return cast(x, dtype=np.dtype(np.float32))


def softmax(x: Any) -> Any:
    e = exp(wide(x) - reduce_max(wide(x), axis=(1,)))
    return cast(e * (1 / reduce_sum(e, axis=(1,))), dtype=x.dtype)


def layer_norm(x: Any, *scale: Any) -> Any:
    n = np.float32(1 / x.shape[1])
    centred = wide(x) - reduce_sum(wide(x), axis=(1,)) * n
    found = centred * (1 / sqrt(reduce_sum(square(centred), axis=(1,)) * n + np.float32(1e-5)))
    for weight, bias in zip(scale[::2], scale[1::2], strict=True):
        found = found * wide(weight) + wide(bias)
    return cast(found, dtype=x.dtype)


def statistics(x: Any) -> list[Any]:
    n = np.float32(1 / (x.size // x.shape[1]))
    mean = reduce_sum(x, axis=(0, 2)) * n
    return [mean, reduce_sum(square(x - mean), axis=(0, 2)) * n]


def gelu(x: Any) -> Any:
    y = wide(x)
    return cast(0.5 * y * (1.0 + tanh(0.7978845608 * (y + 0.044715 * (y * y * y)))), dtype=x.dtype)


def batch_norm(x: Any, scale: Any, shift: Any) -> Any:
    return cast(wide(x) * wide(scale) + wide(shift), dtype=x.dtype)


def adam(p: Any, g: Any, m: Any, v: Any, rate: Any) -> list[Any]:
    m = mul(m, np.float32(0.9)) + g * np.float32(0.1)
    v = mul(v, np.float32(0.999)) + g * g * np.float32(0.001)
    return [p - rate * m / (sqrt(v) + np.float32(1e-8)), m, v]


def total(x: Any) -> Any:
    return reduce_sum(x, axis=(0,))


def rows(length: int, columns: int = N) -> tuple[tuple[int, ...], ...]:
    """Return one array with rows of this length, of so many elements."""
    return ((columns // length, length),)


def scaled(length: int) -> tuple[tuple[int, ...], ...]:
    """Return the same with two arrays that are the same for each row."""
    return (*rows(length), (1, length), (1, length))


IMAGES = (256, 2048, 49)
CHANNELS = (1, 2048, 1)

#: By name. Goals that are stricter than `ISSUE` are those of the best kernels known.
CASES: dict[str, Case] = {
    "fma": Case(lambda a, b, c: a * b + c, ((N,),) * 3),
    "bias": Case(lambda a, b: a + b, ((1 << 14, 1 << 12), (1, 1 << 12))),
    "gelu": Case(gelu, ((N,),)),
    "gelu f16": Case(gelu, ((N,),), "float16"),
    "softmax 1Ki": Case(softmax, rows(1 << 10), most=28),
    "softmax 1Ki f16": Case(softmax, rows(1 << 10), "float16", 26),
    "softmax 16Ki": Case(softmax, rows(1 << 14), most=28),
    "softmax 16Ki f16": Case(softmax, rows(1 << 14), "float16", 26),
    "softmax 32Ki": Case(softmax, rows(1 << 15), most=28, blocks=1),
    "softmax 64Ki": Case(softmax, rows(1 << 16), most=28, alone=2),
    "softmax 256Ki": Case(softmax, rows(1 << 18), most=28, reads=2, launches=2),
    "layer norm 1Ki": Case(layer_norm, rows(1 << 10)),
    "layer norm 1Ki f16": Case(layer_norm, rows(1 << 10), "float16"),
    "layer norm 16Ki": Case(layer_norm, rows(1 << 14)),
    "weight and bias 1Ki": Case(layer_norm, scaled(1 << 10)),
    "weight and bias 8Ki": Case(layer_norm, scaled(1 << 13)),
    "weight and bias 8Ki f16": Case(layer_norm, scaled(1 << 13), "float16"),
    "weight and bias 16Ki": Case(layer_norm, scaled(1 << 14)),
    "weight and bias 32Ki": Case(layer_norm, scaled(1 << 15), blocks=1),
    "layer norm 256Ki": Case(layer_norm, rows(1 << 18), reads=2, launches=2),
    "sum": Case(total, ((N,),), launches=2),
    "column sum": Case(total, ((1 << 14, 1 << 12),), launches=2),
    "batch statistics": Case(statistics, ((256, 64, 56 * 56),), launches=2),
    "log-sum-exp 50304": Case(log_sum, rows(50304, 2048 * 50304), most=20),
    "log-sum-exp 50257": Case(log_sum, rows(50257, 2048 * 50257), most=20),
    "batch norm 7x7": Case(batch_norm, (IMAGES, CHANNELS, CHANNELS)),
    "batch norm 7x7 f16": Case(batch_norm, (IMAGES, CHANNELS, CHANNELS), "float16"),
    "adam": Case(adam, (*((N,),) * 4, ())),
    "long layer norm": Case(lambda x: normalise(x), rows(1 << 16), alone=2),
}
