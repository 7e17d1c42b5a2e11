"""Every op of the library against direct sums in float64, and what it must leave to NumPy."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from mgb import Tensor
from mgb.ir import Spec
from mgb.ops.declare import op_of
from mgb.ops.images import contract, pooling
from mgb.tensor import libraries
from mgb.tensor.libraries import Layout
from mgb_onednn import library
from mgb_onednn.native import native
from mgb_onednn.product import product

PROBLEM = library.probe()
pytestmark = pytest.mark.skipif(PROBLEM is not None, reason=str(PROBLEM))

CONVOLUTIONS = {  # images, channels, size, outputs, kernel, stride, padding, dilation, groups
    "three by three": (2, 16, (9, 8), 32, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    "odd channels": (3, 5, (9, 8), 7, (3, 2), (1, 2), (1, 0), (1, 1), 1),
    "strided, a row left over": (2, 16, (10, 9), 16, (3, 3), (2, 2), (0, 1), (1, 1), 1),
    "dilated": (2, 8, (12, 12), 8, (3, 3), (1, 1), (2, 2), (2, 2), 1),
    "one pixel": (2, 16, (6, 6), 24, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    "one pixel, strided": (2, 16, (7, 7), 24, (1, 1), (2, 2), (0, 0), (1, 1), 1),
    "first layer": (4, 3, (16, 16), 16, (5, 5), (1, 1), (2, 2), (1, 1), 1),
    "groups": (2, 16, (7, 7), 32, (3, 3), (1, 1), (1, 1), (1, 1), 4),
    "depthwise": (2, 20, (8, 8), 20, (3, 3), (2, 2), (1, 1), (1, 1), 20),
    "depthwise, doubled": (2, 6, (8, 8), 12, (3, 3), (1, 1), (1, 1), (1, 1), 6),
}


@pytest.fixture(autouse=True)
def only_onednn(monkeypatch):
    """No other library answers, and none remembers an answer."""
    monkeypatch.setenv("MGB_OP_LIBRARIES", "onednn")
    libraries.forget()
    yield
    monkeypatch.undo()
    libraries.forget()


def random(*shape, dtype=np.float32):
    """Normal numbers, the same for each shape."""
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def rule_of(function):
    """The `Rule` behind an op."""
    return op_of(function).eager


def is_taken(function, *arrays, **params):
    """Does the library implement the op for these operands?"""
    layouts = [libraries.Layout(a.shape, a.strides, a.dtype) for a in arrays]
    from mgb.ir import Spec

    output = op_of(function).infer(*(Spec(a.shape, a.dtype) for a in arrays), **params)
    return library.implement(op_of(function).name, layouts, output, params) is not None


def taps(size, kernel, stride, padding, dilation, counts):
    """For each tap of a kernel, the places (row, column) in a padded image that it meets."""
    for i, j in np.ndindex(*kernel):
        rows = i * dilation[0] + stride[0] * np.arange(counts[0])
        columns = j * dilation[1] + stride[1] * np.arange(counts[1])
        yield i, j, rows[:, None], columns[None, :]


def direct(x, w, g, stride, padding, dilation, groups):
    """The convolution, and the gradients of its images and weights, summed tap by tap in float64."""
    x, w, g = (a.astype(np.float64) for a in (x, w, g))
    n, c, *size = x.shape
    (ph, pw), counts, outputs = padding, g.shape[2:], w.shape[0]
    framed = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw))).reshape(
        n, groups, c // groups, *_framed(size, padding)
    )
    dx, y = np.zeros_like(framed), np.zeros((n, groups, outputs // groups, *counts))
    weights = w.reshape(groups, outputs // groups, *w.shape[1:])
    dw, g = np.zeros_like(weights), g.reshape(y.shape)
    for i, j, rows, columns in taps(size, w.shape[2:], stride, padding, dilation, counts):
        y += np.einsum("ngchw,goc->ngohw", framed[..., rows, columns], weights[..., i, j])
        dw[..., i, j] = np.einsum("ngohw,ngchw->goc", g, framed[..., rows, columns])
        np.add.at(dx, (..., rows, columns), np.einsum("ngohw,goc->ngchw", g, weights[..., i, j]))
    dx = dx[..., ph : ph + size[0], pw : pw + size[1]]
    return y.reshape(n, outputs, *counts), dx.reshape(x.shape), dw.reshape(w.shape)


def _framed(size, padding):
    return tuple(s + 2 * p for s, p in zip(size, padding, strict=True))


def near(actual, expected):
    """Equal but for the roundings of float32 sums."""
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("case", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_convolution_and_its_gradients_match_direct_sums(case):
    n, c, size, outputs, kernel, stride, padding, dilation, groups = case
    window = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    x, w = random(n, c, *size), random(outputs, c // groups, *kernel)
    counts = contract.window_counts("conv2d", size, kernel, stride, padding, dilation)
    g = random(n, outputs, *counts)
    y, dx, dw = direct(x, w, g, **window)
    near(rule_of(contract.conv2d)(x, w, **window), y)
    near(rule_of(contract.conv2d_grad_input)(g, w, size=size, **window), dx)
    near(rule_of(contract.conv2d_grad_weight)(g, x, kernel=kernel, **window), dw)


def test_common_float32_convolutions_use_the_library():
    x, w = random(2, 16, 9, 9), random(16, 16, 3, 3)
    window = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    assert is_taken(contract.conv2d, x, w, **window)
    assert is_taken(contract.conv2d_grad_input, x, w, size=(9, 9), **window)
    assert is_taken(contract.conv2d_grad_weight, x, x, kernel=(3, 3), **window)
    assert not is_taken(contract.conv2d, x.astype(np.float64), w.astype(np.float64), **window)


def test_operands_of_any_layout_are_accepted():
    window = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    x, w = random(9, 8, 16, 2).transpose(3, 2, 0, 1), random(16, 16, 3, 3)[::-1]
    g = np.broadcast_to(np.float32(0.5), (2, 16, 9, 8))
    y, dx, dw = direct(x, w, g, **window)
    near(rule_of(contract.conv2d)(x, w, **window), y)
    near(rule_of(contract.conv2d_grad_input)(g, w, size=(9, 8), **window), dx)
    near(rule_of(contract.conv2d_grad_weight)(g, x, kernel=(3, 3), **window), dw)


def rounded_once(actual, expected, step):
    """Sums of float32, rounded to 16 bits."""
    expected = np.asarray(expected)
    assert actual.dtype.itemsize == 2
    error = np.abs(actual.astype(np.float64) - expected)
    assert (error <= 0.51 * step * np.abs(expected) + 2e-5 * np.abs(expected).max()).all()


@pytest.mark.parametrize("dtype, step", [("float16", 2.0**-10), ("bfloat16", 2.0**-7)])
def test_16_bit_floats_are_accumulated_in_float32(dtype, step):
    window = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    x, w, g, a, b = (
        Tensor(random(*shape)).astype(dtype)
        for shape in ((2, 16, 9, 8), (32, 16, 3, 3), (2, 32, 9, 8), (70, 80), (80, 90))
    )
    y, dx, dw = direct(*(t.astype("float32").numpy() for t in (x, w, g)), **window)
    rounded_once(contract.conv2d(x, w, **window).numpy(), y, step)
    rounded_once(contract.conv2d_grad_input(g, w, size=(9, 8), **window).numpy(), dx, step)
    rounded_once(contract.conv2d_grad_weight(g, x, kernel=(3, 3), **window).numpy(), dw, step)
    a64, b64 = (t.astype("float64").numpy() for t in (a, b))
    rounded_once(contract.matmul(a, b).numpy(), a64 @ b64, step)
    rounded_once(contract.matmul(a, a, transpose_b=True).numpy(), a64 @ a64.T, step)


PRODUCTS = {
    "matrices": ((70, 80), (80, 90)),
    "a stack and a matrix": ((6, 30, 40), (40, 50)),
    "two stacks": ((3, 4, 40, 50), (3, 4, 50, 30)),
    "stacks that broadcast": ((3, 1, 40, 50), (4, 50, 60)),
    "a matrix and a stack": ((64, 64), (3, 64, 64)),
    "a row": ((1, 1024), (1024, 512)),
    "small": ((3, 4), (4, 5)),
}


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("shapes", PRODUCTS.values(), ids=PRODUCTS)
def test_matmul_matches_the_float64_product(shapes, transpose_a, transpose_b):
    a, b = (random(*shape) for shape in shapes)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    a = np.ascontiguousarray(a.swapaxes(-1, -2)) if transpose_a else a
    b = np.ascontiguousarray(b.swapaxes(-1, -2)) if transpose_b else b
    near(rule_of(contract.matmul)(a, b, transpose_a=transpose_a, transpose_b=transpose_b), expected)


@pytest.mark.parametrize("turn", [False, True])
@pytest.mark.parametrize(
    "shapes", [((1, 999), (999, 700)), ((700, 999), (999, 1)), ((1, 1 << 19), (1 << 19, 1))]
)
def test_matrix_vector_products_are_left_to_blas(shapes, turn):
    a, b = (random(*shape) for shape in shapes)
    a, b = (np.asfortranarray(a), np.asfortranarray(b)) if turn else (a, b)
    rule = rule_of(contract.matmul)
    near(rule(a, b), a.astype(np.float64) @ b.astype(np.float64))
    layouts = [Layout(x.shape, x.strides, x.dtype) for x in (a, b)]
    assert library.implement("matmul", layouts, Spec((a.shape[0], b.shape[1]), a.dtype), {}) is None


def test_outer_products_and_thin_stacks_use_the_library():
    column, row, many = random(800, 1), random(1, 800), random(6, 64, 800)
    for a, b in ((column, row), (many, random(6, 800, 2))):
        layouts = [Layout(x.shape, x.strides, x.dtype) for x in (a, b)]
        shape = (*a.shape[:-1], b.shape[-1])
        assert library.implement("matmul", layouts, Spec(shape, a.dtype), {}) is not None
        near(rule_of(contract.matmul)(a, b), a.astype(np.float64) @ b.astype(np.float64))


def test_matmul_takes_transposed_attention_heads():
    """As attention makes them: (batch, time, heads, width), seen as (batch, heads, time, width)."""
    q, k = (random(2, 64, 4, 32).transpose(0, 2, 1, 3) for _ in range(2))
    assert is_taken(contract.matmul, q, k, transpose_b=True)
    expected = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2)
    near(rule_of(contract.matmul)(q, k, transpose_b=True), expected)
    near(rule_of(contract.matmul)(q[:, :, ::2], k[:, :, ::-1], transpose_b=True), expected[:, :, ::2, ::-1])


@pytest.mark.parametrize("transpose_a", [False, True])
def test_matmul_preserves_the_layout_of_heads(transpose_a):
    """Then to put heads side by side is a view. Broadcasts and mirrors are as right."""
    p, v = random(2, 4, 64, 64), random(2, 64, 4, 32).transpose(0, 2, 1, 3)
    left = (p.swapaxes(-1, -2) if transpose_a else p).astype(np.float64)
    together = rule_of(contract.matmul)(p, v, transpose_a=transpose_a)
    near(together, left @ v.astype(np.float64))
    assert together.transpose(0, 2, 1, 3).flags.c_contiguous
    for other in (np.broadcast_to(v[:, :1], v.shape), v[:, ::-1], v[:, :, ::-1], v[..., ::-1], v[:1, :1]):
        p_of = p[: len(other), : other.shape[1]]
        near(
            rule_of(contract.matmul)(p_of, other, transpose_a=transpose_a),
            left[: len(other), : other.shape[1]] @ other.astype(np.float64),
        )


POOLINGS = {
    "halved": ((4, 3, 8, 8), (2, 2), (2, 2), (0, 0)),
    "overlapping": ((2, 20, 9, 7), (3, 3), (2, 2), (1, 1)),
    "a column left over": ((2, 3, 8, 9), (2, 2), (2, 2), (0, 0)),
    "long": ((2, 3, 6, 10), (1, 4), (1, 3), (0, 1)),
}


def windows_of(shape, kernel, stride, padding, value):
    """For each output pixel, the places of the window in the image that exist; brute force."""
    counts = contract.window_counts("pooling", shape[2:], kernel, stride, padding)
    for i, j in np.ndindex(*counts):
        top, left = i * stride[0] - padding[0], j * stride[1] - padding[1]
        rows = slice(max(0, top), min(shape[2], top + kernel[0]))
        yield i, j, rows, slice(max(0, left), min(shape[3], left + kernel[1]))


@pytest.mark.parametrize("case", POOLINGS.values(), ids=POOLINGS)
def test_maximum_pooling_and_its_gradient(case):
    shape, kernel, stride, padding = case
    window = {"kernel": kernel, "stride": stride, "padding": padding}
    x = np.round(random(*shape) * 2)  # with ties
    counts = contract.window_counts("pooling", shape[2:], kernel, stride, padding)
    g, y, dx = random(*shape[:2], *counts), np.zeros((*shape[:2], *counts)), np.zeros(shape)
    for i, j, rows, columns in windows_of(shape, kernel, stride, padding, 0):
        seen = x[:, :, rows, columns]
        y[:, :, i, j] = seen.max((2, 3))
        for n, c in np.ndindex(*shape[:2]):
            first = np.unravel_index(seen[n, c].argmax(), seen.shape[2:])
            dx[n, c, rows.start + first[0], columns.start + first[1]] += g[n, c, i, j]
    assert is_taken(pooling.max_pool2d, x, **window)
    result = rule_of(pooling.max_pool2d)(x, **window)
    np.testing.assert_array_equal(result, y)
    near(rule_of(pooling.max_pool2d_grad)(g, x, result, **window), dx)


@pytest.mark.parametrize("count_padding", [False, True])
@pytest.mark.parametrize("case", POOLINGS.values(), ids=POOLINGS)
def test_average_pooling_and_its_gradient(case, count_padding):
    shape, kernel, stride, padding = case
    window = {"kernel": kernel, "stride": stride, "padding": padding, "count_padding": count_padding}
    x = random(*shape)
    counts = contract.window_counts("pooling", shape[2:], kernel, stride, padding)
    g, y, dx = random(*shape[:2], *counts), np.zeros((*shape[:2], *counts)), np.zeros(shape)
    for i, j, rows, columns in windows_of(shape, kernel, stride, padding, 0):
        seen = x[:, :, rows, columns].astype(np.float64)
        size = kernel[0] * kernel[1] if count_padding else seen.shape[2] * seen.shape[3]
        y[:, :, i, j] = seen.sum((2, 3)) / size
        dx[:, :, rows, columns] += g[:, :, i, j, None, None] / size
    near(rule_of(pooling.avg_pool2d)(x, **window), y)
    near(rule_of(pooling.avg_pool2d_grad)(g, size=shape[2:], **window), dx)


@pytest.mark.parametrize("special", [np.nan, -np.inf, np.inf])
def test_max_pooling_of_non_finite_values_matches_numpy(special):
    """The library passes NaN over, and finds -3.4e38 in a window of -inf."""
    window = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0)}
    x = random(2, 3, 8, 8)
    x[:, :, :2, :2] = special
    with np.errstate(invalid="ignore"):
        y = rule_of(pooling.max_pool2d)(x, **window)
        dx = rule_of(pooling.max_pool2d_grad)(np.ones_like(y), x, y, **window)
    np.testing.assert_array_equal(y[:, :, 0, 0], special)
    np.testing.assert_array_equal(dx[:, :, :2, :2], np.broadcast_to([[1, 0], [0, 0]], (2, 3, 2, 2)))


def test_max_pooling_ignores_minus_infinity_next_to_a_number():
    window = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0)}
    x = random(2, 3, 8, 8)
    x[:, :, ::2, ::2] = x[:, :, 1::2, 1::2] = -np.inf
    g = random(2, 3, 4, 4)
    y = rule_of(pooling.max_pool2d)(x, **window)
    np.testing.assert_array_equal(y, x.reshape(2, 3, 4, 2, 4, 2).max((3, 5)))
    dx = rule_of(pooling.max_pool2d_grad)(g, x, y, **window)
    where = x == y.repeat(2, 2).repeat(2, 3)  # no two are the same
    np.testing.assert_array_equal(dx, np.where(where, g.repeat(2, 2).repeat(2, 3), 0))


def test_concurrent_threads_get_their_own_results():
    window = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    w, rule = random(16, 16, 3, 3), rule_of(contract.conv2d)
    images = [random(2, 16, 12, 12) * k for k in range(1, 33)]
    expected = [rule(x, w, **window) for x in images]
    with ThreadPoolExecutor(8) as pool:
        for got, one in zip(pool.map(lambda x: rule(x, w, **window), images), expected, strict=True):
            np.testing.assert_array_equal(got, one)


def test_calls_still_work_after_forget_clears_the_primitives():
    window = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    w, rule = random(8, 8, 3, 3), rule_of(contract.conv2d)
    for size in range(4, 40):
        rule(random(1, 8, size, size), w, **window)
    assert len(rule.found) == 36
    libraries.forget()
    gc.collect()
    near(
        rule(random(1, 8, 9, 9), w, **window),
        direct(random(1, 8, 9, 9), w, np.zeros((1, 8, 9, 9)), **window)[0],
    )


def test_callers_openmp_thread_count_is_preserved():
    with native().threads(3):
        rule_of(contract.matmul)(random(128, 128), random(128, 128))
        assert native().get_threads() == 3


def test_op_libraries_none_uses_numpy(monkeypatch):
    monkeypatch.setenv("MGB_OP_LIBRARIES", "none")
    libraries.forget()
    line = next(line for line in libraries.status() if line.name == "onednn")
    assert "MGB_OP_LIBRARIES=none" in line.problem
    a = random(128, 128)
    np.testing.assert_array_equal(rule_of(contract.matmul)(a, a), np.matmul(a, a))


@pytest.mark.parametrize(
    ("rows", "sums", "columns", "threads"),
    [(64, 64, 65, 1), (128, 128, 128, 1), (128, 128, 256, 2), (256, 256, 256, 8), (512, 512, 512, 8)],
)
def test_small_product_wakes_no_more_threads_than_pay(rows, sums, columns, threads):
    a, b = random(rows, sums), random(sums, columns)
    left, right = (Layout(x.shape, x.strides, x.dtype) for x in (a, b))
    chain, out = product(native(), left, right, 8), np.empty((rows, columns), np.float32)
    assert chain.threads == threads
    chain(a, b, out)
    np.testing.assert_allclose(out, a.astype(float) @ b, rtol=1e-4, atol=1e-4)


def test_product_that_blas_does_on_one_thread_is_left_to_it():
    assert not is_taken(contract.matmul, random(64, 64), random(64, 64))
    assert is_taken(contract.matmul, random(64, 64), random(64, 65))


@pytest.mark.parametrize("places", [(0, 0), (0, 4), (4, 0)])
@pytest.mark.parametrize("turned", [False, True])
def test_repeated_numbers_are_multiplied_by_the_library(places, turned):
    """As a state that begins with zeros: BLAS would wake its threads, which stay in the way for long."""
    a = np.lib.stride_tricks.as_strided(random(256), (64, 128), places)
    b = random(256, 128).T if turned else random(128, 256)
    assert is_taken(contract.matmul, a, b)
    near(rule_of(contract.matmul)(a, b), a.astype(float) @ b)
    assert is_taken(contract.matmul, b.T.copy(), a.T)
