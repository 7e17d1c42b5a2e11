"""Programs of one kernel: its work is cut without a rest; arrays that lie in another way have another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb.functional as F
import numpy as np
from mgb import dtypes
from mgb.backends import Kernel
from mgb.ir import Spec
from mgb.passes import lower
from mgb.tensor.tracing import graph_of
from mgb_cpu_llvm.backend import CpuLlvm
from mgb_native.launch import _cut

SHAPE = 6, 10


def kernel_of(function: Callable[..., Any], count: int) -> Kernel:
    backend = CpuLlvm()
    graph = graph_of(function, *[Spec(SHAPE, dtypes.float32)] * count)
    return backend.compile(lower(graph, backend.traits))


def test_cut_covers_every_index_exactly_once() -> None:
    for count in range(40):
        for parts in range(1, 20):
            assert [i for first, last in _cut(count, parts) for i in range(first, last)] == [*range(count)]


def test_kernel_accepts_any_strides() -> None:
    kernel = kernel_of(lambda x, y: x * 2.0 - y, 2)
    base = np.random.default_rng(0).standard_normal((12, 20)).astype(np.float32)
    layouts = [
        base[:6, :10], base[::2, ::2], base[:6, :10].copy(), base[:6, :10].copy("F"),
        base[5::-1, 9::-1], np.broadcast_to(base[0, :10], SHAPE), np.broadcast_to(base[:6, :1], SHAPE),
    ]  # fmt: skip
    for x in layouts:
        for y in layouts:
            out = np.empty(SHAPE, np.float32)
            kernel.run(x, y, out=(out,))
            np.testing.assert_allclose(out, x * 2.0 - y, rtol=1e-6, atol=1e-6)


def test_operand_overwritten_too_early_is_copied_first() -> None:
    kernel = kernel_of(lambda x: [x + 1.0, F.softmax(x, axis=1)], 1)
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    wanted = x + 1.0, np.exp(x) / np.exp(x).sum(1, keepdims=True)
    out = np.empty(SHAPE, np.float32)
    kernel.run(x, out=(x, out))
    for found, want in zip((x, out), wanted, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5)
