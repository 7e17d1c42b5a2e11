"""matmul and convolution, against NumPy and SciPy in float64 and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb.errors import ShapeError
from mgb.ops.declare import op_of
from mgb.ops.images import contract
from mgb.ops.images.contract import conv2d, conv2d_grad_input, conv2d_grad_weight, matmul
from mgb.tensor import Tensor, libraries

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape)


def double(array):
    return Tensor(array, dtype="float64")


def swap(array, wanted):
    return array.swapaxes(-1, -2) if wanted else array


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("batch_a, batch_b", [((), ()), ((3,), ()), ((), (3,)), ((2, 1), (3,)), ((0,), (1,))])
def test_matmul(transpose_a, transpose_b, batch_a, batch_b, check_gradient):
    a, b = swap(normal(*batch_a, 2, 4), transpose_a), swap(normal(*batch_b, 4, 3), transpose_b)

    def product(x, y):
        return matmul(x, y, transpose_a=transpose_a, transpose_b=transpose_b)

    want = np.einsum("...ij,...jk->...ik", swap(a, transpose_a), swap(b, transpose_b))
    np.testing.assert_allclose(product(double(a), double(b)).numpy(), want, rtol=1e-12, atol=1e-14)
    inferred = op_of(matmul).infer(double(a).spec, double(b).spec, transpose_a, transpose_b)
    assert inferred.shape == want.shape
    if want.size:
        check_gradient(product, a, b, order=2)


def test_matmul_promotes_like_add():
    assert matmul(Tensor(np.ones((2, 2), np.int8)), Tensor(np.ones((2, 2), np.int32))).dtype == np.int32
    assert matmul(Tensor(np.ones((2, 2), np.int32)), Tensor(np.ones((2, 2)))).dtype == np.float32
    assert matmul(Tensor(np.ones((2, 2), np.int8)), Tensor(np.ones((2, 2), np.uint8))).dtype == np.int16


def test_half_floats_are_summed_in_float32():
    ones = Tensor(np.ones((1, 4096)), dtype="float16")
    product = matmul(ones, ones, transpose_b=True)
    assert product.dtype == np.float16 and product.item() == 4096


@pytest.mark.parametrize("a, b", [((2, 3), (2, 3)), ((2, 2, 3), (3, 3, 4))])
def test_matmul_error_reports_both_shapes(a, b):
    with pytest.raises(ShapeError, match=rf"matmul.*{str(a)[1:-1]}.*{str(b)[1:-1]}"):
        matmul(Tensor(np.ones(a)), Tensor(np.ones(b)))


def correlate(x, w, stride, padding, dilation, groups):
    """Convolution by SciPy, one image and one pair of channels at a time."""
    from scipy import signal  # slow to import: the collection of all tests would wait for it

    (ph, pw), (dh, dw) = padding, dilation
    x = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    spread = np.zeros((*w.shape[:2], dh * (w.shape[2] - 1) + 1, dw * (w.shape[3] - 1) + 1))
    spread[:, :, ::dh, ::dw] = w
    inner, outer = w.shape[1], len(w) // groups

    def plane(image, o):
        first = o // outer * inner
        return sum(signal.correlate2d(image[first + i], spread[o, i], "valid") for i in range(inner))

    planes = np.array([[plane(image, o) for o in range(len(w))] for image in x])
    return planes[:, :, :: stride[0], :: stride[1]]


WINDOWS = st.fixed_dictionaries(
    {
        "stride": st.tuples(st.integers(1, 3), st.integers(1, 3)),
        "padding": st.tuples(st.integers(0, 4), st.integers(0, 4)),
        "dilation": st.tuples(st.integers(1, 2), st.integers(1, 2)),
        "groups": st.integers(1, 2),
    }
)


def dot(a, b):
    return float(np.sum(a.numpy() * b.numpy()))


@settings(max_examples=60)
@given(
    WINDOWS,
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 3),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(5, 8), st.integers(5, 8)),
    st.sampled_from([1, 4 << 20]),
)
def test_conv2d(window, images, inputs, outputs, kernel, size, column_bytes):
    """The value by SciPy; the gradients as its transposes, by ``<g, conv(x, w)> = <dx, x> = <dw, w>``."""
    groups = window["groups"]
    x, w = normal(images, inputs * groups, *size), normal(outputs * groups, inputs, *kernel)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contract, "COLUMN_BYTES", column_bytes)
        y = conv2d(double(x), double(w), **window)
        np.testing.assert_allclose(y.numpy(), correlate(x, w, **window), rtol=1e-10, atol=1e-12)
        g = double(normal(*y.shape))
        back = conv2d_grad_input(g, double(w), size=size, **window)
        weight = conv2d_grad_weight(g, double(x), kernel=kernel, **window)
    assert back.shape == x.shape and weight.shape == w.shape
    np.testing.assert_allclose(dot(back, double(x)), dot(g, y), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(dot(weight, double(w)), dot(g, y), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("stride, padding, dilation", [((1, 1), (1, 1), (1, 1)), ((2, 1), (0, 2), (1, 2))])
def test_conv2d_gradients(stride, padding, dilation, groups, check_gradient):
    def conv(x, w):
        return conv2d(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)

    check_gradient(conv, normal(1, 2, 4, 5), normal(2, 2 // groups, 2, 2), order=2, step=1e-4)


def test_scatter_and_gather_agree():
    window = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 2}
    w = normal(6, 2, 3, 2)
    g = normal(2, 6, 4, 5)
    scattered = contract._scatter_gradient(g, w, (8, 7), *window.values())
    np.testing.assert_allclose(
        contract._gather_gradient(g, w, (8, 7), *window.values()), scattered, atol=1e-12
    )


def test_conv2d_of_an_empty_batch():
    y = conv2d(Tensor(np.ones((0, 3, 5, 5))), Tensor(np.ones((4, 3, 3, 3))), **PLAIN)
    assert y.shape == (0, 4, 3, 3)


def test_conv2d_of_integers_wraps():
    x, w = Tensor(np.full((1, 1, 2, 2), 100, np.int8)), Tensor(np.ones((1, 1, 2, 2), np.int8))
    y = conv2d(x, w, **PLAIN)
    assert y.dtype == np.int8 and y.item() == np.array(400).astype(np.int8)


PLAIN = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}


@pytest.mark.parametrize(
    "x, w, change, message",
    [
        ((1, 3, 5, 5), (4, 2, 3, 3), {}, "3 channels, 2 for each group"),
        ((1, 4, 5, 5), (3, 2, 3, 3), {"groups": 2}, "do not fit in 2 group"),
        ((1, 3, 2, 2), (4, 3, 3, 3), {}, r"\(3, 3\).*larger than images of \(2, 2\)"),
        ((3, 5, 5), (4, 3, 3, 3), {}, r"needs 4 axes.*\(3, 5, 5\)"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"stride": (0, 1)}, "at least 1"),
    ],
)
def test_conv2d_rejects_mismatched_shapes(x, w, change, message):
    with pytest.raises(ShapeError, match=message):
        conv2d(Tensor(np.ones(x)), Tensor(np.ones(w)), **PLAIN | change)


@pytest.mark.parametrize("wanted", ["", "none"])
def test_matmul_of_empty_arrays(wanted, monkeypatch):
    monkeypatch.setenv("MGB_OP_LIBRARIES", wanted)
    libraries.forget()
    try:
        a, b = np.ones((2, 3, 0), np.float32), np.ones((0, 5), np.float32)
        np.testing.assert_array_equal(matmul(Tensor(a), Tensor(b)).numpy(), a @ b)
    finally:
        libraries.forget()
