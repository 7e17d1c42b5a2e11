"""Ops that only a backend for whole graphs is given: one step, and the values of the ops' own rules.

Operands are small whole numbers, so that every order of additions gives the same float64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from mgb import functional as F
from mgb.autodiff import GradManager
from mgb.ops import scans
from mgb.ops import sort as order
from mgb.ops.images.contract import conv2d, conv2d_grad_input, conv2d_grad_weight, matmul
from mgb.ops.images.pooling import (
    adaptive_avg_pool2d,
    adaptive_avg_pool2d_grad,
    avg_pool2d,
    avg_pool2d_grad,
    max_pool2d,
    max_pool2d_grad,
    max_pool2d_pick,
)
from mgb.ops.index import gather_, index_add, index_get, index_set, scatter_, scatter_add_, slice_set
from mgb.ops.layout import broadcast_to, concat, reshape, slice_, transpose, unslice
from xla_helpers import eagerly, program, whole


def check(function: Callable[..., Any], *arrays: np.ndarray, rtol: float = 0.0) -> None:
    """One step of XLA gives what the eager rules give."""
    compiled = program(function, *arrays)
    assert [step.fused for step in compiled.steps] == [True], str(compiled)
    for _ in range(2):
        for got, want in zip(compiled.run(*arrays), eagerly(function, *arrays), strict=True):
            assert got.dtype == want.dtype and got.flags.writeable and got.flags.c_contiguous
            np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "uint8"])
@pytest.mark.parametrize("left", [(3, 4), (2, 3, 4), (5, 2, 3, 4), (5, 1, 3, 4)], ids=str)
@pytest.mark.parametrize("right", [(4, 6), (2, 4, 6), (1, 4, 6)], ids=str)
def test_matmul(left: tuple[int, ...], right: tuple[int, ...], dtype: str) -> None:
    a, b = whole(left, dtype), whole(right, dtype, 1)
    check(lambda a, b: matmul(a, b), a, b)
    check(lambda a, b: matmul(a, b, transpose_a=True), np.ascontiguousarray(a.swapaxes(-1, -2)), b)
    check(lambda a, b: matmul(a, b, transpose_b=True), a, np.ascontiguousarray(b.swapaxes(-1, -2)))


CONVOLUTIONS = [
    # size, kernel, stride, padding, dilation, groups; inputs and outputs of a group
    ((9, 8), (3, 3), (1, 1), (1, 1), (1, 1), 1, (4, 8)),
    ((9, 8), (3, 2), (2, 3), (0, 1), (1, 1), 2, (2, 4)),
    ((11, 12), (3, 3), (2, 1), (2, 3), (2, 3), 1, (4, 8)),
    ((7, 7), (1, 1), (3, 2), (0, 0), (1, 1), 4, (1, 2)),
    ((6, 5), (3, 3), (2, 2), (4, 5), (1, 2), 2, (2, 4)),
    ((9, 8), (3, 3), (2, 1), (1, 2), (1, 1), 5, (1, 1)),
    ((9, 8), (3, 2), (1, 2), (0, 1), (2, 1), 3, (6, 5)),
    ((8, 9), (2, 3), (3, 2), (1, 0), (1, 3), 2, (4, 6)),
    ((8, 9), (2, 3), (3, 1), (2, 1), (1, 1), 3, (5, 1)),
    ((17, 16), (15, 14), (2, 1), (3, 0), (1, 1), 3, (1, 2)),  # more taps than one loop has
    ((33, 32), (33, 31), (1, 1), (1, 0), (1, 1), 2, (1, 1)),  # more than a sum has
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("dtype", ["float64", "float32", "int32"])
def test_convolution_and_its_gradients(case: Any, dtype: str) -> None:
    size, kernel, stride, padding, dilation, groups, (inputs, outputs) = case
    window = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    x = whole((3, inputs * groups, *size), dtype)
    w = whole((outputs * groups, inputs, *kernel), dtype, 1)
    (y,) = eagerly(lambda x, w: conv2d(x, w, **window), x, w)
    g = whole(y.shape, dtype, 2)
    check(lambda x, w: conv2d(x, w, **window), x, w)
    check(lambda g, w: conv2d_grad_input(g, w, size=size, **window), g, w)
    check(lambda g, x: conv2d_grad_weight(g, x, kernel=kernel, **window), g, x)


SQUARE = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1)}

#: What a grouped convolution and its gradients are: of images, weights and a gradient of the images' shape.
GROUPED: dict[str, Callable[..., Any]] = {
    "conv2d": lambda x, w, g, **window: conv2d(x, w, **window),
    "conv2d_grad_input": lambda x, w, g, **window: conv2d_grad_input(g, w, size=x.shape[2:], **window),
    "conv2d_grad_weight": lambda x, w, g, **window: conv2d_grad_weight(g, x, kernel=(3, 3), **window),
}


@pytest.mark.parametrize("name", GROUPED)
@pytest.mark.parametrize(("groups", "convolutions"), [(24, 0), (3, 3)], ids=["narrow", "wide"])
def test_grouped_convolutions_are_lowered_to_plain_ones(name: str, groups: int, convolutions: int) -> None:
    """It takes the time of all channels with all others for them."""
    x, w, g = (whole(s, np.float32) for s in ((2, 24, 6, 6), (24, 24 // groups, 3, 3), (2, 24, 6, 6)))
    (kernel,) = program(lambda *xs: GROUPED[name](*xs, groups=groups, **SQUARE), x, w, g).kernels
    assert "group_count" not in kernel.source
    assert kernel.source.count(" convolution(") == convolutions


@pytest.mark.parametrize("name", GROUPED)
def test_depthwise_convolutions_are_accurate_to_float32(name: str) -> None:
    draw = np.random.default_rng(0).standard_normal
    arrays = [draw(shape).astype(np.float32) for shape in ((16, 6, 32, 32), (6, 1, 3, 3), (16, 6, 32, 32))]
    wide = [a.astype(np.float64) for a in arrays]
    function = partial(GROUPED[name], groups=6, **SQUARE)
    (got,), (want,) = program(function, *arrays).run(*arrays), eagerly(function, *wide)
    (size,) = eagerly(function, *map(np.abs, wide))  # of what is added up
    assert (np.abs(got - want) / size).max() < 2e-6


POOLINGS = [
    ((8, 9), (2, 2), (2, 2), (0, 0)),
    ((8, 9), (3, 2), (2, 1), (1, 1)),
    ((5, 5), (5, 5), (1, 1), (2, 2)),
]


@pytest.mark.parametrize(("size", "kernel", "stride", "padding"), POOLINGS, ids=str)
def test_max_pooling_and_its_gradients(size: Any, kernel: Any, stride: Any, padding: Any) -> None:
    window = {"kernel": kernel, "stride": stride, "padding": padding}
    x = whole((2, 3, *size), most=2)  # many ties
    x[0, 0, 3, 3] = np.nan
    (y,) = eagerly(lambda x: max_pool2d(x, **window), x)
    g, h = whole(y.shape, seed=1), whole(x.shape, seed=2)
    check(lambda x: max_pool2d(x, **window), x)
    check(lambda g, x, y: max_pool2d_grad(g, x, y, **window), g, x, y)
    check(lambda h, x, y: max_pool2d_pick(h, x, y, **window), h, x, y)


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize(("size", "kernel", "stride", "padding"), POOLINGS, ids=str)
def test_average_pooling_and_its_gradient(
    size: Any, kernel: Any, stride: Any, padding: Any, counts: bool
) -> None:
    window = {"kernel": kernel, "stride": stride, "padding": padding, "count_padding": counts}
    x = whole((2, 3, *size))
    (y,) = eagerly(lambda x: avg_pool2d(x, **window), x)
    check(lambda x: avg_pool2d(x, **window), x, rtol=1e-14)
    check(lambda g: avg_pool2d_grad(g, size=size, **window), whole(y.shape, seed=1), rtol=1e-14)


def test_adaptive_average_pooling_and_its_gradient() -> None:
    check(lambda x: adaptive_avg_pool2d(x, size=(3, 4)), whole((2, 3, 7, 9)), rtol=1e-14)
    check(lambda g: adaptive_avg_pool2d_grad(g, size=(7, 9)), whole((2, 3, 3, 4)), rtol=1e-14)


INDICES = [
    # shape, axes, place, shapes of the indices
    ((6, 5), (0,), 0, [(4,)]),
    ((6, 5, 4), (1,), 1, [(2, 3)]),
    ((6, 5, 4), (0, 2), 0, [(7,), (2, 1)]),
    ((6, 5, 4), (0, 2), 1, [(3,), (3,)]),
    ((6, 5), (0, 1), 0, [(8,), ()]),
]


@pytest.mark.parametrize("kind", ["int32", "int64", "uint8", "int8", "uint64"])
@pytest.mark.parametrize("case", INDICES, ids=str)
def test_index_get_set_and_add(case: Any, kind: str) -> None:
    shape, axes, place, shapes = case
    x = whole(shape)
    indices = []
    for k, s in enumerate(shapes):
        d = shape[axes[k]]
        low = -d if np.dtype(kind).kind == "i" else 0
        indices.append(np.random.default_rng(k).integers(low, d, s).astype(kind))
    (y,) = eagerly(lambda x, *i: index_get(x, *i, axes=axes, place=place), x, *indices)
    value = whole(y.shape, seed=3)
    check(lambda x, *i: index_get(x, *i, axes=axes, place=place), x, *indices)
    check(lambda x, v, *i: index_set(x, v, *i, axes=axes, place=place), x, value, *indices)
    check(lambda x, v, *i: index_add(x, v, *i, axes=axes, place=place), x, value, *indices)
    check(lambda x, *i: index_set(x, 0, *i, axes=axes, place=place), x, *indices)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_scatter_and_scatter_add(axis: int) -> None:
    x, value = whole((4, 5, 6)), whole((3, 4, 2), seed=1)
    index = np.random.default_rng(0).integers(-3, 3, (3, 4, 2)).astype(np.int32)
    check(lambda x, i: gather_(x, i, axis=axis), x, index)
    check(lambda x, v, i: scatter_(x, v, i, axis=axis), x, value, index)
    check(lambda x, v, i: scatter_add_(x, v, i, axis=axis), x, value, index)


def test_last_of_repeated_index_assignments_wins() -> None:
    x, value = np.zeros(10), np.arange(1000.0)
    index = np.random.default_rng(0).integers(0, 10, 1000).astype(np.int32)
    check(lambda x, v, i: index_set(x, v, i, axes=(0,), place=0), x, value, index)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "uint64", "bool"])
@pytest.mark.parametrize("descending", [False, True])
def test_argsort_argtopk_and_argmax(dtype: str, descending: bool) -> None:
    x = whole((5, 40, 3), most=6)
    if "float" in dtype:
        x[1, 3:6] = np.nan
        x[2, 5:9] = -0.0
        x[3, 0], x[3, 1] = np.inf, -np.inf
    x = np.abs(x) if dtype == "uint64" else x
    from mgb.ir.dtypes import as_dtype

    x = x.astype(as_dtype(dtype))
    for axis in range(3):
        check(lambda x, a=axis: order.argsort_(x, axis=a, descending=descending), x)
        check(lambda x, a=axis: order.argtopk(x, k=2, axis=a, descending=descending), x)
        if dtype != "bool":
            check(lambda x, a=axis: order.argmax_(x, axis=(a,)), x)


def test_cumulative_sums() -> None:
    for axis in (0, 1):
        check(lambda x, a=axis: scans.cumsum_(x, axis=a), whole((40, 7)))
        check(lambda x, a=axis: scans.cumsum_(x, axis=a), whole((40, 7), np.int8, most=100))


def test_layout_ops() -> None:
    x = whole((4, 6, 5))
    window = ((1, 4, 2), (5, 0, -2), (4, -1, -1))
    counts = (2, 3, 5)
    check(lambda x: reshape(transpose(x, axes=(2, 0, 1)), shape=(10, 12)), x)
    check(lambda x: slice_(x, window=window), x)
    check(lambda v: unslice(v, shape=(4, 6, 5), window=window), whole(counts))
    check(lambda x, v: slice_set(x, v, window=window), x, whole((3, 5), seed=1))
    check(lambda x: concat(x, x * 2, axis=1), x)
    check(lambda x: broadcast_to(x, shape=(3, 4, 6, 5)) * 2, whole((4, 1, 5)))


def test_random_draws_match_eager_bits() -> None:
    from mgb import random
    from mgb.jit import trace

    def uniform() -> Any:
        return random.uniform(size=(1000,))

    random.seed(5)
    want = [uniform().numpy() for _ in range(3)]
    random.seed(5)
    traced = trace(uniform, backend="xla")
    got = [traced().numpy() for _ in range(3)]
    assert all(np.array_equal(g, w) for g, w in zip(got, want, strict=True))


def test_convolutional_training_step_is_one_program() -> None:
    x, w, v = (
        whole((2, 3, 8, 8), np.float32),
        whole((4, 3, 3, 3), np.float32, 1),
        whole((16, 5), np.float32, 2),
    )
    labels = np.array([1, 3], np.int32)

    def step(x: Any, w: Any, v: Any, labels: Any) -> list[Any]:
        w, v = w * 0.1, v * 0.1
        manager = GradManager().attach([w, v])
        with manager:
            hidden = F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 4)
            loss = F.cross_entropy(F.matmul(F.flatten(hidden, 1), v), labels)
            manager.backward(loss)
        return [loss, w.grad, v.grad]

    check(step, x, w, v, labels, rtol=1e-5)
